"""Where the journal of a node is, and what the node is called in it."""

from __future__ import annotations

import glob
import os
import re
import socket
from collections.abc import Mapping

from trainvitals.folders import managed_folder, state_folder

_UNSAFE = re.compile(r"[^\w.-]+")
_LONGEST = 64


def node_name() -> str:
    """Return the name of this machine as rows have it: its host name without the domain."""
    name = _UNSAFE.sub("-", socket.gethostname().split(".")[0]).strip("-.")[:_LONGEST]
    return name or "node"


def journal_path(state_dir: str = "", environ: Mapping[str, str] | None = None) -> str:
    """Return the file of the journal: in ``state_dir``, or the service manager's folder, or the user's.

    The first two belong to one machine.  A home may be shared by all nodes of a cluster, and a journal may not (its
    log is shared memory), so there the file has the name of the node.
    """
    environ = os.environ if environ is None else environ
    is_local = bool(state_dir or managed_folder(environ))
    name = "journal.db" if is_local else f"journal-{node_name()}.db"
    return os.path.join(state_folder(state_dir, environ), name)


def journals_in(folder: str) -> list[str]:
    """Return the journals in a folder: of one node, or of each where nodes share it."""
    escaped = glob.escape(folder)
    return sorted({*glob.glob(f"{escaped}/journal.db"), *glob.glob(f"{escaped}/journal-*.db")})
