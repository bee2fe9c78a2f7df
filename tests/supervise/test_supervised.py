"""``trainvitals run`` around a real training: torchrun, two ranks, gloo.  Whatever ends an attempt, the run finishes.

Each attempt starts three interpreters with PyTorch, which takes seconds; so several faults share a run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.helpers import PATIENCE, wait_until
from tests.supervise.runs import Run

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.end_to_end

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "train_resume.py"
STEPS, EVERY = 30, 5
#: `make torture` asks for four.
RANKS = os.environ.get("TORTURE_RANKS", "2")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", RANKS]
TRAINING = [*TORCHRUN, str(HERE / "faulty.py"), str(EXAMPLE), "--every", str(EVERY)]
#: A run of five attempts on a machine that is busy with other tests.
LONG = 5 * PATIENCE


@pytest.fixture
def run(tmp_path, spool):
    """A run."""
    return Run(tmp_path, spool, TRAINING, STEPS)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The weights of a run that nothing happened to, without a supervisor."""
    folder = tmp_path_factory.mktemp("undisturbed")
    calm = Run(folder, folder, TRAINING, STEPS)
    subprocess.run(calm.training(), env=calm.environment(), capture_output=True, timeout=LONG, check=True)
    return weights(calm)


def weights(run):
    """Return the weights at the end."""
    return torch.load(run.checkpoints / f"step_{STEPS}.pt")["model"]


def assert_equal(found, expected):
    """Compare two sets of weights bit for bit."""
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_run_survives_a_kill_a_hang_an_exception_and_a_damaged_checkpoint(run, undisturbed):
    """Four failures in a row: each is named with its rank, loses at most an interval, and the weights are the same."""
    faults = "kill@1@7,stop@0@13,raise@1@18,truncate@0@22"

    done = run.finish("--max-restarts", "4", "--hang-after", "6", faults=faults, timeout=LONG)

    assert done.returncode == 0, done.stderr
    found = run.incidents()
    assert [one.cause for one in found] == ["process_killed", "hang", "exception", "process_killed"]
    assert [one.rank for one in found] == [1, 0, 1, 0]
    assert [one.category for one in found] == ["resource", "resource", "parameter", "resource"]
    # The newest checkpoint of the last one was cut short.
    assert [one.resume_step for one in found] == [5, 10, 15, 15]
    assert [one.attempt for one in found] == [0, 1, 2, 3]
    lost = [one.steps_lost for one in found]
    assert all(steps <= EVERY for steps in lost[:3])
    assert lost[3] <= 2 * EVERY
    assert all(one.seconds_to_recover > 0.0 for one in found)
    assert f"{run.checkpoints}/step_20.pt: passed over: it is cut short" in done.stderr
    assert "there is no head 18" in found[2].text
    assert "is stopped" in found[1].text
    stacks = (Path(found[1].evidence) / "rank-1.txt").read_text()
    assert "train_resume.py" in stacks
    assert_equal(weights(run), undisturbed)
    assert run.processes() == []


def test_a_run_goes_back_before_a_loss_that_is_no_number(run, undisturbed):
    """The checkpoint of step 15 holds weights that are no numbers; the one of step 10 is taken, and nothing is lost."""
    done = run.finish("--max-restarts", "1", faults="nan@1@13", timeout=LONG)

    assert done.returncode == 0, done.stderr
    (found,) = run.incidents()
    assert (found.cause, found.category, found.resume_step) == ("loss_nonfinite", "parameter", 10)
    assert found.details["onset"] in {13, 14}  # Rank 1 has it at once, rank 0 with the weights of the next step.
    assert_equal(weights(run), undisturbed)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of one MiB; it takes root to mount one."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_run_waits_for_a_full_disk(small_disk, run, undisturbed):
    """The save fails; the run goes on once somebody has made room, and only then."""
    run.checkpoints = small_disk
    with run.started("--max-restarts", "1", "--wait", "600", faults="fill@0@13") as process:
        wait_until(lambda: "waiting up to 600 s for space" in run.words() or process.poll() is not None, timeout=LONG)
        time.sleep(1.5)  # Two looks, at which nothing may happen.
        assert "attempt 1" not in run.words()
        (small_disk / "filler").unlink()
        assert process.wait(LONG) == 0, run.words()

    (found,) = run.incidents()
    assert (found.cause, found.rank, found.resume_step, found.last_step) == ("disk_full", 0, 10, 15)
    assert_equal(weights(run), undisturbed)


def test_a_run_that_is_told_to_end_and_whose_supervisor_is_killed_goes_on(run, undisturbed):
    """SIGTERM of everything, the same command again, its supervisor killed, the same command again: it finishes."""
    run.program = [*TRAINING, "--pause", "0.2"]
    with run.started("--grace", "20") as process:
        wait_until(lambda: 5 in run.steps_saved(), timeout=LONG)
        for pid in (*map(int, run.processes()), process.pid):
            os.kill(pid, signal.SIGTERM)
        assert process.wait(PATIENCE) == 128 + signal.SIGTERM
    assert run.processes() == []
    with run.started() as process:
        wait_until(lambda: 15 in run.steps_saved(), timeout=LONG)
        process.kill()
        process.wait()
    with run.started() as process:
        assert process.wait(LONG) == 0, run.words()

    (found,) = run.incidents()
    assert (found.cause, found.attempt) == ("preempted", 0)
    assert found.resume_step in {5, 10}
    assert found.steps_lost <= EVERY
    assert "found attempt 1 again" in run.words()
    assert_equal(weights(run), undisturbed)
    assert run.processes() == []


def test_the_same_exception_again_ends_the_run(run):
    """A clear message instead of an endless loop."""
    done = run.finish("--max-restarts", "50", faults="again@1@8", timeout=LONG)

    assert done.returncode == 70
    assert "stopped: the same failure at step 8 twice (exception): it is no accident" in done.stderr
    assert [(one.cause, one.rank, one.last_step) for one in run.incidents()] == [("exception", 1, 8)] * 2
