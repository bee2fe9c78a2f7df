"""Trainings in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys

#: Runs an example before ours is loaded, and again with it: EXAMPLE FOLDER-WITHOUT FOLDER-WITH.
TWICE = """
import runpy, sys, trainvitals
example, without, sys.argv[1:] = sys.argv[1], sys.argv[2], sys.argv[3:]
runpy.run_path(example)["main"](without)
assert "trainvitals.frameworks" not in sys.modules
runpy.run_path(example, run_name="__main__")
"""


def run_python(*arguments, **environment):
    """Run a training to its end; it has to succeed."""
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1", **environment}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done
