"""``trainvitals run`` around two ranks: what it does, says and remembers, whatever ends an attempt or itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.helpers import wait_until
from tests.supervise.runs import Run

QUICK = [sys.executable, str(Path(__file__).parent / "quick.py")]
STEPS = 30


@pytest.fixture
def run(tmp_path, spool):
    """A run of two ranks without PyTorch."""
    return Run(tmp_path, spool, QUICK, STEPS)


def test_a_run_that_nothing_happens_to(run):
    """Output and exit status are those of the command; nothing is recorded, nothing stays but the state."""
    done = run.finish("--max-restarts", "1")

    assert done.returncode == 0
    assert done.stderr == ""
    assert sorted(done.stdout.splitlines()) == sorted(
        f"rank {rank} step {step}" for rank in (0, 1) for step in range(1, STEPS + 1)
    )
    assert run.incidents() == []
    assert {path.name for path in run.state.iterdir()} == {"state.json", "lock", "stacks"}


def test_a_rank_that_is_killed(run):
    """The run goes on from the newest checkpoint; the record names cause, rank, steps and seconds."""
    done = run.finish("--max-restarts", "1", faults="kill@1@13")

    assert done.returncode == 0, done.stderr
    (found,) = run.incidents()
    assert (found.cause, found.rank, found.attempt, found.resume_step) == ("process_killed", 1, 0, 10)
    assert found.last_step in {12, 13, 14}
    assert found.steps_lost == found.last_step - 10
    assert 0.0 < found.seconds_lost < found.seconds_to_recover
    assert f"restart 1 of 1 from {run.checkpoints}/step_10.pt (of step 10)" in done.stderr
    assert f"attempt 1 resumes from {run.checkpoints}/step_10.pt (of step 10)" in done.stderr
    assert run.processes() == []


def test_a_hang(run):
    """No step for too long: the stopped rank is named, its stacks and those of the others are kept."""
    done = run.finish("--max-restarts", "1", "--hang-after", "3", faults="stop@0@12")

    assert done.returncode == 0, done.stderr
    (found,) = run.incidents()
    assert (found.cause, found.rank, found.last_step, found.resume_step) == ("hang", 0, 12, 10)
    assert "rank 0 is stopped" in found.text
    assert "it is stopped, and cannot answer" in (Path(found.evidence) / "rank-0.txt").read_text()
    assert "rank 1 step 12" in (Path(found.evidence) / "output.txt").read_text()
    assert json.loads((Path(found.evidence) / "incident.json").read_text())["cause"] == "hang"


def test_losses_that_are_no_numbers(run):
    """The newest checkpoint was saved behind the onset; the one before it is taken."""
    done = run.finish("--max-restarts", "1", faults="nan@0@14")

    assert done.returncode == 0, done.stderr
    (found,) = run.incidents()
    assert (found.cause, found.category, found.rank, found.resume_step) == ("loss_nonfinite", "parameter", 0, 10)
    assert found.details["onset"] == 14
    assert found.text == "the loss is no number since step 14 (rank 0)"


def test_losses_that_are_no_numbers_again(run):
    """The second time at the same step it is no accident."""
    done = run.finish("--max-restarts", "5", faults="nanagain@0@14")

    assert done.returncode == 70
    assert "stopped: the same failure at step 14 twice (loss_nonfinite): it is no accident" in done.stderr
    assert [one.resume_step for one in run.incidents()] == [10, None]


def test_the_same_exception_again(run):
    """It ends with a clear message, long before the restarts are used up."""
    done = run.finish("--max-restarts", "50", faults="again@1@8")

    assert done.returncode == 70
    assert "stopped: the same failure at step 8 twice (exception): it is no accident" in done.stderr
    assert [(one.cause, one.rank, one.last_step) for one in run.incidents()] == [("exception", 1, 8)] * 2
    assert "ValueError: there is no head 8" in run.incidents()[0].text


def test_an_error_that_another_attempt_would_meet(run):
    """A missing package stays missing: no restart at all."""
    done = run.finish("--max-restarts", "5", faults="import@0@3")

    assert done.returncode == 70
    assert "import_failed: another attempt would fail the same way" in done.stderr
    assert len(run.incidents()) == 1


def test_attempts_without_progress(run):
    """Three that end before a new checkpoint."""
    done = run.finish("--max-restarts", "50", faults="kill@0@4,kill@1@3,raise@0@2")

    assert done.returncode == 70
    assert "stopped: 3 attempts in a row without progress" in done.stderr


def test_a_full_disk_and_no_restart_left(run):
    """The restarts that are allowed are counted over all causes."""
    done = run.finish("--max-restarts", "1", faults="full@0@8,kill@1@13")

    assert done.returncode == 70
    assert "stopped: no restart is left of 1" in done.stderr
    assert [one.cause for one in run.incidents()] == ["disk_full", "process_killed"]


def test_no_restarts_at_all(run):
    """The cause is found and recorded all the same."""
    done = run.finish("--max-restarts", "0", faults="kill@1@13")

    assert done.returncode == 70
    assert [one.cause for one in run.incidents()] == ["process_killed"]


def test_told_to_end_and_started_again(run):
    """SIGTERM reaches the training, the status says so, and the same command goes on from the newest checkpoint."""
    with run.started("--grace", "20") as process:
        wait_until(lambda: 10 in run.steps_saved())
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    assert run.processes() == []
    assert "told to end by signal 15" in run.words()

    done = run.finish("--max-restarts", "0")

    assert done.returncode == 0, done.stderr
    (found,) = run.incidents()
    assert (found.cause, found.attempt) == ("preempted", 0)
    assert found.resume_step == max(
        step for step in (10, 15, 20, 25) if f"from {run.checkpoints}/step_{step}.pt" in done.stderr
    )
    assert found.steps_lost == found.last_step - found.resume_step
    assert found.seconds_to_recover > 0.0


def test_a_second_signal_does_not_wait(run):
    """Ctrl-C twice: a rank that does not listen is killed."""
    with run.started("--grace", "1000", faults="stop@0@8") as process:
        wait_until(lambda: "rank 1 step 8" in run.words() and "rank 0 step 8" in run.words())
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGINT
    assert run.processes() == []


def test_a_supervisor_that_is_killed_finds_its_training_again(run):
    """The training goes on meanwhile; the new supervisor watches it to its end, and copies the rest of its output."""
    run.steps = 150
    with run.started() as process:
        wait_until(lambda: 10 in run.steps_saved())
        process.kill()
        process.wait()
    with run.started(faults="") as process:
        assert process.wait(120) == 0

    assert "found attempt 0 again" in run.words()
    assert run.words().count("rank 0 step 150\n") == 1
    assert run.incidents() == []
    assert run.processes() == []


def test_a_training_that_failed_while_nobody_watched(run):
    """The shell around it has written down how it ended; it is started again, and the restart is counted."""
    run.steps = 100
    with run.started(faults="kill@1@43") as process:
        wait_until(lambda: 10 in run.steps_saved())
        process.kill()
        process.wait()
    wait_until((run.state / "attempt-0.status").exists)

    done = run.finish("--max-restarts", "1")

    assert done.returncode == 0, done.stderr
    (found,) = run.incidents()
    assert (found.cause, found.rank, found.resume_step) == ("process_killed", 1, 40)
    assert "restart 1 of 1" in done.stderr


def test_two_supervisors_of_one_run(run):
    """The second says so, and leaves the first alone."""
    run.steps = 200
    with run.started() as process:
        wait_until((run.state / "state.json").exists)
        done = run.finish()
        assert process.poll() is None

    assert done.returncode == 1
    assert done.stderr == f"trainvitals run: {run.state}: the run is supervised already, by process {process.pid}\n"


def test_a_damaged_checkpoint_is_passed_over(run):
    """It is named, also in the record; the one before it is taken."""
    with run.started() as process:
        wait_until(lambda: 10 in run.steps_saved())
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    newest = run.checkpoints / f"step_{run.steps_saved()[-1]}.pt"
    with open(newest, "r+b") as file:
        file.truncate(40)

    done = run.finish()

    assert done.returncode == 0, done.stderr
    assert f"{newest}: passed over: it is cut short: no directory at the end of its 40 bytes" in done.stderr
    assert f"resumes from {run.checkpoints}/step_{int(newest.stem[5:]) - 5}.pt" in done.stderr


def test_when_no_checkpoint_can_be_loaded(run):
    """Nobody wants to lose a run by starting it from the beginning unasked."""
    (run.checkpoints / "step_10.pt").write_bytes(b"PK\3\4 half of it")

    done = run.finish()

    assert done.returncode == 70
    assert "none of its 1 checkpoints can be loaded; move them away to begin anew" in done.stderr
    assert done.stdout == ""


def test_a_flag_instead_of_a_variable(run):
    """A command that takes a flag gets it, from the second attempt on."""
    done = run.finish("--resume-flag", "--resume {path}", faults="kill@0@8")

    assert done.returncode == 0, done.stderr
    assert "rank 0 step 6\n" in done.stdout.partition("step 8")[2]


def test_a_journal_that_cannot_be_written(run):
    """It costs the record, and nothing else."""
    run.journal.mkdir()

    done = run.finish(faults="kill@0@8")

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--resume-flag", "resume"], "expected {path} in it, as in: --resume-flag '--resume {path}'"),
        (["--processes", "3"], "expected MIN:MAX, as in 6:8, found '3'"),
        (["--processes", "8:6"], "expected MIN:MAX, as in 6:8, found '8:6'"),
        (["--max-restarts", "-1"], "expected a whole number, found '-1'"),
        (["--hang-after", "soon"], "expected seconds, found 'soon'"),
    ],
)
def test_options_that_make_no_sense(run, options, words):
    """One line, and nothing is started."""
    done = run.finish(*options)

    assert done.returncode == 2
    assert words in done.stderr
    assert done.stdout == ""


def test_the_command_is_not_touched_without_these_options(run):
    """``--name`` and ``--dir`` alone do not make a supervisor: the process becomes the command."""
    command = [sys.executable, "-m", "trainvitals", "run", "--name", "test", "--", sys.executable, "-c"]
    script = "import os; print(os.getpid())"

    read, write = os.pipe()
    pid = os.posix_spawn(
        sys.executable, [*command, script], run.environment(), file_actions=[(os.POSIX_SPAWN_DUP2, write, 1)]
    )
    os.close(write)
    with open(read, encoding="ascii") as file:
        assert int(file.read()) == pid
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize("missing", ["orjson", "ahocorasick_rs"])
def test_supervision_says_what_it_needs(run, missing):
    """A trainer's bare installation attaches the probe; beside the command it needs libraries.  One line, no trace."""
    script = f"import sys; sys.modules[{missing!r}] = None; from trainvitals.__main__ import main; main()"
    command = [sys.executable, "-c", script, *run.command()[3:]]

    done = subprocess.run(command, env=run.environment(), capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stderr == f"trainvitals run: {missing} is missing; supervision needs: pip install 'trainvitals[node]'\n"
    assert done.stdout == ""
