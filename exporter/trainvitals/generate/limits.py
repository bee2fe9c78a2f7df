"""Stand-ins for thresholds: a row of the table of alerts is written once, and gets its numbers when it is rendered.

``f"{LIMITS.stall}"`` stands for the number, in base units.  A format says how else it is written: ``:duration`` as
Prometheus does (10m), ``:words`` and ``:zh`` in a text (10 minutes, 10 分钟), ``:percent`` (5%).
There is no arithmetic with a stand-in, which would be done before the number is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from trainvitals.generate.thresholds import Thresholds

#: No expression, template or text has these brackets.
_MARK = re.compile(r"⟨(\w+):(\w*)⟩")


@dataclass(frozen=True)
class Limit:
    """Stands for the threshold of that name."""

    name: str

    def __format__(self, form: str) -> str:
        """Return what stands in a text until :func:`fill` puts the number there."""
        if form not in _FORMS:
            raise ValueError(f"expected one of the formats {', '.join(_FORMS)}, found {form!r}")
        return f"⟨{self.name}:{form}⟩"


class Limits:
    """Has a stand-in for each threshold."""

    def __getattr__(self, name: str) -> Limit:
        """Return the stand-in for a threshold.  Raises AttributeError for a name that is none."""
        if name not in Thresholds.model_fields:
            raise AttributeError(f"no threshold is called {name!r}")
        return Limit(name)


LIMITS = Limits()


def fill(text: str, thresholds: Thresholds) -> str:
    """Return a text with the numbers of some thresholds in it."""
    return _MARK.sub(lambda found: _FORMS[found[2]](getattr(thresholds, found[1])), text)


def number(limit: int | Limit, thresholds: Thresholds) -> int:
    """Return the whole number that a limit stands for."""
    return int(getattr(thresholds, limit.name)) if isinstance(limit, Limit) else limit


def duration(seconds: float | Limit) -> str:
    """Write whole seconds as Prometheus does: 600 is "10m"."""
    if isinstance(seconds, Limit):
        return f"{seconds:duration}"
    whole = int(seconds)
    for unit, size in (("h", 3600), ("m", 60)):
        if whole and whole % size == 0:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def plain(value: float) -> str:
    """Write a number without a point where it has no fraction: PromQL and YAML read both."""
    return str(int(value)) if value == int(value) else repr(value)


def _parts(value: float) -> tuple[int, str]:
    written = duration(value)
    return int(written[:-1]), written[-1]


def _words(value: float) -> str:
    count, unit = _parts(value)
    name = {"s": "second", "m": "minute", "h": "hour"}[unit]
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


def _words_zh(value: float) -> str:
    count, unit = _parts(value)
    name = {"s": "秒", "m": "分钟", "h": "小时"}[unit]
    return f"{count} {name}"


_FORMS: dict[str, Callable[[float], str]] = {
    "": plain,
    "duration": duration,
    "words": _words,
    "zh": _words_zh,
    "percent": lambda value: f"{100 * value:g}%",
}
