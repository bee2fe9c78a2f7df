"""Which checkpoint the next attempt begins at, and whether a failed one has brought the run forward."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from trainvitals.supervise.checkpoints import Checkpoint, Passed, find, newest


class NoneLeftError(Exception):
    """There are checkpoints, and none of them can be loaded; the message is one line."""


@dataclass(frozen=True)
class Choice:
    """The checkpoint to resume from (None: from the beginning), and those that were passed over."""

    checkpoint: Checkpoint | None = None
    passed: list[Passed] = field(default_factory=list)

    @property
    def path(self) -> str | None:
        """Its path."""
        return None if self.checkpoint is None else self.checkpoint.path

    @property
    def step(self) -> int | None:
        """Its step; 0 for the beginning, None where nobody knows."""
        return 0 if self.checkpoint is None else self.checkpoint.step


def choose(
    folder: str | None, *, steps: Mapping[str, int], rejected: Collection[str], tell: Callable[[str], None]
) -> Choice:
    """Return the newest checkpoint that verifies and was not rejected, and name those that do not verify.

    Raises OSError where the folder cannot be read, and NoneLeftError.
    """
    if folder is None or not os.path.isdir(folder):
        return Choice()
    found = find(folder, steps)
    chosen, passed = newest(found, rejected=rejected)
    for one in passed:
        tell(f"{one.path}: passed over: {one.why}")
    if chosen is None and passed:
        raise NoneLeftError(
            f"{folder}: none of its {len(passed)} checkpoints can be loaded; move them away to begin anew"
        )
    return Choice(chosen, passed)


def given(path: str) -> Choice:
    """Return a checkpoint of another run as the one to begin at.  Raises NoneLeftError when it cannot be loaded."""
    parent = os.path.dirname(os.path.abspath(path))
    try:
        found = [one for one in find(parent) if one.path == os.path.realpath(path)]
        chosen, passed = newest(found)
    except OSError as error:
        raise NoneLeftError(f"{path}: {error.strerror}") from None
    if chosen is None:
        raise NoneLeftError(f"{path}: {passed[0].why if passed else 'no checkpoint that is known here'}")
    return Choice(chosen)


def from_step(folder: str | None, step: int, steps: Mapping[str, int]) -> list[str]:
    """Return the marks of the checkpoints of a step and later ones.  Raises OSError."""
    if folder is None or not os.path.isdir(folder):
        return []
    return [one.mark for one in find(folder, steps) if one.step is not None and one.step >= step]
