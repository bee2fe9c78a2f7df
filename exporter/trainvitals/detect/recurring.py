"""Outliers that recur: the loss of a single step is odd, and when the run comes by that step again, it is odd again.

After a rollback or a restart a run sees the data of some steps a second time, with other weights.  What was chance, or
an instability, does not come again at the very same step; what is in the data does.  In 38 public runs with one order
of the data, all outliers of single steps fell on the same two steps in 38 of 38; two runs with different orders shared
2 % of theirs.  Where the data is watched, the files or samples of these steps are named.

An outlier is one or two losses in a row above their neighbours, by 8 standard deviations of the upper tail of the last
128; or one that is not finite, and the next one is.  What lasts longer is another detector's (a spike).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trainvitals.detect.base import Category, Latch, Timeline, Verdict, one_by_one
from trainvitals.detect.settings import setting
from trainvitals.detect.window import level_of
from trainvitals.telemetry import Step, Steps

#: The level is taken anew after so many losses, from them.
BLOCK = 128
#: So many losses in a row are single outliers; more are a rise.
SINGLE = 2
#: So many outliers of the attempts before are remembered, and named in a finding.
REMEMBERED, NAMED = 1024, 8
#: Where so many would coincide by chance for each that did, nothing is said.
CHANCE = 0.01
#: Steps that a sentence names.
NAMED_STEPS = 6


class Odd(NamedTuple):
    """What is known of the odd steps of a run: the loss there and the one before, and how many losses there were."""

    steps: Mapping[int, tuple[float, float]]
    points: int


@dataclass(frozen=True, kw_only=True)
class RecurringSettings:
    """Thresholds."""

    sigmas: float = setting(
        8.0, "sigmas of the upper tail", "a single loss beyond is odd; with 6, healthy runs have two in 1,500 steps"
    )
    spread_floor: float = setting(0.0025, "share of the loss", "no loss is quieter than this, as for spikes")
    hold_seconds: float = setting(600.0, "seconds", "so long it stays on: a person has to look at the files")
    hold_steps: int = setting(100, "steps", "and for so long")


class RecurringOutlier:
    """Watches ``values["loss"]`` over all attempts of a run; on from the first odd step that was odd before."""

    signal = "outlier_recurs"
    category: Category = "data"
    needs = "128 losses, and a run that went back over some of its steps"
    settings = RecurringSettings

    def __init__(self, settings: RecurringSettings = RecurringSettings()) -> None:
        self._settings = settings
        self._latch = Latch(hold_seconds=settings.hold_seconds, hold_steps=settings.hold_steps)
        self._fresh: list[float] = []
        self._limit = math.inf
        self._center = 0.0
        self._last = self._count = -1
        #: Losses above the limit, in a row: step, count, loss; and whether they are too many to be outliers.
        self._pending: list[tuple[int, int, float]] = []
        #: The last loss below the limit.
        self._usual = 0.0
        self._is_rise = False
        #: Outliers of this attempt and of those before, each with the loss before it; and how many losses those had.
        self._odd: dict[int, tuple[float, float]] = {}
        self._before: dict[int, tuple[float, float]] = {}
        #: The counts of the outliers of this attempt: by them what was in their batches is asked for.
        self._counts: dict[int, int] = {}
        self._points = self._points_before = 0
        #: Of the attempts after the first: all outliers, and those that were odd before (step, count, loss, level).
        self._again = 0
        self._recurred: list[tuple[int, int, float, float]] = []
        self._recurrences = 0

    @property
    def outliers(self) -> dict[int, tuple[float, float]]:
        """The steps of outliers so far, of all attempts: the loss there, and the one before."""
        return {**self._before, **self._odd}

    @property
    def counts(self) -> dict[int, int]:
        """The counts of the steps of outliers of this attempt."""
        return self._counts

    @property
    def points(self) -> int:
        """Losses so far, of all attempts."""
        return self._points_before + self._points

    @property
    def held(self) -> bool:
        """Whether the signal is on, or held."""
        return self._latch.held

    def observe(self, step: Step) -> None:
        """Take the next step: most cost two comparisons, one in 128 a look at the level."""
        loss = step.values.get("loss")
        if loss is None or step.values.get("skipped"):
            return
        number = step.step
        if number <= self._last and not self._goes_back(step):
            return
        self._last, self._count = number, step.count
        self._points += 1
        if loss <= self._limit:
            # NaN is not.
            if self._pending:
                self._settle(step)
            self._usual = loss
            if loss > -math.inf:
                self._push(loss)
        else:
            self._pend(number, step.count, loss)
        if self._latch.held:
            self._latch.update(0.0, step)

    def observe_all(self, steps: Steps) -> int:
        """Take the next steps: at once, as long as none is odd."""
        losses = steps.columns.get("loss")
        if losses is None:
            return len(steps)
        if self.held or "skipped" in steps.columns or steps.numbers[0] <= self._last or not steps.is_finite("loss"):
            return one_by_one(self, steps)
        begin = 0
        while begin < len(losses):
            end = min(len(losses), begin + BLOCK - len(self._fresh))
            part = losses[begin:end]
            if self._pending or max(part) > self._limit:
                taken = one_by_one(self, steps.part(begin, end))
                if self._latch.held:
                    return begin + taken
            else:
                self._fresh += part
                self._usual = part[-1]
                self._points += len(part)
                self._last, self._count = steps.numbers[end - 1], steps.first + end - 1
                self._look()
            begin = end
        return len(losses)

    def _goes_back(self, step: Step) -> bool:
        """Take a step whose number is not the next; return whether the run went back.  Else its values came late."""
        if step.step == self._last or (self._last - step.step < Timeline.LATE and step.count <= self._count):
            return False
        self._before |= self._odd
        while len(self._before) > REMEMBERED:
            del self._before[next(iter(self._before))]
        self._points_before += self._points
        self._odd, self._counts, self._pending, self._points, self._is_rise = {}, {}, [], 0, False
        # The level stays until there is another: what recurs may come at once.
        self._fresh = []
        return True

    def _push(self, loss: float) -> None:
        self._fresh.append(loss)
        self._look()

    def _look(self) -> None:
        """Take the level anew, if there are enough."""
        if len(self._fresh) < BLOCK:
            return
        level = level_of(sorted(self._fresh))
        self._fresh = []
        self._center = level.center
        deviation = max(level.tail, self._settings.spread_floor * abs(level.center))
        self._limit = level.center + self._settings.sigmas * deviation if deviation > 0.0 else math.inf

    def _pend(self, number: int, count: int, loss: float) -> None:
        self._is_rise = self._is_rise or len(self._pending) >= SINGLE
        if not self._is_rise:
            self._pending.append((number, count, loss))
        if math.isfinite(loss):
            self._push(loss)

    def _settle(self, step: Step) -> None:
        """The loss is back: what was above the limit were outliers, if they were few."""
        pending, self._pending = self._pending, []
        if self._is_rise:
            self._is_rise = False
            return
        for number, count, loss in pending:
            if len(self._odd) < REMEMBERED:
                self._odd[number] = (loss, self._usual)
                self._counts[number] = count
            if not self._points_before:
                continue
            before = self._before.get(number)
            if before is not None and is_same(before, (loss, self._usual)):
                continue
            self._again += 1
            if before is not None:
                self._recur(number, count, loss, step)

    def _recur(self, number: int, count: int, loss: float, step: Step) -> None:
        if not self._latch.open:
            self._recurred, self._recurrences = [], 0
        self._recurrences += 1
        if len(self._recurred) < NAMED:
            self._recurred.append((number, count, loss, self._center))
        by_chance = self._again * len(self._before) / max(1, self._points_before)
        if by_chance <= CHANCE * self._recurrences:
            self._latch.update(float(self._recurrences), step)

    def verdict(self) -> Verdict | None:
        """Return how many odd steps were odd before; None as long as there is no level.

        Statistics: ``outliers`` (of all attempts that are remembered) and ``recurred``.
        """
        if self._limit == math.inf:
            return None
        statistics = {"outliers": float(len(self._odd) + len(self._before)), "recurred": float(self._recurrences)}
        if not self._latch.held:
            gated = "" if self._points_before else "the run has not gone back over any of its steps"
            return Verdict(ratio=0.0, statistics=statistics, severity="info", gated=gated)
        number, _, loss, level = self._recurred[0]
        more = "" if self._recurrences == 1 else "; other steps too"
        return Verdict(
            ratio=self._latch.peak,
            since_step=number,
            evidence=f"step {number}: loss {loss:.4g} in place of {level:.4g}, and it was odd before as well{more}",
            statistics=statistics,
            counts=tuple(count for _, count, _, _ in self._recurred),
            severity="warning",
            action=ACTION,
            confidence=0.9,
        )


def shared(mine: Odd, theirs: Odd, others: int = 1) -> list[int]:
    """Return the steps that are odd in two runs, in order; none where they may be by chance, or are one run told twice.

    By chance, as many steps coincide as both have outliers, over the steps that the shorter one has, with the spread of
    Poisson; and each of the ``others`` that a run is compared with is a chance more (Bonferroni).
    """
    steps = sorted(
        step for step in mine.steps.keys() & theirs.steps.keys() if not is_same(mine.steps[step], theirs.steps[step])
    )
    expected = len(mine.steps) * len(theirs.steps) / max(1, min(mine.points, theirs.points))
    return steps if steps and others * _tail(len(steps), expected) <= CHANCE else []


def _tail(count: int, expected: float) -> float:
    """Return the probability of so many or more where so many are expected (Poisson)."""
    term = below = math.exp(-expected)
    for number in range(1, count):
        term *= expected / number
        below += term
    return max(0.0, 1.0 - below)


def in_words(steps: Sequence[int], run: str) -> str:
    """Say that some steps are odd in another run too."""
    named = ", ".join(map(str, steps[:NAMED_STEPS])) + (", ..." if len(steps) > NAMED_STEPS else "")
    what = f"step {named} is" if len(steps) == 1 else f"steps {named} are"
    return f"{what} odd in run {run} too: with one order of the data, it is in the data"


def is_same(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Whether two outliers are no two witnesses: the very same numbers, as of a log that is there twice; NaN is NaN."""
    return str(one) == str(other)


ACTION = (
    "data: open what was in the batches of these steps, and leave out what is damaged, empty, repeated or of another "
    "kind; parameters: change none for it"
)
