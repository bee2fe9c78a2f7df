"""An hour of polling, compressed: do the exporter's side and the reading process grow while devices come and go?

    python benchmarks/endurance.py [--polls N]

The real supervisor and the real child poll the stub of the tests at full speed, with every signal of eight devices.
Half of the polls see what one child must survive: a device lost and back, an instance made and removed, XIDs, the
driver unloaded and loaded.  The other half see what needs a new child as well: calls that hang, a killed child,
another number of devices, a pause.  Memory, descriptors, threads and children are compared after a warm-up and at the
end.
The exit status is 1 when something has grown.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.fixtures.nvml.driver import Driver, compile_stub

from trainvitals.collect.devices import DevicesCollector
from trainvitals.collect.faults import FaultLog, FaultsCollector
from trainvitals.collect.runner import Runner
from trainvitals.devices.pci import Bus
from trainvitals.devices.supervisor import Supervisor
from trainvitals.devices.vendors import VENDORS

#: 3,600 seconds at an interval of 0.18 s; at the default of 2 s more than eleven hours.
POLLS = 20_000
#: What may be added to the memory of either process, in MiB: arenas of the allocator that are not given back.
MOST_MEBIBYTES = 3.0
#: Polls between two rounds of events, at least; a fiftieth of all in a long run.
CALM = 150
#: So often descriptors are counted: a poll at full speed has a file open for part of the time.
LOOKS = 50
#: Long enough for a machine that is busy with other things.
HUNG_AFTER = 2.0
PATIENCE = 120.0
MIB = 2**20


@dataclass(frozen=True)
class Size:
    """What a process holds; memory in MiB."""

    rss: float
    descriptors: int
    threads: int
    children: int

    @classmethod
    def of(cls, process: psutil.Process) -> Size:
        """Measure a process.  Files that it opens and closes at each poll are not what it holds."""
        gc.collect()
        descriptors = process.num_fds()
        for _ in range(LOOKS):
            time.sleep(0.001)
            descriptors = min(descriptors, process.num_fds())
        return cls(
            process.memory_info().rss / MIB,
            descriptors,
            process.num_threads(),
            len(process.children(recursive=True)),
        )

    def growth(self, before: Size, most: float) -> list[str]:
        """Say what has grown since ``before``; memory by more than ``most``."""
        found = [] if self.rss - before.rss <= most else [f"memory by {self.rss - before.rss:.1f} MiB"]
        counts = [(name, getattr(before, name), getattr(self, name)) for name in ("descriptors", "threads", "children")]
        return found + [f"{name} from {old} to {new}" for name, old, new in counts if new > old]


@dataclass
class Report:
    """What was measured."""

    polls: int = 0
    restarts: int = 0
    scrapes: int = 0
    slowest: float = 0.0
    seconds: float = 0.0
    failed: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, tuple[Size, Size]] = field(default_factory=dict)

    def growth(self, most: float) -> list[str]:
        """Say what has grown."""
        return [
            f"{name}: {text}" for name, (before, after) in self.sizes.items() for text in after.growth(before, most)
        ]


class Node:
    """The exporter's collectors of devices and faults on the stub, polled at full speed."""

    def __init__(self, driver: Driver, folder: Path) -> None:
        self.driver = driver
        self.pause = folder / "pause"
        self.events = folder / "control.events"
        self.report = Report()
        self._folder = folder
        faults = FaultLog()
        self._source = Supervisor(
            "nvidia",
            interval=0.0,
            hung_after=HUNG_AFTER,
            backoff=(0.05, 0.2),
            retry=(0.2, 0.4),
            pause_file=str(self.pause),
            bus=Bus(VENDORS["nvidia"].pci, root=str(folder / "pci"), environ={}),
            start_child=lambda avoid, only: driver.spawn(avoid, only, interval=0.0),
        )
        self._runner = Runner(
            [DevicesCollector([self._source], faults=faults), FaultsCollector(faults)], timeout=10.0, limit=20_000
        )

    def start(self) -> None:
        """Begin to poll."""
        self._runner.start()
        self.settle()

    def stop(self) -> None:
        """End."""
        self._runner.stop()

    def follow(self, *rules: str) -> None:
        """Let the driver behave so from now on; with what a Hopper board has."""
        self.driver.behave("value * links 18", "value * gpm 1", *rules)

    def happen(self, *events: str) -> None:
        """Let the driver report these events, in a new file now and then."""
        if self.events.exists() and self.events.stat().st_size > 1 << 20:
            self.events.unlink()
        with self.events.open("a") as file:
            file.writelines(f"{event}\n" for event in events)

    def scrape(self) -> None:
        """Take a round of the collectors."""
        begun = time.monotonic()
        self._runner.run({}, time.time())
        self.report.slowest = max(self.report.slowest, time.monotonic() - begun)
        self.report.scrapes += 1

    @property
    def polls(self) -> int:
        """Readings so far."""
        reading = self._source.latest()
        return reading.readings if reading else 0

    def until(self, condition: Callable[[], bool]) -> None:
        """Scrape until ``condition`` holds."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise SystemExit(f"nothing happens any more: {self._source.latest()}")
            self.scrape()
            time.sleep(0.05)

    def wait_polls(self, number: int) -> None:
        """Let so many more polls pass."""
        goal = self.polls + number
        self.until(lambda: self.polls >= goal)

    def down(self, *indices: int) -> Callable[[], bool]:
        """Return whether exactly these devices are down."""

        def holds() -> bool:
            reading = self._source.latest()
            return reading is not None and [one.index for one in reading.devices if not one.up] == list(indices)

        return holds

    def settle(self) -> None:
        """Wait until all is well and every process that must go has gone."""
        self.follow()
        self.until(lambda: self.down()() and bool(self._source.latest()) and len(self.children()) == 1)
        reading = self._source.latest()
        self.until(lambda: self.polls > (reading.readings if reading else 0) + 5)

    def children(self) -> list[psutil.Process]:
        """Return the reading processes."""
        return psutil.Process().children()

    def finish(self) -> None:
        """Note what the source counted."""
        reading = self._source.latest()
        if reading is not None:
            self.report.polls, self.report.restarts = reading.readings, reading.restarts
            self.report.failed = dict(reading.failed)


def gentle(node: Node) -> None:
    """What one child must survive."""
    node.follow("return 5 * 15")
    node.until(node.down(5))
    node.happen("5 8 79", "2 8 31", "2 8 31")
    node.settle()
    node.follow("value 2 mig_mode 1", "value 2 mig0 100", "value 2 mig1 501")
    node.wait_polls(20)
    node.follow("return 3 utilization 999", "value 1 utilization 4294967295", "name 4 damaged")
    node.wait_polls(20)
    node.follow("unloaded")
    node.until(node.down(*range(8)))
    node.settle()
    node.wait_polls(20)


def rough(node: Node) -> None:
    """What needs another child as well."""
    node.follow("hang 3 utilization")
    node.until(node.down(3))
    node.settle()
    node.children()[0].kill()
    node.settle()
    node.follow("count 7")
    node.until(node.down(7))
    node.settle()
    node.follow("hang * count")
    node.until(node.down(*range(8)))
    node.settle()
    node.pause.touch()
    node.until(lambda: not node.children())
    node.pause.unlink()
    node.settle()


def parts(polls: int) -> Iterator[tuple[str, int, Callable[[Node], None]]]:
    """Yield name, number of polls and what happens of each part."""
    yield "one child", polls // 2, gentle
    yield "many children", polls - polls // 2, rough


def endure(driver: Driver, folder: Path, polls: int, calm: int) -> Report:
    """Poll so often and return what was measured; each part is compared with the state after a tenth of it.

    ``calm`` is the number of polls between two rounds of events.
    """
    node = Node(driver, folder)
    begun = time.monotonic()
    node.start()
    try:
        for name, number, happen in parts(polls):
            goal = node.polls + number
            happen(node)
            node.until(lambda goal=goal, number=number: node.polls >= goal - number * 9 // 10)  # type: ignore[misc]
            happen(node)
            before, child_before = Size.of(psutil.Process()), node.children()[0]
            child_size = Size.of(child_before)
            while node.polls < goal:
                happen(node)
                node.wait_polls(min(calm, max(1, goal - node.polls)))
            node.settle()
            node.report.sizes[f"exporter, {name}"] = before, Size.of(psutil.Process())
            node.report.sizes[f"child, {name}"] = child_size, Size.of(node.children()[0])
        node.finish()
    finally:
        node.stop()
    node.report.seconds = time.monotonic() - begun
    return node.report


def show(report: Report) -> None:
    """Print the report."""
    print(f"{report.polls} polls of 8 devices in {report.seconds:.0f} s, {report.restarts} restarts, ", end="")
    print(f"{report.scrapes} scrapes (slowest {1000 * report.slowest:.0f} ms)")
    print("failed reads: " + ", ".join(f"{reason} {count}" for reason, count in sorted(report.failed.items())))
    print(f"{'':26}{'RSS MiB':>18}{'descriptors':>14}{'threads':>10}{'children':>10}")
    for name, (before, after) in report.sizes.items():
        print(f"{name:26}{before.rss:8.1f} -> {after.rss:6.1f}", end="")
        for what, width in (("descriptors", 14), ("threads", 10), ("children", 10)):
            text = f"{getattr(before, what)} -> {getattr(after, what)}"
            print(f"{text:>{width}}", end="")
        print()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--polls", type=int, default=POLLS)
    polls = parser.parse_args(arguments).polls
    os.environ.pop("TRAINVITALS_DIR", None)
    with tempfile.TemporaryDirectory() as folder:
        report = endure(Driver(compile_stub(Path(folder)), Path(folder)), Path(folder), polls, max(CALM, polls // 50))
    show(report)
    growth = report.growth(MOST_MEBIBYTES)
    print(
        "\n".join(f"GROWN: {text}" for text in growth) or f"no growth (bound: {MOST_MEBIBYTES:.0f} MiB, nothing else)"
    )
    return 1 if growth else 0


if __name__ == "__main__":
    sys.exit(main())
