"""Rules: which signals are judged, by which thresholds, and how grave one must be to count as an alarm.

They come from a mapping of a settings file, signal to settings; what it does not name keeps its default.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import sys
import typing
from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Any, Literal

from trainvitals.detect import DETECTORS, Detector, build
from trainvitals.detect.settings import About

#: ``never``: what the signal says is shown, and no alarm.
Alarm = Literal["info", "warning", "critical", "never"]
ALARMS: tuple[Alarm, ...] = ("info", "warning", "critical", "never")
#: Keys that each signal has besides those of its detector.
ENABLED, ALARM = "enabled", "alarm"
_OWN: Mapping[str, Any] = {ENABLED: True, ALARM: "warning"}


class RulesError(ValueError):
    """A rule that cannot be; the message is one line that names signal and key, and what was expected."""


@dataclasses.dataclass(frozen=True)
class Rule:
    """What goes for one signal.  ``settings`` is None where its detector has none."""

    settings: Any = None
    enabled: bool = True
    alarm: Alarm = "warning"


@dataclasses.dataclass(frozen=True)
class Known:
    """A signal that rules may name: its detector's settings (None: it has none), and what it is, in a sentence."""

    settings: type[Any] | None
    words: str


class Rules:
    """The rules of all signals; those of ``chosen`` are not the defaults."""

    def __init__(self, chosen: Mapping[str, Rule] | None = None) -> None:
        self.chosen = dict(chosen or {})

    def __getitem__(self, signal: str) -> Rule:
        """Return the rule of a signal."""
        return self.chosen.get(signal, _DEFAULT)

    def build(self) -> list[Detector]:
        """Return fresh detectors for one rank."""
        settings = {signal: rule.settings for signal, rule in self.chosen.items() if rule.settings is not None}
        return build(settings, without=[signal for signal, rule in self.chosen.items() if not rule.enabled])


_DEFAULT = Rule()


def known() -> dict[str, Known]:
    """Return the signals that rules may name, in the order of the detectors."""
    found = {}
    for make in DETECTORS:
        text = (sys.modules[make.__module__].__doc__ or "").split("\n\n")[0]
        found[make().signal] = Known(getattr(make, "settings", None), " ".join(text.split()))
    return found


def parse(document: object) -> Rules:
    """Return the rules that a mapping of signals to settings says.  Raises RulesError."""
    if document is None:
        return Rules()
    if not isinstance(document, Mapping):
        raise RulesError(f"detectors: expected signals with their settings, found {_shown(document)}")
    signals = known()
    chosen = {}
    for signal, values in document.items():
        if signal not in signals:
            raise RulesError(f"detectors: {unknown(signal, signals)}")
        if values is not None and not isinstance(values, Mapping):
            raise RulesError(f"detectors.{signal}: expected settings with their values, found {_shown(values)}")
        chosen[signal] = _rule(signal, signals[signal].settings, values or {})
    return Rules(chosen)


def unknown(name: object, names: Iterable[str]) -> str:
    """Say that nobody knows a name, and which one may have been meant."""
    known_names = list(names)
    near = difflib.get_close_matches(str(name), known_names, 1)
    hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(known_names)}"
    return f"unknown name {_shown(name)}, {hint}"


def fields(settings: type[Any] | None) -> dict[str, tuple[Any, Any, About]]:
    """Return default, type and description of each setting of a detector that a user may set."""
    if settings is None:
        return {}
    types = typing.get_type_hints(settings)
    return {
        found.name: (found.default, types[found.name], found.metadata["about"])
        for found in dataclasses.fields(settings)
        if "about" in found.metadata
    }


def _rule(signal: str, settings: type[Any] | None, values: Mapping[Any, Any]) -> Rule:
    place = f"detectors.{signal}"
    allowed = fields(settings)
    given = {}
    for name, value in values.items():
        if name in _OWN:
            continue
        if name not in allowed:
            raise RulesError(f"{place}: {unknown(name, [*_OWN, *allowed])}")
        _, kind, about = allowed[name]
        given[name] = _value(f"{place}.{name}", value, kind, about)
    enabled = values.get(ENABLED, True)
    if not isinstance(enabled, bool):
        raise RulesError(f"{place}.{ENABLED}: expected true or false, found {_shown(enabled)}")
    alarm = values.get(ALARM, _DEFAULT.alarm)
    if alarm not in ALARMS:
        raise RulesError(f"{place}.{ALARM}: expected one of {', '.join(ALARMS)}, found {_shown(alarm)}")
    try:
        return Rule(None if settings is None else settings(**given), enabled, alarm)
    except ValueError as error:
        raise RulesError(f"{place}: {error}") from None


