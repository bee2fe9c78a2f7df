"""What a step costs the training, beside the same 16 values on other ways.

    python benchmarks/probe.py [--rounds N]

Every way runs in a process of its own and all of them take turns, a few milliseconds each, so that a busy moment of
the machine hits all alike.  A way whose package is missing is named and left out.
What another process or thread does later with the values is not counted, only what the training thread waits for.

The unit is the bare write: one ``struct`` pack of step number, clock and 16 doubles, and one slice assignment of these
144 bytes to the next slot of a memory-mapped file on tmpfs, from a function that has the 16 floats at hand.
It has no names, no checksum, no sequence number and nobody who could read it safely.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import mmap
import multiprocessing
import os
import platform
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

VALUES = {"loss": 2.345, "learning_rate": 3e-4, "grad_norm": 0.731, **{f"value_{i}": i + 0.25 for i in range(13)}}
#: Nanoseconds of one measurement: short, so that most are not interrupted on a busy machine.
TURN = 1e6

#: Modules of the standard library that the probe and every large framework import.
STANDARD = "collections, contextlib, dataclasses, functools, json, mmap, re, typing"

#: Reports step number n.
Report = Callable[[int], object]


def bare_write(folder: str) -> Iterator[Report]:
    """Pack and assign, nothing else."""
    size, slots = 144, 4096
    pack, monotonic, numbers = struct.Struct("<qd16d").pack, time.monotonic, tuple(VALUES.values())
    with open(os.path.join(folder, "bare"), "w+b") as file:
        os.posix_fallocate(file.fileno(), 0, size * slots)
        memory = mmap.mmap(file.fileno(), size * slots)

        def report(n: int) -> None:
            start = n % slots * size
            memory[start : start + size] = pack(n, monotonic(), *numbers)

        yield report


def empty_call(_: str) -> Iterator[Report]:
    """What CPython needs to hand 16 keywords to a function that ignores them."""

    def step(number: int | None = None, values: object = None, /, **named: object) -> None:
        pass

    yield _with_keywords(step, VALUES)


def _with_keywords(step: Callable[..., object], values: dict[str, Any]) -> Report:
    """Return a function with one call as a user writes it: ``step(n, loss=..., learning_rate=..., ...)``."""
    arguments = ", ".join(f"{name}={name}" for name in values)
    # Generated, because ``step(n, **values)`` would unpack a dict and not be what users write.
    source = f"def bind(step, {', '.join(values)}):\n    return lambda n: step(n, {arguments})"
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    report: Report = namespace["bind"](step, **values)
    return report


def _probe(folder: str) -> Any:
    import trainvitals  # noqa: PLC0415

    os.environ["TRAINVITALS_DIR"] = folder
    if not trainvitals.init(run="benchmark"):
        raise RuntimeError("the probe does not record here")
    return trainvitals


def step_mapping(folder: str) -> Iterator[Report]:
    """``step(n, values)`` with one dict of 16 floats."""
    step = _probe(folder).step
    yield lambda n: step(n, VALUES)


def step_keywords(folder: str) -> Iterator[Report]:
    """``step(n, loss=..., ...)`` with 16 keywords."""
    yield _with_keywords(_probe(folder).step, VALUES)


def step_usual(folder: str) -> Iterator[Report]:
    """What most loops report: loss, learning rate, gradient norm and tokens."""
    values = {name: VALUES[name] for name in ("loss", "learning_rate", "grad_norm")}
    yield _with_keywords(_probe(folder).step, {**values, "tokens": 4096})


def step_loss(folder: str) -> Iterator[Report]:
    """``step(n, loss=...)``."""
    yield _with_keywords(_probe(folder).step, {"loss": 2.345})


def step_tensors(folder: str) -> Iterator[Report]:
    """``step(n, values)`` with 16 CPU tensors."""
    import torch  # noqa: PLC0415

    step, tensors = _probe(folder).step, {name: torch.tensor(value) for name, value in VALUES.items()}
    yield lambda n: step(n, tensors)


def phase(folder: str) -> Iterator[Report]:
    """Enter and leave a phase."""
    enter = _probe(folder).phase

    def report(_: int) -> None:
        with enter("data"):
            pass

    yield report


def prometheus(_: str) -> Iterator[Report]:
    """16 gauges, set through children that were kept."""
    from prometheus_client import CollectorRegistry, Gauge  # noqa: PLC0415

    registry = CollectorRegistry()
    gauges = [
        (Gauge(name, name, ["run", "rank"], registry=registry).labels("benchmark", "0"), value)
        for name, value in VALUES.items()
    ]

    def report(_: int) -> None:
        for gauge, value in gauges:
            gauge.set(value)

    yield report


def prometheus_multiprocess(folder: str) -> Iterator[Report]:
    """The same in multiprocess mode, which is how several ranks would share one endpoint."""
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
    yield from prometheus(folder)


def json_line(_: str) -> Iterator[Report]:
    """``json.dumps`` of step, time and values, written to a buffered file on disk."""
    disk = tempfile.mkdtemp(prefix="trainvitals-bench-")
    try:
        with open(os.path.join(disk, "log.jsonl"), "w", encoding="utf-8") as file:
            yield lambda n: file.write(json.dumps({"step": n, "time": time.time(), **VALUES}) + "\n")
    finally:
        shutil.rmtree(disk)


def tensorboard(_: str) -> Iterator[Report]:
    """16 calls of ``add_scalar``, with PyTorch's writer or else tensorboardX's."""
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415
    except ImportError:
        from tensorboardX import SummaryWriter  # noqa: PLC0415
    disk = tempfile.mkdtemp(prefix="trainvitals-bench-")
    try:
        writer = SummaryWriter(disk)

        def report(n: int) -> None:
            for name, value in VALUES.items():
                writer.add_scalar(name, value, n)

        yield report
        writer.close()
    finally:
        shutil.rmtree(disk)


def wandb_offline(_: str) -> Iterator[Report]:
    """``run.log`` of W&B in offline mode: no network, no system metrics, no console."""
    # The address answers nowhere: nothing of this leaves the machine even if an option were ignored.
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_ERROR_REPORTING="false")
    os.environ.update(WANDB_BASE_URL="http://127.0.0.1:9", WANDB_API_KEY="0" * 40)
    import wandb  # noqa: PLC0415

    disk = tempfile.mkdtemp(prefix="trainvitals-bench-")
    try:
        settings = wandb.Settings(
            console="off", x_disable_stats=True, x_disable_meta=True, disable_git=True, disable_code=True
        )
        run = wandb.init(project="benchmark", dir=disk, mode="offline", settings=settings)
        yield lambda n: run.log(VALUES, step=n)
        run.finish()
    finally:
        shutil.rmtree(disk)


@dataclass(frozen=True)
class Way:
    """One row: its title, what makes it, and the packages of which it needs one."""

    title: str
    make: Callable[[str], Iterator[Report]]
    needs: tuple[str, ...] = ()

    def missing(self) -> bool:
        """Whether none of the packages is installed."""
        return bool(self.needs) and not any(importlib.util.find_spec(name) for name in self.needs)


WAYS = (
    Way("bare write", bare_write),
    Way("step(n, mapping), 16 floats", step_mapping),
    Way("step(n, ...), 16 keywords", step_keywords),
    Way("an empty function, 16 keywords", empty_call),
    Way("step(n, ...), loss, rate, norm and tokens", step_usual),
    Way("step(n, loss=...)", step_loss),
    Way("step(n, mapping), 16 CPU tensors", step_tensors, ("torch",)),
    Way("with phase(...)", phase),
    Way("prometheus_client, 16 gauges", prometheus, ("prometheus_client",)),
    Way("prometheus_client, multiprocess", prometheus_multiprocess, ("prometheus_client",)),
    Way("JSON line", json_line),
    Way("TensorBoard", tensorboard, ("tensorboard", "tensorboardX")),
    Way("W&B, offline", wandb_offline, ("wandb",)),
)
BARE, MAPPING, KEYWORDS = WAYS[:3]
#: Title -> how many times cheaper a mapping of floats shall be.
TARGETS = {"prometheus_client, multiprocess": 5.0, "TensorBoard": 100.0, "W&B, offline": 100.0}
MOST_BARE_WRITES = 3.0


def work(index: int, connection: Connection, folder: str) -> None:
    """In a process of its own: whenever asked, measure; answer with the mean and with single calls, in nanoseconds."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    clock = time.perf_counter_ns
    numbers = itertools.count()
    for report in WAYS[index].make(folder):
        for n in itertools.islice(numbers, 200):
            report(n)
        begun = clock()
        for n in itertools.islice(numbers, 100):
            report(n)
        calls = max(4, int(TURN / ((clock() - begun) / 100)))
        connection.send(None)
        while connection.recv():
            for n in itertools.islice(numbers, min(calls, 50)):
                report(n)
            # The clock is read around many calls for the mean, and around each for the tail.
            begun = clock()
            for n in itertools.islice(numbers, calls):
                report(n)
            mean = (clock() - begun) / calls
            singles = []
            for n in itertools.islice(numbers, calls):
                begun = clock()
                report(n)
                singles.append(clock() - begun)
            connection.send((mean, singles))
    connection.send(None)


