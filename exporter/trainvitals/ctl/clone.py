"""A new run from a checkpoint of one that is supervised, with other settings, beside it: ``trainvitals ctl RUN clone``.

The command is that of the run; an option that is named is changed in it, and a setting that is no option is given to
the knob of its name when the training declares it.  The clone saves into a folder of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainvitals.probe.knobs import GIVEN
from trainvitals.probe.orders import PARENT
from trainvitals.steer.giving import NotDoneError
from trainvitals.supervise import state
from trainvitals.supervise.checkpoints import find, newest


@dataclass(frozen=True)
class Clone:
    """What is to be started: the arguments of ``trainvitals``, and what its environment has more."""

    arguments: list[str]
    environ: dict[str, str]


def plan(run: str, name: str, folder: str, values: Mapping[str, Any], before: int | None = None) -> Clone:
    """Return how to clone a run whose supervisor keeps its state in a folder; ``before`` leaves out later checkpoints.

    Raises NotDoneError.
    """
    known = state.read(folder)
    if not known.command or not known.checkpoints:
        raise NotDoneError(f"{run} was not supervised here with a --checkpoint-dir: nothing tells how to start it")
    if name == run:
        raise NotDoneError(f"a clone of {run} needs a name of its own")
    path = _checkpoint(known.checkpoints, before)
    own = f"{known.checkpoints.rstrip('/')}-{name}"
    if os.path.isdir(own) and os.listdir(own):
        raise NotDoneError(f"{own} is there already: the clone would save into it")
    command, left = _with_options(known.command, values)
    command = _elsewhere(command, known.checkpoints, own)
    if command == known.command:
        raise NotDoneError(f"the command does not name {known.checkpoints}: its clone would save over what {run} saves")
    options = ["--name", name, "--checkpoint-dir", own, "--resume-from", path]
    if known.resume_flag:
        options += ["--resume-flag", known.resume_flag]
    environ = {PARENT: run, **({GIVEN: json.dumps(left)} if left else {})}
    return Clone(["run", *options, "--", *command], environ)


def _checkpoint(folder: str, before: int | None) -> str:
    try:
        found, _ = newest(find(folder), before=before)
    except OSError as error:
        raise NotDoneError(f"{folder} cannot be read: {error.strerror}") from None
    if found is None:
        raise NotDoneError(
            f"{folder} holds no checkpoint that can be loaded" + ("" if before is None else " from then")
        )
    return found.path


def _with_options(command: Sequence[str], values: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Return the command with these options changed, and the values that are none of its options."""
    changed, left = list(command), dict(values)
    for place, word in enumerate(command):
        option, equals, _ = word.partition("=")
        key = option.lstrip("-").replace("-", "_")
        name = next((name for name in values if name.replace("-", "_") == key), None)
        if name is None or (not equals and (not option.startswith("-") or place + 1 >= len(command))):
            continue
        changed[place if equals else place + 1] = f"{option}={values[name]}" if equals else str(values[name])
        left.pop(name, None)
    return changed, left


def _elsewhere(command: Sequence[str], old: str, new: str) -> list[str]:
    """Return the command with another folder in the place of one."""
    changed = []
    for word in command:
        head, equals, tail = word.rpartition("=")
        path = os.path.abspath(tail) if tail else ""
        inside = path == old or path.startswith(old + "/")
        changed.append(f"{head}{equals}{new}{path.removeprefix(old)}" if inside else word)
    return changed
