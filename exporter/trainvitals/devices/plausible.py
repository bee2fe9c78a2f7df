"""What of the texts and numbers that tools print is a value: the marks of "cannot read", and bounds.

Every vendor marks in its own way what it cannot read, and a dead card may still answer: one was seen that told 0 C,
65535 W and 100 %.  So a value goes into a sample through :class:`Values` alone, in the unit of its family.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from trainvitals.devices.blanks import ALL_ONES
from trainvitals.telemetry import DeviceSample

#: Texts that stand where a value cannot be told, in lower case; an empty one is among them.
MARKS = frozenset(
    {"", "-", "--", "n/a", "na", "nan", "none", "null", "unknown", "unsupported", "not supported", "not available"}
)
#: Numbers that stand there; all bits set, in 16, 32 and 64 bits.
_BLANKS = ALL_ONES | {float(2**16 - 1)}
#: Families that may well have the value 65535: sizes, of which the unit is larger than 1.
_SIZES = ("_bytes",)
#: Lowest and highest value by the end of a family's name.  An accelerator of a running machine is warmer than 0 C (the
#: answer of a dead one); none draws 3 kW or runs at 20 GHz yet.  The exporter checks again, less strictly.
BOUNDS: Mapping[str, tuple[float, float]] = {
    "temperature_celsius": (1.0, 150.0),
    "_watts": (0.0, 3000.0),
    "_hertz": (0.0, 2e10),
    "_ratio": (0.0, 1.0),
    "total_bytes": (1.0, 2.0**50),
    "_bytes": (0.0, 2.0**50),
    "_total": (0.0, 2.0**63),
    "retired_pages": (0.0, 1e6),
}
#: Used memory may be so much more than there is: tools round each for itself.
_ROUNDING = 1.02
#: A number with a sign, a fraction and an exponent, and perhaps a unit behind it.
_NUMBER = re.compile(
    r"([-+]?[0-9]{1,20}(?:\.[0-9]{1,20})?(?:e[-+]?[0-9]{1,3})?)\s*(?:[a-z%℃°µ][^\d]{0,15})?", re.IGNORECASE
)

NOT_UNDERSTOOD, IMPLAUSIBLE = "not_understood", "implausible"


def is_mark(text: str) -> bool:
    """Whether a text says that there is no value; brackets around it do not count: ``[N/A]``."""
    return text.strip().strip("[]").lower() in MARKS


def number(text: str) -> float | None:
    """Return the number in a text such as ``34``, ``34.0c``, ``34℃`` or ``75 %``; None where it is none.

    Who calls it knows the unit: what stands behind the number is not read.
    """
    match = _NUMBER.fullmatch(text.strip()[:64])
    if match is None:
        return None
    value = float(match[1])
    return value if math.isfinite(value) else None


def is_plausible(family: str, value: float) -> bool:
    """Whether a device can have this value, which is in the unit of the family."""
    if not math.isfinite(value):
        return False
    for end, (lowest, highest) in BOUNDS.items():
        if family.endswith(end):
            return lowest <= value <= highest
    return value >= 0


class Values:
    """Puts what a tool printed into a sample, or counts why not.

    A mark of "cannot read" is absent and no failure; what is no number is counted as NOT_UNDERSTOOD, one that no device
    can have as IMPLAUSIBLE.
    """

    def __init__(self, sample: DeviceSample) -> None:
        self.sample = sample
        #: Families that had an implausible value.
        self.refused: set[str] = set()

    def put(self, family: str, text: str | None, *labels: str, unit: float = 1.0) -> bool:
        """Set a value: the number in ``text`` times ``unit``; whether it is one.  None is a key that is not there."""
        value = self.read(family, text, unit)
        if value is None:
            return False
        self.sample.set(family, value, *labels)
        return True

    def read(self, family: str, text: str | None, unit: float = 1.0) -> float | None:
        """Return the value that :meth:`put` would set; None, and count why, when there is none."""
        if text is None or is_mark(text):
            return None
        value = number(text)
        if value is None:
            self.fail(NOT_UNDERSTOOD)
            return None
        if value == -1:
            return None
        if value in _BLANKS and not family.endswith(_SIZES):
            # What a sensor has no value for is left out; a dead card answers so, too.
            if family.endswith(("_celsius", "_watts")):
                self.refuse(family)
            return None
        # A quotient is rounded once, a product with 0.01 twice.
        value = value * unit if unit >= 1 else value / round(1 / unit)
        if not is_plausible(family, value):
            self.refuse(family)
            return None
        return value

    def set(self, family: str, value: float, *labels: str) -> bool:
        """Set a number in the unit of its family; whether a device can have it."""
        if not is_plausible(family, value):
            self.refuse(family)
            return False
        self.sample.set(family, value, *labels)
        return True

    def memory(self, used: str | None, total: str | None, unit: float) -> bool:
        """Set used and total memory, each in ``unit`` bytes; neither when more is used than there is."""
        if not self.put("memory_total_bytes", total, unit=unit):
            return False
        if self.put("memory_used_bytes", used, unit=unit):
            values = self.sample.values
            if values["memory_used_bytes",] > _ROUNDING * values["memory_total_bytes",]:
                del values["memory_used_bytes",], values["memory_total_bytes",]
                self.refuse("memory_used_bytes")
                return False
        return True

    def refuse(self, family: str) -> None:
        """Count a value that no device can have."""
        self.refused.add(family)
        self.fail(IMPLAUSIBLE)

    def fail(self, reason: str) -> None:
        """Count a failure."""
        self.sample.failed[reason] = self.sample.failed.get(reason, 0) + 1

    @property
    def is_dead(self) -> bool:
        """Whether the device answers without being there: neither its temperature nor its power can be.

        Then nothing that it tells is to be believed.
        """
        return {"temperature_celsius", "power_watts"} <= self.refused
