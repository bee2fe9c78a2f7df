"""How long a training stands still when a rank is killed: under ``trainvitals run``, beside plain ``torchrun``.

    python benchmarks/recovery.py [--rounds N]

Both train examples/train_resume.py on two ranks of this machine.  Rank 1 is killed (SIGKILL) after a step; measured is
the time from there to the end of the first step of the next attempt, as its rank file tells.  torchrun keeps its agent
and starts the ranks again; ``trainvitals run`` judges the failure, verifies the checkpoint and starts the whole
command again, agent included.  Only the latter goes on from the checkpoint: the former begins at step 1.
The two take turns, so that what else the machine does falls on both.

Ranks that torchrun 2.13 starts again by itself find the addresses of those before them in the agent's store, and gloo
fails to connect.  So each attempt has a part of the store of its own here, in both ways; ``trainvitals run`` alone
needs none, because it starts the agent anew.
"""

from __future__ import annotations

import argparse
import os
import runpy
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from trainvitals.spooled import recording

EXAMPLE = Path(__file__).parents[1] / "examples" / "train_resume.py"
#: Nobody waits longer for a step.
PATIENCE = 600.0
WAYS = ("torchrun --max-restarts 1", "trainvitals run --max-restarts 1")


def command(way: str, folder: Path) -> list[str]:
    """Return the command of one way."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    training = [__file__, "--output", str(folder), "--steps", "100000", "--every", "50", "--pause", "0.01"]
    if way == WAYS[0]:
        # The probe is attached as in the other way.
        attached = [sys.executable, "-m", "trainvitals", "run", "--name", "recovery", "--"]
        return [*attached, *launcher, "--max-restarts", "1", *training]
    own = ["--max-restarts", "1", "--checkpoint-dir", str(folder), "--state-dir", str(folder / "state")]
    own += ["--name", "recovery", "--journal", str(folder / "journal.db")]
    return [sys.executable, "-m", "trainvitals", "run", *own, "--", *launcher, *training]


def wait_for(process: subprocess.Popen[bytes], spool: Path, attempt: int, step: int) -> recording.Recording:
    """Return what rank 1 has reported once it has come to a step."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        for path in recording.find(str(spool)):
            try:
                found = recording.read(path)
            except recording.rankfile.RankFileError:
                continue
            is_it = found.identity.rank == 1 and found.identity.attempt == attempt
            if is_it and found.steps and found.steps[-1].step >= step:
                return found
        time.sleep(0.02)
    raise SystemExit(f"rank 1 has made no step {step} in attempt {attempt}: {' '.join(map(str, process.args))}")


def measure(way: str) -> tuple[float, int]:
    """Return the seconds from the death of rank 1 to the end of the next step, and the number of that step."""
    with tempfile.TemporaryDirectory(prefix="recovery-") as name:
        folder = Path(name)
        spool = folder / "spool"
        spool.mkdir()
        environ = {**os.environ, "TRAINVITALS_DIR": str(spool), "OMP_NUM_THREADS": "1"}
        with open(folder / "output.txt", "wb") as output:
            process = subprocess.Popen(command(way, folder), env=environ, stdout=output, stderr=output)
        try:
            victim = wait_for(process, spool, 0, 60)
            pid = recording.rankfile.Reader(victim.path).writer()
            if not pid:
                raise SystemExit("rank 1 is not there to be killed")
            killed = time.time()
            os.kill(pid, signal.SIGKILL)
            first = wait_for(process, spool, 1, 1).steps[0]
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    return first.time - killed, first.step


def train() -> None:
    """Run the example as a rank, with a part of the store for each attempt of torchrun."""
    import torch.distributed as dist  # noqa: PLC0415  Who measures needs none.

    environ = os.environ
    store = dist.TCPStore(environ["MASTER_ADDR"], int(environ["MASTER_PORT"]), is_master=False)
    part = dist.PrefixStore(environ["TORCHELASTIC_RESTART_COUNT"], store)
    begin, rank, size = dist.init_process_group, int(environ["RANK"]), int(environ["WORLD_SIZE"])
    dist.init_process_group = lambda backend: begin(backend, store=part, rank=rank, world_size=size)
    sys.argv[0] = str(EXAMPLE)
    runpy.run_path(sys.argv[0], run_name="__main__")


def main() -> None:
    """Measure both ways in turns and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    resumed: dict[str, int] = {}
    for _ in range(rounds):
        for way in WAYS:
            took, resumed[way] = measure(way)
            seconds[way].append(took)
    print(f"| way ({rounds} rounds) | seconds, median | least | most | goes on with step |")
    print("|---|---|---|---|---|")
    for way, found in seconds.items():
        row = f"{statistics.median(found):.1f} | {min(found):.1f} | {max(found):.1f} | {resumed[way]}"
        print(f"| `{way}` | {row} |")


if __name__ == "__main__":
    if "RANK" in os.environ:
        train()
    else:
        main()
