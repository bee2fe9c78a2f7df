"""What being watched costs a training: the time of a step with and without, and of our calls alone.

    python benchmarks/overhead.py [--starts N] [--rounds N] [--seconds S]

A loop with a loader, a loss, clipped gradients and AdamW is trained in three processes of its own for each model:

plain   nobody watches
step    the loop calls ``trainvitals.step(loss=loss)``
run     the plain loop below ``trainvitals run``: steps, learning rate, norm, waits for data

The processes take turns in an order that changes from round to round, so that a busy moment of the machine hits all
alike.  A round gives the median step of each; what is shown is the median of all rounds, and the median and the
quartiles of the quotients within each round.  Where these differ by more than our share, only the last columns tell
it: the time of our calls alone, measured in the same process.  Everything runs on one thread of the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

#: Width and depth of the network and size of a batch: about 1 ms and 50 ms a step on a core of 2.8 GHz.
MODELS = {"small": (32, 2, 8), "large": (512, 4, 128)}
WAYS = ("plain", "step", "run")
WARM_UP = 5
#: Seconds by way, one for each round.
Times = dict[str, list[float]]
#: Calls of ours that are timed together, and how often.
CALLS, REPEATS = 200, 25


class Training:
    """The loop, one step at a time."""

    def __init__(self, name: str, *, calls_step: bool) -> None:
        import torch  # noqa: PLC0415
        from torch import nn  # noqa: PLC0415
        from torch.utils.data import DataLoader, TensorDataset  # noqa: PLC0415

        torch.set_num_threads(1)
        torch.manual_seed(1)
        width, depth, batch = MODELS[name]
        layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
        self.model = nn.Sequential(*layers, nn.Linear(width, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.loader = DataLoader(TensorDataset(torch.randn(8 * batch, width)), batch_size=batch)
        self.batches = iter(self.loader)
        self.calls_step, self.torch = calls_step, torch

    def batch(self) -> Any:
        """Return the next batch; the loader begins anew when it is through."""
        try:
            return next(self.batches)[0]
        except StopIteration:
            self.batches = iter(self.loader)
            return next(self.batches)[0]

    def step(self) -> None:
        """Train one step."""
        loss = self.model(self.batch()).square().mean()
        loss.backward()
        self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.calls_step:
            import trainvitals  # noqa: PLC0415

            trainvitals.step(loss=loss)

    def calls_of_ours(self) -> Callable[[], object]:
        """Return what is called of ours in one step, without the step."""
        if self.calls_step:
            import trainvitals  # noqa: PLC0415

            loss = self.torch.tensor(0.5, requires_grad=True) * 1.0
            return lambda: trainvitals.step(loss=loss)
        from trainvitals.frameworks.pytorch import Watch  # noqa: PLC0415

        watch, norm = Watch(self.torch), self.torch.tensor(0.5)

        def calls() -> None:
            watch.end_loading(watch.begin_loading())
            watch.take_norm(norm)
            watch.step(self.optimizer)

        return calls


def work(way: str, name: str) -> None:
    """In a process of its own: answer each line, a number of steps, with the median seconds of a step."""
    if way == "step":
        import trainvitals  # noqa: PLC0415

        trainvitals.init(run="benchmark")
    training = Training(name, calls_step=way == "step")
    for _ in range(WARM_UP):
        training.step()
    for line in sys.stdin:
        if line.strip() == "alone":
            print(0.0 if way == "plain" else _alone(training.calls_of_ours()), flush=True)
            continue
        seconds = []
        for _ in range(int(line)):
            begun = time.perf_counter()
            training.step()
            seconds.append(time.perf_counter() - begun)
        print(statistics.median(seconds), flush=True)
    if way != "plain":
        from trainvitals import probe  # noqa: PLC0415

        assert probe.steps_recorded() > WARM_UP, "nothing was recorded"


def _alone(calls: Callable[[], object]) -> float:
    means = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        for _ in range(CALLS):
            calls()
        means.append((time.perf_counter() - begun) / CALLS)
    return statistics.median(means)


class Worker:
    """One way of one model."""

    def __init__(self, way: str, name: str, spool: str) -> None:
        command = [sys.executable, os.path.abspath(__file__), "--work", way, name]
        if way == "run":
            command = [sys.executable, "-m", "trainvitals", "run", "--name", "benchmark", "--", *command]
        environment = {**os.environ, "TRAINVITALS_DIR": spool, "OMP_NUM_THREADS": "1"}
        if way == "plain":
            environment["TRAINVITALS_DISABLE"] = "1"
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, question: object) -> float:
        """Ask for steps, or for our calls alone; return seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(question, file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())

    def close(self) -> None:
        """Let it end."""
        self._process.communicate()
        if self._process.returncode:
            raise RuntimeError(f"a worker failed with status {self._process.returncode}")


