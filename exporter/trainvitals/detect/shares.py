"""What share of the time of a training goes into one thing, over the last ten minutes of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from trainvitals.detect.base import Verdict

#: The window, and what must be in it before anything is said: the first batches wait for workers to start and for
#: buffers to fill.
WINDOW_SECONDS = 600.0
LEAST_SECONDS = 120.0
#: Steps are put together until they make so much of it, so that a window of fast steps costs no more.
PIECE_SECONDS = 10.0
#: Kind of the event that carries the seconds of a rank in each phase, as they are at a poll (fields: phase, seconds).
PHASES = "phases"
#: Phases that are no training: what goes on in them is waited for by nobody's steps.
NO_TRAINING = frozenset({"other", "init", "checkpoint", "evaluation"})


class _Piece(NamedTuple):
    step: int
    steps: int
    part: float
    whole: float


class Share:
    """Seconds of one thing against seconds of training, in a window that moves on."""

    def __init__(self) -> None:
        self._pieces: deque[_Piece] = deque()
        self._part = self._whole = 0.0
        #: Of the piece that begins.
        self._new_part = self._new_whole = 0.0
        self._new_steps = 0
        self._before: dict[str, float] = {}

    def add(self, step: int, steps: int, part: float, whole: float) -> bool:
        """Take what is next: ``part`` of ``whole`` seconds in so many steps; return whether the window moved on."""
        if not (0.0 <= part < 1e9 and 0.0 < whole < 1e9):
            return False
        self._new_part += min(part, whole)
        self._new_whole += whole
        self._new_steps += steps
        if self._new_whole < PIECE_SECONDS:
            return False
        self._close(step)
        return True

    def add_all(
        self, numbers: list[int], reached: int, parts: list[float], wholes: list[float], begin: int
    ) -> tuple[int, bool]:
        """Take laps from a place on, until the window moves on; return the place behind them, and whether it does.

        They end at these steps, and the first of them begins at ``reached``.  No part may be more than its whole; for
        their range see :meth:`add`.
        """
        part, whole, place = self._new_part, self._new_whole, begin
        for place in range(begin, len(wholes)):
            part += parts[place]
            whole += wholes[place]
            if whole >= PIECE_SECONDS:
                break
        self._new_part, self._new_whole = part, whole
        self._new_steps += numbers[place] - reached
        if whole < PIECE_SECONDS:
            return place + 1, False
        self._close(numbers[place])
        return place + 1, True

    def _close(self, step: int) -> None:
        piece = _Piece(step, self._new_steps, self._new_part, self._new_whole)
        self._new_part = self._new_whole = 0.0
        self._new_steps = 0
        self._pieces.append(piece)
        self._part += piece.part
        self._whole += piece.whole
        while self._whole - self._pieces[0].whole >= WINDOW_SECONDS:
            old = self._pieces.popleft()
            self._part -= old.part
            self._whole -= old.whole

    def add_phases(self, step: int, phase: str, seconds: Mapping[str, float]) -> bool:
        """Take the seconds in all phases since the start; return whether ``phase`` is told at all."""
        before, self._before = self._before, dict(seconds)
        if not before:
            return phase in seconds
        grown = {name: value - before.get(name, 0.0) for name, value in seconds.items()}
        if any(value < 0.0 for value in grown.values()):
            self.clear()
            self._before = dict(seconds)
            return phase in seconds
        whole = sum(value for name, value in grown.items() if name not in NO_TRAINING)
        if not self.add(step, 0, grown.get(phase, 0.0), whole) and self._new_whole > 0.0:
            self._close(step)
        return phase in seconds

    def clear(self) -> None:
        """Forget the window: another attempt begins."""
        self._pieces.clear()
        self._part = self._whole = self._new_part = self._new_whole = 0.0
        self._new_steps = 0
        self._before = {}

    @property
    def ratio(self) -> float | None:
        """The share, from 0 to 1; None as long as too little was seen."""
        part, whole = self._part + self._new_part, self._whole + self._new_whole
        if whole < LEAST_SECONDS:
            return None
        return max(0.0, min(1.0, part / whole))

    @property
    def since(self) -> int:
        """The step at which the window begins."""
        return self._pieces[0].step - self._pieces[0].steps if self._pieces else 0


class Finding:
    """Keeps since when a share is too large, and the words for it, which change only when the class does."""

    def __init__(self, info: float, warning: float) -> None:
        self._limits = (info, warning)
        self.since: int | None = None
        self.shown = 0.0
        self.is_warning = False

    def update(self, share: Share) -> None:
        """Look at the share now; what has begun ends at four fifths of its threshold."""
        ratio = share.ratio
        info, warning = self._limits
        if ratio is None or ratio < (info if self.since is None else 0.8 * info):
            self.since, self.shown, self.is_warning = None, 0.0, False
            return
        if self.since is None:
            self.since = share.since
        is_warning = ratio >= (0.8 * warning if self.is_warning else warning)
        if not self.shown or is_warning != self.is_warning:
            self.shown, self.is_warning = ratio, is_warning

    def verdict(self, share: float, evidence: str, action: str) -> Verdict:
        """Return the verdict: the share (statistic ``share``) over its threshold; ``evidence`` goes on behind it."""
        statistics = {"share": share}
        info = self._limits[0]
        if self.since is None:
            return Verdict(ratio=min(share / info, 0.99), statistics=statistics)
        since = max(0, self.since)
        return Verdict(
            ratio=max(1.0, share / info),
            since_step=since,
            evidence=f"since step {since}: {self.shown:.0%} of the time {evidence}",
            statistics=statistics,
            severity="warning" if self.is_warning else "info",
            action=action,
        )
