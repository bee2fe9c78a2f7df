"""What it costs to watch 8 devices, and what is seen: Trainvitals and nvitop-exporter on one driver, in one run.

    python benchmarks/devices.py [--seconds N] [--scrapes N] [--delay MICROSECONDS ...] [--no-faults] [--check]

The driver is the stub of the tests, with the calls that only nvitop-exporter makes; every call takes the same time for
both.  The exporters run side by side over the same wall time and are scraped in turns, as Prometheus does it.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from device_faults import Verdict, examine
from exporters import NVITOP, OURS, OURS_EVERY_SECOND, Exporter, Stub, device_samples, running, signals
from scrape import cpu_seconds

#: Seconds between two scrapes of a usual Prometheus, for the CPU of both together.
SCRAPE_INTERVAL = 15.0
#: Until readings that come seldom are there.
WARM_UP = 5.0
PAUSE = 0.02


@dataclass
class Cost:
    """What was measured of one exporter; CPU as a share of one core."""

    title: str
    milliseconds: list[float] = field(default_factory=list)
    loop: float = 0.0
    scrape_cpu: float = 0.0
    #: Resident memory and PSS of each process, in MiB.
    memory: list[tuple[float, float]] = field(default_factory=list)
    series: int = 0
    signals: int = 0
    size: int = 0

    def quantile(self, number: int) -> float:
        """Return a percentile of the scrapes."""
        return statistics.quantiles(self.milliseconds, n=100, method="inclusive")[number - 1]

    @property
    def cpu(self) -> float:
        """CPU of the loop and of a scrape every 15 seconds."""
        return self.loop + self.scrape_cpu / SCRAPE_INTERVAL

    @property
    def cpu_per_series(self) -> float:
        """Microseconds of CPU per second and useful series."""
        return self.cpu / self.series * 1e6


def measure(stub: Stub, seconds: float, scrapes: int) -> list[Cost]:
    """Run all exporters side by side and measure."""
    with contextlib.ExitStack() as stack:
        exporters = [stack.enter_context(running(kind, stub)) for kind in (OURS, OURS_EVERY_SECOND, NVITOP)]
        costs = [Cost(exporter.kind.title) for exporter in exporters]
        time.sleep(WARM_UP)
        for cost, share in zip(costs, _shares(exporters, seconds), strict=True):
            cost.loop = share
        for exporter, cost in zip(exporters, costs, strict=True):
            _warm(exporter)
            cost.scrape_cpu = _scrape_cpu(exporter, cost.loop, scrapes)
        pauses = random.Random(0)
        for exporter in exporters:
            _warm(exporter)
        for _ in range(scrapes):
            order = list(zip(exporters, costs, strict=True))
            pauses.shuffle(order)
            for exporter, cost in order:
                cost.milliseconds.append(exporter.scrape()[0])
            time.sleep(pauses.uniform(0, 2 * PAUSE))
        for exporter, cost in zip(exporters, costs, strict=True):
            useful = device_samples(exporter.samples())
            cost.series, cost.signals = len(useful), len(signals(useful))
            cost.size = len(gzip.decompress(exporter.scrape()[1]))
            cost.memory = exporter.mebibytes()
    return costs


def _warm(exporter: Exporter) -> None:
    # Nobody keeps a connection for ever that nothing came over.
    exporter.connection.close()
    for _ in range(10):
        exporter.scrape()


def _shares(exporters: Sequence[Exporter], seconds: float) -> list[float]:
    """Return the share of a core that each uses while nobody scrapes."""
    before, begun = [cpu_seconds(exporter.process) for exporter in exporters], time.monotonic()
    time.sleep(seconds)
    wall = time.monotonic() - begun
    return [(cpu_seconds(exporter.process) - was) / wall for exporter, was in zip(exporters, before, strict=True)]


def _scrape_cpu(exporter: Exporter, loop: float, scrapes: int) -> float:
    """Return the CPU seconds of one scrape: many without a pause, so that little of the loop falls between them."""
    before, begun = cpu_seconds(exporter.process), time.monotonic()
    for _ in range(scrapes):
        exporter.scrape()
    used = cpu_seconds(exporter.process) - before - loop * (time.monotonic() - begun)
    return max(used, 0.0) / scrapes


def report(costs: Sequence[Cost], delay: int) -> list[tuple[str, bool]]:
    """Print the costs; return the targets and whether they were reached."""
    print(f"\n8 devices, {delay} microseconds more per call, {len(costs[0].milliseconds)} scrapes each\n")
    print(f"| | {' | '.join(cost.title for cost in costs)} |")
    print(f"|---|{'--:|' * len(costs)}")
    rows = (
        ("useful series", [f"{cost.series}" for cost in costs]),
        ("distinct signals", [f"{cost.signals}" for cost in costs]),
        ("CPU of the loop, % of a core", [f"{cost.loop * 100:.2f}" for cost in costs]),
        ("CPU per scrape, ms", [f"{cost.scrape_cpu * 1000:.2f}" for cost in costs]),
        ("CPU with a scrape every 15 s, % of a core", [f"{cost.cpu * 100:.2f}" for cost in costs]),
        ("... per useful series, µs per second", [f"{cost.cpu_per_series:.1f}" for cost in costs]),
        ("scrape p50, ms", [f"{cost.quantile(50):.2f}" for cost in costs]),
        ("scrape p99, ms", [f"{cost.quantile(99):.2f}" for cost in costs]),
        ("RSS of each process, MiB", [" + ".join(f"{rss:.0f}" for rss, _ in cost.memory) for cost in costs]),
        ("RSS in all, MiB", [f"{sum(rss for rss, _ in cost.memory):.0f}" for cost in costs]),
        ("PSS in all, MiB", [f"{sum(pss for _, pss in cost.memory):.0f}" for cost in costs]),
        ("size of a scrape, kB", [f"{cost.size / 1000:.0f}" for cost in costs]),
    )
    for title, cells in rows:
        print(f"| {title} | {' | '.join(cells)} |")
    ours, every_second, peer = costs
    where = f"at {delay} µs"
    return [
        (f"{where}: more signals ({ours.signals} and {peer.signals})", ours.signals > peer.signals),
        (
            f"{where}: no more CPU per series ({ours.cpu_per_series:.1f} and {peer.cpu_per_series:.1f})",
            ours.cpu_per_series <= peer.cpu_per_series,
        ),
        (
            f"{where}: nor at one interval ({every_second.cpu_per_series:.1f} and {peer.cpu_per_series:.1f})",
            every_second.cpu_per_series <= peer.cpu_per_series,
        ),
        (
            f"{where}: a faster scrape (p50 {ours.quantile(50):.2f} and {peer.quantile(50):.2f} ms)",
            ours.quantile(50) < peer.quantile(50),
        ),
    ]


def report_faults(verdicts: Sequence[Verdict]) -> list[tuple[str, bool]]:
    """Print what each shows of each fault; return whether ours shows no wrong value."""
    print("\n| fault | Trainvitals | nvitop-exporter |\n|---|---|---|")
    for verdict in verdicts:
        print(f"| {verdict.fault} | {verdict.ours} | {verdict.peer} |")
    wrong = [verdict.fault for verdict in verdicts if not verdict.is_right]
    return [(f"no wrong value{': ' + ', '.join(wrong) if wrong else ''}", not wrong)]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="without scrapes, for the CPU of the loops")
    parser.add_argument("--scrapes", type=int, default=400)
    parser.add_argument("--delay", type=int, nargs="*", default=[0, 200], help="microseconds that each call takes")
    parser.add_argument("--no-faults", action="store_true", help="measure costs only")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    arguments = parser.parse_args()
    targets: list[tuple[str, bool]] = []
    with tempfile.TemporaryDirectory(prefix="trainvitals-bench-") as name:
        folder = Path(name)
        library = Stub.compile(folder)
        for delay in arguments.delay:
            stub = Stub(library, folder / f"control-{delay}", delay)
            targets += report(measure(stub, arguments.seconds, arguments.scrapes), delay)
        if not arguments.no_faults:
            targets += report_faults(examine(library, folder))
    print()
    for text, is_reached in targets:
        print(f"- {'reached' if is_reached else 'MISSED'}: {text}")
    return int(arguments.check and not all(is_reached for _, is_reached in targets))


if __name__ == "__main__":
    sys.exit(main())
