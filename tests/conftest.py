"""Fixtures that several test files need."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Small models on one thread each: several would wait for each other while other tests use the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What the exporters of tests remember is not for those of this machine's user, and none of theirs for tests.
_STATE = tempfile.mkdtemp(prefix="test-trainvitals-")
os.environ["XDG_STATE_HOME"] = _STATE
os.environ.pop("STATE_DIRECTORY", None)
atexit.register(shutil.rmtree, _STATE, ignore_errors=True)

# Examples that failed are printed; a database of them would make the checkout a place that must be writable.
# How long an example takes says how busy the machine is.
settings.register_profile("trainvitals", database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("trainvitals")


@pytest.fixture
def spool(tmp_path) -> Iterator[Path]:
    """Give an empty folder on tmpfs, as a spool is, under a name that no exporter looks for."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="test-trainvitals-", dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
