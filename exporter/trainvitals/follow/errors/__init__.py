"""Errors in the text of logs: one table of causes, a reader that finds them, and which of them began it all.

:class:`~trainvitals.follow.errors.reader.ErrorReader` finds them in blocks of lines; ``table`` has a row for each
cause, one file a subject; ``blocks`` knows what takes several lines; ``cascade`` says which event is the root of the
others.
"""

from trainvitals.follow.errors.cascade import root_cause
from trainvitals.follow.errors.reader import ErrorReader
from trainvitals.follow.errors.table import CAUSE, CAUSES

__all__ = ["CAUSE", "CAUSES", "ErrorReader", "root_cause"]
