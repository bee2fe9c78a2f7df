"""Ports on loopback: the usual ones when they are free."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping

LOOPBACK = "127.0.0.1"
#: Where people expect these.
USUAL_PORTS = {"exporter": 20910, "prometheus": 9090, "alertmanager": 9093, "notifier": 20911, "grafana": 3000}


def choose(usual: Mapping[str, int] = USUAL_PORTS) -> dict[str, int]:
    """Return a port for each name: the usual one, or any other that is free where that one is taken."""
    with contextlib.ExitStack() as stack:
        # All are held until the last is chosen, so that no port is handed out twice.
        return {name: _bind(stack, port) for name, port in usual.items()}


def _bind(stack: contextlib.ExitStack, port: int) -> int:
    held = stack.enter_context(socket.socket())
    # As the servers do themselves: a connection that lingers from the last time is no reason to move.
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        held.bind((LOOPBACK, port))
        held.listen()
    except OSError:
        held = stack.enter_context(socket.socket())
        held.bind((LOOPBACK, 0))
        held.listen()
    taken: int = held.getsockname()[1]
    return taken
