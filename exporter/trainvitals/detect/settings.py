"""What a user may set of a detector: the fields of its settings, each with its unit and the reason for its default.

A detector that has such settings names their class in its attribute ``settings`` and takes one as its first argument.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class About:
    """What is known of a setting: its ``unit`` (empty: a plain number), ``why`` it is so, and its range."""

    unit: str
    why: str
    least: float | None
    most: float | None


def setting(default: Any, unit: str, why: str, *, least: float | None = 0.0, most: float | None = 1e6) -> Any:
    """Return a field of a dataclass that a user may set; numbers have to be from ``least`` to ``most``.

    The default is larger than any window that fits into memory.
    """
    return field(default=default, metadata={"about": About(unit, why, least, most)})
