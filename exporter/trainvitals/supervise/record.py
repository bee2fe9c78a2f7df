"""Where interruptions are recorded: the journal of the node, or nowhere.  It never ends a supervision."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Protocol

from trainvitals.journal import Journal, JournalError, journal_path


class Records(Protocol):
    """What a supervisor needs of a journal: :class:`trainvitals.journal.Journal` has it."""

    def record_incident(self, run: str, cause: str, *, attempt: int, detected: float, key: str, **columns: Any) -> int:
        """Write an interruption and return its id; one with the same key stays what it is."""

    def update_incident(self, incident: int, **columns: Any) -> bool:
        """Write what became known of it later."""

    def close(self) -> None:
        """Write what waits."""


class Nowhere:
    """Records nothing, where there is no journal to be had."""

    def record_incident(self, run: str, cause: str, *, attempt: int, detected: float, key: str, **columns: Any) -> int:
        """Forget it."""
        del run, cause, attempt, detected, key, columns
        return 0

    def update_incident(self, incident: int, **columns: Any) -> bool:
        """Forget it."""
        del incident, columns
        return False

    def close(self) -> None:
        """Do nothing."""


def open_records(path: str, tell: Callable[[str], None]) -> Records:
    """Return the journal at ``path`` (by default the node's); says why in one line where it cannot be used."""
    try:
        return Journal(path or journal_path(), tell=tell)
    except (JournalError, OSError) as error:
        tell(f"interruptions are not recorded: {error}")
        return Nowhere()


def quietly(action: Callable[[], Any]) -> Any:
    """Do something with the journal; what goes wrong there costs the record and nothing else."""
    with contextlib.suppress(Exception):
        return action()
    return None
