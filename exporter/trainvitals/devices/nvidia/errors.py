"""What NVML's return codes mean for a reading.  The codes are those of nvml.h."""

from __future__ import annotations

from enum import Enum


class Effect(Enum):
    """What a return code of NVML costs."""

    ABSENT = "this device has no such value: no series, no complaint"
    FIELD = "this value is missing this time, and that is counted"
    DEVICE = "the device does not answer"
    DRIVER = "the driver does not answer: connect again later"
    PROCESS = "the driver was replaced under the loaded library: only a new process can help"


NOT_SUPPORTED = 3
FUNCTION_NOT_FOUND = 13
DEPRECATED = 26
#: Ours: an answer in a form that nvml.h did not have when this was written.
NOT_UNDERSTOOD = -1
#: Codes that a device keeps answering with: it need not be asked every time.
LASTING = frozenset({NOT_SUPPORTED, FUNCTION_NOT_FOUND, DEPRECATED})

#: NVML's return codes: the word for the label ``reason``, and what follows.  Others are ``code_<n>``, a missing value.
ERRORS: dict[int, tuple[str, Effect]] = {
    NOT_UNDERSTOOD: ("not_understood", Effect.FIELD),
    1: ("uninitialized", Effect.DRIVER),
    2: ("invalid_argument", Effect.FIELD),
    NOT_SUPPORTED: ("not_supported", Effect.ABSENT),
    4: ("no_permission", Effect.FIELD),
    6: ("not_found", Effect.ABSENT),
    9: ("driver_not_loaded", Effect.DRIVER),
    10: ("timeout", Effect.FIELD),
    FUNCTION_NOT_FOUND: ("function_not_found", Effect.ABSENT),
    14: ("corrupted_inforom", Effect.FIELD),
    15: ("gpu_is_lost", Effect.DEVICE),
    16: ("reset_required", Effect.DEVICE),
    17: ("blocked_by_operating_system", Effect.DEVICE),
    18: ("lib_rm_version_mismatch", Effect.PROCESS),
    20: ("out_of_memory", Effect.FIELD),
    21: ("no_data", Effect.ABSENT),
    25: ("argument_version_mismatch", Effect.ABSENT),
    DEPRECATED: ("deprecated", Effect.ABSENT),
    27: ("not_ready", Effect.ABSENT),
    28: ("gpu_not_found", Effect.DEVICE),
    999: ("unknown", Effect.FIELD),
}


def meaning(code: int) -> tuple[str, Effect]:
    """Return the reason and the effect of a return code."""
    return ERRORS.get(code, (f"code_{code}", Effect.FIELD))


def minor(code: int, failed: dict[str, int]) -> bool:
    """Whether an error costs one value at most; one that costs a value is counted in ``failed``."""
    reason, effect = meaning(code)
    if effect is Effect.FIELD:
        failed[reason] = failed.get(reason, 0) + 1
    return effect in {Effect.ABSENT, Effect.FIELD}


#: Codes after which a device is down: the word for the label ``reason`` of ``device_down_info``.
_DOWN = {15: "lost", 16: "reset_required", 17: "blocked", 28: "lost"}


def down_reason(code: int) -> str:
    """Return why a device with this return code is down."""
    return _DOWN.get(code, "unknown")
