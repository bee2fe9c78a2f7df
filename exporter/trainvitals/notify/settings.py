"""The settings of the notifier: a YAML file that names receivers and, for each, where its messages go.

Secrets do not stand in it: it names the files that hold them.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from trainvitals.config import ConfigError, Seconds, read_sections
from trainvitals.notify.channels import CHANNELS
from trainvitals.notify.channels.base import Channel

#: Receivers are named in an address.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


def _zone(name: str) -> str:
    if name:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f'expected a time zone such as "Asia/Shanghai", found {name!r}') from None
    return name


class Receiver(BaseModel):
    """Who gets the messages that come to ``/alertmanager/NAME``: every target gets each."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    #: "en", "zh" or "both".
    language: Literal["en", "zh", "both"] = "en"
    #: The robots; see docs/notify.md for the keys of each kind.
    targets: Annotated[tuple[dict[str, Any], ...], Field(min_length=1)]


class Settings(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    receivers: Annotated[dict[Name, Receiver], Field(min_length=1)]
    #: Address of Grafana, for the links to dashboards.
    grafana_url: str = ""
    #: Time zone of the times in messages; empty: that of this machine.
    timezone: Annotated[str, AfterValidator(_zone)] = ""
    #: The same message again within so long is a retry, and not told; after that, it is a reminder.
    duplicates: Annotated[Seconds, Field(ge=0, le=3600)] = 240.0
    #: A message may wait for its turn for so long; then Alertmanager is asked to come again.
    longest_wait: Annotated[Seconds, Field(ge=0, le=60)] = 5.0
    #: A robot must have answered after so long.
    timeout: Annotated[Seconds, Field(ge=1, le=120)] = 15.0
    #: Where it is remembered what was sent; empty: the service manager's STATE_DIRECTORY, else
    #: $XDG_STATE_HOME/trainvitals, else ~/.local/state/trainvitals.
    state_folder: str = ""


def load(path: str) -> Settings:
    """Read a file.  Raises ConfigError with one line."""
    found = read_sections(path, "receivers:")
    try:
        settings = Settings.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ConfigError(f"{path}: {'.'.join(str(part) for part in first['loc'])}: {first['msg']}") from None
    for name, receiver in settings.receivers.items():
        for number, target in enumerate(receiver.targets):
            make(target, f"{path}: receivers.{name}.targets.{number}")
    return settings


def make(target: dict[str, Any], place: str = "target") -> Channel:
    """Return the channel that a target of the settings describes.  Raises ConfigError."""
    kinds = {kind.kind: kind for kind in CHANNELS}
    wanted = target.get("kind")
    if wanted not in kinds:
        raise ConfigError(f"{place}.kind: expected one of {', '.join(kinds)}, found {wanted!r}")
    kind = kinds[wanted]
    known = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values = {key: value for key, value in target.items() if key != "kind"}
    for key, value in values.items():
        if key not in known:
            near = f"{key}_file" if f"{key}_file" in known else ""
            hint = f"; did you mean {near}, the file that holds it?" if near else ""
            raise ConfigError(f"{place}: expected some of {', '.join(known)}, found {key!r}{hint}")
        if not isinstance(value, str) or not value:
            raise ConfigError(f"{place}.{key}: expected a text")
    for key, field in known.items():
        if field.default is dataclasses.MISSING and key not in values:
            raise ConfigError(f"{place}: {key} is missing")
    return kind(**values)
