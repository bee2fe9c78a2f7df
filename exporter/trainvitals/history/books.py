"""The journals that a command reads: all that are found, or one that is named; nothing is left beside them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from trainvitals.folders import state_folder
from trainvitals.follow.sqlite import Database, reading
from trainvitals.journal import Attempt, Entry, Incident, Run, journals_in
from trainvitals.journal import ask as asking
from trainvitals.journal.ask import Ask
from trainvitals.journal.schema import APPLICATION, VERSION

#: Where a service manager keeps the state of the exporter, as a rule.
SYSTEM = "/var/lib/trainvitals"
#: Entries of one run, and of the nodes, that are read at most: the newest.
_MOST = 20_000
#: And where only some kinds of them are asked for.
_MOST_OF_SOME = 2_000

Found = TypeVar("Found")


class HistoryError(Exception):
    """What was asked for cannot be told; the message is one line."""


@dataclass
class Story:
    """All that the journals hold of a run; ``nodes`` are entries of the nodes in its time, in order as all others."""

    run: str
    runs: list[Run] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    nodes: list[Entry] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)

    @property
    def began(self) -> float | None:
        """When the first trace of it was."""
        rows: list[Run | Attempt] = [*self.runs, *self.attempts]
        times = [*(one.began for one in rows), *(one.time for one in self.entries[:1])]
        return min([*times, *(one.detected for one in self.incidents[:1])], default=None)

    @property
    def seen(self) -> float | None:
        """When the last was."""
        rows: list[Run | Attempt] = [*self.runs, *self.attempts]
        times = [*(one.seen for one in rows), *(one.time for one in self.entries[-1:])]
        return max([*times, *(one.detected for one in self.incidents[-1:])], default=None)


def default_paths(environ: Mapping[str, str]) -> list[str]:
    """Return the journals that are there: the user's, and the system's where it may be read."""
    folders = dict.fromkeys((state_folder("", environ), SYSTEM))
    return [path for folder in folders for path in journals_in(folder) if os.access(path, os.R_OK)]


class Books:
    """Some journals, read as one; ``problems`` are lines about those that cannot be read."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self.problems: list[str] = []

    def names(self) -> list[str]:
        """Return the names of all runs.  Raises HistoryError where no journal can be read."""
        return sorted({name for names in self._each(asking.names) for name in names})

    def incidents(self, run: str | None) -> list[Incident]:
        """Return the interruptions of a run, or of all."""
        found = {one.id: one for part in self._each(lambda ask: asking.incidents(ask, run)) for one in part}
        return sorted(found.values(), key=lambda one: one.detected)

    def story(self, run: str, kinds: Collection[str] = ()) -> Story:
        """Return all that is known of a run, or of its entries those of some kinds and none of the nodes.

        Raises HistoryError where it is unknown, with the names that are not.
        """
        names = self.names()
        if run not in names:
            known = f"known are {', '.join(map(repr, names[:12]))}" if names else "none is known"
            raise HistoryError(f"no run {run!r} in the journal: {known}{', ...' if len(names) > 12 else ''}")
        story = Story(run)
        for part in self._each(lambda ask: _read(ask, run, kinds)):
            story.runs += part.runs
            story.attempts += part.attempts
            story.entries += part.entries
            story.incidents += part.incidents
        story.attempts.sort(key=lambda one: (one.began, one.rank))
        story.entries.sort(key=lambda one: one.time)
        story.incidents.sort(key=lambda one: one.detected)
        if kinds:
            return story
        since, until = story.began, story.seen
        nodes = self._each(lambda ask: asking.events(ask, "", since=since, until=until, last=_MOST))
        story.nodes = sorted((entry for part in nodes for entry in part), key=lambda one: one.time)
        return story

    def _each(self, question: Callable[[Ask], Found]) -> list[Found]:
        """Ask every journal.  Raises HistoryError where none can be read."""
        if not self._paths:
            raise HistoryError("no journal yet: the exporter and `trainvitals run` write one (docs/journal.md)")
        found, self.problems = [], []
        for path in self._paths:
            try:
                with _opened(path) as ask:
                    found.append(question(ask))
            except (OSError, ValueError) as error:
                self.problems.append(f"{path}: {_plain(error)}")
        if not found:
            raise HistoryError(self.problems[0])
        return found


def _read(ask: Ask, run: str, kinds: Collection[str]) -> Story:
    entries = asking.events(ask, run, kinds=kinds, last=_MOST_OF_SOME if kinds else _MOST)
    runs = [one for one in asking.runs(ask) if one.run == run]
    return Story(run, runs, asking.attempts(ask, run), entries, [], asking.incidents(ask, run))


@contextlib.contextmanager
def _opened(path: str) -> Iterator[Ask]:
    """Open a journal to ask it.  Raises OSError, ValueError."""
    with reading(path) as database:
        _check(database)
        yield database.ask


def _check(database: Database) -> None:
    (application,), (version,) = database.ask("PRAGMA application_id")[0], database.ask("PRAGMA user_version")[0]
    if application != APPLICATION:
        raise ValueError("no journal of trainvitals")
    if version > VERSION:
        raise ValueError(f"written by a newer trainvitals (version {version}, this one knows {VERSION})")
    if version < VERSION:
        raise ValueError("written by an older trainvitals: its exporter brings it forward when it starts")


def _plain(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
