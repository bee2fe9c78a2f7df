"""What a row of the catalogue holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PREFIX = "trainvitals_"

Type = Literal["gauge", "counter", "histogram"]


@dataclass(frozen=True, kw_only=True)
class Family:
    """One metric family.  ``source`` names the collector that shows it."""

    name: str
    type: Type
    labels: tuple[str, ...]
    help: str
    source: str


def rows(source: str, labels: tuple[str, ...], *entries: tuple[str, Type, str] | tuple[str, ...]) -> list[Family]:
    """Return families that share a source and their first labels; each entry beyond the third is one label more."""
    return [
        Family(name=PREFIX + name, type=type_, labels=(*labels, *extra), help=text, source=source)  # type: ignore[arg-type]
        for name, type_, text, *extra in entries
    ]
