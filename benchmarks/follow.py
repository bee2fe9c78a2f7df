"""How fast logs are read: a text of 1 GiB, and a million steps as CSV and as JSON lines.

    python benchmarks/follow.py [--quick] [--mebibytes N] [--steps N] [--repeats N] [--check]

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

#: What a job of Megatron-LM prints between two iterations: loaders, warnings, ranks, bars, NCCL, words that never come
#: again.  19 lines of about 110 bytes; s is the step, and h 8 digits of a hash of it.
_BETWEEN = """\
2026-03-02 04:11:09,{s:06d} INFO  shard {s} of 500000 opened in 0.{s} s, 1048576 samples, cache is warm
/opt/venv/lib/python3.11/site-packages/torch/utils/checkpoint.py:{s}: UserWarning: None of the inputs have requires_grad
  warnings.warn(
[rank3]: fetched batch {s} of worker 3; the queue holds 14 of 16 batches, decoding takes 11 ms per sample
[rank5]: fetched batch {s} of worker 1; the queue holds 9 of 16 batches, decoding takes 12 ms per sample
[default0]:node-017:48211:51207 [0] NCCL INFO Channel {s}/0 : 3[3] -> 4[4] via P2P/CUMEM, 24 coll channels
[default0]:node-017:48211:51207 [0] NCCL INFO threadThresholds 8/8/64 | {s}/8/512 | 512 | 512
\rfiltering:  {s}/500000 [00:11<00:42, 812.55it/s]\rfiltering:  {s}/500000 [00:12<00:41, 822.15it/s]
2026-03-02 04:11:10,{s:06d} INFO  cache entry {h:08x}{h:08x} of bucket tokens-{s:07d} was read from node-{s}
(min, max) time across ranks (ms):
    queue of the writer: {s} of 4096 entries, oldest 0.{s} s, newest 0.00{s} s, 3 threads, 0 retries
[Rank 4] (after {s} batches) memory (MB) | allocated: 41212.55 | max allocated: 61003.15 | reserved: 63550.0
I0302 04:11:11.{s:06d} 48211 reader.cc:214] prefetched {s} records of 4096 from part-{s:05d}, 0 skipped
2026-03-02 04:11:11,{s:06d} DEBUG tokens seen by source: web 0.{s}, code 0.{s}, books 0.{s}, math 0.0{s}
2026-03-02 04:11:12,{s:06d} INFO  host node-017: 41.{s} C inlet, 6204 W, fans at 62 percent, 0 events since start
2026-03-02 04:11:12,{s:06d} INFO  tokenizer worker 7: {s} documents, {s} tokens in the buffer, lag 0.{s} s
DeprecationWarning: `np.bool8` is a deprecated alias, seen {s} times in this process, see the notes of 1.24
2026-03-02 04:11:13,{s:06d} INFO  heartbeat of agent {s}: 8 of 8 workers alive, store at 10.0.0.17:29500
2026-03-02 04:11:13,{s:06d} INFO  uploaded tfevents of {s} bytes to s3://bucket/run-17/part-{s} in 0.{s} s
"""
_ITERATION = (
    " [2026-03-02 04:{m:02d}:{n:02d}.{s:06d}] iteration {s:8d}/  500000 | consumed samples: {t:12d} | elapsed time per "
    "iteration (ms): {e:.1f} | throughput per GPU (TFLOP/s/GPU): {f:.1f} | learning rate: {r:.6E} | global batch size: "
    "  512 | lm loss: {l:.6E} | loss scale: 1.0 | grad norm: {g:.3f} | number of skipped iterations:   0 | number of "
    "nan iterations:   0 |\n"
)
_SAVED = "  successfully saved checkpoint from iteration {s:7d} to /data/checkpoints/run-17\n"


@dataclass(frozen=True)
class Result:
    """What reading one log took: processor seconds, the same of Python's loop over its lines, and peak memory."""

    name: str
    size: int
    steps: int
    seconds: float
    loop_seconds: float
    mebibytes: float


def job_lines() -> Iterator[str]:
    """Yield what a job of Megatron-LM prints from step to step, one line of 20 being a step."""
    step = 0
    while True:
        step += 1
        yield _BETWEEN.format(s=step, h=hash((step, 17)) & 0xFFFFFFFF)
        yield _ITERATION.format(
            s=step,
            m=step // 60 % 60,
            n=step % 60,
            t=512 * step,
            e=4800 + step % 97,
            f=230 + step % 13 / 4,
            r=3e-4 / (1 + step / 1e5),
            l=2.0 + 9.0 / (1.0 + step / 1000.0),
            g=1 + step % 9 / 10,
        )
        if step % 500 == 0:
            yield _SAVED.format(s=step)


def step_lines() -> Iterator[str]:
    """Yield a log of nanoGPT: nothing but steps."""
    step = 0
    while True:
        loss = 2.0 + 9.0 / (1.0 + step / 1000.0)
        moment = f"2026-03-02 04:{step // 60 % 60:02d}:{step % 60:02d}"
        yield f"{moment} iter {step}: loss {loss:.4f}, time {480 + step % 7:.2f}ms, mfu 41.20%\n"
        step += 1


def write_text(path: Path, size: int, lines: Iterator[str]) -> None:
    """Write a log of so many bytes."""
    with path.open("w", newline="") as file:
        written = 0
        for line in lines:
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
        *(
            (f"{name}: {million:.2f} s for a million steps, at most {MOST_SECONDS:.0f}", million <= MOST_SECONDS)
            for name, result in (("CSV", table), ("JSON lines", lines))
            for million in (result.seconds / result.steps * 1e6,)
        ),
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
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="an eighth of the texts, a fifth of the tables, once")
    parser.add_argument("--folder", default=None, help="where the logs are written (default: the system's)")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    parser.add_argument("--read", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        read(arguments.read)
        return 0
    size, steps, repeats = arguments.mebibytes << 20, arguments.steps, arguments.repeats
    if arguments.quick:
        size, steps, repeats = size // 8, steps // 5, 1
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        text, table, lines = (Path(folder) / name for name in ("train.log", "metrics.csv", "metrics.jsonl"))
        results = [
            measure("text, a step in 20 lines", text, lambda: write_text(text, size, job_lines()), repeats),
            measure("text, nothing but steps", text, lambda: write_text(text, size // 8, step_lines()), repeats),
            measure("CSV", table, lambda: write_csv(table, steps), repeats),
            measure("JSON lines", lines, lambda: write_json_lines(lines, steps), repeats),
        ]
    is_reached = report(results)
    return int(arguments.check and not is_reached)


if __name__ == "__main__":
    os.environ.setdefault("TZ", "UTC")
    sys.exit(main())
