"""The checkpoints in a folder: which there are, of which step, and which is the newest that can be loaded.

Formats are a table, tried in its order; each is one file.  A checkpoint that is not whole is passed over and named.
Nothing is ever removed, and nothing of a checkpoint is executed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from trainvitals.supervise.checkpoints.base import DamagedError, Format, step_of_name
from trainvitals.supervise.checkpoints.distributed import Distributed
from trainvitals.supervise.checkpoints.huggingface import HuggingFace
from trainvitals.supervise.checkpoints.lightning import Lightning
from trainvitals.supervise.checkpoints.policy import Policy
from trainvitals.supervise.checkpoints.safetensors import Safetensors
from trainvitals.supervise.checkpoints.shards import Shards
from trainvitals.supervise.checkpoints.torch_zip import TorchZip

__all__ = ["FORMATS", "Checkpoint", "DamagedError", "Passed", "find", "newest"]

FORMATS: tuple[Format, ...] = (Policy(), HuggingFace(), Distributed(), Shards(), Safetensors(), Lightning(), TorchZip())
#: lightning_logs/version_0/checkpoints/x.ckpt lies so deep.
_DEPTH = 4
_MOST_ENTRIES = 20_000
#: A save that goes on, as programs call it.
_UNFINISHED = (".tmp", ".new", ".part", ".partial", ".incomplete")


@dataclass(frozen=True)
class Checkpoint:
    """One that was found, whole or not.  ``step`` is None where nothing tells it, ``time`` when it was changed."""

    path: str
    format: Format
    step: int | None
    time: float

    @property
    def mark(self) -> str:
        """What tells it from another that was written to the same path later."""
        return f"{self.path}@{self.time:.6f}"


@dataclass(frozen=True)
class Passed:
    """One that was passed over, and why."""

    path: str
    step: int | None
    why: str


def find(folder: str, steps: Mapping[str, int] | None = None) -> list[Checkpoint]:
    """Return the checkpoints in a folder, the newest first; ``steps`` are those that a training told, by real path.

    Of one whose step nobody knows its time counts, and only where no other has a step.  Raises OSError where the
    folder cannot be read.
    """
    told = steps or {}
    found: dict[str, Checkpoint] = {}
    for path, kind in _walk(folder):
        real = os.path.realpath(path)
        if real not in found:
            # A link such as "latest" leads to one that has a name of its own.
            step = told.get(real)
            for tells in (step_of_name, kind.step):
                step = tells(real) if step is None else step
            found[real] = Checkpoint(real, kind, step, os.stat(real).st_mtime)
    known = [one for one in found.values() if one.step is not None]
    return sorted(known or found.values(), key=lambda one: (one.step or 0, one.time), reverse=True)


def _walk(folder: str) -> Iterator[tuple[str, Format]]:
    """Give the paths that a format claims; what it has claimed is not looked into."""
    left = _MOST_ENTRIES
    folders = [(folder, 0)]
    while folders and left > 0:
        parent, depth = folders.pop(0)
        try:
            names = sorted(os.listdir(parent))
        except OSError:
            if parent == folder:
                raise
            continue
        for name in names[:left]:
            path = os.path.join(parent, name)
            if name.startswith(".") or name.endswith(_UNFINISHED) or ".tmp" in name:
                continue
            kind = _claimed(path)
            if kind is not None:
                yield path, kind
            elif depth + 1 < _DEPTH and os.path.isdir(path) and not os.path.islink(path):
                folders.append((path, depth + 1))
        left -= len(names)


def _claimed(path: str) -> Format | None:
    try:
        return next((kind for kind in FORMATS if kind.claims(path)), None)
    except OSError:
        return None


def newest(
    checkpoints: list[Checkpoint], *, before: int | None = None, rejected: Collection[str] = ()
) -> tuple[Checkpoint | None, list[Passed]]:
    """Return the newest that can be loaded, and those that were passed over because they cannot.

    ``before`` leaves out all from this step on, ``rejected`` those with such a :attr:`Checkpoint.mark`.
    """
    passed: list[Passed] = []
    for one in checkpoints:
        if one.mark in rejected:
            continue
        if before is not None and (one.step is None or one.step >= before):
            continue
        try:
            one.format.verify(one.path)
        except DamagedError as error:
            passed.append(Passed(one.path, one.step, str(error)))
        except OSError as error:
            passed.append(Passed(one.path, one.step, error.strerror or str(error)))
        else:
            return one, passed
    return None, passed
