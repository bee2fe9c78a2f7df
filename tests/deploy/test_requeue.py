"""How a supervised training ends on Slurm and on Kubernetes: by the exit statuses of ``trainvitals run``."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import yaml

from trainvitals.supervise.supervisor import GIVEN_UP

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.fixture
def requeue(tmp_path):
    """Start the batch script with stand-ins for the supervisor, which obeys SIGTERM, and for scontrol."""
    programs = {
        "trainvitals": """trap 'echo saved; exit 143' TERM
echo "$@"
while [ -e wait ]; do sleep 0.05; done
exit "$STATUS"
""",
        "scontrol": 'echo "scontrol $*"\n',
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}")
        (tmp_path / name).chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "CHECKPOINTS": "/ckpt"}

    def start(status="0"):
        command = [shutil.which("sh"), str(DEPLOY / "slurm" / "requeue.sh"), "torchrun", "a b.py"]
        return subprocess.Popen(
            command, env={**environ, "STATUS": status}, cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )

    return start


@pytest.mark.parametrize("status", [0, GIVEN_UP])
def test_a_job_that_ends_is_not_put_back(requeue, status):
    """Its status is that of the supervisor."""
    process = requeue(str(status))

    assert process.communicate(timeout=60)[0] == (
        "run --name slurm-7 --max-restarts 5 --grace 100 --checkpoint-dir /ckpt -- torchrun a b.py\n"
    )
    assert process.returncode == status


def test_a_job_that_is_told_to_end_is_put_back(requeue, tmp_path):
    """The supervisor gets the signal, and its training saves, before the job goes back into the queue."""
    (tmp_path / "wait").touch()
    process = requeue()
    assert process.stdout.readline().startswith("run ")

    process.send_signal(signal.SIGTERM)

    assert process.communicate(timeout=60)[0] == "saved\nscontrol requeue 7\n"
    assert process.returncode == 143


def test_the_job_of_kubernetes_knows_the_statuses():
    """What cannot be helped fails the job, what was told to end does not count; there is time to save."""
    job = yaml.safe_load((DEPLOY / "kubernetes" / "job.yaml").read_text())["spec"]
    rules = job["podFailurePolicy"]["rules"]
    template = job["template"]["spec"]
    (grace,) = [word for word in template["containers"][0]["command"] if word.startswith("--grace=")]

    assert [(rule["action"], rule.get("onExitCodes", {}).get("values")) for rule in rules] == [
        ("FailJob", [GIVEN_UP]),
        ("Ignore", [128 + signal.SIGTERM]),
        ("Ignore", None),
    ]
    assert template["restartPolicy"] == "Never"
    assert template["terminationGracePeriodSeconds"] > int(grace.partition("=")[2])
