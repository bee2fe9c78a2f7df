"""Signals wait for us, not the other way round."""

from __future__ import annotations

import os
import signal

from trainvitals.bundle.signals import collected


def test_signals_to_stop_are_kept_until_somebody_waits():
    """SIGINT raises nothing; the next wait takes it."""
    with collected() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert not signals.stop
        signals.wait(30)
        assert signals.stop
        assert signals.received == [signal.SIGINT]


def test_a_condition_is_given_up_when_somebody_asks_to_stop():
    """`wait_until` returns False long before its time."""
    with collected() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.wait_until(lambda: False, 600) is False


def test_afterwards_everything_is_as_before():
    """The mask is restored, and a signal that nobody took is gone."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with collected():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_under_nohup_a_closed_terminal_is_nothing():
    """An ignored SIGHUP stays ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with collected() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            signals.wait(0)
            assert not signals.stop
    finally:
        signal.signal(signal.SIGHUP, before)
