"""What somebody wants of a supervised run behind its next clean end: ``trainvitals ctl`` leaves it, and stops the run.

A file beside the supervisor's state, which appears whole and is taken once.  Who can write there may wish.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from trainvitals.folders import state_folder

_FILE = "wish.json"
_LONGEST = 4096
#: "release": end, and wait for "resume"; "rollback": go on from a checkpoint of ``step`` or before; "scale": go on with
#: ``least`` to ``most`` processes per node; "resume": go on after a release.
WHAT = ("release", "resume", "rollback", "scale")
#: A wish that nobody took for so long is none any more.
_OLD = 3600.0


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What is wanted, by whom, and when."""

    what: str
    step: int | None = None
    least: int | None = None
    most: int | None = None
    by: str = ""
    time: float = 0.0


def folder_of(run: str, environ: Mapping[str, str]) -> str:
    """Return where the supervisor of a run keeps its state, unless it was told another folder."""
    return os.path.join(state_folder("", environ), "runs", run)


def leave(folder: str, wish: Wish) -> None:
    """Leave a wish; it takes the place of one before.  Raises OSError."""
    new = os.path.join(folder, f"{_FILE}.{os.getpid()}.new")
    with open(new, "w", encoding="utf-8") as file:
        json.dump(asdict(wish), file)
    os.replace(new, os.path.join(folder, _FILE))


def withdraw(folder: str) -> None:
    """Take a wish back."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(folder, _FILE))


def take(folder: str, now: float | None = None) -> Wish | None:
    """Return the wish that was left, once; None where there is none, or none that makes sense any more."""
    path = os.path.join(folder, _FILE)
    try:
        with open(path, encoding="utf-8") as file:
            document: dict[str, Any] = json.loads(file.read(_LONGEST))
        os.unlink(path)
        wish = Wish(**document)
    except (OSError, ValueError, TypeError):
        return None
    numbers = (wish.step, wish.least, wish.most)
    is_whole = all(number is None or (type(number) is int and number >= 0) for number in numbers)
    if wish.what not in WHAT or not is_whole or not isinstance(wish.time, (int, float)):
        return None
    return wish if (time.time() if now is None else now) - wish.time < _OLD else None
