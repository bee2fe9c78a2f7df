"""Which text of the tools is which value, and in which unit.

npu-smi counts memory in MiB (it calls them MB), clocks in MHz, shares in per cent.  Words for health are those of DCMI:
Warning is minor, Alarm major, Critical fatal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from trainvitals.devices.ascend.blocks import Block
from trainvitals.devices.plausible import NOT_UNDERSTOOD, Values, is_mark, number

_MIB, _MHZ, _PERCENT = 2.0**20, 1e6, 0.01
_STATES = ("ok", "warning", "critical")
_HEALTH = {"ok": "ok", "healthy": "ok", "warning": "warning", "alarm": "critical", "critical": "critical"}
_CODE = re.compile(r"(?:0x)?([0-9A-Fa-f]{8})")
_MOST_CODES = 32
#: Which key of ``-t ecc`` is which counter: family, severity, words of the key, behind "HBM" or "DDR".
_ECC = (
    ("ecc_errors_total", "corrected", "Single Bit Error Count"),
    ("ecc_errors_total", "uncorrected", "Double Bit Error Count"),
    ("ecc_lifetime_errors_total", "corrected", "Single Bit Aggregate Total Err Cnt"),
    ("ecc_lifetime_errors_total", "uncorrected", "Double Bit Aggregate Total Err Cnt"),
    ("retired_pages", "corrected", "Single Bit Isolated Pages Count"),
    ("retired_pages", "uncorrected", "Double Bit Isolated Pages Count"),
)
#: The link to the network of the cluster: a port of its own on each chip.
ROCE = "roce"
#: The links to the other chips of the machine, of which npu-smi tells one health.
HCCS = "hccs"
#: Keys of ``hccn_tool -stat -g``: those of npu-exporter's documentation, and the bytes.
_BYTES = {"mac_tx_total_oct_num": "link_transmit_bytes_total", "mac_rx_total_oct_num": "link_receive_bytes_total"}
_ERRORS = {
    "mac_rx_fcs_err_pkt_num": "crc",
    "mac_rx_bad_pkt_num": "receive",
    "mac_tx_bad_pkt_num": "transmit",
    "roce_rx_err_pkt_num": "roce_receive",
    "roce_tx_err_pkt_num": "roce_transmit",
    "roce_new_pkt_rty_num": "replay",
    "roce_out_of_order_num": "out_of_order",
    "roce_unexpected_ack_num": "unexpected_ack",
    "roce_verification_err_num": "verification",
    "roce_qp_status_err_num": "queue_pair",
}
#: How the keys of each answer begin: one without any of them is an error text, or of another program.
KEYS: Mapping[str, tuple[str, ...]] = {
    "board": ("Chip Name", "Board ID", "VDie ID"),
    "common": ("Aicore",),
    "usages": ("Aicore", "DDR", "HBM"),
    "ecc": ("DDR", "HBM"),
    "health": ("Health Status",),
    "hccs": ("HCCS",),
    "-link": ("link status",),
    "-stat": ("roce_", "mac_", "nic_"),
}


def is_understood(kind: str, blocks: Sequence[Block]) -> bool:
    """Whether this is an answer to a question of that kind."""
    return any(key.startswith(KEYS[kind]) for block in blocks for key in block)


def table(values: Values, cells: Mapping[str, str]) -> None:
    """Set what stands in the table."""
    values.put("utilization_ratio", cells.get("aicore"), unit=_PERCENT)
    values.put("temperature_celsius", cells.get("temp"), "gpu")
    # A card with two chips tells its power with the first; the second has "-".
    values.put("power_watts", cells.get("power"), "instant")
    # A chip without HBM has zeros there, or not the column, and computes in what is called memory.
    used, total = _pair(cells.get("hbm-usage"))
    if not number(total or ""):
        used, total = _pair(cells.get("memory-usage"))
    values.memory(used, total, _MIB)
    health(values, cells.get("health"))


def _pair(text: str | None) -> tuple[str | None, str | None]:
    """Return both numbers of ``3412 / 65536``."""
    used, slash, total = (text or "").partition("/")
    return (used.strip(), total.strip()) if slash else (None, None)


def health(values: Values, text: str | None) -> None:
    """Set the state of health."""
    if text is None or is_mark(text):
        return
    state = _HEALTH.get(text.strip().lower())
    if state is None:
        values.fail(NOT_UNDERSTOOD)
        return
    for one in _STATES:
        values.sample.set("health_state", float(one == state), one)


def codes(values: Values, block: Block) -> None:
    """Set the faults of ``-t health`` by their codes; and the health beside them, if the table, newer, has none."""
    if ("health_state", "ok") not in values.sample.values:
        health(values, block.get("Health Status"))
    found = _CODE.findall(block.get("Error Code", ""))
    for code in found[:_MOST_CODES]:
        values.sample.set("fault_info", 1.0, code.upper())


def common(values: Values, block: Block) -> None:
    """Set the clocks of ``-t common``."""
    values.put("clock_hertz", block.get("Aicore curFreq(MHZ)"), "sm", unit=_MHZ)
    values.put("clock_max_hertz", block.get("Aicore Freq(MHZ)"), "sm", unit=_MHZ)


def usages(values: Values, block: Block) -> None:
    """Set the bandwidth of ``-t usages``: of the HBM, or of the DDR where it is the memory of the device."""
    has_hbm = any(key.startswith("HBM") and not is_mark(text) for key, text in block.items())
    kind = "HBM" if has_hbm else "DDR"
    values.put("memory_bandwidth_ratio", block.get(f"{kind} Bandwidth Usage Rate(%)"), unit=_PERCENT)


def ecc(values: Values, block: Block) -> None:
    """Set the memory errors of ``-t ecc``: those of HBM and DDR together."""
    for family, severity, words in _ECC:
        texts = [text for kind in ("HBM", "DDR") if not is_mark(text := block.get(f"{kind} {words}", ""))]
        counts = [values.read(family, text) for text in texts]
        # A part of a sum would look like a counter that was set back.
        if counts and None not in counts:
            values.sample.set(family, sum(count or 0.0 for count in counts), severity)


def hccs(values: Values, block: Block) -> None:
    """Set the health of ``-t hccs``."""
    text = block.get("HCCS Health Status")
    if text is not None and not is_mark(text):
        values.sample.set("link_up", float(_HEALTH.get(text.lower()) == "ok"), HCCS)


def link(values: Values, block: Block) -> None:
    """Set the state of ``hccn_tool -link -g``."""
    states = {"UP": 1.0, "DOWN": 0.0}
    state = states.get(block.get("link status", "").upper())
    if state is not None:
        values.sample.set("link_up", state, ROCE)


def traffic(values: Values, blocks: Sequence[Block]) -> None:
    """Set what ``hccn_tool -stat -g`` has counted."""
    told = {key: text for block in blocks for key, text in block.items()}
    for key, family in _BYTES.items():
        values.put(family, told.get(key), ROCE)
    for key, kind in _ERRORS.items():
        values.put("links_errors_total", told.get(key), kind)
