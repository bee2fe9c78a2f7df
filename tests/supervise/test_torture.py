"""Random kills of ranks, launcher, supervisor and exporter, one after the other: each interruption is recorded once.

``TORTURE_KILLS`` and ``TORTURE_SEED`` say how many and which; `make torture` asks for 200.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
from tests.helpers import PATIENCE, free_port, wait_until
from tests.supervise.runs import Run

pytestmark = pytest.mark.torture

KILLS = int(os.environ.get("TORTURE_KILLS", "30"))
SEED = int(os.environ.get("TORTURE_SEED", "1"))
EVERY = 5
QUICK = [sys.executable, str(Path(__file__).parent / "quick.py")]
VICTIMS = ("rank", "rank", "launcher", "supervisor", "exporter")


class Scene:
    """A supervised run of two ranks, and an exporter that writes into the same journal."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.words = open(run.folder / "words", "ab")  # noqa: SIM115  It is closed with the scene.
        self.supervisor = self.supervise()
        self.exporter = self.export()

    def supervise(self) -> subprocess.Popen[bytes]:
        """Start the supervisor, or start it again."""
        command = self.run.command("--max-restarts", "100000")
        return subprocess.Popen(command, env=self.run.environment(), stdout=subprocess.DEVNULL, stderr=self.words)

    def export(self) -> subprocess.Popen[bytes]:
        """Start the exporter, or start it again."""
        command = [sys.executable, "-m", "trainvitals", "exporter", f"--web.listen-address=127.0.0.1:{free_port()}"]
        own = {"TRAINVITALS_JOURNAL_PATH": str(self.run.journal), "STATE_DIRECTORY": str(self.run.folder / "exporter")}
        environ = {**self.run.environment(), **own, "TRAINVITALS_COLLECT_INTERVAL": "1s"}
        return subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=self.words)

    def members(self) -> tuple[psutil.Process, list[psutil.Process]] | None:
        """Return the launcher and its ranks; None while they are not all there."""
        found = []
        for process in psutil.process_iter(["cmdline", "ppid"]):
            line = process.info["cmdline"] or []
            if line[:2] == QUICK and str(self.run.checkpoints) in line:
                found.append(process)
        pids = {process.pid for process in found}
        ranks = [process for process in found if process.info["ppid"] in pids]
        launchers = [process for process in found if process not in ranks]
        return (launchers[0], ranks) if len(launchers) == 1 and len(ranks) == 2 else None

    def newest(self) -> int:
        """Return the step of the newest checkpoint."""
        return max(self.run.steps_saved(), default=0)

    def progresses(self) -> bool:
        """Whether all are there and a checkpoint was saved since the last look that said so."""
        if self.members() is None or self.newest() <= self.seen:
            return False
        self.seen = self.newest()
        return True

    seen = 0

    def kill(self, victim: str) -> None:
        """Kill one of them, and start again what nobody else does."""
        if victim == "supervisor":
            self.supervisor.kill()
            self.supervisor.wait()
            self.supervisor = self.supervise()
        elif victim == "exporter":
            self.exporter.kill()
            self.exporter.wait()
            self.exporter = self.export()
        else:
            found = self.members()
            assert found is not None
            launcher, ranks = found
            os.kill((launcher if victim == "launcher" else ranks[self.number % 2]).pid, signal.SIGKILL)
            wait_until(lambda: not any(process.is_running() for process in [launcher, *ranks]))
            # A checkpoint from now on is one of the next attempt.
            self.seen = self.newest()
        self.number += 1

    number = 0

    def close(self) -> None:
        """End everything."""
        for process in (self.supervisor, self.exporter):
            process.kill()
            process.wait()
        for pid in map(int, self.run.processes()):
            os.kill(pid, signal.SIGKILL)
        self.words.close()


def whole(path: Path) -> str:
    """Return what SQLite says of the whole file."""
    connection = sqlite3.connect(path)
    (found,) = connection.execute("PRAGMA integrity_check").fetchone()
    connection.close()
    return found


def test_every_interruption_is_in_the_journal_once(tmp_path, spool):
    """Whoever is killed: deaths of ranks and launchers are interruptions, those of supervisor and exporter are none."""
    run, lucky = Run(tmp_path, spool, QUICK, 1_000_000), random.Random(SEED)
    scene, done = Scene(run), Counter()
    begun = time.monotonic()
    try:
        for _ in range(KILLS):
            wait_until(scene.progresses, timeout=60)
            time.sleep(lucky.uniform(0.0, 0.3))  # A moment that nobody chose.
            victim = lucky.choice(VICTIMS)
            if scene.members() is None:
                continue
            scene.kill(victim)
            done[victim] += 1
        wait_until(scene.progresses, timeout=PATIENCE)
        assert scene.supervisor.poll() is None
        assert scene.exporter.poll() is None
    except BaseException:
        print(f"after {dict(done)}:\n{run.words()[-3000:]}\n{scene.members()}")
        raise
    finally:
        scene.close()
    print(f"{sum(done.values())} kills in {time.monotonic() - begun:.0f} s: {dict(done)}")

    assert whole(run.journal) == "ok"
    found = run.incidents()
    assert len(found) == done["rank"] + done["launcher"], (run.folder / "words").read_text()[-4000:]
    assert [one.attempt for one in found] == list(range(len(found)))
    assert all(one.cause == "process_killed" for one in found), Counter(one.cause for one in found)
    lost = [(one.attempt, one.last_step, one.resume_step, one.steps_lost, one.text) for one in found]
    unknown = [row for row in lost if row[3] is None or row[3] > 2 * EVERY]
    assert unknown == []
