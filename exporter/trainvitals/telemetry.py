"""The few types that every source ends in: the probe, followers of logs, readers of devices.

Behind them there is one pipeline, whatever the source was.  Times are wall-clock seconds since the epoch.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, count
from operator import eq
from typing import Any, TypeAlias, overload


@dataclass(frozen=True, kw_only=True)
class Identity:
    """One rank of one attempt of a run."""

    run: str
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    attempt: int = 0
    framework: str = ""
    target_steps: int | None = None
    device_uuid: str = ""
    #: The node by its launcher's count; empty where it does not tell.
    node_rank: str = ""
    #: In the kernel's spelling.
    pci_bus_id: str = ""


@dataclass(slots=True)
class Step:
    """What one rank reported at the end of one optimizer step.  ``values`` maps names to numbers, NaN included.

    ``count`` numbers the steps of the process; values that became known late come as a second Step with its count.
    Nobody changes one.  It is not frozen because that makes it three times as slow to make, and logs have millions.
    """

    step: int
    count: int
    time: float
    values: dict[str, float]


#: So many steps are made of columns at once.
_ROWS = 512


class Steps(Sequence[Step]):
    """Steps in a row that have values of the same names, as columns: a cheap sequence of :class:`Step`.

    ``numbers`` are the steps' own, ``first`` is the count of the first (each next has one more), ``times`` are wall
    times, ``columns`` hold the values by name.  All lists are of one length, and not changed by anybody.
    What is asked of a column by several detectors is reckoned once: ``extent``, ``is_finite``.
    """

    __slots__ = ("_extents", "columns", "first", "numbers", "times")

    def __init__(self, numbers: list[int], first: int, times: list[float], columns: dict[str, list[float]]) -> None:
        self.numbers, self.first, self.times, self.columns = numbers, first, times, columns
        self._extents: dict[str, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[Step]:
        values = chain.from_iterable(map(self._values, range(0, len(self.numbers), _ROWS)))
        return map(Step, self.numbers, count(self.first), self.times, values)

    def _values(self, begin: int) -> list[dict[str, float]]:
        """Return the values of some steps: an empty dict for each, filled by name, is the fastest way."""
        rows: list[dict[str, float]] = [{} for _ in self.numbers[begin : begin + _ROWS]]
        for name, column in self.columns.items():
            for row, value in zip(rows, column[begin : begin + _ROWS], strict=True):
                row[name] = value
        return rows

    @overload
    def __getitem__(self, place: int) -> Step: ...

    @overload
    def __getitem__(self, place: slice) -> Steps: ...

    def __getitem__(self, place: int | slice) -> Step | Steps:
        if isinstance(place, slice):
            return self.part(*_bounds(place, len(self.numbers)))
        number = self.numbers[place]
        count = self.first + (place if place >= 0 else place + len(self.numbers))
        values = {name: column[place] for name, column in self.columns.items()}
        return Step(number, count, self.times[place], values)

    def part(self, begin: int, end: int) -> Steps:
        """Return those from place ``begin`` up to, and without, ``end``."""
        columns = {name: column[begin:end] for name, column in self.columns.items()}
        return Steps(self.numbers[begin:end], self.first + begin, self.times[begin:end], columns)

    def extent(self, name: str) -> tuple[float, float]:
        """Return the least and the largest value of a column that is there; NaN for both, if one of them is NaN."""
        found = self._extents.get(name)
        if found is None:
            column = self.columns[name]
            # A sum is NaN where any is (infinities of both signs cannot be told from it, and are as odd).
            is_nan = (total := sum(column)) != total
            found = self._extents[name] = (math.nan, math.nan) if is_nan else (min(column), max(column))
        return found

    def is_finite(self, name: str) -> bool:
        """Whether all values of a column that is there are finite."""
        low, high = self.extent(name)
        return -math.inf < low and high < math.inf

    def evenly(self, count: int, time: float, pause: float) -> Steps:
        """Return the same at other times: the step with this count at this one, each next one a pause later."""
        begin = self.first - count
        times = [time + place * pause for place in range(begin, begin + len(self.numbers))]
        return Steps(self.numbers, self.first, times, self.columns)

    def counted(self, shift: int) -> Steps:
        """Return the same with counts that are larger by so much."""
        return Steps(self.numbers, self.first + shift, self.times, self.columns)


#: Steps one behind the other, in columns where they have values of the same names, one by one where not.
Part: TypeAlias = Steps | list[Step]


class StepList(Sequence[Step]):
    """Steps one behind the other, held in parts: all that a source told since it was asked last.

    Whoever has to do with each step alone takes it for the sequence that it is; whoever has to do with many takes the
    parts.  A step that carries late values of the one before it stands among those that are held one by one.
    """

    __slots__ = ("_ends", "_parts")

    def __init__(self, parts: Iterable[Part] = ()) -> None:
        self._parts = tuple(part for part in parts if len(part))
        self._ends = list(accumulate(map(len, self._parts)))

    def parts(self) -> tuple[Part, ...]:
        """Return the parts in their order; none is empty."""
        return self._parts

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Step]:
        return chain.from_iterable(self._parts)

    @overload
    def __getitem__(self, place: int) -> Step: ...

    @overload
    def __getitem__(self, place: slice) -> StepList: ...

    def __getitem__(self, place: int | slice) -> Step | StepList:
        if isinstance(place, slice):
            return self._between(*_bounds(place, len(self)))
        at = place if place >= 0 else place + len(self)
        if not 0 <= at < len(self):
            raise IndexError("there are fewer steps")
        number = bisect_right(self._ends, at)
        part = self._parts[number]
        return part[at - self._ends[number] + len(part)]

    def _between(self, begin: int, end: int) -> StepList:
        first, last = bisect_right(self._ends, begin), bisect_right(self._ends, end - 1)
        found: list[Part] = []
        for part, stop in zip(self._parts[first : last + 1], self._ends[first : last + 1], strict=True):
            start = stop - len(part)
            found.append(part if begin <= start and stop <= end else part[max(0, begin - start) : end - start])
        return StepList(found)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)!r})"

    def __add__(self, other: StepList) -> StepList:
        return StepList(self._parts + other._parts)

    def evenly(self, count: int, time: float, pause: float) -> StepList:
        """Return the same at other times: the step with this count at this one, each next one a pause later."""
        return StepList(
            part.evenly(count, time, pause)
            if isinstance(part, Steps)
            else [Step(step.step, step.count, time + (step.count - count) * pause, step.values) for step in part]
            for part in self._parts
        )

    def counted(self, shift: int) -> StepList:
        """Return the same with counts that are larger by so much."""
        return StepList(
            part.counted(shift)
            if isinstance(part, Steps)
            else [Step(step.step, step.count + shift, step.time, step.values) for step in part]
            for part in self._parts
        )


def parts_of(steps: Sequence[Step]) -> tuple[Part, ...]:
    """Return the parts of any sequence of steps; see :class:`StepList`."""
    if isinstance(steps, StepList):
        return steps.parts()
    if not len(steps):
        return ()
    return (steps,) if isinstance(steps, Steps) else (list(steps),)


def _bounds(place: slice, length: int) -> tuple[int, int]:
    begin, end, stride = place.indices(length)
    if stride != 1:
        raise ValueError("steps in a row have no others between them")
    return begin, max(begin, end)


@dataclass(frozen=True, slots=True)
class Event:
    """Something rare: a checkpoint, an evaluation, an exception."""

    time: float
    kind: str
    step: int
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that a device's driver reported: an XID of NVIDIA.

    ``source`` says who told it (``driver`` or ``kernel``), ``pci_bus_id`` where; ``time`` is wall-clock seconds.
    """

    source: str
    pci_bus_id: str
    code: int
    time: float
    text: str = ""


