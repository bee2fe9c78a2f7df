"""What the user asks of a supervised run."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Limits:
    """What the user allows: restarts in all, attempts in a row without progress, and the first pause in seconds."""

    max_restarts: int = 3
    no_progress: int = 3
    pause: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One supervised run.  Seconds are seconds of the clock.

    ``name`` is that of the run, ``command`` begins with a path, ``spool`` is where its ranks report, ``folder`` where
    the supervisor keeps its state, ``checkpoints`` where the training saves (None: it is started anew each time), and
    ``resume_from`` a checkpoint of another run, for as long as this one has none.
    ``hang_after`` takes the place of the learned limit between steps.  ``grace`` is how long a training may take to
    save when it is told to end, ``wait`` how long is waited for space or devices.  ``processes`` is how few and how
    many processes per node will do.
    """

    name: str
    command: tuple[str, ...]
    spool: str
    folder: str
    checkpoints: str | None = None
    resume_flag: str | None = None
    resume_from: str | None = None
    limits: Limits = field(default_factory=Limits)
    hang_after: float | None = None
    grace: float = 30.0
    wait: float = 3600.0
    processes: tuple[int, int] | None = None


def parse_processes(text: str) -> tuple[int, int]:
    """Return the least and the most of ``MIN:MAX``.  Raises ValueError, in one line."""
    least, colon, most = text.partition(":")
    if not (least.isdigit() and most.isdigit() and colon) or not 1 <= int(least) <= int(most):
        raise ValueError(f"expected MIN:MAX, as in 6:8, found {text!r}")
    return int(least), int(most)
