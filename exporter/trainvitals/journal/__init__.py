"""The journal of a node: what happened in its runs, kept in SQLite over restarts of everything.

Standard library only, for `trainvitals run` writes here too.  The way in is :class:`Journal`; who only reads a file
takes the questions of :mod:`trainvitals.journal.ask`.
"""

from trainvitals.journal.place import journal_path, journals_in, node_name
from trainvitals.journal.rows import KINDS, Attempt, Entry, Incident, Run
from trainvitals.journal.store import Journal, JournalError

__all__ = [
    "KINDS",
    "Attempt",
    "Entry",
    "Incident",
    "Journal",
    "JournalError",
    "Run",
    "journal_path",
    "journals_in",
    "node_name",
]
