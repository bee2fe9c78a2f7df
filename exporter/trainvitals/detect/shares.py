"""What share of the time of a training goes into one thing, over the last ten minutes of it."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import NamedTuple

from trainvitals.detect.base import Verdict

#: The window, and what must be in it before anything is said: the first batches wait for workers to start and for
#: buffers to fill.
WINDOW_SECONDS = 600.0
LEAST_SECONDS = 120.0
#: Steps are put together until they make so much of it, so that a window of fast steps costs no more.
PIECE_SECONDS = 20.0
#: Kind of the event that carries the seconds of a rank in each phase, as they are at a poll (fields: phase, seconds).
PHASES = "phases"
#: Phases that are no training: what goes on in them is waited for by nobody's steps.
NO_TRAINING = frozenset({"other", "init", "checkpoint", "evaluation", "paused"})


class _Place(NamedTuple):
    """Where a piece of the window begins: the step, and both totals there."""

    step: int
    part: float
    whole: float


class Share:
    """Seconds of one thing against seconds of training, in a window that moves on.

    Both are totals since the start, and a piece of the window is what lies between two places: totals that never begin
    anew are reckoned for a block in one go.
    """

    def __init__(self) -> None:
        self._pieces: deque[_Place] = deque()
        self.clear()

    def clear(self) -> None:
        """Forget the window: another attempt begins."""
        self._pieces.clear()
        self._part = self._whole = 0.0
        #: The piece that is open: totals at its begin, its steps so far, and the total that ends it.
        self._open_part = self._open_whole = 0.0
        self._steps = 0
        self._end = PIECE_SECONDS
        self._before: dict[str, float] = {}

    def add(self, step: int, steps: int, part: float, whole: float) -> bool:
        """Take what is next: ``part`` of ``whole`` seconds in so many steps; return whether the window moved on."""
        if not (0.0 <= part < 1e9 and 0.0 < whole < 1e9):
            return False
        self._part += min(part, whole)
        self._whole += whole
        self._steps += steps
        if self._whole < self._end:
            return False
        self._close(step)
        return True

    def add_all(self, numbers: list[int], reached: int, parts: list[float], wholes: list[float]) -> Iterator[int]:
        """Take laps that end at these steps, the first of which begins at ``reached``.

        Yield the place behind each after which the window has moved on; what comes behind the last that was asked for
        is not taken.  No part may be more than its whole; for their range see :meth:`add`.
        """
        part_totals = list(accumulate(parts, initial=self._part))
        whole_totals = list(accumulate(wholes, initial=self._whole))
        while (place := bisect_left(whole_totals, self._end, 1)) < len(whole_totals):
            self._part, self._whole = part_totals[place], whole_totals[place]
            self._steps += numbers[place - 1] - reached
            reached = numbers[place - 1]
            self._close(reached)
            yield place
        self._part, self._whole = part_totals[-1], whole_totals[-1]
        self._steps += numbers[-1] - reached

    def _close(self, step: int) -> None:
        pieces = self._pieces
        pieces.append(_Place(step - self._steps, self._open_part, self._open_whole))
        self._open_part, self._open_whole, self._steps = self._part, self._whole, 0
        self._end = self._whole + PIECE_SECONDS
        while len(pieces) > 1 and self._whole - pieces[1].whole >= WINDOW_SECONDS:
            pieces.popleft()

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
        if not self.add(step, 0, grown.get(phase, 0.0), whole) and self._whole > self._open_whole:
            self._close(step)
        return phase in seconds

    @property
    def ratio(self) -> float | None:
        """The share, from 0 to 1; None as long as too little was seen."""
        first = self._pieces[0] if self._pieces else _Place(0, self._open_part, self._open_whole)
        whole = self._whole - first.whole
        if whole < LEAST_SECONDS:
            return None
        return max(0.0, min(1.0, (self._part - first.part) / whole))

    @property
    def since(self) -> int:
        """The step at which the window begins."""
        return self._pieces[0].step if self._pieces else 0


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
