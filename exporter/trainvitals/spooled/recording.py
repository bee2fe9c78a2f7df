"""Rank files, read once and as a whole: for the check-up of a run that ended or goes on.

A file holds the last 4,096 records of its process.  It is as hostile here as it is to the exporter.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainvitals import rankfile
from trainvitals.spooled import events
from trainvitals.spooled.identity import identity_of
from trainvitals.telemetry import Event, Identity, Step

#: A folder can hold so many rank files; of more, the newest count.
MAX_FILES = 1024
_LONGEST_UPTIME = 1e10


@dataclass(frozen=True)
class Recording:
    """One process of a run: who it is, when it began, and what its file holds of it.

    ``status`` is "running", "finished", "failed" or "died".  ``count`` is how many steps it made, which may be more
    than ``steps`` are.  ``bad`` counts records and lines that made no sense.
    """

    path: str
    identity: Identity
    started: float
    status: str
    count: int
    steps: Sequence[Step]
    events: Sequence[Event]
    bad: int

    @property
    def has_loss(self) -> bool:
        """Whether any of its steps tells a loss."""
        return any("loss" in step.values for step in self.steps)


def find(path: str) -> list[str]:
    """Return the rank files that a path is or holds, in the order of their names."""
    if path.endswith(rankfile.RANK_SUFFIX):
        return [path] if os.path.isfile(path) else []
    with contextlib.suppress(OSError):
        names = [name for name in os.listdir(path) if name.endswith(rankfile.RANK_SUFFIX)]
        paths = [os.path.join(path, name) for name in names]
        if len(paths) > MAX_FILES:
            paths = sorted(paths, key=_changed)[-MAX_FILES:]
        return sorted(paths)
    return []


def read(path: str) -> Recording:
    """Return what a rank file holds.  Raises RankFileError."""
    with contextlib.closing(rankfile.Reader(path)) as reader:
        # The lock first: what was written before the writer ended is then surely read after.
        alive = reader.alive()
        state = reader.read_state()
        records, bad = reader.read_records(0)
        fields, names = reader.read_text()
        header, owner = reader.header, reader.owner
    if state is None:
        raise rankfile.RankFileError("state", "checksum")
    shift = header.started_wall - header.started_monotonic
    steps = []
    for record in records:
        if not 0.0 <= record.time < _LONGEST_UPTIME or max(record.values, default=-1) >= len(names):
            bad += 1
            continue
        values = {names[index]: value for index, value in record.values.items()}
        steps.append(Step(record.step, record.count, record.time + shift, values))
    found, damaged = _events(path, owner)
    count = max(state.count, *(step.count for step in steps)) if steps else state.count
    status = _status(state.flags, alive=alive)
    return Recording(path, identity_of(fields), header.started_wall, status, count, steps, found, bad + damaged)


def _events(path: str, owner: int) -> tuple[list[Event], int]:
    found: list[Event] = []
    offset, bad, lines = 0, 0, [b""]
    with contextlib.suppress(OSError):
        while lines:
            lines, offset = events.read_lines(events.path_of(path), offset, owner)
            parsed = [event for line in lines if (event := events.parse(line)) is not None]
            bad += len(lines) - len(parsed)
            found += parsed
    return found, bad


def _status(flags: int, *, alive: bool) -> str:
    if flags & rankfile.FLAG_FAILED:
        return "failed"
    if flags & rankfile.FLAG_FINISHED:
        return "finished"
    return "running" if alive else "died"


def _changed(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0.0


def by_run(recordings: Iterable[Recording]) -> dict[str, list[Recording]]:
    """Return the processes of each run by its name, attempt by attempt and rank by rank."""
    runs: dict[str, list[Recording]] = {}
    for recording in sorted(recordings, key=lambda one: (one.identity.attempt, one.started, one.identity.rank)):
        runs.setdefault(recording.identity.run, []).append(recording)
    return runs
