"""A launcher and two ranks without PyTorch, for what does not need it: starts in a fraction of a second.

Ranks report steps of 20 ms and rank 0 saves every fifth as an archive like those of torch.save.  The launcher ends the
others when one fails, as torchrun does.  ``FAULTS`` and ``FAULTS_DONE`` are as in faulty.py.
"""

from __future__ import annotations

import argparse
import os
import pickle
import re
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import trainvitals

EVERY = 5


def launch(arguments: list[str]) -> int:
    """Start the ranks; return 1 as soon as one fails."""
    ranks = []
    for rank in range(2):
        environ = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
        command = [sys.executable, __file__, *arguments]
        ranks.append(subprocess.Popen(command, env=environ, start_new_session=True))

    def pass_on(number: int, _: object) -> None:
        for process in ranks:
            process.send_signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    while None in [process.poll() for process in ranks]:
        for rank, process in enumerate(ranks):
            if process.returncode:
                for other in ranks:
                    other.kill()
                # The words of torchelastic.
                failed = f"failed (exitcode: {process.returncode}) local_rank: {rank} (pid: {process.pid}) of binary: x"
                print(failed, file=sys.stderr, flush=True)
                return 1
        time.sleep(0.01)
    return 1 if any(process.returncode for process in ranks) else 0


def save(folder: Path, step: int) -> None:
    """Write a checkpoint."""
    with zipfile.ZipFile(folder / f"step_{step}.tmp", "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps({"step": step}, protocol=2))
    os.replace(folder / f"step_{step}.tmp", folder / f"step_{step}.pt")


def barrier(folder: Path, rank: int, step: int) -> None:
    """Wait until the other rank has come as far: as a collective does."""
    attempt = os.environ["TRAINVITALS_ATTEMPT"]
    own, other = (folder / f"at-{attempt}-{number}" for number in (rank, 1 - rank))
    own.with_suffix(".new").write_text(str(step))
    own.with_suffix(".new").replace(own)
    while not other.exists() or int(other.read_text()) < step:
        time.sleep(0.002)


def happen(kind: str, step: int) -> None:
    """Let a fault happen."""
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind in {"raise", "again"}:
        raise ValueError(f"there is no head {step}")
    elif kind in {"full", "fullagain"}:
        raise OSError(28, "No space left on device", "/ckpt/step.pt")
    elif kind == "import":
        raise ModuleNotFoundError("No module named 'fused_kernels'")


def train() -> None:
    """Train one rank."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--resume")
    options = parser.parse_args()
    rank = int(os.environ["RANK"])
    faults = [fault.split("@") for fault in os.environ.get("FAULTS", "").split(",") if fault]
    done = Path(os.environ["FAULTS_DONE"])
    resumed = options.resume or trainvitals.resume_path()
    first = int(re.search(r"\d+", Path(resumed).name)[0]) + 1 if resumed else 1
    trainvitals.init()
    nan = False
    for step in range(first, options.steps + 1):
        barrier(done, rank, step)
        time.sleep(0.02)
        due = [kind for kind, number, place in faults if int(number) == rank and int(place) == step]
        due = [kind for kind in due if kind.endswith("again") or not (done / f"{kind}-{step}").exists()]
        for kind in due:
            (done / f"{kind}-{step}").touch()
        nan = nan or bool({"nan", "nanagain"} & set(due))
        trainvitals.step(step, loss=float("nan") if nan else 1.0 / step)
        # In one piece, also where Python does not buffer.
        os.write(1, f"rank {rank} step {step}\n".encode())
        for kind in due:
            happen(kind, step)
        if step % EVERY == 0 and rank == 0:
            save(options.output, step)


if __name__ == "__main__":
    if "RANK" in os.environ:
        train()
    else:
        sys.exit(launch(sys.argv[1:]))
