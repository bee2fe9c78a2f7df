"""A supervised run in folders of its own, for tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.helpers import PATIENCE, trainer_environment

from trainvitals.journal import Incident, Journal


class Run:
    """A run of ``program``, a command without its ``--output`` and ``--steps``."""

    def __init__(self, folder: Path, spool: Path, program: list[str], steps: int) -> None:
        self.folder, self.spool, self.program, self.steps = folder, spool, program, steps
        self.checkpoints = folder / "checkpoints"
        self.state = folder / "state"
        self.journal = folder / "journal.db"
        for path in (self.checkpoints, folder / "done"):
            path.mkdir(exist_ok=True)

    def training(self) -> list[str]:
        """Return the command of the training."""
        return [*self.program, "--output", str(self.checkpoints), "--steps", str(self.steps)]

    def command(self, *options: str) -> list[str]:
        """Return the whole command."""
        own = ["--checkpoint-dir", self.checkpoints, "--state-dir", self.state, "--journal", self.journal]
        return [
            *(sys.executable, "-m", "trainvitals", "run", "--name", "test", "--back-off", "0"),
            *(*map(str, own), *options, "--", *self.training()),
        ]

    def environment(self, faults: str = "") -> dict[str, str]:
        """Return the environment."""
        done = str(self.folder / "done")
        return trainer_environment(self.spool, FAULTS=faults, FAULTS_DONE=done, OMP_NUM_THREADS="1")

    def finish(self, *options: str, faults: str = "", timeout: float = PATIENCE) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        return subprocess.run(
            self.command(*options),
            env=self.environment(faults),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    @contextmanager
    def started(self, *options: str, faults: str = "") -> Iterator[subprocess.Popen[bytes]]:
        """Give a supervisor that runs; its words and those of its training go into a file."""
        with open(self.folder / "words", "ab") as words:
            process = subprocess.Popen(self.command(*options), env=self.environment(faults), stdout=words, stderr=words)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(PATIENCE)

    def words(self) -> str:
        """Return what was said so far."""
        return (self.folder / "words").read_text(errors="replace")

    def incidents(self) -> list[Incident]:
        """Return what was recorded, in order."""
        journal = Journal(str(self.journal))
        found = sorted(journal.incidents("test"), key=lambda one: one.detected)
        journal.close()
        return found

    def steps_saved(self) -> list[int]:
        """Return the steps of the checkpoints."""
        return sorted(int(path.stem.removeprefix("step_")) for path in self.checkpoints.glob("step_*.pt"))

    def processes(self) -> list[str]:
        """Return the processes that have this run's folder on their command line."""
        done = subprocess.run(["pgrep", "-f", str(self.folder)], capture_output=True, text=True, check=False)
        return done.stdout.split()
