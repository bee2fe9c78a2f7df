"""Helpers of these tests: a guard, signals, and a way to see whether a process has left anything behind."""

from __future__ import annotations

import os
import time
import uuid
from types import SimpleNamespace

import psutil
import pytest

from trainvitals.bundle.process import Guard
from trainvitals.bundle.signals import Signals


@pytest.fixture
def until():
    """A function that waits until a condition holds and returns what it returned; fails after some seconds."""

    def wait(condition, seconds=30.0):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if found := condition():
                return found
            time.sleep(0.02)
        raise AssertionError(f"not within {seconds} s: {condition}")

    return wait


@pytest.fixture
def guard():
    """A running guard that is told the end at the end."""
    guard = Guard()
    yield guard
    guard.close()


@pytest.fixture
def signals():
    """Signals that nobody sends."""
    return Signals(frozenset())


@pytest.fixture
def family():
    """An environment whose mark every descendant inherits, and a function that lists who has it."""
    mark = uuid.uuid4().hex

    def living():
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("TRAINVITALS_TEST_FAMILY") == mark:
                    found.append(" ".join(process.cmdline()))
            except (psutil.Error, OSError):
                continue
        return found

    return SimpleNamespace(environ={**os.environ, "TRAINVITALS_TEST_FAMILY": mark}, living=living)
