"""The numbers of nvml.h that the code writes out are those of the binding."""

from __future__ import annotations

import pynvml
import pytest

from trainvitals.devices.nvidia import clocks, ecc, power, recovery, thermal
from trainvitals.devices.nvidia.signals import SIGNALS

#: Each numbered field that is read with the others of its tier, and its name in nvml.h.
FIELDS = {
    3: "ECC_SBE_VOL_TOTAL",
    4: "ECC_DBE_VOL_TOTAL",
    5: "ECC_SBE_AGG_TOTAL",
    6: "ECC_DBE_AGG_TOTAL",
    29: "RETIRED_SBE",
    30: "RETIRED_DBE",
    31: "RETIRED_PENDING",
    74: "CLOCKS_EVENT_REASON_SW_POWER_CAP",
    76: "CLOCKS_EVENT_REASON_SYNC_BOOST",
    82: "MEMORY_TEMP",
    83: "TOTAL_ENERGY_CONSUMPTION",
    91: "NVLINK_LINK_COUNT",
    94: "PCIE_REPLAY_COUNTER",
    95: "PCIE_REPLAY_ROLLOVER_COUNTER",
    142: "REMAPPED_COR",
    143: "REMAPPED_UNC",
    144: "REMAPPED_PENDING",
    145: "REMAPPED_FAILURE",
    169: "PCIE_L0_TO_RECOVERY_COUNTER",
    173: "PCIE_COUNT_CORRECTABLE_ERRORS",
    174: "PCIE_COUNT_NAKS_RECEIVED",
    175: "PCIE_COUNT_RECEIVER_ERROR",
    176: "PCIE_COUNT_BAD_TLP",
    177: "PCIE_COUNT_NAKS_SENT",
    178: "PCIE_COUNT_BAD_DLLP",
    179: "PCIE_COUNT_NON_FATAL_ERROR",
    180: "PCIE_COUNT_FATAL_ERROR",
    181: "PCIE_COUNT_UNSUPPORTED_REQ",
    182: "PCIE_COUNT_LCRC_ERROR",
    183: "PCIE_COUNT_LANE_ERROR",
    185: "POWER_AVERAGE",
    186: "POWER_INSTANT",
    193: "TEMPERATURE_SHUTDOWN_TLIMIT",
    194: "TEMPERATURE_SLOWDOWN_TLIMIT",
    195: "TEMPERATURE_MEM_MAX_TLIMIT",
    196: "TEMPERATURE_GPU_MAX_TLIMIT",
    197: "PCIE_COUNT_TX_BYTES",
    198: "PCIE_COUNT_RX_BYTES",
    230: "GET_GPU_RECOVERY_ACTION",
    269: "CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN",
    270: "CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN",
    271: "CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN",
}


def test_every_numbered_field_is_what_it_is_taken_for():
    """A field with the number of another is a wrong value that nobody notices."""
    assert {number for signal in SIGNALS for number in signal.fields} <= set(FIELDS)
    assert {number: getattr(pynvml, f"NVML_FI_DEV_{name}") for number, name in FIELDS.items()} == {
        number: number for number in FIELDS
    }


@pytest.mark.parametrize(
    ("ours", "prefix", "names"),
    [
        (
            list(clocks._REASONS),
            "nvmlClocksEventReason",
            (
                "GpuIdle ApplicationsClocksSetting SwPowerCap HwSlowdown SyncBoost SwThermalSlowdown "
                "HwThermalSlowdown HwPowerBrakeSlowdown DisplayClockSetting"
            ),
        ),
        ([number for _, number in clocks._DOMAINS], "NVML_CLOCK_", "SM MEM"),
        (
            [clocks._POLICY_POWER, clocks._POLICY_THERMAL, clocks._POLICY_SYNC_BOOST],
            "NVML_PERF_POLICY_",
            "POWER THERMAL SYNC_BOOST",
        ),
        (
            [threshold for *_, threshold in thermal._LIMITS],
            "NVML_TEMPERATURE_THRESHOLD_",
            "SHUTDOWN SLOWDOWN MEM_MAX GPU_MAX",
        ),
        (
            [error for *_, error, _ in ecc._ERRORS],
            "NVML_MEMORY_ERROR_TYPE_",
            "CORRECTED UNCORRECTED CORRECTED UNCORRECTED",
        ),
        (
            [counter for *_, counter in ecc._ERRORS],
            "NVML_",
            "VOLATILE_ECC VOLATILE_ECC AGGREGATE_ECC AGGREGATE_ECC",
        ),
        (
            list(recovery._ACTIONS),
            "NVML_GPU_RECOVERY_ACTION_",
            "GPU_RESET NODE_REBOOT DRAIN_P2P DRAIN_AND_RESET RECOVER_IMEX_DOMAIN BUS_RESET SYSTEM_REBOOT",
        ),
        ([power._AVERAGE, power._INSTANT], "NVML_FI_DEV_", "POWER_AVERAGE POWER_INSTANT"),
    ],
    ids=["reasons", "clocks", "policies", "thresholds", "errors", "counters", "actions", "power"],
)
def test_numbers_are_those_of_the_binding(ours, prefix, names):
    """In the order in which the tables name them."""
    assert ours == [getattr(pynvml, prefix + name) for name in names.split()]
