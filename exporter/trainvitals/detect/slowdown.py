"""Slowdown: steps take longer than the same run needed before, and go on doing so.

The unit is a point: the middle of at least 20 steps, or one line of a log that tells of as many.  The middle of the
last 5 points is held against the middle of 32 before them.  The threshold of a finding is 20 %:

- Published advice is 3 % (median of 20 steps against 200).  In 27 of 64 public logs that is met, in most because
  others share the machine or by plan; most of the rest stay within 1 %.
- What is less than doubled is "info", and only after 20 minutes (as in the published advice): on shared machines runs
  are 1.5 times as slow for ten minutes again and again.  Doubled means that half of the devices would do.

What grows by plan is no finding.  A schedule of batch or sequence length makes steps longer from one to the next, and
the new level is as even as the old one (1.5 to 2.2 times in five public logs, within 2 %).  Where the source tells
tokens or samples, it is their time that counts; where it does not, an even level below three times the old one is
taken for a plan, and said so.  Machines that others share, and loaders that do not keep up, are not even.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

from trainvitals.detect.base import Category, Severity, Verdict, one_by_one
from trainvitals.detect.pace import Laps, Pace
from trainvitals.detect.segments import Kind, Segment
from trainvitals.detect.settings import setting
from trainvitals.detect.window import UPPER_SHARE, UPPER_SIGMAS, middle
from trainvitals.telemetry import Step, Steps

#: Changes of what a step is made of.
_MADE_OF: frozenset[Kind] = frozenset({"batch_size", "sequence_length"})
#: Laps of a point that tell how even they are.
_ENOUGH = 10
#: New points of the baseline after which it is looked at anew.
_STALE = 8


@dataclass(frozen=True)
class SlowdownSettings:
    """Thresholds.  ``point_steps`` to ``least`` are sizes of windows."""

    slow: float = setting(
        1.2, "times the baseline", "information; 1.03, as published, is met in 27 of 64 public logs", least=1.0
    )
    slower: float = setting(2.0, "times the baseline", "a warning: half of the devices would do", least=1.0)
    slowest: float = setting(3.0, "times the baseline", "critical", least=1.0)
    seconds: float = setting(
        60.0, "seconds", "of slow steps in all: checkpoints, evaluations, garbage collections are over then"
    )
    longer_seconds: float = setting(
        1200.0, "seconds", "... below a warning: others who use the machine for a while are no news"
    )
    point_steps: int = setting(20, "steps", "a point; a mean of fewer would hang on one pause", least=1)
    recent: int = setting(5, "points", "the last ones", least=1)
    baseline: int = setting(32, "points", "what they are compared with", least=2)
    least: int = setting(12, "points", "a baseline of so few is enough: 240 steps", least=2)
    skipped: int = setting(2, "points", "at a start and a restart: compilation, autotuning and first batches")
    tail_sigmas: float = setting(
        3.0, "sigmas of the upper tail", "a run that was as slow before, now and then, is itself"
    )
    even: float = setting(
        0.02,
        "share",
        "a level is even when its points, and steps in a point, differ by less: a plan, and no finding",
    )
    plan: int = setting(12, "points", "so many must be even; five of noisy ones may be by chance", least=1)
    even_times: float = setting(1.5, "times", "steps of an even level may differ by so much more than before")
    same_amount: float = setting(0.05, "share", "amounts of a step that differ by less are the same")

    def __post_init__(self) -> None:
        if not self.slow <= self.slower <= self.slowest:
            raise ValueError(f"expected slow <= slower <= slowest, found {self.slow}, {self.slower}, {self.slowest}")
        if self.least > self.baseline:
            raise ValueError(f"least: expected at most baseline ({self.baseline}), found {self.least}")


class _Point(NamedTuple):
    """The middle of some laps; ``spread``: how much they differ from it, as a share; below 0 where they are too few."""

    step: int
    steps: int
    seconds: float
    amount: float
    spread: float


class _Level(NamedTuple):
    """Of the baseline: seconds of a step, the most that is not slow, and amount (0.0: nobody tells)."""

    center: float
    limit: float
    amount: float


class _Points(NamedTuple):
    """Points of some laps and the places behind them; and of what is left for the next: seconds, amounts, steps."""

    points: list[_Point]
    ends: Sequence[int]
    rest: tuple[list[float], list[float], int]


class Slowdown:
    """Watches the seconds of a step, or of a token or sample where the amount of a step changes.

    Active until the steps are half way back.  A restart or rollback opens a new baseline: the machine, the batch and
    the world may be others.
    """

    signal = "slowdown"
    category: Category = "resource"
    needs = "about 340 steps with times since the last start (40 lines where a line tells of 20 steps or more)"
    settings = SlowdownSettings
    segments: frozenset[Kind] = frozenset({"batch_size", "sequence_length", "world_size", "precision"})

    def __init__(self, settings: SlowdownSettings = SlowdownSettings()) -> None:
        self._settings = settings
        self._pace = Pace()
        self._gated = ""
        self._begin()

    def begin_segment(self, segment: Segment) -> None:
        """Begin a new baseline, unless the source tells what a step is made of: then its cost is compared as before."""
        if segment.kind in _MADE_OF and self._level is not None and self._level.amount > 0.0:
            return
        self._begin()
        self._gated = f"a new baseline begins: {segment.why}"

    def _begin(self) -> None:
        self._segment = self._pace.segment
        #: Of the point that begins: what its laps took, their amounts, their steps.
        self._seconds: list[float] = []
        self._amounts: list[float] = []
        self._steps = 0
        self._to_skip = self._settings.skipped
        self._recent: deque[_Point] = deque(maxlen=self._settings.recent)
        self._baseline: deque[_Point] = deque(maxlen=self._settings.baseline)
        self._level: _Level | None = None
        self._age = 0
        #: Since when it looks slow, the first points of that, and their seconds in all.
        self._onset = 0
        self._slow_points: list[_Point] = []
        self._slow_seconds = 0.0
        self._ratio = self._factor = 0.0
        self._shown: tuple[float, float, int] | None = None

    @property
    def held(self) -> bool:
        """Whether there is a finding."""
        return self._shown is not None

    def observe(self, step: Step) -> None:
        """Take the next step; work is done once in a point."""
        lap = self._pace.observe(step)
        if self._pace.segment != self._segment:
            self._begin()
        if lap is None:
            return
        self._seconds.append(lap.seconds)
        self._amounts.append(lap.amount)
        self._steps += lap.steps
        if self._steps >= self._settings.point_steps:
            self._close(lap.step)

    def observe_all(self, steps: Steps) -> int:
        """Take the next steps, from one point to the next."""
        laps = self._pace.laps(steps)
        if laps is None:
            return one_by_one(self, steps)
        end = len(steps)
        points, ends, rest = self._points(steps.numbers, laps)
        skipped = min(self._to_skip, len(points))
        self._to_skip -= skipped
        if (taken := self._take_all(points[skipped:])) is not None:
            end, rest = ends[skipped + taken - 1], ([], [], 0)
        self._seconds, self._amounts, self._steps = rest
        self._pace.advance(steps, laps, end)
        return end

    def _points(self, numbers: list[int], laps: Laps) -> _Points:
        before, size = len(self._seconds), self._settings.point_steps
        if self._steps != before or numbers[-1] - self._pace.reached != len(numbers):
            return self._uneven(numbers, laps)
        # A lap is a step, as nearly always.
        seconds, amounts = self._seconds + laps.seconds, self._amounts + laps.amounts
        whole = len(seconds) - len(seconds) % size
        lasts = numbers[size - 1 - before : whole - before : size]
        in_a_row = iter(seconds[:whole])
        ordered = list(map(sorted, zip(*[in_a_row] * size, strict=True)))
        middles = _middles(amounts[:whole], size)
        centers = [some[(size - 1) // 2] for some in ordered]
        spreads = [_spread(some) for some in ordered]
        points = list(map(_Point._make, zip(lasts, repeat(size), centers, middles, spreads, strict=False)))
        ends = range(size - before, whole - before + 1, size)
        return _Points(points, ends, (seconds[whole:], amounts[whole:], len(seconds) - whole))

    def _uneven(self, numbers: list[int], laps: Laps) -> _Points:
        reached, end = self._pace.reached, 0
        seconds, amounts, done = self._seconds, self._amounts, self._steps
        points: list[_Point] = []
        ends: list[int] = []
        while end < len(numbers):
            begin = end
            last = bisect_left(numbers, reached + self._settings.point_steps - done, begin)
            end = min(last + 1, len(numbers))
            seconds, amounts = seconds + laps.seconds[begin:end], amounts + laps.amounts[begin:end]
            done += numbers[end - 1] - reached
            reached = numbers[end - 1]
            if end > last:
                points.append(_point(reached, done, seconds, amounts))
                ends.append(end)
                seconds, amounts, done = [], [], 0
        return _Points(points, ends, (seconds, amounts, done))

    def _close(self, step: int) -> None:
        """End a point at a step."""
        point = _point(step, self._steps, self._seconds, self._amounts)
        self._seconds, self._amounts, self._steps = [], [], 0
        if self._to_skip:
            self._to_skip -= 1
        else:
            self._take(point)

    def _take_all(self, points: list[_Point]) -> int | None:
        """Take points; stop behind one that turns the signal on, and return how many there were up to it."""
        place, was_held = 0, self.held
        while place < len(points):
            some = points[place : place + max(0, _STALE - 1 - self._age)]
            if some and self._pass_all(some):
                place += len(some)
                continue
            self._take(points[place])
            place += 1
            if self.held and not was_held:
                return place
            was_held = self.held
        return None

    def _pass_all(self, points: list[_Point]) -> bool:
        """Take points that change nothing but the windows, if they are such: not slow, and nothing was before."""
        level, count = self._level, len(self._recent)
        if level is None or self._shown is not None or self._slow_points or count < self._settings.recent:
            return False
        joined = [*self._recent, *points]
        costs = self._costs(joined, level.amount)
        now = middle(sorted(costs[-count:]))
        share = (now - level.center) / (level.limit - level.center)
        if max(costs) >= level.limit or share >= 1.0:
            return False
        self._factor, self._ratio = now / level.center, max(0.0, share)
        self._baseline.extend(joined[: len(points)])
        self._recent.extend(points)
        self._age += len(points)
        return True

    def _take(self, point: _Point) -> None:
        if len(self._recent) == self._settings.recent and self._shown is None and not self._slow_points:
            self._baseline.append(self._recent[0])
            self._age += 1
        self._recent.append(point)
        if len(self._baseline) < self._settings.least:
            return
        if self._level is None or self._age >= _STALE:
            self._level, self._age = self._look(), 0
        self._judge(point, self._level)

    def _costs(self, points: Sequence[_Point], amount: float) -> list[float]:
        """Return the seconds of a step in each point; those of the amount of before, where it has another."""
        amounts = [point.amount for point in points]
        if amount <= 0.0 or amounts.count(amount) == len(amounts):
            return [point.seconds for point in points]
        low, high = amount * (1.0 - self._settings.same_amount), amount * (1.0 + self._settings.same_amount)
        return [
            point.seconds
            if low <= point.amount <= high or point.amount <= 0.0
            else point.seconds * amount / point.amount
            for point in points
        ]

    def _look(self) -> _Level:
        amount = middle(sorted([point.amount for point in self._baseline]))
        costs = sorted(self._costs(self._baseline, amount))
        center = middle(costs)
        tail = (costs[int(len(costs) * UPPER_SHARE)] - center) / UPPER_SIGMAS
        limit = max(self._settings.slow * center, center + self._settings.tail_sigmas * tail)
        return _Level(center, limit, amount)

    def _judge(self, point: _Point, level: _Level) -> None:
        settings = self._settings
        costs = self._costs(self._recent, level.amount)
        now = middle(sorted(costs))
        self._factor = now / level.center
        if costs[-1] > level.limit:
            if not self._slow_points:
                self._onset, self._slow_seconds = point.step - point.steps, 0.0
            if len(self._slow_points) < settings.plan:
                self._slow_points.append(point)
            self._slow_seconds += point.seconds * point.steps
        share = max(0.0, (now - level.center) / (level.limit - level.center))
        if self._shown is not None:
            if share < 0.5:
                self._end()
            else:
                self._ratio = max(1.0, share)
                self._show(level)
            return
        if share < 1.0:
            if costs[-1] <= level.limit and self._slow_points and all(cost <= level.limit for cost in costs):
                self._end()
            self._ratio = share
            return
        self._ratio = min(share, 0.99)
        if len(self._slow_points) < settings.recent and self._factor < settings.slowest:
            return
        if self._is_plan(level):
            if len(self._slow_points) == settings.plan:
                self._accept(level)
        elif self._slow_seconds >= (settings.seconds if self._factor >= settings.slower else settings.longer_seconds):
            self._ratio = share
            self._show(level)

    def _is_plan(self, level: _Level) -> bool:
        """Say whether this looks like a schedule that the source does not tell."""
        settings, recent = self._settings, self._slow_points
        if self._factor >= settings.slowest:
            return False
        if level.amount > 0.0 and all(
            abs(point.amount / level.amount - 1.0) <= settings.same_amount for point in recent if point.amount > 0.0
        ):
            # The source tells what a step is made of, and that is the same.
            return False
        seconds = [point.seconds for point in recent]
        center = middle(sorted(seconds))
        if middle(sorted([abs(value - center) for value in seconds])) > settings.even * center:
            return False
        before = middle(sorted([point.spread for point in self._baseline]))
        return middle(sorted([point.spread for point in recent])) <= max(settings.even, settings.even_times * before)

    def _accept(self, level: _Level) -> None:
        self._gated = (
            f"from step {self._onset} on a step takes {self._factor:.2f} times as long, and as evenly as before "
            f"({level.center:.3g} s then): taken for a planned change of batch or sequence length"
        )
        segment, recent = self._segment, list(self._recent)
        self._begin()
        self._segment, self._to_skip = segment, 0
        self._recent.extend(recent)

    def _end(self) -> None:
        self._shown, self._slow_points, self._slow_seconds, self._ratio = None, [], 0.0, 0.0

    def _show(self, level: _Level) -> None:
        """Keep the words for a label, until it has become half as bad again."""
        if self._shown is None or self._factor > 1.5 * self._shown[1]:
            self._shown = (level.center, self._factor, self._onset)

    def verdict(self) -> Verdict | None:
        """Return the ratio; None as long as there is no baseline.

        Statistics: ``step_seconds`` before (``baseline_seconds``) and now (``recent_seconds``), and ``times``.
        """
        if self._level is None:
            return Verdict(ratio=0.0, gated=self._gated) if self._gated else None
        center = self._level.center
        statistics = {"baseline_seconds": center, "recent_seconds": self._factor * center, "times": self._factor}
        if self._shown is None:
            return Verdict(ratio=self._ratio, statistics=statistics, gated=self._gated)
        before, factor, onset = self._shown
        return Verdict(
            ratio=self._ratio,
            since_step=onset,
            evidence=f"since step {onset}: a step takes {factor:.1f} times as long ({before * factor:.3g} s, before "
            f"{before:.3g} s)",
            statistics=statistics,
            severity=self._severity(factor),
            action="Look what it waits for: the share of time that goes into data, the clocks of the devices, other "
            "processes on them and on the node, and the rank that waits least for the others.",
            gated=self._gated,
        )

    def _severity(self, factor: float) -> Severity:
        if factor >= self._settings.slowest:
            return "critical"
        return "warning" if factor >= self._settings.slower else "info"


def _point(step: int, steps: int, seconds: list[float], amounts: list[float]) -> _Point:
    """Return the middle of laps; of two, the faster: a pause is no slow step."""
    ordered = sorted(seconds)
    (amount,) = _middles(amounts, len(amounts))
    return _Point(step, steps, ordered[(len(ordered) - 1) // 2], amount, _spread(ordered))


def _spread(ordered: list[float]) -> float:
    """Return half of the range between the quartiles, as a share; it is as large as the MAD and costs nothing."""
    count = len(ordered)
    if count < _ENOUGH:
        return -1.0
    return (ordered[3 * count // 4] - ordered[count // 4]) / (2.0 * ordered[(count - 1) // 2])


def _middles(amounts: list[float], size: int) -> list[float]:
    """Return the middle of each so many amounts; 0.0 where the first of them is not told."""
    if not amounts or amounts.count(amounts[0]) == len(amounts):
        return amounts[::size]
    some = iter(amounts)
    groups = zip(*[some] * size, strict=True)
    return [sorted(group)[(size - 1) // 2] if group[0] else 0.0 for group in groups]
