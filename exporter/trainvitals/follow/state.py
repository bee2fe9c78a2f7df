"""What is remembered of a run over a restart of the exporter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class State(NamedTuple):
    """Where a run was; see :class:`trainvitals.follow.run.FollowedRun`.  ``time`` is that of its last step."""

    step: int | None
    count: int  # type: ignore[assignment]  # Tuples have a method of this name.
    attempt: int
    attempt_started: float
    started: float
    leader: int | None
    newest: float
    time: float
    target: int | None
    world: int | None
    framework: str
    has_events: bool
    #: How many events it had told.
    told: int = 0

    @classmethod
    def load(cls, saved: Mapping[str, Any] | None) -> State | None:
        """Return what :meth:`_asdict` gave, read back from JSON; None for what makes no sense."""
        try:
            state = cls(**{name: value for name, value in (saved or {}).items() if name in cls._fields})
            return cls(
                step=None if state.step is None else int(state.step),
                count=int(state.count),
                attempt=int(state.attempt),
                attempt_started=float(state.attempt_started),
                started=float(state.started),
                leader=None if state.leader is None else int(state.leader),
                newest=float(state.newest),
                time=float(state.time),
                target=state.target,
                world=state.world,
                framework=str(state.framework),
                has_events=bool(state.has_events),
                told=int(state.told),
            )
        except (TypeError, ValueError, OverflowError):
            return None
