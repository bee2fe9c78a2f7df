"""How fast logs are read: a text of 1 GiB, and a million steps as CSV and as JSON lines.

    python benchmarks/follow.py [--mebibytes N] [--steps N] [--check]

Each log is read in a process of its own, from its begin to its end, by what the exporter uses: format found by
content, lines cleaned, errors looked for, steps put in order and handed over.  Beside each figure stands how often
Python's own ``for line in file`` goes over the same file in that time: the unit for another machine.
Seconds are those of the processor, so that a busy machine tells about the same.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

#: Targets.
LEAST_MEGABYTES = 100.0
MOST_MEBIBYTES = 200.0
MOST_SECONDS = 3.0
#: Bytes that are read between two looks at the steps, as in an exporter that polls.
_POLL = 1 << 26

_NOISE = (
    "2026-03-02 04:11:09,{i:03d} INFO  shard {i} of 4096 opened in 0.{i} s, 1048576 samples, cache is warm\n"
    "/opt/venv/lib/python3.11/site-packages/torch/utils/checkpoint.py:{i}: UserWarning: None of the inputs have "
    "requires_grad=True. Gradients will be None\n  warnings.warn(\n"
    "[rank{r}]: fetched batch {i} of worker 3; the queue holds 14 of 16 batches, decoding takes 11 ms per sample\n"
)


@dataclass(frozen=True)
class Result:
    """What reading one log took: processor seconds, the same of Python's loop over its lines, and peak memory."""

    name: str
    size: int
    steps: int
    seconds: float
    loop_seconds: float
    mebibytes: float


def text_lines(every: int) -> Iterator[str]:
    """Yield a log of nanoGPT, with one line of a step after ``every`` blocks of four lines of other output."""
    step = 0
    while True:
        for block in range(every):
            yield _NOISE.format(i=(step * 7 + block) % 1000, r=block % 8)
        loss = 2.0 + 9.0 / (1.0 + step / 1000.0)
        moment = f"2026-03-02 04:11:{step % 60:02d}"
        yield f"{moment} iter {step}: loss {loss:.4f}, time {480 + step % 7:.2f}ms, mfu 41.20%\n"
        step += 1


def write_text(path: Path, size: int, every: int) -> None:
    """Write a log of so many bytes."""
    with path.open("w") as file:
        written = 0
        for line in text_lines(every):
            written += file.write(line)
            if written >= size:
                return


def write_csv(path: Path, steps: int) -> None:
    """Write a table of five columns."""
    with path.open("w") as file:
        file.write("step,loss,lr,grad_norm,tokens_per_second\n")
        for step in range(steps):
            file.write(
                f"{step},{2 + 9 / (1 + step / 1000):.6f},{3e-4:.3e},{1 + step % 9 / 10:.4f},{91000 + step % 99}\n"
            )


def write_json_lines(path: Path, steps: int) -> None:
    """Write an object for each step."""
    with path.open("w") as file:
        for step in range(steps):
            values = {
                "step": step,
                "loss": round(2 + 9 / (1 + step / 1000), 6),
                "lr": 3e-4,
                "grad_norm": 1 + step % 9 / 10,
            }
            file.write(json.dumps(values) + "\n")


def read(path: str) -> None:
    """Read one log to its end and print what it took: the whole of a child process."""
    from trainvitals.follow.errors import ErrorReader  # noqa: PLC0415
    from trainvitals.follow.follower import Follower  # noqa: PLC0415
    from trainvitals.follow.sources import Source  # noqa: PLC0415

    before = time.process_time()
    now = 1e9

    def clock() -> float:
        return now

    follower = Follower([Source(path)], scanner=ErrorReader, rate=_POLL, clock=clock)
    steps = 0
    while True:
        now += 1.0
        runs = follower.poll(final=True)
        steps += sum(len(run.steps) for run in runs)
        if not follower.behind:
            break
    seconds = time.process_time() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"steps": steps, "seconds": seconds, "mebibytes": peak, "formats": runs[0].formats}))


def loop(path: Path) -> float:
    """Return the processor seconds of Python's loop over the lines of a file."""
    best = math.inf
    for _ in range(2):
        before = time.process_time()
        with path.open("rb") as file:
            for _line in file:
                pass
        best = min(best, time.process_time() - before)
    return best


def measure(name: str, path: Path, write: Callable[[], None], repeats: int) -> Result:
    """Write a log, read it a few times, and return the fastest."""
    write()
    results = []
    for _ in range(repeats):
        done = subprocess.run([sys.executable, __file__, "--read", str(path)], stdout=subprocess.PIPE, check=True)
        results.append(json.loads(done.stdout))
    best = min(results, key=lambda result: result["seconds"])
    size = path.stat().st_size
    result = Result(name, size, best["steps"], best["seconds"], loop(path), max(r["mebibytes"] for r in results))
    path.unlink()
    return result


def report(results: list[Result]) -> bool:
    """Print a table and the targets; return whether all are reached."""
    print("| log | size | steps | seconds | MB/s | steps/s | times a loop over its lines | peak memory |")
    print("|---|---|---|---|---|---|---|---|")
    for r in results:
        print(
            f"| {r.name} | {r.size / 1e6:.0f} MB | {r.steps:,} | {r.seconds:.2f} | {r.size / 1e6 / r.seconds:.0f} "
            f"| {r.steps / r.seconds:,.0f} | {r.seconds / r.loop_seconds:.1f} | {r.mebibytes:.0f} MiB |"
        )
    text, _, table, lines = results
    most = max(result.mebibytes for result in results)
    speed = text.size / 1e6 / text.seconds
    verdicts = [
        (f"a text with some steps: {speed:.0f} MB/s, at least {LEAST_MEGABYTES:.0f}", speed >= LEAST_MEGABYTES),
        (f"memory: {most:.0f} MiB, at most {MOST_MEBIBYTES:.0f}", most <= MOST_MEBIBYTES),
        (f"CSV: {table.seconds:.2f} s, at most {MOST_SECONDS:.0f}", table.seconds <= MOST_SECONDS),
        (f"JSON lines: {lines.seconds:.2f} s, at most {MOST_SECONDS:.0f}", lines.seconds <= MOST_SECONDS),
    ]
    print()
    for sentence, is_reached in verdicts:
        print(f"- {'reached' if is_reached else 'MISSED'}: {sentence}")
    return all(is_reached for _, is_reached in verdicts)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mebibytes", type=int, default=1024, help="size of the texts")
    parser.add_argument("--steps", type=int, default=1_000_000, help="steps of the tables")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", default=None, help="where the logs are written (default: the system's)")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    parser.add_argument("--read", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        read(arguments.read)
        return 0
    size, steps, repeats = arguments.mebibytes << 20, arguments.steps, arguments.repeats
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        text, table, lines = (Path(folder) / name for name in ("train.log", "metrics.csv", "metrics.jsonl"))
        results = [
            measure("text, a step in 20 lines", text, lambda: write_text(text, size, 5), repeats),
            measure("text, nothing but steps", text, lambda: write_text(text, size // 8, 0), repeats),
            measure("CSV", table, lambda: write_csv(table, steps), repeats),
            measure("JSON lines", lines, lambda: write_json_lines(lines, steps), repeats),
        ]
    is_reached = report(results)
    return int(arguments.check and not is_reached)


if __name__ == "__main__":
    os.environ.setdefault("TZ", "UTC")
    sys.exit(main())
