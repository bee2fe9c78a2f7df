"""What Alertmanager's webhook sends: version 4 of its body, checked.

Source: the section on ``webhook_config`` of Alertmanager's documentation on configuration.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainvitals.generate.messages import NO_PLACE

#: A body has so many bytes at most, and so many alerts.
LARGEST, MOST = 1 << 20, 1000

Status = Literal["firing", "resolved"]
_Texts = Annotated[dict[str, str], Field(max_length=256)]


class GroupError(ValueError):
    """A body that makes no sense; the message is one line."""


class Alert(BaseModel):
    """One alert of a group."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    status: Status
    labels: _Texts
    annotations: _Texts = {}
    starts: datetime = Field(alias="startsAt")
    ends: datetime | None = Field(alias="endsAt", default=None)
    fingerprint: str = ""

    @property
    def name(self) -> str:
        """Its name, as in the rule."""
        return self.labels.get("alertname", "")

    @property
    def severity(self) -> str:
        """How grave it is; empty where the rule does not say."""
        return self.labels.get("severity", "")

    @property
    def place(self) -> str:
        """Where it is: the labels that say so."""
        return " ".join(f"{name}={value}" for name, value in sorted(self.labels.items()) if name not in NO_PLACE)

    @property
    def mark(self) -> str:
        """What is the same as long as it is the same episode in the same state."""
        return f"{self.fingerprint or sorted(self.labels.items())} {self.status} {self.starts.timestamp()}"


class Group(BaseModel):
    """The alerts of one message."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: Literal["4"]
    key: str = Field(alias="groupKey", max_length=16384)
    status: Status
    receiver: str = ""
    url: str = Field(alias="externalURL", default="")
    truncated: int = Field(alias="truncatedAlerts", default=0, ge=0)
    alerts: Annotated[tuple[Alert, ...], Field(min_length=1, max_length=MOST)]

    @property
    def mark(self) -> str:
        """What is the same for every sending of the same state of the same alerts."""
        text = "\n".join([self.key, *sorted(alert.mark for alert in self.alerts)])
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def parse(body: bytes) -> Group:
    """Return the group that a body is.  Raises GroupError."""
    try:
        return Group.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise GroupError(f"no message of Alertmanager's webhook: {place or 'body'}: {first['msg']}") from None
