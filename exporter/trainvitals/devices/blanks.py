"""Numbers that drivers answer with when they have none."""

from __future__ import annotations

#: All bits set, in 32 and 64 bits with and without sign: NVML_VALUE_NOT_AVAILABLE (nvml.h), and all of DCGM's 64-bit
#: blanks, which are the same number once they are a float.
ALL_ONES = frozenset({float(2**32 - 1), float(2**64 - 1), float(2**63)})
#: DCGM's blanks of 32 bits and of floating point, each with "not found", "not supported", "not permitted"
#: (dcgm_fields.h).
DCGM = frozenset(float(blank + kind) for blank in (0x7FFFFFF0, 2**47) for kind in range(4))
BLANKS = ALL_ONES | DCGM


def scaled(value: float, unit: float) -> float:
    """Return ``value`` times ``unit``, but a blank as it is: so it is still known as one, and rejected."""
    if value in BLANKS:
        return value
    # A quotient is rounded once, a product with 0.001 twice.
    return value * unit if unit >= 1 else value / round(1 / unit)
