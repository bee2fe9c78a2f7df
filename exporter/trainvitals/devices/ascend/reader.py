"""Asks npu-smi and hccn_tool, and says what may happen to them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

from trainvitals.devices import pci
from trainvitals.devices.ascend import blocks, table, values
from trainvitals.devices.ascend.blocks import Block
from trainvitals.devices.ascend.table import Chip, Table
from trainvitals.devices.base import NoLibraryError, SourceDownError
from trainvitals.devices.errands import Errands
from trainvitals.devices.plausible import IMPLAUSIBLE, NOT_UNDERSTOOD, Values, is_mark, number
from trainvitals.devices.tools import MISSING, TIMED_OUT, Answer, Run
from trainvitals.devices.vendors import VENDORS
from trainvitals.telemetry import DeviceProcess, DeviceSample, Fault, pci_address

#: Seconds between two tables, and how many times as long as it took at least.
_TABLE = 10.0
_TABLE_REST = 20.0
#: Seconds between two answers to each question about one card.
_MEDIUM, _SLOW = 60.0, 300.0
#: How often a board is asked who it is: it stays the same.
_NEVER = 86400.0
_MIB = 2.0**20
_MOST_PID = 2**31
#: Codes of DCMI (dcmi_interface_api.h) that npu-smi prints when it cannot do anything, and the words for them.
_RET = re.compile(r"ret(?: is |=)(-\d{4})\b")
_CODES = {
    "-8002": "no_permission",
    "-8003": "no_device",
    "-8005": "driver_not_loaded",
    "-8008": "no_device",
    "-8009": "not_ready",
    "-8012": "resetting",
    "-8013": "blocked",
    "-8017": "upgrading",
    "-8020": "in_use",
}
_UNSUPPORTED = re.compile(r"not support|-8255", re.IGNORECASE)
_HEX = re.compile(r"[0-9A-F]{8}(?:[ -][0-9A-F]{8}){4}", re.IGNORECASE)


class Ascend:
    """Reads all chips that npu-smi lists.

    ``run`` runs a tool, ``bus`` is the kernel's folder of PCI devices, ``clock`` gives seconds.
    """

    name = "ascend"

    def __init__(self, run: Run, *, bus: str = pci.PCI_DEVICES, clock: Callable[[], float] = time.monotonic) -> None:
        self._run = run
        self._bus = bus
        self._clock = clock
        self._table: Table | None = None
        self._due = float("-inf")
        self._errands: Errands[list[Block]] = Errands(clock=clock)
        self._failed: dict[str, int] = {}
        self._owners: dict[str, str] = {}

    def open(self) -> None:
        """Ask for the table.  Raises NoLibraryError without a card or npu-smi, SourceDownError without an answer."""
        if not self._is_here():
            raise NoLibraryError("no Ascend device on the PCI bus")
        self._due = float("-inf")
        self._refresh()

    def _is_here(self) -> bool:
        """Whether a card is on the bus, whatever programs are called; True when that cannot be told."""
        try:
            return bool(pci.look(VENDORS[self.name].pci, self._bus).here)
        except OSError:
            return True

    def close(self) -> None:
        """Forget the table."""
        self._table = None

    def faults(self) -> Sequence[Fault]:
        """Return none: npu-smi tells what is, not what happened."""
        return ()

    def devices(self) -> Sequence[int]:
        """Return the number of each chip in the table.  Raises SourceDownError."""
        chips = self._refresh().chips
        known = {chip.pci_bus_id for chip in chips}
        self._errands.begin(lambda key: isinstance(key, tuple) and key[0] in known)
        return [chip.index for chip in chips]

    def _refresh(self) -> Table:
        if self._table is not None and self._clock() < self._due:
            return self._table
        answer = self._run(["npu-smi", "info"])
        if answer.reason == MISSING:
            raise NoLibraryError("npu-smi was not found")
        if answer.reason == TIMED_OUT:
            # The half of a table would look like lost cards.
            raise SourceDownError(TIMED_OUT)
        try:
            self._table = table.parse(answer.text)
        except table.NotNpuSmiError:
            raise SourceDownError(_why(answer)) from None
        if not self._table.chips and (answer.reason or self._table.unread):
            raise SourceDownError(_why(answer))
        self._due = self._clock() + max(_TABLE, _TABLE_REST * answer.seconds)
        if self._table.unread:
            self._count(NOT_UNDERSTOOD, self._table.unread)
        return self._table

    def _count(self, reason: str, number: int) -> None:
        """Count what failed for no chip in particular: it goes out with the next one that is read."""
        self._failed[reason] = self._failed.get(reason, 0) + number

    def read(self, index: int) -> DeviceSample:
        """Return what is known of a chip, and ask for what is due.  One that vanished between two tables is down."""
        found = self._table
        chip = next((one for one in found.chips if one.index == index), None) if found is not None else None
        if found is None or chip is None:
            return DeviceSample(index=index, uuid="", vendor=self.name, up=False, reason="unknown")
        address = pci_address(chip.pci_bus_id)
        sample = DeviceSample(
            index=index,
            uuid=self._identity(chip, address),
            vendor=self.name,
            name=_called(chip.name),
            pci_bus_id=address,
            driver_version=found.version,
            failed=dict(self._failed),
        )
        self._failed = {}
        told = Values(sample)
        values.table(told, chip.cells)
        if told.is_dead:
            return _down(sample, IMPLAUSIBLE)
        # An old table was seen that numbers both chips of a card 0: then a question about one may be about the other.
        if sum((one.npu, one.chip) == (chip.npu, chip.chip) for one in found.chips) == 1:
            self._details(told, chip)
            self._processes(sample, found, chip)
        if not any(family != "health_state" for family, *_ in sample.values):
            return _down(sample, "unknown")
        return sample

    def _details(self, told: Values, chip: Chip) -> None:
        """Set what the table does not have."""
        for kind, every, read in (
            ("common", _MEDIUM, values.common),
            ("usages", _MEDIUM, values.usages),
            ("ecc", _MEDIUM, values.ecc),
        ):
            read(told, blocks.of_chip(self._ask(told, chip, kind, every, whole_card=True), chip.chip))
        for kind, every, read in (("health", _MEDIUM, values.codes), ("hccs", _SLOW, values.hccs)):
            read(told, blocks.of_chip(self._ask(told, chip, kind, every), chip.chip))
        for found in self._hccn(told, chip, "-link", _MEDIUM):
            values.link(told, found)
        values.traffic(told, self._hccn(told, chip, "-stat", _MEDIUM))

    def _ask(self, told: Values, chip: Chip, kind: str, every: float, *, whole_card: bool = False) -> list[Block]:
        """Return the blocks of ``npu-smi info -t``; empty when there are none."""
        command = ["npu-smi", "info", "-t", kind, "-i", str(chip.npu)]
        if not whole_card:
            command += ["-c", str(chip.chip)]
        return self._errand(told, chip, kind, every, command)

    def _hccn(self, told: Values, chip: Chip, verb: str, every: float) -> list[Block]:
        return self._errand(told, chip, verb, every, ["hccn_tool", "-i", str(chip.index), verb, "-g"])

    def _errand(self, told: Values, chip: Chip, kind: str, every: float, command: list[str]) -> list[Block]:
        def question() -> list[Block] | None:
            answer = self._run(command)
            found = blocks.parse(answer.text)
            if not answer.reason and values.is_understood(kind, found):
                return found
            # A tool that is not installed is no failure, nor is what this chip does not have.
            if answer.reason != MISSING and not _UNSUPPORTED.search(answer.text):
                told.fail(_why(answer))
            return None

        return self._errands.ask((chip.pci_bus_id, *command), every, question, urgent=kind == "board") or []

    def _identity(self, chip: Chip, address: str) -> str:
        """Return what the maker burnt into the chip, else its address; empty while it was not asked yet."""
        told = Values(DeviceSample(index=chip.index, uuid="", vendor=self.name))
        found = self._ask(told, chip, "board", _NEVER)
        for reason, count in told.sample.failed.items():
            self._count(reason, count)
        text = blocks.of_chip(found, chip.chip).get("VDie ID", "")
        if not _HEX.fullmatch(text) or len(set(re.split("[ -]", text))) == 1:
            return address if found else ""
        name = re.sub("[ -]", "-", text.upper())
        # Boards of which the identity was never written have all the same.
        return name if self._owners.setdefault(name, chip.pci_bus_id) == chip.pci_bus_id else address

    def _processes(self, sample: DeviceSample, found: Table, chip: Chip) -> None:
        if found.processes is None:
            return
        largest: dict[int, float] = {}
        for pid, text in found.processes.get((chip.npu, chip.chip), ()):
            memory = None if is_mark(text) else number(text)
            if 0 < pid < _MOST_PID:
                largest[pid] = max(largest.get(pid, 0.0), (memory or 0.0) * _MIB)
        sample.processes = tuple(DeviceProcess(pid, memory or None) for pid, memory in largest.items())
        sample.set("processes", float(len(largest)))


def _down(sample: DeviceSample, reason: str) -> DeviceSample:
    down = sample.down(reason)
    down.failed = sample.failed
    return down


def _called(name: str) -> str:
    """Return the name as people say it: the table has ``910B3``."""
    return f"Ascend {name}" if name[:1].isdigit() else name


def _why(answer: Answer) -> str:
    """Return why there is no table: the tool's own code, or what came of it, or that it is another program."""
    return _CODES.get(_code(answer)) or answer.reason or NOT_UNDERSTOOD


def _code(answer: Answer) -> str:
    match = _RET.search(answer.text)
    return match[1] if match else ""