def measure(name: str, starts: int, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Return one row for each way of a model."""
    found: Times = {way: [] for way in WAYS}
    alone: Times = {way: [] for way in WAYS}
    # Where a process has its memory makes it faster or slower for all of its life, so each gets several.
    steps = sum(take_turns(name, rounds, seconds, found, alone) for _ in range(starts))
    return [_row(name, way, steps, found, alone) for way in WAYS]


def take_turns(name: str, rounds: int, seconds: float, found: Times, alone: Times) -> int:
    """Measure one set of processes; return the steps that each has done."""
    spool = tempfile.mkdtemp(prefix="trainvitals-bench-", dir="/dev/shm")
    workers = {way: Worker(way, name, spool) for way in WAYS}
    try:
        once = max(worker.ask(WARM_UP) for worker in workers.values())
        steps = max(3, round(seconds / once))
        for _ in range(rounds):
            for way in random.sample(WAYS, len(WAYS)):
                found[way].append(workers[way].ask(steps))
                alone[way].append(workers[way].ask("alone"))
    finally:
        for worker in workers.values():
            worker.close()
        shutil.rmtree(spool)
    return steps * rounds


def _row(
    name: str, way: str, steps: int, found: dict[str, list[float]], alone: dict[str, list[float]]
) -> dict[str, Any]:
    quotients = [mine / plain for mine, plain in zip(found[way], found["plain"], strict=True)]
    low, middle, high = statistics.quantiles(quotients, n=4)
    step, ours = statistics.median(found["plain"]), statistics.median(alone[way])
    return {
        "model": name,
        "way": way,
        "steps": steps,
        "milliseconds": statistics.median(found[way]) * 1e3,
        "quotient": middle,
        "quartiles": (low, high),
        "least": min(found[way]) * 1e3,
        "microseconds": ours * 1e6,
        "least_microseconds": min(alone[way]) * 1e6,
        "share": ours / step,
    }


def main() -> None:
    """Measure and print a table, or JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--starts", type=int, default=6, help="sets of processes")
    parser.add_argument("--rounds", type=int, default=15, help="of each set")
    parser.add_argument("--seconds", type=float, default=0.3, help="of one turn")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(*options.work)
        return
    rows = [row for name in MODELS for row in measure(name, options.starts, options.rounds, options.seconds)]
    if options.json:
        print(json.dumps(rows))
        return
    starts = f"{options.starts} starts of {options.rounds} rounds"
    print(f"{platform.machine()}, Python {platform.python_version()}, {starts}\n")
    print("| model | way | steps | step, ms | least | ÷ plain | quartiles | our calls alone, µs | of a step | least |")
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for row in rows:
        low, high = row["quartiles"]
        print(
            f"| {row['model']} | {row['way']} | {row['steps']} | {row['milliseconds']:.3f} | {row['least']:.3f} "
            f"| {row['quotient']:.4f} | {low:.4f} to {high:.4f} "
            f"| {row['microseconds']:.1f} | {row['share']:.3%} | {row['least_microseconds']:.1f} |"
        )


if __name__ == "__main__":
    main()
