"""Points in time as people write them, and as they are shown."""

from __future__ import annotations

import re
import time
from datetime import datetime

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


def parse(text: str, now: float) -> tuple[int | None, float | None]:
    """Return a step, or a time: "1200"; "2h" (ago); "2026-12-01", "2026-12-01T08:30" in the zone of this machine.

    Raises ValueError.
    """
    if text.isascii() and text.isdigit():
        return int(text[:19]), None
    if found := _AGO.fullmatch(text):
        return None, now - float(found[1]) * _UNITS[found[2]]
    try:
        return None, datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        expected = "a step such as 1200, an age such as 2h, or a time such as 2026-12-01T08:30"
        raise ValueError(f"expected {expected}, found {text[:40]!r}") from None


def shown(moment: float, *, with_day: bool = True) -> str:
    """Return a time in the zone of this machine."""
    try:
        return time.strftime("%m-%d %H:%M:%S" if with_day else "%H:%M:%S", time.localtime(moment))
    except (OverflowError, ValueError, OSError):
        return "?"


def is_one_day(first: float, last: float) -> bool:
    """Whether two times are of one day here."""
    return shown(first)[:5] == shown(last)[:5]


def lasting(seconds: float | None) -> str:
    """Return a time that something takes, in at most two units: "3 h 20 min"."""
    if seconds is None:
        return ""
    if seconds < 60.0:
        return f"{seconds:.3g} s"
    for unit, size, smaller, part in (("d", 86400.0, "h", 3600.0), ("h", 3600.0, "min", 60.0), ("min", 60.0, "s", 1.0)):
        if seconds >= size:
            rest = int(seconds % size / part)
            return f"{int(seconds / size)} {unit}" + (f" {rest} {smaller}" if rest else "")
    return ""
