"""What a format of checkpoints is: it claims paths, verifies them, and knows their step."""

from __future__ import annotations

import os
import re
from typing import Protocol

#: In a name: "step=100", "checkpoint-100", "iter_0000100", "global_step100"; not "epoch=3".
_STEP = re.compile(r"(?:step|steps|iter|iteration|checkpoint|ckpt)[-_=.]?0*(\d{1,18})(?!\d)", re.IGNORECASE)
#: A name that is nothing but a number: "100.pt", "0000100".
_NUMBER = re.compile(r"0*(\d{1,18})")


class DamagedError(Exception):
    """A checkpoint that cannot be loaded; the message says in a few words what is wrong with it."""


class Format(Protocol):
    """One format.  Nothing of a checkpoint is ever executed: no pickle is loaded."""

    name: str

    def claims(self, path: str) -> bool:
        """Whether a path looks like a checkpoint of this format, whole or not."""

    def verify(self, path: str) -> None:
        """Raise DamagedError where it is not whole; OSError where it cannot be read."""

    def step(self, path: str) -> int | None:
        """Return the step that its content tells, None where it does not.  Never raises but OSError."""


def step_of_name(path: str) -> int | None:
    """Return the step that the name of a file or folder tells.

    >>> step_of_name("/out/epoch=3-step=1500.ckpt")
    1500
    """
    name = os.path.basename(path)
    found = _STEP.findall(name)
    if found:
        return int(found[-1])
    whole = _NUMBER.fullmatch(name.partition(".")[0])
    return int(whole[1]) if whole else None