@dataclass(frozen=True, slots=True)
class DeviceProcess:
    """A process of the node (``pid`` as the node counts) with memory on a device; ``mig`` is its instance, if any."""

    pid: int
    memory_bytes: float | None = None
    mig: tuple[str, str] | None = None


@dataclass(kw_only=True)
class DeviceSample:
    """One reading of one accelerator.

    ``values`` maps a family of :mod:`trainvitals.metrics.devices`, without its prefix ``trainvitals_device_``, and the
    labels after ``device`` and ``uuid`` to a number in the unit of the family.  What could not be read is not in it.
    ``reason`` says why a device is not ``up``; see ``device_down_info`` there.
    """

    index: int
    uuid: str
    vendor: str
    name: str = ""
    pci_bus_id: str = ""
    driver_version: str = ""
    up: bool = True
    reason: str = ""
    values: dict[tuple[str, ...], float] = field(default_factory=dict)
    processes: tuple[DeviceProcess, ...] = ()
    #: Fields that failed, by reason, in this reading.
    failed: dict[str, int] = field(default_factory=dict)
    #: Since when it is not ``up``; who reads the device does not know, who watches it does.
    down_since: float | None = None

    def set(self, family: str, value: float, *labels: str) -> None:
        """Set a value; see the class."""
        key = (family, *labels)
        self.values[key] = value

    def down(self, reason: str) -> DeviceSample:
        """Return the same device as one that does not answer."""
        return DeviceSample(
            index=self.index,
            uuid=self.uuid,
            vendor=self.vendor,
            name=self.name,
            pci_bus_id=self.pci_bus_id,
            driver_version=self.driver_version,
            up=False,
            reason=reason,
        )


_PCI = re.compile(r"(?:PCI:)?(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.([0-7]))?", re.IGNORECASE)


def pci_address(text: str) -> str:
    """Return a PCI address in the kernel's spelling, ``0000:05:00.0``; empty when it is none.

    Drivers also write ``PCI:0000:05:00``, ``00000000:05:00.0`` and upper case; without a function it is 0.
    """
    match = _PCI.fullmatch(text.strip()[:32])
    if match is None:
        return ""
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}.{function or 0}"
