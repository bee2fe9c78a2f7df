"""Intel data-centre GPU: ``xpu-smi discovery -j`` for who is there, ``xpu-smi dump`` for the values.

Kunlunxin has a program of this name.  Rates are not known in the first line of a dump, so there are two, and the last
one counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainvitals.devices import json_text
from trainvitals.devices.base import Vendor
from trainvitals.devices.told.base import MEGA, MIB, PERCENT, Card, Tool, Wording, address, facts, kept
from trainvitals.devices.tools import MakeRun, Runner

#: Numbers of what is asked for, and the names that stand above the columns.
_METRICS = "0,1,2,3,4,17,18"
_COLUMNS: Mapping[str, tuple[str, tuple[str, ...], float]] = {
    "GPU Utilization (%)": ("utilization_ratio", (), PERCENT),
    "GPU Power (W)": ("power_watts", ("default",), 1.0),
    "GPU Frequency (MHz)": ("clock_hertz", ("sm",), MEGA),
    "GPU Core Temperature (Celsius Degree)": ("temperature_celsius", ("gpu",), 1.0),
    "GPU Memory Temperature (Celsius Degree)": ("temperature_celsius", ("memory",), 1.0),
    "GPU Memory Bandwidth Utilization (%)": ("memory_bandwidth_ratio", (), PERCENT),
}
_WANTED = tuple((name, *meaning) for name, meaning in _COLUMNS.items())
_USED = "GPU Memory Used (MiB)"


def parse(texts: Sequence[str]) -> Sequence[Card] | None:
    """Return the cards of both outputs, joined by the number of the device."""
    document, told = json_text.find(texts[0]), _dump(texts[1])
    entries = document.get("device_list") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        return None
    cards = []
    for entry in entries:
        found = {key: json_text.word(value) or "" for key, value in entry.items()} if isinstance(entry, dict) else {}
        number = found.get("device_id", "")
        if number.isdecimal() and found.get("device_type", "GPU") == "GPU":
            values = told.get(number, {})
            cards.append(
                Card(
                    int(number),
                    address(found.get("pci_bdf_address", "")),
                    found.get("device_name", ""),
                    names=(found.get("uuid", ""),),
                    facts=facts(values, *_WANTED),
                    memory=(values.get(_USED), _mebibytes(found.get("memory_physical_size_byte", ""))),
                )
            )
    return kept(cards)


def _mebibytes(text: str) -> str:
    return str(int(text) / MIB) if text.isdecimal() else text


def _dump(text: str) -> dict[str, dict[str, str]]:
    """Return the values of the last line of each device, by the names of the columns."""
    names: list[str] = []
    found: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if cells[:2] == ["Timestamp", "DeviceId"]:
            names = cells
        elif len(cells) == len(names) > 2:
            found[cells[1]] = dict(zip(names, cells, strict=True))
    return found


TOOL = Tool(
    "intel",
    "Intel GPU",
    (Wording((("xpu-smi", "discovery", "-j"), ("xpu-smi", "dump", "-d", "-1", "-m", _METRICS, "-n", "2")), parse),),
    needs_address=True,
)


def create(runner: MakeRun = Runner) -> Vendor:
    """Return the reader."""
    from trainvitals.devices.told.reader import make  # noqa: PLC0415  Only the child reads.

    return make(TOOL, runner)
