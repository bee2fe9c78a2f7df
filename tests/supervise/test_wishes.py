"""Orders that need the supervisor: released and resumed, set back, scaled; a real torchrun with two ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.helpers import PATIENCE, wait_until
from tests.supervise.runs import Run

from trainvitals.ctl.command import main as ctl
from trainvitals.ctl.ranks import live
from trainvitals.supervise import wishes
from trainvitals.supervise.wishes import Wish

HERE = Path(__file__).parent
TRAINING = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(HERE / "steered.py")]
STEPS = 100_000


def test_a_wish_is_taken_once(tmp_path):
    """And the last one counts."""
    wishes.leave(str(tmp_path), Wish(what="release", time=100.0))
    wishes.leave(str(tmp_path), Wish(what="rollback", step=5, by="me", time=101.0))
    assert wishes.take(str(tmp_path), now=110.0) == Wish(what="rollback", step=5, by="me", time=101.0)
    assert wishes.take(str(tmp_path), now=110.0) is None


@pytest.mark.parametrize(
    "document",
    [
        "",
        "[]",
        '{"what": "sell", "time": 100.0}',
        '{"what": "rollback", "step": -1, "time": 100.0}',
        '{"what": "rollback", "step": "5", "time": 100.0}',
        '{"what": "release", "time": "now"}',
        '{"what": "release", "time": 100.0, "more": 1}',
        '{"what": "release", "time": -9999.0}',
    ],
)
def test_what_makes_no_sense_or_is_old_is_no_wish(tmp_path, document):
    """It is gone all the same."""
    (tmp_path / "wish.json").write_text(document)
    assert wishes.take(str(tmp_path), now=110.0) is None


class Steered(Run):
    """A run that is given orders."""

    def ctl(self, *words: str) -> int:
        """Give an order."""
        return ctl(["--dir", str(self.spool), "--state-dir", str(self.state), "--json", "test", *words], {})

    def log(self) -> list[tuple[int, int, int]]:
        """Return what was trained so far: step, ranks, weight."""
        path = self.checkpoints / "log"
        lines = path.read_text().splitlines() if path.exists() else []
        rows = [tuple(map(int, line.split())) for line in lines]
        return [row for row in rows if len(row) == 3]


@pytest.fixture
def run(tmp_path, spool):
    """A run that does not end by itself while the test goes on."""
    return Steered(tmp_path, spool, TRAINING, STEPS)


@pytest.mark.end_to_end
def test_a_supervised_run_is_released_set_back_scaled_and_stopped_by_order(run, capsys):
    """Each goes on from the checkpoint that it should, and no step is lost that was not given up."""
    pytest.importorskip("torch")
    with run.started("--max-restarts", "1") as process:
        wait_until(lambda: len(run.log()) > 25, timeout=PATIENCE)

        assert run.ctl("pause", "--release") == 0
        (held,) = {rank["step"] for rank in json.loads(capsys.readouterr().out)["ranks"]}
        wait_until(lambda: "the devices are free" in run.words(), timeout=PATIENCE)
        assert live(str(run.spool), "test") == []
        assert run.ctl("status") == 1
        capsys.readouterr()
        before = len(run.log())
        assert run.ctl("resume") == 0
        wait_until(lambda: len(run.log()) > before + 5, timeout=PATIENCE)
        # One more step may have been made before the ranks ended; it is made again.
        assert run.log()[before][0] == held + 1
        assert run.log()[before][2] == held + 1

        capsys.readouterr()
        assert run.ctl("rollback", "20") == 0
        wait_until(lambda: (21, 2, 21) in run.log()[held + 3 :], timeout=PATIENCE)

        capsys.readouterr()
        assert run.ctl("scale", "1") == 0
        (ended,) = {rank["step"] for rank in json.loads(capsys.readouterr().out)["ranks"]}
        wait_until(lambda: any(ranks == 1 for _, ranks, _ in run.log()), timeout=PATIENCE)
        step, _, weight = next(row for row in run.log() if row[1] == 1)
        assert (step, weight) == (ended + 1, ended + 1)

        assert run.ctl("stop") == 0
        assert process.wait(PATIENCE) == 0

    causes = [(one.cause, one.resume_step) for one in run.incidents()]
    assert causes == [("ordered_release", held), ("ordered_rollback", 20), ("ordered_scale", ended)]
    assert run.processes() == []


def test_what_needs_a_supervisor_says_so(run, capsys):
    """In one line that says how to get one; the run goes on."""
    pytest.importorskip("torch")
    command = [sys.executable, str(HERE / "steered.py"), "--output", str(run.checkpoints), "--steps", str(STEPS)]
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    process = subprocess.Popen(command, env={**run.environment(), **alone})
    try:
        wait_until(lambda: len(run.log()) > 3, timeout=PATIENCE)
        assert run.ctl("rollback", "1") == 1
        assert capsys.readouterr().err == (
            "trainvitals ctl: nobody supervises test here: rollback needs `trainvitals run --max-restarts N "
            "--checkpoint-dir FOLDER -- COMMAND`, and --state-dir if it had one\n"
        )
        before = len(run.log())
        wait_until(lambda: len(run.log()) > before + 3, timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