def _value(place: str, value: object, kind: Any, about: About) -> Any:
    if typing.get_origin(kind) in {UnionType, typing.Union}:
        if value is None:
            return None
        (kind,) = (part for part in typing.get_args(kind) if part is not type(None))
    if typing.get_origin(kind) is tuple:
        parts = typing.get_args(kind)
        if not isinstance(value, (list, tuple)) or len(value) != len(parts):
            raise RulesError(f"{place}: expected a list of {len(parts)} numbers, found {_shown(value)}")
        return tuple(_value(place, one, part, about) for one, part in zip(value, parts, strict=True))
    if typing.get_origin(kind) is Literal:
        if value not in typing.get_args(kind):
            raise RulesError(f"{place}: expected one of {', '.join(typing.get_args(kind))}, found {_shown(value)}")
        return value
    if kind is str or kind is bool:
        if not isinstance(value, kind):
            raise RulesError(f"{place}: expected {'a text' if kind is str else 'true or false'}, found {_shown(value)}")
        return value
    return _number(place, value, kind, about)


def _number(place: str, value: object, kind: Any, about: About) -> int | float:
    words = "a whole number" if kind is int else "a number"
    # YAML 1.1 takes 1e-3 for a text.
    if isinstance(value, str) and kind is float:
        try:
            value = float(value)
        except ValueError:
            value = str(value)
    fits = isinstance(value, int) or (kind is float and isinstance(value, float) and math.isfinite(value))
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not fits:
        raise RulesError(f"{place}: expected {words}, found {_shown(value)}")
    if (about.least is not None and value < about.least) or (about.most is not None and value > about.most):
        least = "" if about.least is None else f" from {about.least:g}"
        most = "" if about.most is None else f" to {about.most:g}"
        raise RulesError(f"{place}: expected {words}{least}{most}{' on' if about.most is None else ''}, found {value}")
    try:
        return int(value) if kind is int else float(value)
    except OverflowError:
        raise RulesError(f"{place}: expected {words}, found one that is too large") from None


def _shown(value: object) -> str:
    return repr(value)[:80]


def as_yaml() -> str:
    """Return all defaults as a settings file, with units and reasons as comments."""
    lines = [
        "# What the detectors go by: all settings, with their defaults.  Delete what you do not change.",
        "# trainvitals backtest THIS_FILE PATH... says what it would have said on old runs;",
        "# trainvitals exporter --config.file THIS_FILE goes by it.",
        "#",
        f"# {ENABLED}: whether the signal is judged at all.",
        f"# {ALARM}: the least severity that a backtest counts as an alarm: {', '.join(ALARMS)}.",
        "detectors:",
    ]
    for signal, row in known().items():
        lines += ["", *_comment(row.words, "  "), f"  {signal}:"]
        lines += [f"    {name}: {_yaml(value)}" for name, value in _OWN.items()]
        for name, (default, _, about) in fields(row.settings).items():
            lines += _comment(f"{about.unit}: {about.why}" if about.unit else about.why, "    ")
            lines.append(f"    {name}: {_yaml(default)}")
    return "\n".join(lines) + "\n"


def _comment(text: str, indent: str) -> list[str]:
    import textwrap  # noqa: PLC0415  Only who prints the defaults needs it.

    return textwrap.wrap(text, 100, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")


def _yaml(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, tuple):
        return f"[{', '.join(_yaml(one) for one in value)}]"
    if isinstance(value, float):
        text = f"{value:.10g}"
        if float(text) != value:
            text = repr(value)
        # YAML 1.1 wants a point and a sign in an exponent.
        return text if "e" not in text else f"{value:.1e}"
    return str(value)
