"""The prolog and the epilog for Slurm, run by every shell that is here."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from trainvitals import rankfile
from trainvitals.host.slurm import Job, JobFolder

SCRIPTS = Path(__file__).parents[2] / "deploy" / "slurm"
SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)] or ["sh"]
GPU = "GPU-0f8a4c1e-93b7-4d52-8f60-7a1d2c3b4e5f"
OTHER = "GPU-1b2c3d4e-0001-0002-0003-000000000004"


@pytest.fixture(params=SHELLS)
def shell(request):
    """Return the command of a shell."""
    return ["busybox", "sh"] if request.param == "busybox" else [request.param]


@pytest.fixture
def folder(tmp_path):
    """Return where the files go; it is not there yet."""
    return tmp_path / "run" / "slurm"


def run(shell, script, folder, **variables):
    """Run a script with these variables and no others of Slurm; it must end well and say nothing on its output."""
    kept = {name: os.environ[name] for name in ("PATH",)}
    environ = {**kept, "TRAINVITALS_SLURM_FOLDER": str(folder), **variables}
    done = subprocess.run(
        [*shell, str(SCRIPTS / script)], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
    return done


def jobs(folder):
    """Return what the exporter makes of the files."""
    return JobFolder(str(folder), boot_id=rankfile.boot_id(), owner=os.getuid(), groups="/nowhere").jobs()


def test_what_the_prolog_leaves_the_exporter_reads(shell, folder):
    """With UUIDs, as Slurm 25.11 gives them; the file is for root to write and for all to read."""
    devices = f"{GPU},{OTHER}"
    run(
        shell,
        "prolog.sh",
        folder,
        SLURM_JOB_ID="123",
        SLURM_JOB_USER="alice",
        SLURM_JOB_SLUID="s5K1KKYAYG5D00",
        SLURM_JOB_GPUS="0,1",
        CUDA_VISIBLE_DEVICES=devices,
    )

    assert jobs(folder) == [Job("123", "alice", "s5K1KKYAYG5D00", uuids=(GPU, OTHER))]
    assert stat.S_IMODE((folder / "123").stat().st_mode) == 0o644
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert os.listdir(folder) == ["123"]


def test_numbers_are_those_of_the_job_and_never_of_its_inside(shell, folder):
    """CUDA_VISIBLE_DEVICES counts from 0 in each job; SLURM_JOB_GPUS counts the device files of the node."""
    run(shell, "prolog.sh", folder, SLURM_JOB_ID="123", SLURM_JOB_GPUS="6,7", CUDA_VISIBLE_DEVICES="0,1")

    assert jobs(folder) == [Job("123", minors=(6, 7))]


def test_it_may_run_twice(shell, folder):
    """The second file takes the place of the first."""
    run(shell, "prolog.sh", folder, SLURM_JOB_ID="123", SLURM_JOB_GPUS="1")
    run(shell, "prolog.sh", folder, SLURM_JOB_ID="123", SLURM_JOB_GPUS="2")

    assert jobs(folder) == [Job("123", minors=(2,))]


def test_the_epilog_removes_the_file_of_its_job(shell, folder):
    """And no other; it may run twice, and without a prolog."""
    (folder.parent).mkdir()
    run(shell, "epilog.sh", folder, SLURM_JOB_ID="123")
    run(shell, "prolog.sh", folder, SLURM_JOB_ID="123", SLURM_JOB_GPUS="1")
    run(shell, "prolog.sh", folder, SLURM_JOB_ID="12", SLURM_JOB_GPUS="2")
    (folder / ".123.77").write_text("unfinished")

    run(shell, "epilog.sh", folder, SLURM_JOB_ID="123")
    run(shell, "epilog.sh", folder, SLURM_JOB_ID="123")

    assert os.listdir(folder) == ["12"]


def test_a_value_stays_on_its_line(shell, folder):
    """Whatever a variable holds: it is no second field, no command and no format."""
    run(
        shell,
        "prolog.sh",
        folder,
        SLURM_JOB_ID="123",
        SLURM_JOB_USER="mallory\njob_id=666\n$(touch x)`id`%s%n\\n\"'",
        SLURM_JOB_GPUS="1\njob_gpus=2",
    )

    (job,) = jobs(folder)
    assert job.job_id == "123"
    assert job.user == "malloryjob_id=666$(touch x)`id`%s%n\\n\"'"
    assert job.minors == ()


@pytest.mark.parametrize("job", ["", "../../etc/passwd", "12/3", "1 2", "*", "-rf"])
@pytest.mark.parametrize("script", ["prolog.sh", "epilog.sh"])
def test_what_is_no_number_is_no_job(shell, folder, script, job):
    """Nothing is written and nothing removed."""
    folder.mkdir(parents=True)
    (folder / "5").write_text("kept")

    run(shell, script, folder, SLURM_JOB_ID=job)

    assert sorted(os.listdir(folder)) == ["5"]
    assert os.listdir(folder.parent) == ["slurm"]


def test_without_any_variable_nothing_happens(shell, folder):
    """Run by hand."""
    run(shell, "prolog.sh", folder)
    run(shell, "epilog.sh", folder)

    assert not folder.exists()


def test_a_folder_that_cannot_be_written_does_not_stop_the_job(shell, tmp_path):
    """A file is in the way: the scripts end well all the same, and say why on standard error."""
    (tmp_path / "file").write_text("")

    done = run(shell, "prolog.sh", tmp_path / "file" / "slurm", SLURM_JOB_ID="123")
    run(shell, "epilog.sh", tmp_path / "file" / "slurm", SLURM_JOB_ID="123")

    assert done.stderr


@pytest.mark.parametrize(
    ("before", "after"), [('describe >"$new"', "describe >/dev/full"), ("line job_gpus", "false job_gpus")]
)
def test_a_full_disk_leaves_no_half_file(shell, folder, before, after):
    """A write that fails is taken back, also when there is room again for the next line."""
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full here")
    folder.mkdir(parents=True)
    script = (SCRIPTS / "prolog.sh").read_text().replace(before, after)
    assert after in script
    (folder / "script").write_text(script)
    environ = {"PATH": os.environ["PATH"], "TRAINVITALS_SLURM_FOLDER": str(folder), "SLURM_JOB_ID": "123"}

    done = subprocess.run([*shell, str(folder / "script")], env=environ, capture_output=True, timeout=60, check=False)

    assert done.returncode == 0
    assert os.listdir(folder) == ["script"]


@pytest.mark.parametrize("script", ["prolog.sh", "epilog.sh"])
def test_scripts_can_be_run(script):
    """Slurm runs them as they are."""
    assert os.access(SCRIPTS / script, os.X_OK)
    assert (SCRIPTS / script).read_text().startswith("#!/bin/sh\n")
