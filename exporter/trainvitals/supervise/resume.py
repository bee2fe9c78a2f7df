"""How an attempt learns where to go on: variables of its environment, and a flag for commands that take one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from trainvitals.probe.resume_path import RESUME_FROM, RESUME_SINCE

ATTEMPT = "TRAINVITALS_ATTEMPT"
_PLACE = "{path}"


def environment(environ: Mapping[str, str], *, attempt: int, checkpoint: str | None, now: float) -> dict[str, str]:
    """Return the environment of an attempt; without a checkpoint, one from outside does not count either."""
    kept = {name: value for name, value in environ.items() if name not in {RESUME_FROM, RESUME_SINCE}}
    told = {} if checkpoint is None else {RESUME_FROM: checkpoint, RESUME_SINCE: f"{now:.6f}"}
    return {**kept, **told, ATTEMPT: str(attempt)}


def check_flag(flag: str) -> str:
    """Return a flag like ``--resume {path}`` as it is.  Raises ValueError, in one line, for one without the path."""
    if _PLACE not in flag:
        raise ValueError(f"expected {_PLACE} in it, as in: --resume-flag '--resume {_PLACE}'")
    shlex.split(flag)
    return flag


def with_flag(command: Sequence[str], flag: str | None, checkpoint: str | None) -> list[str]:
    """Return the command with the flag behind it, if there is one and a checkpoint for it."""
    if not flag or checkpoint is None:
        return list(command)
    return [*command, *(word.replace(_PLACE, checkpoint) for word in shlex.split(flag))]
