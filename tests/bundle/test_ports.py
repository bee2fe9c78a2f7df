"""Which ports are taken."""

from __future__ import annotations

import socket

from tests.helpers import free_port

from trainvitals.bundle import ports


def test_the_usual_port_is_taken_when_it_is_free():
    """Nobody listens there: it is ours."""
    usual = free_port()
    assert ports.choose({"exporter": usual}) == {"exporter": usual}


def test_another_port_is_taken_when_the_usual_one_is_not_free():
    """Whoever listens on the usual port, on any address, is left in peace."""
    for address in ("127.0.0.1", "0.0.0.0"):
        with socket.socket() as other:
            other.bind((address, 0))
            other.listen()
            usual = other.getsockname()[1]
            chosen = ports.choose({"exporter": usual})["exporter"]
            assert chosen != usual


def test_no_port_is_chosen_twice():
    """Three names with the same usual port get three ports."""
    usual = free_port()
    chosen = ports.choose({"one": usual, "two": usual, "three": usual})
    assert len(set(chosen.values())) == 3
