"""Orders to a run: four ranks with gloo, told by the command what to do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.helpers import free_port, trainer_environment, wait_until

from trainvitals.ctl.command import main
from trainvitals.orders import path_of
from trainvitals.steer.ranks import live

TRAINER = Path(__file__).with_name("trainer.py")
RANKS = 4


class Training:
    """Four ranks of a training, and the folder where they write what they do."""

    def __init__(self, folder: Path, spool: Path, port: int, pause: str) -> None:
        self.folder, self.spool = folder, spool
        self.processes = []
        for rank in range(RANKS):
            environ = trainer_environment(
                spool,
                RANK=str(rank),
                LOCAL_RANK=str(rank),
                WORLD_SIZE=str(RANKS),
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port),
                OMP_NUM_THREADS="1",
            )
            command = [sys.executable, str(TRAINER), str(folder), pause]
            self.processes.append(subprocess.Popen(command, env=environ))

    def ctl(self, *words: str) -> int:
        """Give an order."""
        return main(["--dir", str(self.spool), "--json", "obedient", *words], {})

    def rates(self, rank: int) -> dict[int, float]:
        """Return the learning rate of each step of a rank."""
        rows = [line.split() for line in (self.folder / f"rates.{rank}").read_text().splitlines()]
        return {int(row[0]): float(row[1]) for row in rows if len(row) == 2}

    def changes(self, value: float) -> list[int]:
        """Return the first step with this learning rate, of each rank."""
        return [min(step for step, rate in self.rates(rank).items() if rate == value) for rank in range(RANKS)]

    def steps(self) -> list[int]:
        """Return the last step of each rank."""
        return [rank.step for rank in live(str(self.spool), "obedient")]

    def end(self) -> None:
        """Kill what lives."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()


@pytest.fixture(scope="module", params=["0.002", "0.1"], ids=["fast", "slow"])
def training(request, tmp_path_factory):
    """Four ranks whose steps take 2 and 100 milliseconds."""
    folder = tmp_path_factory.mktemp("training")
    spool = folder / "spool"
    spool.mkdir()
    made = Training(folder, spool, free_port(), request.param)
    try:
        wait_until(lambda: len(made.steps()) == RANKS and min(made.steps()) > 3)
        yield made
    finally:
        made.end()


def told(capsys) -> dict:
    """Return what the command printed."""
    return json.loads(capsys.readouterr().out)


def test_a_setting_changes_behind_the_same_step_on_all_ranks(training, capsys):
    """Not one rank trains a step with another learning rate than the others."""
    assert training.ctl("set", "lr=0.25") == 0

    said = told(capsys)
    (step,) = {rank["step"] for rank in said["ranks"]}
    assert [rank["rank"] for rank in said["ranks"]] == [0, 1, 2, 3]
    wait_until(lambda: min(training.steps()) > step + 2)
    assert training.changes(0.25) == [step + 1] * RANKS


def test_what_was_not_declared_or_is_out_of_range_is_refused_by_all(training, capsys):
    """In one line that says what can be set; nothing changes."""
    before = training.steps()[0]
    assert training.ctl("set", "momentum=0.9") == 1
    assert capsys.readouterr().err == (
        "trainvitals ctl: rank 0: momentum is no knob of this training; it has declared: lr\n"
    )
    assert training.ctl("set", "lr=2") == 1
    assert capsys.readouterr().err == "trainvitals ctl: rank 0: lr wants a number from 0.0 to 1.0\n"
    assert training.ctl("set", "lr=fast") == 1
    assert capsys.readouterr().err == "trainvitals ctl: rank 0: lr wants a number\n"
    assert training.ctl("set", "lr=0.125", "momentum=0.9") == 1
    wait_until(lambda: min(training.steps()) > before + 3)
    assert 0.125 not in training.rates(0).values()


def test_a_setting_that_fails_on_one_rank_is_told_with_the_rank(training, capsys):
    """The training goes on, and who gave the order knows that the ranks differ."""
    assert training.ctl("set", "lr=0.5") == 1
    assert capsys.readouterr().err == "trainvitals ctl: rank 2 failed: RuntimeError: not on this rank\n"
    assert training.ctl("set", "lr=0.25") == 0


def test_a_pause_holds_all_ranks_behind_one_step_and_resume_lets_them_go_on(training, capsys):
    """Orders that come while they are held are obeyed there; a second pause and a second resume are refused."""
    assert training.ctl("resume") == 1
    assert capsys.readouterr().err == "trainvitals ctl: rank 0: the run is not paused\n"
    assert training.ctl("pause") == 0
    (held,) = {rank["step"] for rank in told(capsys)["ranks"]}
    assert {rank.phase for rank in live(str(training.spool), "obedient")} == {"paused"}
    assert training.ctl("pause") == 1
    assert capsys.readouterr().err == "trainvitals ctl: rank 0: the run is paused already\n"
    assert training.ctl("set", "lr=0.75") == 0
    assert {rank["step"] for rank in told(capsys)["ranks"]} == {held}
    assert training.steps() == [held] * RANKS
    assert training.ctl("resume") == 0
    wait_until(lambda: min(training.steps()) > held + 2)
    assert training.changes(0.75) == [held + 1] * RANKS
    assert {rank.phase for rank in live(str(training.spool), "obedient")} != {"paused"}


