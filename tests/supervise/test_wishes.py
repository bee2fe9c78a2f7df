"""Orders that need the supervisor: released and resumed, set back, scaled; a real torchrun with two ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.helpers import PATIENCE, wait_until
from tests.supervise.runs import Run

from trainvitals.ctl import clone
from trainvitals.ctl.command import main as ctl
from trainvitals.steer.giving import NotDoneError
from trainvitals.steer.ranks import live
from trainvitals.supervise import wishes
from trainvitals.supervise.state import State
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

    def steps_of_policy(self) -> list[str]:
        """Return the checkpoints that are whole."""
        return [path.name for path in self.checkpoints.glob("step-*") if "." not in path.name]

    def clone_environment(self) -> dict[str, str]:
        """Return the environment of somebody who clones it."""
        kept = {name: value for name, value in self.environment().items() if name != "TRAINVITALS_RUN"}
        return {**kept, "XDG_STATE_HOME": str(self.folder / "home")}

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


@pytest.mark.end_to_end
def test_a_clone_begins_where_its_parent_has_saved_and_both_go_on(run, capsys):
    """With another setting and another end, in a folder of its own; the parent never knows of it."""
    pytest.importorskip("torch")
    with run.started("--max-restarts", "1"):
        wait_until(lambda: run.steps_of_policy() and len(run.log()) > 30, timeout=PATIENCE)
        words = ["--dir", str(run.spool), "--state-dir", str(run.state), "test", "clone", "twin", "--before", "21"]
        own = f"{run.checkpoints}-twin"

        assert ctl([*words, "gain=3", "steps=60", "--print"], {}) == 0
        printed = capsys.readouterr().out
        assert printed.startswith("""TRAINVITALS_PARENT=test 'TRAINVITALS_KNOBS={"gain": 3}' """)
        assert printed.endswith(f"--output {own} --steps 60\n")
        command = [sys.executable, "-m", "trainvitals", "ctl", *words, "gain=3", "steps=60"]
        done = subprocess.run(command, env=run.clone_environment(), capture_output=True, text=True, check=False)

        assert done.returncode == 0, done.stderr
        rows = [tuple(map(int, line.split())) for line in (Path(own) / "log").read_text().splitlines()]
        assert rows[0] == (21, 2, 23)
        assert rows[-1] == (60, 2, 140)
        before = len(run.log())
        wait_until(lambda: len(run.log()) > before + 3, timeout=PATIENCE)
        assert {step - weight for step, _, weight in run.log()} == {0}
        capsys.readouterr()
        assert ctl([*words], {}) == 1
        assert capsys.readouterr().err == f"trainvitals ctl: {own} is there already: the clone would save into it\n"

    (events,) = [path.read_text() for path in run.spool.glob("twin.0.*.events")]
    (told,) = [json.loads(line) for line in events.splitlines() if '"clone"' in line and '"kind":"clone"' in line]
    assert told["message"] == "of test, from step-20"


def test_a_clone_of_what_nobody_supervised_is_refused(tmp_path, capsys):
    """In one line."""
    words = ["--dir", str(tmp_path), "--state-dir", str(tmp_path), "test", "clone", "twin"]
    assert ctl(words, {}) == 1
    assert capsys.readouterr().err == (
        "trainvitals ctl: test was not supervised here with a --checkpoint-dir: nothing tells how to start it\n"
    )


@pytest.mark.parametrize(
    ("command", "values", "expected", "knobs"),
    [
        (["train.py", "--out", "/x/ck"], {"lr": 0.1}, ["train.py", "--out", "/x/ck-b"], '{"lr": 0.1}'),
        (["train.py", "--out=/x/ck/a", "--lr=1"], {"lr": 0.1}, ["train.py", "--out=/x/ck-b/a", "--lr=0.1"], None),
        (["train.py", "hydra.dir=/x/ck", "lr=1"], {"lr": 2}, ["train.py", "hydra.dir=/x/ck-b", "lr=2"], None),
        (
            ["train.py", "--max-steps", "9", "/x/ck"],
            {"max_steps": 5},
            ["train.py", "--max-steps", "5", "/x/ck-b"],
            None,
        ),
        (["train.py", "--out", "/y"], {"out": "/z"}, ["train.py", "--out", "/z"], None),
    ],
)
def test_options_of_the_command_are_changed_and_the_rest_are_knobs(monkeypatch, command, values, expected, knobs):
    """In each way in which programs take options; and the clone saves elsewhere."""
    monkeypatch.setattr(clone.state, "read", lambda _: State(command=command, checkpoints="/x/ck"))
    monkeypatch.setattr(clone, "_checkpoint", lambda *_: "/x/ck/step-5")
    planned = clone.plan("a", "b", "/state", values)
    assert planned.arguments == [
        *("run", "--name", "b", "--checkpoint-dir", "/x/ck-b", "--resume-from", "/x/ck/step-5", "--"),
        *expected,
    ]
    assert planned.environ.get("TRAINVITALS_KNOBS") == knobs


def test_a_clone_that_would_save_over_its_parent_is_refused(monkeypatch):
    """Nothing in the command tells where it saves."""
    monkeypatch.setattr(clone.state, "read", lambda _: State(command=["train.py"], checkpoints="/x/ck"))
    monkeypatch.setattr(clone, "_checkpoint", lambda *_: "/x/ck/step-5")
    with pytest.raises(NotDoneError, match="its clone would save over what a saves"):
        clone.plan("a", "b", "/state", {"lr": 0.1})


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