class Worker:
    """The process of one way."""

    def __init__(self, index: int) -> None:
        self._folder = tempfile.mkdtemp(prefix="trainvitals-bench-", dir="/dev/shm")
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(index, theirs, self._folder))
        self._process.start()
        theirs.close()
        self.means: list[float] = []
        self.singles: list[int] = []
        self._connection.recv()

    def turn(self) -> None:
        """Let it work for a few milliseconds."""
        self._connection.send(True)
        mean, singles = self._connection.recv()
        self.means.append(mean)
        self.singles += singles

    def stop(self) -> None:
        """Let it clean up and end."""
        self._connection.send(False)
        self._connection.recv()
        self._process.join()
        shutil.rmtree(self._folder)


def table(results: dict[str, Worker]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [
        "| way | median µs | min µs | p99 µs | ÷ bare write | ÷ step(mapping) | ÷ step(keywords) |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    medians = {title: statistics.median(worker.means) / 1000 for title, worker in results.items()}
    for title, worker in results.items():
        p99 = statistics.quantiles(worker.singles, n=100, method="inclusive")[98] / 1000
        ratios = [medians[title] / medians[base.title] for base in (BARE, MAPPING, KEYWORDS)]
        numbers = [f"{medians[title]:.2f}", f"{min(worker.means) / 1000:.2f}", f"{p99:.2f}"]
        lines.append(f"| {title} | {' | '.join(numbers + [f'{ratio:.2f}' for ratio in ratios])} |")
    return lines


def verdicts(results: dict[str, Worker]) -> Iterator[tuple[str, bool]]:
    """Yield each target with what was reached, and whether that is enough."""
    medians = {title: statistics.median(worker.means) for title, worker in results.items()}
    for way in (MAPPING, KEYWORDS):
        ratio = medians[way.title] / medians[BARE.title]
        text = f"{way.title}: {ratio:.2f} bare writes, target at most {MOST_BARE_WRITES:g}"
        yield text, ratio <= MOST_BARE_WRITES
    for title, factor in TARGETS.items():
        if title in medians:
            for way in (MAPPING, KEYWORDS):
                ratio = medians[title] / medians[way.title]
                yield f"{way.title}: {ratio:.1f} times cheaper than {title}, target {factor:g}", ratio >= factor


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=300, help="turns per way")
    arguments = parser.parse_args()
    missing = [way for way in WAYS if way.missing()]
    results = {way.title: Worker(index) for index, way in enumerate(WAYS) if way not in missing}
    for _ in range(arguments.rounds):
        for worker in results.values():
            worker.turn()
    for worker in results.values():
        worker.stop()
    print(f"{platform.python_implementation()} {platform.python_version()}, {platform.machine()}, {_processor()}\n")
    print("\n".join(table(results)), "\n")
    for title, before in (("in a bare interpreter", "sys"), ("after what PyTorch imports too", STANDARD)):
        times = import_milliseconds(before)
        print(f"- import trainvitals {title}: median {statistics.median(times):.1f} ms, min {min(times):.1f} ms")
    for text, is_reached in verdicts(results):
        print(f"- {'reached' if is_reached else 'MISSED'}: {text}")
    for way in missing:
        print(f"- not measured: {way.title} needs {' or '.join(way.needs)}")


def import_milliseconds(before: str) -> list[float]:
    """Return how long ``import trainvitals`` takes in fresh processes that have imported ``before``.

    One process more comes first and fills the cache of bytecode.
    """
    source = (
        f"import time, {before}; begun = time.perf_counter(); import trainvitals; print(time.perf_counter() - begun)"
    )
    with tempfile.TemporaryDirectory(prefix="trainvitals-bench-") as cache:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, "-c", source]
        return [
            float(subprocess.run(command, env=environment, check=True, capture_output=True).stdout) * 1000
            for _ in range(21)
        ][1:]


def _processor() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return f"{os.cpu_count()} x {models[0] if models else 'unknown processor'}"


if __name__ == "__main__":
    main()