def test_a_checkpoint_is_one_step_on_all_ranks_and_says_where_it_is(training, capsys):
    """Each rank saves what it has behind the same step."""
    assert training.ctl("checkpoint") == 0
    said = told(capsys)
    (step,) = {rank["step"] for rank in said["ranks"]}
    paths = [Path(rank["text"]) for rank in said["ranks"]]
    assert paths == [training.folder / f"saved-{step}-{rank}" for rank in range(RANKS)]
    assert [path.read_text() for path in paths] == [str(step)] * RANKS


def test_orders_given_at_once_are_each_obeyed_once(training):
    """Five at a time, from as many processes: one after the other on every rank, in the same order."""
    command = [sys.executable, "-m", "trainvitals", "ctl", "--dir", str(training.spool), "obedient", "set"]
    values = [0.011, 0.012, 0.013, 0.014, 0.015]
    processes = [subprocess.Popen([*command, f"lr={value}"], stdout=subprocess.DEVNULL) for value in values]
    assert [process.wait(timeout=120) for process in processes] == [0] * 5
    now = max(training.steps())
    wait_until(lambda: min(training.steps()) > now + 2)
    first, *others = [training.rates(rank) for rank in range(RANKS)]
    last = min(max(rates) for rates in (first, *others))
    # Rank 2 refused 0.5 in a test before.
    same = [step for step in range(1, last + 1) if first[step] != 0.5]
    for rates in others:
        assert [rates[step] for step in same] == [first[step] for step in same]
    for events in training.spool.glob("*.events"):
        rows = [json.loads(line) for line in events.read_text().splitlines()]
        done = [
            row["values"]["lr"] for row in rows if row["kind"] == "order" and row["state"] == "done" and row["values"]
        ]
        assert sorted(value for value in done if value in values) == values


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
def test_an_order_that_somebody_else_put_there_is_refused_and_written_down(training, capsys):
    """As can happen in a spool that all users share; the next order of the owner is obeyed as ever."""
    path = path_of(str(training.spool), "obedient")
    number = int.from_bytes(Path(path).read_bytes(), "little") + 1
    forged = {"number": number, "run": "obedient", "what": "stop", "at": 10**9, "values": {}, "by": "me", "time": 1.0}
    Path(f"{path}.{number}").write_text(json.dumps(forged))
    os.chown(f"{path}.{number}", 65534, 65534)

    assert training.ctl("set", "lr=0.0625") == 0
    assert told(capsys)["order"] == number + 1
    for events in training.spool.glob("*.events"):
        rows = [json.loads(line) for line in events.read_text().splitlines()]
        (refused,) = [row for row in rows if row["kind"] == "order" and row["order"] == number]
        assert refused["state"] == "refused"
        assert refused["text"] == (
            f"order {number} cannot be read: {path}.{number} belongs to uid 65534, who may not give orders here"
        )


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_a_stranger_is_told_whose_run_it_is(training):
    """In one line, and the run learns nothing of it."""
    folder = training.folder
    for part in (folder, *folder.parents[:4]):
        if os.stat(part).st_uid == 0 and str(part).startswith("/tmp/"):
            os.chmod(part, 0o755)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(write, 2)
        sys.stderr = os.fdopen(2, "w", buffering=1)
        os.setgid(65534)
        os.setuid(65534)
        os._exit(training.ctl("set", "lr=0.9"))
    os.close(write)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    assert os.read(read, 4096).decode() == (
        "trainvitals ctl: obedient belongs to uid 0: only that user and root may give it orders\n"
    )
    os.close(read)


def test_stop_ends_all_ranks_behind_one_step_with_success(training, capsys):
    """The last order; one to a run that has ended is refused in one line."""
    assert training.ctl("stop", "--checkpoint") == 0
    (step,) = {rank["step"] for rank in told(capsys)["ranks"]}
    assert [process.wait(timeout=60) for process in training.processes] == [0] * RANKS
    assert [max(training.rates(rank)) for rank in range(RANKS)] == [step] * RANKS
    assert (training.folder / f"saved-{step}-0").exists()
    assert training.ctl("pause") == 1
    assert capsys.readouterr().err == (
        f"trainvitals ctl: no rank of obedient lives in {training.spool}; no run lives there\n"
    )
