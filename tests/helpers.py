"""What several test files need: waiting, child processes, and a scrape as a dictionary."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from prometheus_client.metrics_core import Metric

from trainvitals import detect
from trainvitals.collect.base import Sink, Tally
from trainvitals.collect.ranks import RanksCollector
from trainvitals.collect.runs import Runs
from trainvitals.collect.spool import Spool

T = TypeVar("T")

#: Long enough for a machine that is busy with other things.
PATIENCE = 180.0


def wait_until(question: Callable[[], T], *, timeout: float = PATIENCE) -> T:
    """Ask until the answer is true, and return it; fail after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not (answer := question()):
        assert time.monotonic() < deadline, f"still {answer!r} after {timeout} s"
        time.sleep(0.01)
    return answer


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def trainer_environment(spool: str | Path, **more: str) -> dict[str, str]:
    """Return an environment with this spool and nothing of ours or of a launcher from outside."""
    ours = ("TRAINVITALS_", "SLURM_", "TORCHELASTIC_", "OMPI_", "PMI_", "PADDLE_", "RAY_", "NVRX_", "PET_", "JOBSET_")
    ours += ("PBS_", "LSB_", "FLUX_", "MASTER_")
    launcher = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "RANK_ID", "DEVICE_ID", "RANK_SIZE", "GROUP_RANK", "NODE_RANK"}
    launcher |= {"JOB_COMPLETION_INDEX", "KUBERNETES_SERVICE_HOST"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours) and name not in launcher}
    return {**kept, "TRAINVITALS_DIR": str(spool), "TRAINVITALS_RUN": "test", **more}


def run_trainer(script: str, spool: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a training script to its end."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=trainer_environment(spool, **more),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@contextmanager
def trainer(script: str, spool: str | Path, **more: str) -> Iterator[subprocess.Popen[str]]:
    """Start a training script and wait for its first line of output; kill it in the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=trainer_environment(spool, **more),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
        yield process
    finally:
        process.kill()
        process.communicate()


class Scrape(dict[str, float]):
    """Samples by name and labels in the text format: ``scrape['trainvitals_step{rank="0",run="test"}']``."""

    def __init__(self, families: list[Metric]) -> None:
        super().__init__()
        for family in families:
            for sample in family.samples:
                self[_series(sample.name, tuple(sample.labels.items()))] = sample.value


@lru_cache(maxsize=10_000)
def _series(name: str, labels: tuple[tuple[str, str], ...]) -> str:
    texts = ",".join(f'{label}="{_escaped(value)}"' for label, value in sorted(labels))
    return f"{name}{{{texts}}}" if texts else name


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Node:
    """The collector of ranks on one spool, with everything behind it and a clock that can be turned on."""

    def __init__(self, *folders: str | Path, keep: float = 3600.0, remove: bool = True, limit: int = 20_000) -> None:
        self.ahead = 0.0
        self.tally = Tally()
        self._limit = limit
        self.spool = Spool(
            [str(folder) for folder in folders],
            keep=keep,
            remove=remove,
            clock=self.clock,
            monotonic=lambda: time.monotonic() + self.ahead,
        )
        self.runs = Runs(detect.build)
        self.collector = RanksCollector(self.spool, self.runs, self.clock)

    def clock(self) -> float:
        """Return the wall time, plus what the test added."""
        return time.time() + self.ahead

    def scrape(self) -> Scrape:
        """Collect once."""
        sink = Sink(self.tally, limit=self._limit, collector="ranks")
        self.collector.collect(sink)
        return Scrape(sink.families())

    def rejected(self) -> dict[str, float]:
        """Collect once and return the files that cannot be used, by reason."""
        prefix = 'trainvitals_rank_files_rejected{reason="'
        return {name[len(prefix) : -2]: value for name, value in self.scrape().items() if name.startswith(prefix)}

    def state(self, rank: int = 0, run: str = "test") -> str | None:
        """Collect once and return the state of a rank, or None when it has none."""
        scrape = self.scrape()
        for state in ("running", "finished", "failed", "died"):
            if scrape.get(f'trainvitals_rank_state{{rank="{rank}",run="{run}",state="{state}"}}') == 1.0:
                return state
        return None


HEALTHY = """
    import sys, trainvitals

    trainvitals.init(run="healthy", target_steps=1000, rank=5)
    for number in range(20):
        with trainvitals.phase("data"):
            pass
        trainvitals.step(number, loss=2.0, grad_norm=0.5, learning_rate=0.001, tokens=10, extra=1.0)
    trainvitals.evaluate(19, accuracy=0.5)
    with trainvitals.checkpoint(19, "/checkpoint"):
        pass
    print("ready", flush=True)
    for line in sys.stdin:
        trainvitals.step(loss=2.0, grad_norm=0.5, learning_rate=0.001, tokens=10, extra=1.0)
        print("done", flush=True)
"""


def healthy_series(scrape: Scrape) -> dict[str, float]:
    """Return what a scrape shows of the run of :data:`HEALTHY`, without what changes from moment to moment."""
    return {name: value for name, value in scrape.items() if _is_fixed(name)}


@lru_cache(maxsize=10_000)
def _is_fixed(name: str) -> bool:
    moving = ("phase_seconds", "heartbeat", "step_duration", 'signal="stall"')
    return 'run="healthy"' in name and not any(word in name for word in moving)
