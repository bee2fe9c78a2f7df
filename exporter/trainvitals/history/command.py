"""The commands ``trainvitals timeline`` and ``trainvitals incidents``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence

from trainvitals.history import incidents_show, line, timeline_show
from trainvitals.history.books import Books, HistoryError, default_paths
from trainvitals.history.costs import BY, Account, account
from trainvitals.history.when import parse

#: Exit status where nothing can be told.
NOTHING = 2


def timeline_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments of ``timeline``."""
    described = argparse.ArgumentParser(
        prog="trainvitals timeline",
        description="Say since which step a run goes wrong, what changed then, and all that happened, in order.",
    )
    described.add_argument("run", metavar="RUN", help="name of the run")
    described.add_argument("--since", metavar="STEP|TIME", help="from there on: 1200, 2h (ago), 2026-12-01T08:30")
    described.add_argument("--all", action="store_true", help="print every row, not one screen of them")
    _add_common(described)
    return described


def incidents_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments of ``incidents``."""
    described = argparse.ArgumentParser(
        prog="trainvitals incidents",
        description="Say what interrupted runs, what it cost, where the time went, and how often to save.",
    )
    described.add_argument("run", metavar="RUN", nargs="?", help="name of a run [default: all]")
    described.add_argument("--by", choices=tuple(BY), help="one row for each cause, node, device or hour of the day")
    _add_common(described)
    return described


def _add_common(described: argparse.ArgumentParser) -> None:
    described.add_argument("--json", action="store_true", help="print JSON")
    described.add_argument("--journal", metavar="FILE", help="the journal [default: those of this user and the system]")


def timeline(arguments: Sequence[str], clock: Callable[[], float] = time.time) -> int:
    """Run ``timeline`` and return its exit status; ``clock`` gives the time of day."""
    options = timeline_parser().parse_args(arguments)
    books = _books(options.journal)
    try:
        step, moment = (None, None) if options.since is None else parse(options.since, clock())
    except ValueError as error:
        return _fail("timeline", f"--since: {error}")
    try:
        story = books.story(options.run)
    except HistoryError as error:
        return _fail("timeline", str(error))
    answer = line.tell(story)
    rows = line.since(answer.rows, step=step, time=moment)
    _complain(books, "timeline")
    if options.json:
        print(timeline_show.as_json(story, answer, rows))
    else:
        timeline_show.show(story, answer, rows, sys.stdout, whole=options.all, now=clock())
    return 0


def incidents(arguments: Sequence[str]) -> int:
    """Run ``incidents`` and return its exit status."""
    options = incidents_parser().parse_args(arguments)
    books = _books(options.journal)
    try:
        names = books.names() if options.run is None else [options.run]
        found: Account = account([books.story(name, ("checkpoint",)) for name in names])
    except HistoryError as error:
        return _fail("incidents", str(error))
    _complain(books, "incidents")
    if options.json:
        print(incidents_show.as_json(found, options.by))
    else:
        incidents_show.show(found, options.by, sys.stdout)
    return 0


def _books(journal: str | None) -> Books:
    return Books([journal] if journal else default_paths(os.environ))


def _complain(books: Books, command: str) -> None:
    for problem in books.problems:
        print(f"trainvitals {command}: left out: {problem}", file=sys.stderr)


def _fail(command: str, why: str) -> int:
    print(f"trainvitals {command}: {why}", file=sys.stderr)
    return NOTHING
