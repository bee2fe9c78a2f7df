"""What a fleet costs its Prometheus: series, memory, and the time of all shipped rules, at 1,250 nodes of 8 ranks.

    python benchmarks/fleet.py [--nodes N] [--ranks N] [--prometheus BINARY] [--json] [--check]

One full node is looked at once, with the real exporter (fleet_node.py); this process then shows it as many nodes that
differ in run, rank and devices, with values that go on (fleet_template.py), to a real Prometheus with the scrape
intervals of deploy/prometheus and all rules.
Nodes that memory has no room for are left out, and said.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.fleet_node import look
from benchmarks.fleet_prometheus import Prometheus, running
from benchmarks.fleet_server import serving
from benchmarks.fleet_template import Template

#: Targets of design.md and of issue 7; the seconds hold for 10,000 ranks, by the version of Prometheus.
MOST_SERIES_OF_RANK = 150
MOST_SERIES_OF_NODE = 1500
MOST_KIBIBYTES = 3.0
MOST_SECONDS = {2: 2.0, 3: 1.0}
RANKS_OF_TARGET = 10_000
#: What a series may need until the end of a run, to say beforehand how many fit.
ROOM = 5 * 1024
SLOWEST = 10


@dataclass
class Result:
    """What was measured; seconds, bytes and cores."""

    version: str
    nodes: int
    ranks: int
    runs: int
    series_of_rank: float
    series_of_node: int
    series_of_scrape: int
    head_series: int = 0
    rss: int = 0
    cores: float = 0.0
    own_cores: float = 0.0
    cycles: list[float] = field(default_factory=list)
    share: float = 0.0
    missed: int = 0
    scrape_p99: float = 0.0
    minutes: float = 0.0
    load: float = 0.0
    #: Seconds between two evaluations of what has no pace of its own.
    interval: int = 0
    slowest: list[tuple[str, float]] = field(default_factory=list)
    active: dict[str, int] = field(default_factory=dict)
    left_out: str = ""

    @property
    def kibibytes(self) -> float:
        """Memory of Prometheus for each series of its head."""
        return self.rss / 1024 / self.head_series

    def verdicts(self) -> list[tuple[str, bool]]:
        """Return each target with whether it was reached."""
        seconds, due = statistics.median(self.cycles), self.share * self.interval
        most = MOST_SECONDS[min(3, int(self.version.partition(".")[0]))] * self.nodes * self.ranks / RANKS_OF_TARGET
        return [
            (
                f"{self.series_of_rank:.0f} series of a rank, target at most {MOST_SERIES_OF_RANK}",
                self.series_of_rank <= MOST_SERIES_OF_RANK,
            ),
            (
                f"{self.series_of_node} series of a node besides, target at most {MOST_SERIES_OF_NODE}",
                self.series_of_node <= MOST_SERIES_OF_NODE,
            ),
            (
                f"{self.kibibytes:.2f} KiB a series, target at most {MOST_KIBIBYTES:g}",
                self.kibibytes <= MOST_KIBIBYTES,
            ),
            (
                f"all rules, each once: {seconds:.3f} s (median of {len(self.cycles)}), target under {most:.3g}",
                seconds < most,
            ),
            (f"rules that are due in {self.interval} s: {due:.3f} s, target under {most:.3g}", due < most),
        ]


def measure(arguments: argparse.Namespace) -> Result:
    """Look at a node, show many, and measure after the warm-up."""
    template = Template(look(arguments.ranks, arguments.ranks * arguments.run_nodes))
    nodes = min(arguments.nodes, int(psutil.virtual_memory().available / ROOM / template.series))
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trainvitals-fleet-")))
        fleet = stack.enter_context(serving(template, arguments.run_nodes))
        prometheus = stack.enter_context(running(arguments.prometheus, folder, fleet.port, nodes))
        result = Result(
            version=prometheus.version(),
            nodes=nodes,
            ranks=arguments.ranks,
            runs=-(-nodes // arguments.run_nodes),
            series_of_rank=template.series_of_ranks / template.ranks,
            series_of_node=template.series - template.series_of_ranks,
            series_of_scrape=template.series,
        )
        if nodes < arguments.nodes:
            result.left_out = f"{arguments.nodes - nodes} of {arguments.nodes} nodes have no room in memory"
        prometheus.fill(fleet)
        time.sleep(arguments.warm_up)
        _observe(prometheus, result, arguments.cycles)
        result.minutes = (time.monotonic() - prometheus.began) / 60
    return result


def _observe(prometheus: Prometheus, result: Result, cycles: int) -> None:
    """Watch some evaluation cycles; nothing else asks Prometheus meanwhile."""
    times: dict[str, list[float]] = {}
    shares: list[float] = []
    begun, cpu, own = time.monotonic(), prometheus.cpu_seconds(), time.process_time()
    for _ in range(cycles):
        time.sleep(prometheus.interval)
        seconds, share = prometheus.cycle()
        result.cycles.append(seconds)
        shares.append(share)
        for name, seconds in prometheus.rules():
            times.setdefault(name, []).append(seconds)
    passed = time.monotonic() - begun
    result.cores = (prometheus.cpu_seconds() - cpu) / passed
    result.own_cores = (time.process_time() - own) / passed
    result.share = statistics.median(shares)
    result.interval = prometheus.interval
    result.load = psutil.getloadavg()[1]
    result.rss = prometheus.rss()
    result.head_series = int(prometheus.metric("prometheus_tsdb_head_series"))
    result.missed = int(prometheus.metric("prometheus_rule_group_iterations_missed_total"))
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    result.slowest = sorted(medians.items(), key=lambda item: -item[1])[:SLOWEST]
    result.scrape_p99 = prometheus.query('quantile(0.99, scrape_duration_seconds{job="trainvitals"})')[0][1]
    result.active = {
        labels["alertname"]: int(count) for labels, count in prometheus.query("count by (alertname) (ALERTS)")
    }


def report(result: Result) -> None:
    """Print what was measured."""
    print(
        f"Prometheus {result.version}: {result.nodes} nodes x {result.ranks} ranks in {result.runs} runs, "
        f"after {result.minutes:.0f} minutes; load of the machine {result.load:.1f} on {psutil.cpu_count()} cores"
    )
    if result.left_out:
        print(result.left_out)
    print(f"\n| | |\n|---|--:|\n| series of a scrape | {result.series_of_scrape} |")
    print(f"| ... of each rank (label rank) | {result.series_of_rank:.1f} |")
    print(f"| ... of the node besides | {result.series_of_node} |")
    print(f"| series of the head | {result.head_series:,} |")
    print(f"| RSS of Prometheus | {result.rss / 2**20:,.0f} MiB, {result.kibibytes:.2f} KiB a series |")
    print(f"| cores used by Prometheus (by the nodes) | {result.cores:.2f} ({result.own_cores:.2f}) |")
    print(
        f"| all rules, each once | median {statistics.median(result.cycles):.3f} s "
        f"({min(result.cycles):.3f} to {max(result.cycles):.3f}) |"
    )
    print(f"| ... of the time, by how often each group is evaluated | {result.share * 100:.1f} % |")
    print(f"| evaluations missed | {result.missed} |")
    print(f"| p99 of a scrape | {result.scrape_p99 * 1000:.0f} ms |")
    print(f"| alerts pending or firing | {', '.join(f'{k} {v}' for k, v in result.active.items())} |")
    print("\n| slowest rules | ms |\n|---|--:|")
    for name, seconds in result.slowest:
        print(f"| `{name}` | {seconds * 1000:.1f} |")
    print()
    for text, is_reached in result.verdicts():
        print(f"- {'reached' if is_reached else 'MISSED'}: {text}")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=1250)
    parser.add_argument("--ranks", type=int, default=8, help="ranks on each node")
    parser.add_argument("--run-nodes", type=int, default=16, help="nodes of one run")
    parser.add_argument("--prometheus", default=shutil.which("prometheus"), help="the program")
    parser.add_argument("--warm-up", type=float, default=330.0, help="seconds; rates go over 5 minutes")
    parser.add_argument("--cycles", type=int, default=8, help="evaluation cycles to watch")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    arguments = parser.parse_args()
    if arguments.prometheus is None:
        raise SystemExit("no prometheus on the path; name one with --prometheus")
    result = measure(arguments)
    if arguments.json:
        print(json.dumps(dataclasses.asdict(result), indent=2))
    else:
        report(result)
    return int(arguments.check and not all(is_reached for _, is_reached in result.verdicts()))


if __name__ == "__main__":
    sys.exit(main())
