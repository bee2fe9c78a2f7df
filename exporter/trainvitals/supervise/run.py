"""``trainvitals run -- COMMAND``: start any training with the probe attached, without a change to its code.

The command gets an environment in which each Python of it, on this node, loads ``site/sitecustomize.py`` at its start:
that watches the frameworks that the program imports.  Then this process becomes the command (exec), so that signals,
the terminal and the exit status are its own.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Mapping, Sequence

import trainvitals

_SITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")
#: Exit statuses of a shell for a command that is not there, or is no program.
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    described = argparse.ArgumentParser(
        prog="trainvitals run",
        usage="trainvitals run [--name NAME] [--dir FOLDER] -- COMMAND [ARGUMENT ...]",
        description="Start a training command with the probe attached; no change to its code.",
    )
    described.add_argument("--name", help="name of the run, the same on every node and across restarts")
    described.add_argument("--dir", metavar="FOLDER", help="the spool: a local folder, the same as the exporter's")
    described.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="the training command")
    return described


def environment(environ: Mapping[str, str], *, name: str | None = None, folder: str | None = None) -> dict[str, str]:
    """Return the environment for a command whose Python processes shall be watched."""
    given = {"TRAINVITALS_RUN": name, "TRAINVITALS_DIR": None if folder is None else os.path.abspath(folder)}
    paths = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != _SITE]
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
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(path, command, environment(os.environ, name=options.name, folder=options.dir))  # noqa: S606
    except OSError as error:
        print(f"trainvitals run: {command[0]}: {error.strerror}", file=sys.stderr)
        return _NOT_EXECUTABLE
