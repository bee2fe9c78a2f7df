"""Lets a supervisor ask this process for the stacks of all its threads, where py-spy is not installed.

Python's own faulthandler writes them when a signal comes, without the interpreter's help: also while it waits in a
collective or for a file.  The signal is one of the real-time ones that nobody else uses.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import os
import signal
from collections.abc import Mapping
from typing import TextIO

#: Names the folder; each process writes into a file that is called after its process id.
FOLDER = "TRAINVITALS_STACKS"
ENDING = ".stacks"
SIGNAL = int(getattr(signal, "SIGRTMIN", 34)) + 9

#: Stays open: faulthandler knows only its descriptor.
_file: TextIO | None = None


def register(environ: Mapping[str, str]) -> bool:
    """Answer the signal from now on, where a folder is named; return whether it is so.  Raises OSError."""
    global _file
    folder = environ.get(FOLDER)
    if not folder or _file is not None:
        return _file is not None
    path = os.path.join(folder, f"{os.getpid()}{ENDING}")
    _file = open(path, "a", encoding="utf-8")  # noqa: SIM115  See above.
    faulthandler.register(SIGNAL, file=_file, all_threads=True, chain=False)
    # A training may start a Python for each step; a forked child must leave the file of its parent alone.
    atexit.register(_remove, path, os.getpid())
    return True


def _remove(path: str, pid: int) -> None:
    if os.getpid() == pid:
        with contextlib.suppress(OSError):
            os.unlink(path)
