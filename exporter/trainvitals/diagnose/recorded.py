"""Runs that are known by the rank files of the probe: each as a followed log would tell it.

Of an attempt, the lowest rank with a loss is heard; of the others, what is no step, evaluation or checkpoint.
"""

from __future__ import annotations

import glob
import itertools
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from trainvitals.rankfile import RankFileError
from trainvitals.spooled import recording
from trainvitals.spooled.recording import Recording
from trainvitals.telemetry import Event, Identity, Step

#: The name of the format, as the report shows it.
FORMAT = "rank-file"
#: What every rank tells of the run as a whole.
_OF_ALL = frozenset({"evaluation", "checkpoint", "lineage", "change"})


@dataclass(frozen=True)
class RecordedRun:
    """What :class:`trainvitals.diagnose.case.Case` wants to know of a run."""

    name: str
    identity: Identity
    paths: tuple[str, ...]
    attempt: int
    bad: int
    finished: float | None
    steps: Sequence[Step]
    events: Sequence[Event]
    #: The last word on its process: "running", "finished", "failed" or "died".
    status: str
    formats: tuple[str, ...] = (FORMAT,)
    timed: bool = True

    @property
    def places(self) -> None:
        """Its events have times of their own."""


def runs(paths: Iterable[str]) -> tuple[list[RecordedRun], dict[str, str]]:
    """Return the runs of these rank files, and what is wrong with a file, by its path."""
    found, problems = [], {}
    for path in paths:
        try:
            found.append(recording.read(path))
        except RankFileError as error:
            problems[path] = f"no rank file that can be read: {error}"
    return [_join(name, parts) for name, parts in sorted(recording.by_run(found).items())], problems


def of_name(name: str) -> list[str]:
    """Return the rank files of this node's run of a name, where the exporter would look for them."""
    if os.sep in name or glob.has_magic(name):
        return []
    from trainvitals.config import ConfigError, load  # noqa: PLC0415  Few call a run by its name.

    try:
        patterns = load(None, os.environ, {}).spool.folders
    except ConfigError:
        return []
    folders = [[pattern] if os.path.isdir(pattern) else glob.glob(pattern) for pattern in patterns]
    return [path for folder in itertools.chain(*folders) for path in recording.find(folder) if _is_of(path, name)]


def _is_of(path: str, name: str) -> bool:
    try:
        return recording.read(path).identity.run == name
    except RankFileError:
        return False


def _join(name: str, parts: Sequence[Recording]) -> RecordedRun:
    attempts: dict[tuple[int, float], list[Recording]] = {}
    for part in parts:
        attempts.setdefault(_attempt(part, attempts), []).append(part)
    steps: list[Step] = []
    events: list[Event] = []
    count, heard = 0, parts[0]
    for number, ranks in enumerate(attempts.values()):
        heard = min(ranks, key=lambda part: (not part.has_loss, part.identity.rank))
        if number:
            events.append(_restart(number, heard, steps))
        steps += [replace(step, count=count + step.count) for step in heard.steps]
        count += heard.count
        for part in ranks:
            mine = part is heard
            events += [
                event if mine else replace(event, fields={**event.fields, "rank": part.identity.rank})
                for event in part.events
                if mine or event.kind not in _OF_ALL
            ]
    last = max(part.started for part in parts)
    return RecordedRun(
        name=name,
        identity=heard.identity,
        paths=tuple(part.path for part in parts),
        attempt=len(attempts) - 1,
        bad=sum(part.bad for part in parts),
        finished=last if heard.status == "finished" else None,
        steps=steps,
        events=sorted(events, key=lambda event: event.time),
        status=heard.status,
    )


def _attempt(part: Recording, attempts: dict[tuple[int, float], list[Recording]]) -> tuple[int, float]:
    """Return the attempt that a process belongs to: a rank that comes again began another one."""
    number = part.identity.attempt
    for key, ranks in attempts.items():
        if key[0] == number and all(other.identity.rank != part.identity.rank for other in ranks):
            return key
    return number, part.started


def _restart(number: int, first: Recording, before: Sequence[Step]) -> Event:
    step = first.steps[0].step if first.steps else -1
    fields = {"attempt": number, "previous_step": before[-1].step if before else -1}
    return Event(first.started, "restart", step, fields)
