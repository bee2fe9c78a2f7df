"""``trainvitals run -- COMMAND``: start any training with the probe attached, without a change to its code.

The command gets an environment in which each Python of it, on this node, loads ``site/sitecustomize.py`` at its start:
that watches the frameworks that the program imports.  Then this process becomes the command (exec), so that signals,
the terminal and the exit status are its own.

With any option of supervision (:mod:`trainvitals.supervise.options`) it stays beside the command instead, and starts
it again after failures.
"""

from __future__ import annotations

import argparse
import errno
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence

import trainvitals
from trainvitals.supervise import options as supervision

_SITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")
#: Exit statuses of a shell for a command that is not there, or is no program.
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
#: Python ignores these from its start on, and what a process ignores, the program that it becomes ignores too.
_IGNORED_BY_PYTHON = ("SIGPIPE", "SIGXFSZ")
#: Python sets this at its start where the locale is "C" (PEP 538), for itself and all that it starts.
_SET_BY_PYTHON = "LC_CTYPE"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    described = argparse.ArgumentParser(
        prog="trainvitals run",
        usage="trainvitals run [--name NAME] [--dir FOLDER] [SUPERVISION ...] -- COMMAND [ARGUMENT ...]",
        description="Start a training command with the probe attached; no change to its code.",
    )
    described.add_argument("--name", help="name of the run, the same on every node and across restarts")
    described.add_argument("--dir", metavar="FOLDER", help="the spool: a local folder, the same as the exporter's")
    supervision.add(described)
    described.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="the training command")
    return described


def environment(environ: Mapping[str, str], *, name: str | None = None, folder: str | None = None) -> dict[str, str]:
    """Return the environment for a command whose Python processes shall be watched."""
    given = {"TRAINVITALS_RUN": name, "TRAINVITALS_DIR": None if folder is None else os.path.abspath(folder)}
    before = environ.get("PYTHONPATH", "")
    # An empty part is the current folder, as in ":/mine"; an empty path is none.
    paths = [path for path in before.split(os.pathsep) if path != _SITE] if before else []
    return {
        **environ,
        **{variable: value for variable, value in given.items() if value},
        "PYTHONPATH": os.pathsep.join([_SITE, *paths]),
        # Where the Python of the training finds us if we are not installed for it.
        "TRAINVITALS_PACKAGE": os.path.dirname(os.path.abspath(trainvitals.__file__)),
    }


def main(arguments: Sequence[str]) -> int:
    """Become the command; return an exit status only when that cannot be done."""
    described = parser()
    options = described.parse_args(arguments)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        described.error("expected a command after --, as in: trainvitals run -- python train.py")
    path = shutil.which(command[0])
    if path is None:
        status = _NOT_EXECUTABLE if os.path.exists(command[0]) else _NOT_FOUND
        why = "not executable" if status == _NOT_EXECUTABLE else "not found"
        print(f"trainvitals run: {command[0]}: {why}", file=sys.stderr)
        return status
    if supervision.are_given(options):
        return _supervise(options, os.path.abspath(path), command)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        _become(path, command, environment(_started_with(os.environ), name=options.name, folder=options.dir))
    except OSError as error:
        print(f"trainvitals run: {command[0]}: {error.strerror}", file=sys.stderr)
    return _NOT_EXECUTABLE


def _supervise(options: argparse.Namespace, path: str, command: Sequence[str]) -> int:
    """Stay beside the command; return its exit status, or that of the end of it."""
    environ = environment(_started_with(os.environ), name=options.name, folder=options.dir)
    try:
        settings = supervision.settings_of(options, path, command, environ)
    except ValueError as error:
        print(f"trainvitals run: {error}", file=sys.stderr)
        return 2
    return supervision.supervise(settings, {**environ, "TRAINVITALS_RUN": settings.name}, options.journal or "")


def _started_with(environ: Mapping[str, str], original: str = "/proc/self/environ") -> dict[str, str]:
    """Return the environment without what this process's Python has set in it at its start."""
    kept = dict(environ)
    try:
        with open(original, "rb") as file:
            given = file.read().split(b"\0")
    except OSError:  # Not Linux.
        return kept
    if not any(entry.startswith(f"{_SET_BY_PYTHON}=".encode()) for entry in given):
        kept.pop(_SET_BY_PYTHON, None)
    return kept


def _become(path: str, command: Sequence[str], environ: Mapping[str, str]) -> None:
    """Become the command, with the signals that it would have had; raises OSError where that cannot be done."""
    for name in _IGNORED_BY_PYTHON:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execve(path, list(command), environ)  # noqa: S606
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        # A script without a first line that names its interpreter: a shell runs it itself, and so does execvp(3).
        os.execve("/bin/sh", ["/bin/sh", path, *command[1:]], environ)  # noqa: S606
