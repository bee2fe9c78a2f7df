"""Signals wait for us, not the other way round.

Each test is a process of its own: a signal to a process goes to any thread that does not block it, and a test
runner that has used NumPy or PyTorch has such threads.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

HEAD = """
import os, signal
from trainvitals.bundle.signals import collected

def send(number):
    os.kill(os.getpid(), number)

"""


def run(body):
    """Run a script to its end; return its exit code and what it said."""
    script = HEAD + textwrap.dedent(body)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout + done.stderr


def test_signals_to_stop_are_kept_until_somebody_waits():
    """SIGINT raises nothing; the next wait takes it."""
    body = """
        with collected() as signals:
            send(signal.SIGINT)
            print(signals.stop)
            signals.wait(30)
            print(signals.stop, signals.received == [signal.SIGINT])
    """

    assert run(body) == (0, "False\nTrue True\n")


def test_a_condition_is_given_up_when_somebody_asks_to_stop():
    """`wait_until` returns False long before its time."""
    body = """
        with collected() as signals:
            send(signal.SIGTERM)
            print(signals.wait_until(lambda: False, 600))
    """

    assert run(body) == (0, "False\n")


def test_afterwards_everything_is_as_before():
    """The mask is restored, and a signal that nobody took is gone."""
    body = """
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        with collected():
            send(signal.SIGTERM)
        print(signal.pthread_sigmask(signal.SIG_BLOCK, []) == before)
    """

    assert run(body) == (0, "True\n")


def test_under_nohup_a_closed_terminal_is_nothing():
    """An ignored SIGHUP stays ignored."""
    body = """
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with collected() as signals:
            send(signal.SIGHUP)
            signals.wait(0)
            print(signals.stop)
    """

    assert run(body) == (0, "False\n")
