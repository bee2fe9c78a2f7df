"""What a supervisor remembers, so that one that was killed can be started again: a file, replaced as a whole.

A lock beside it says that its run is supervised; the kernel drops it with the process.  What is remembered is bounded.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from trainvitals import rankfile
from trainvitals.supervise.decide import Past

_FILE, _LOCK = "state.json", "lock"
#: Failures and checkpoints that are remembered.
_MOST = 200


class BusyError(Exception):
    """Another supervisor has the run; the message is one line."""


@dataclass
class State:
    """The life of one run under supervision.

    ``phase`` is "running", "waiting" (between two attempts), "released" (until somebody wants it to go on), "finished",
    "stopped" or "preempted"; ``pid`` and
    ``started`` tell the shell around the command in this ``boot``, ``mark`` all its processes, ``began`` (wall time)
    when the attempt began.  ``restarts`` counts those that failures made.  ``rejected`` are marks of checkpoints,
    ``excluded`` UUIDs of devices, that are left out.  ``offsets`` are how far its output is copied.
    """

    command: list[str] = field(default_factory=list)
    phase: str = ""
    attempt: int = -1
    restarts: int = 0
    pid: int = 0
    started: int = 0
    boot: str = ""
    mark: str = ""
    began: float = 0.0
    resumed: int | None = None
    furthest: int | None = None
    offsets: list[int] = field(default_factory=lambda: [0, 0])
    past: list[Past] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)
    #: The incident that the attempt recovers from, and when the last step before it was made (wall time), and which.
    incident: int | None = None
    last_time: float | None = None
    last_step: int | None = None
    #: Where it saves and how it is told where to go on, for who starts another like it.
    checkpoints: str = ""
    resume_flag: str = ""

    def is_of_this_boot(self) -> bool:
        """Whether process ids in it still mean anything."""
        return self.boot == rankfile.boot_id()


def holder(folder: str) -> int | None:
    """Return the process that supervises the run of a folder; None where there is none."""
    try:
        descriptor = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        return rankfile.lock_holder(descriptor)
    finally:
        os.close(descriptor)


def read(folder: str) -> State:
    """Return what was saved last in a folder; an empty state where there is none, or none that makes sense."""
    try:
        with open(os.path.join(folder, _FILE), encoding="utf-8") as file:
            document = json.load(file)
        known = {one.name for one in fields(State)}
        state = State(**{name: value for name, value in document.items() if name in known})
        state.past = [Past(**entry) for entry in document.get("past", [])]
    except (OSError, ValueError, TypeError, AttributeError):
        return State()
    return state


class Store:
    """The state in a folder, which is made.  Raises OSError, and BusyError when another supervisor has it."""

    def __init__(self, folder: str) -> None:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self.folder = folder
        self._lock = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = rankfile.lock_holder(self._lock)
            os.close(self._lock)
            raise BusyError(f"{folder}: the run is supervised already, by process {holder or '?'}") from None

    def path(self, *names: str) -> str:
        """Return a path in the folder."""
        return os.path.join(self.folder, *names)

    def load(self) -> State:
        """Return what was saved last; an empty state where there is none, or none that makes sense."""
        return read(self.folder)

    def save(self, state: State) -> bool:
        """Replace what was saved; on a full disk the old one stays.  Return whether it is there."""
        state.past = state.past[-_MOST:]
        state.rejected, state.excluded = state.rejected[-_MOST:], state.excluded[-_MOST:]
        document: dict[str, Any] = asdict(state)
        new = self.path(f"{_FILE}.new")
        try:
            with open(new, "w", encoding="utf-8") as file:
                json.dump(document, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, self.path(_FILE))
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(new)
            return False
        return True

    def close(self) -> None:
        """Give up the lock."""
        os.close(self._lock)
