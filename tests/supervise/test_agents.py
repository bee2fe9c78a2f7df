"""Two nodes on loopback, each a supervisor and an agent of torchrun.  One dies, the other goes on and takes it back.

Who is a member is the business of torchrun (``--nnodes MIN:MAX``); ours is that nothing stands in its way, and that the
ranks go on from the newest checkpoint.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.helpers import PATIENCE, free_port, trainer_environment, wait_until

pytest.importorskip("torch")
pytestmark = [pytest.mark.end_to_end, pytest.mark.torture]

HERE = Path(__file__).parent
EVERY = 5
LONG = 3 * PATIENCE


class Node:
    """One of the two: its own spool, state and journal; the checkpoints are on a disk that both see."""

    def __init__(self, shared: Path, name: str, port: int, is_host: bool) -> None:
        self.folder = shared / name
        self.folder.mkdir()
        self.shared, self.port, self.is_host = shared, port, is_host
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start its supervisor."""
        conf = f"is_host={int(self.is_host)},last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3"
        agent = [
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "1:2", "--nproc-per-node", "1"),
            *("--max-restarts", "20", "--monitor-interval", "0.2", "--local-addr", "127.0.0.1"),
            *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{self.port}", "--rdzv-id", "two"),
            *("--rdzv-conf", conf, str(HERE / "member.py"), str(self.shared), str(EVERY)),
        ]
        own = ["--state-dir", str(self.folder / "state"), "--journal", str(self.folder / "journal.db")]
        command = [
            *(sys.executable, "-m", "trainvitals", "run", "--name", "two", "--back-off", "0", "--max-restarts", "3"),
            *("--checkpoint-dir", str(self.shared / "checkpoints"), *own, "--", *agent),
        ]
        with open(self.folder / "words", "ab") as words:
            self.process = subprocess.Popen(
                command, env=trainer_environment(self.folder, OMP_NUM_THREADS="1"), stdout=words, stderr=words
            )

    def lose_power(self) -> None:
        """Kill everything on it at once."""
        assert self.process is not None
        supervisor = psutil.Process(self.process.pid)
        for process in [supervisor, *supervisor.children(recursive=True)]:
            os.kill(process.pid, signal.SIGKILL)
        self.process.wait()

    def words(self) -> str:
        """Return what it said."""
        return (self.folder / "words").read_text(errors="replace")


def steps(shared: Path) -> list[tuple[int, int]]:
    """Return each step that was made: its number, and how many ranks there were."""
    try:
        lines = (shared / "steps").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [(int(step), int(world)) for step, world, _ in (line.split() for line in lines)]


def test_a_node_that_dies_is_done_without_and_taken_back(tmp_path):
    """Two ranks, one rank, two ranks: each time from the newest checkpoint, and the run ends well on both."""
    port = free_port()
    nodes = [Node(tmp_path, "a", port, True), Node(tmp_path, "b", port, False)]
    try:
        for node in nodes:
            node.start()
        wait_until(lambda: any(step > 2 * EVERY and world == 2 for step, world in steps(tmp_path)), timeout=LONG)

        nodes[1].lose_power()
        wait_until(lambda: steps(tmp_path)[-1][1] == 1, timeout=LONG)
        before, after = turn(steps(tmp_path))
        assert before - EVERY <= after - 1 <= before

        nodes[1].start()
        wait_until(lambda: steps(tmp_path)[-1][1] == 2, timeout=LONG)
        before, after = turn(steps(tmp_path))
        assert before - EVERY <= after - 1 <= before

        (tmp_path / "last").write_text(str(steps(tmp_path)[-1][0] + 20))
        for node in nodes:
            assert node.process is not None
            assert node.process.wait(LONG) == 0, node.words()
    finally:
        for node in nodes:
            if node.process is not None and node.process.poll() is None:
                node.lose_power()
    worlds = [world for _, world in steps(tmp_path)]
    assert [world for place, world in enumerate(worlds) if place == 0 or worlds[place - 1] != world] == [2, 1, 2]
    # Every step counts once, whatever the number of ranks.
    step, _, total = (tmp_path / "steps").read_text().splitlines()[-1].split()
    assert float(total) == float(step)


def turn(made: list[tuple[int, int]]) -> tuple[int, int]:
    """Return the last step before the number of ranks changed last, and the first after it."""
    place = max(place for place in range(1, len(made)) if made[place][1] != made[place - 1][1])
    return made[place - 1][0], made[place][0]
