"""Loss diverged: the loss is far above the lowest level that the run has held, and stays there.

The lowest level is the least median of 5 losses in a row, or of more in a long run (at least a 64th of it), so that
one odd batch is none.  Three tests, in groups of 5 losses:

- far above: every one of the last 10 losses (in a long run, of the last 200th of it, at most 200) is above twice the
  lowest level, and the last 5 above all of the 15 before: where batches of several kinds take turns, some in a row are
  low by chance, and some are high.  Above the lowest level alone, it takes four times as many;
- jumped: in a log of at most 200 losses, 5 in a row are above twice the lowest level, and a quarter above all of the
  10 before (of the 5 between nothing is asked: the jump is among them).  Logs of epochs have few more;
- rising: every one of the last 20 is above 1.25 times the lowest level, and they rise still (Mann and Kendall, 1 %
  error), by 6 times their own noise or more: what recovers falls, and what wanders is no rise.

Both need few losses, so that a log with every hundredth step or an epoch is judged, where the windows of a spike or a
drift never fill.  A bump at the beginning does not count: where a warm-up is missing, healthy runs go to 2.5 times
their first loss for some steps, but there is no lower level before it that 5 losses held.

Where there is an evaluation before the first step, the model that knew nothing is known, and two more tests are made:

- blown up: every one of 5 losses in a row, over 50 steps or more, is above twice that evaluation.  Bumps of healthy
  runs are above it for 3 steps at most, and over within 10;
- worse than untrained: an evaluation, and the last 5 losses, are all above 1.25 times the first evaluation.

Where losses are near 0, twice is little: the rise must be a twentieth of the first loss as well.
A loss that is not positive has no level to be a multiple of, one beside a reward may grow with it, and those of two
models against each other go up and down: such runs are not judged.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trainvitals.detect.base import Category, Verdict, by_pieces
from trainvitals.detect.evaluations import validation_loss
from trainvitals.detect.metric_names import Companions
from trainvitals.detect.segments import Kind, Segment
from trainvitals.detect.settings import setting
from trainvitals.detect.trend import Trace, mann_kendall, spread
from trainvitals.telemetry import Event, Step, Steps

GROUP = 5
FAR_POINTS, FAR_SHARE, MOST_POINTS = 10, 0.005, 200
RISEN_POINTS, RISING_SCORE, RISING_NOISES = 20, 2.33, 6.0
FAR_LONGER = 4
LEAST_OF_FIRST = 0.05
#: A log of so many losses is short; there a jump over so much more than the groups before is enough.
SHORT = 200
#: How long a loss must be above twice that of the untrained model: five times as long as bumps of healthy runs.
BLOWN_STEPS = 50
_LARGEST = 1e6
#: So many groups are looked at in one go.
_GROUPS = 64
#: And so many are remembered.
_BEFORE = 4


@dataclass(frozen=True, kw_only=True)
class DivergedSettings:
    """Thresholds."""

    far: float = setting(2.0, "times the lowest level", "every one of the last losses is above it", least=1.0)
    risen: float = setting(1.25, "times the lowest level", "every one of more losses, and they rise still", least=1.0)
    jump: float = setting(
        1.25, "times the losses before", "a jump in a short log is so much higher than what was before", least=1.0
    )


class LossDiverged:
    """Active until the median of 5 losses is half of the way back to the lowest level.

    A run that goes back keeps its lowest level, except when it goes back to its beginning.
    """

    signal = "loss_diverged"
    category: Category = "parameter"
    needs = "15 losses, all of them positive"
    #: Changes after which twice the lowest level is no sign.
    segments: frozenset[Kind] = frozenset({"sequence_length", "data"})
    settings = DivergedSettings

    def __init__(self, settings: DivergedSettings = DivergedSettings()) -> None:
        self._settings = settings
        self._gated = ""
        self._beside = Companions()
        self._begin()

    def _begin(self) -> None:
        self._trace = Trace(size=GROUP)
        #: The first step of the run, and its loss.
        self._first: int | None = None
        self._start = 0.0
        self._last = -1
        self._group: list[float] = []
        self._group_began = 0
        self._best = math.inf
        self._usable = True
        #: Losses in a row above each of the limits, where that began, and the last ones of the lower.
        self._far = self._risen = 0
        self._far_since = self._risen_since = 0
        #: The highest loss of the 15 before it was far above, but for the 5 among which it went up.
        self._far_before = 0.0
        self._recent: list[float] = []
        self._found = ""
        self._since = 0
        self._level = self._before = 0.0
        self._ratio: float | None = None
        #: Whether there was a level before a change that is known again soon.
        self._filling = False
        #: The loss of an evaluation before the first step, and the lowest of the last 5 losses.
        self._untrained: float | None = None
        self._lowest = 0.0
        #: The highest loss of each of the last groups.
        self._highest: deque[float] = deque(maxlen=_BEFORE)

    def begin_segment(self, segment: Segment) -> None:
        """Forget the lowest level; where the loss has diverged, a change is an answer to it, and must not hide it."""
        if self._found:
            return
        last, usable, judged = self._last, self._usable, self._filling or self._ratio is not None
        self._begin()
        self._last, self._usable, self._filling = last, usable, judged
        self._gated = f"the lowest level of before: {segment.why}"

    def observe(self, step: Step) -> None:
        """Take the next step: most of them are put aside, one in 5 is a test."""
        values = step.values
        loss = values.get("loss")
        if self._beside.take(values):
            self._found, self._ratio = "", None
            return
        if loss is None or not -math.inf < loss < math.inf:
            return
        if step.step < self._last and self._first is not None:
            self._go_back(step.step)
        self._last = step.step
        group = self._group
        if not group:
            self._group_began = step.step
        group.append(loss)
        if len(group) == GROUP:
            self._close(step)

    def observe_all(self, steps: Steps) -> int:
        """Take the next steps, up to one that turns the signal on; return how many."""
        losses, numbers = steps.columns.get("loss"), steps.numbers
        if self._beside.take(steps.columns):
            self._found, self._ratio = "", None
        if losses is None or self._beside.free:
            return len(steps)
        if self._found or not steps.is_finite("loss") or (self._usable and steps.extent("loss")[0] <= 0.0):
            return by_pieces(self, steps)
        if numbers[0] < self._last and self._first is not None:
            self._go_back(numbers[0])
        begin = min(-len(self._group) % GROUP, len(losses))
        for place in range(begin):
            self.observe(Step(numbers[place], steps.first + place, steps.times[place], {"loss": losses[place]}))
        end = len(losses) - (len(losses) - begin) % GROUP
        if begin < end and not self.held and self._usable:
            begin = self._take_groups(steps, losses, begin, end)
        if self.held:
            return begin
        self._last = numbers[-1]
        if end < len(losses):
            if begin <= end and not self._group:
                self._group_began = numbers[end]
            self._group += losses[end:]
        return len(steps)

    def _take_groups(self, steps: Steps, losses: list[float], begin: int, end: int) -> int:
        """Take whole groups, up to one that turns the signal on; return the place behind it."""
        high = steps.extent("loss")[1]
        while begin < end:
            stop, usual = min(begin + self._trace.room, end), self._usual()
            if high > usual:
                stop = min(stop, begin + _GROUPS * GROUP)
            if high <= usual or max(map(min, _groups(losses[begin:stop]))) <= usual:
                self._pass(list(_groups(losses[max(begin, stop - _BEFORE * GROUP) : stop])))
                if self._trace.push_all(steps, losses[:stop], begin)[1]:
                    self._look()
            else:
                for at in range(begin, stop, GROUP):
                    self._group, self._group_began = losses[at : at + GROUP], steps.numbers[at]
                    last = at + GROUP - 1
                    self._close(Step(steps.numbers[last], steps.first + last, steps.times[last], {}))
                    if self._found:
                        self._last = steps.numbers[last]
                        return at + GROUP
            begin = stop
        return end

    def _usual(self) -> float:
        """Return up to where the lowest loss of a group is nothing to any test; below 0, while each is looked at."""
        if self._first is None or self._best == math.inf:
            return -1.0
        return (
            self._settings.risen * self._best
            if self._untrained is None
            else min(self._settings.risen * self._best, self._settings.far * self._untrained)
        )

    def _pass(self, newest: list[tuple[float, ...]]) -> None:
        """Take groups that are usual, of which these are the last."""
        self._lowest = min(newest[-1])
        self._highest.extend(map(max, newest))
        self._far = self._risen = 0
        self._recent.clear()
        self._ratio = 0.0

    def observe_event(self, event: Event) -> None:
        """Look at evaluations: the first one, if it is before the first step, is what an untrained model costs."""
        if event.kind != "evaluation" or not isinstance(values := event.fields.get("values"), Mapping):
            return
        loss = validation_loss(values)
        if not isinstance(loss, (int, float)) or not 0.0 < loss < math.inf:
            return
        if self._last < 0 and event.step <= 1:
            self._untrained = float(loss) if self._untrained is None else self._untrained
        elif self._untrained is not None and self._usable and not self._beside.free and event.step >= self._last:
            limit = self._settings.risen * self._untrained
            is_worse = loss > limit and min([self._lowest, *self._group]) > limit
            if is_worse and not self._found:
                self._found, self._since, self._before = "worse", max(0, event.step), self._untrained
                self._level, self._ratio = float(loss), float(loss) / limit
            elif self._found == "worse" and loss <= limit:
                self._found, self._ratio = "", 0.0

    def _go_back(self, step: int) -> None:
        self._group.clear()
        self._far = self._risen = 0
        self._recent.clear()
        self._highest.clear()
        self._found, self._ratio = "", None
        if self._first is not None and step <= self._first:
            self._begin()

    def _close(self, step: Step) -> None:
        group, self._group = self._group, []
        ordered = sorted(group)
        if ordered[0] <= 0.0:
            self._usable, self._ratio, self._found = False, None, ""
        if not self._usable:
            return
        if self._first is None:
            self._first, self._start = self._group_began, max(group[0], ordered[GROUP // 2])
        self._lowest = ordered[0]
        if self._untrained is not None:
            self._compare(self._untrained, ordered, step.step)
        if self._best < math.inf:
            self._test(group, ordered)
        self._highest.append(ordered[-1])
        if self._trace.push_group(self._group_began, step, group):
            self._look()

    def _look(self) -> None:
        self._best = min([block.value for block in self._trace.blocks])

    def _compare(self, untrained: float, ordered: list[float], last: int) -> None:
        """Compare 5 losses with the model that knew nothing."""
        if not self._found and ordered[0] > self._settings.far * untrained and last - self._group_began >= BLOWN_STEPS:
            self._found, self._since, self._before, self._level = "blown", self._group_began, untrained, ordered[-1]
            self._ratio = ordered[0] / untrained / self._settings.far
        elif self._found in {"blown", "worse"}:
            limit = (1.0 + (self._settings.far if self._found == "blown" else self._settings.risen)) / 2.0
            if ordered[-1] <= limit * untrained:
                self._found, self._ratio = "", 0.0

    def _test(self, group: list[float], ordered: list[float]) -> None:
        best, lowest = self._best, ordered[0]
        if lowest <= self._settings.risen * best and not self._found:
            # As nearly always.
            self._far = self._risen = 0
            self._recent.clear()
            self._ratio = 0.0
            return
        margin = LEAST_OF_FIRST * self._start
        is_far = lowest > max(self._settings.far * best, best + margin)
        is_risen = lowest > max(self._settings.risen * best, best + margin)
        if is_risen:
            self._risen_since = self._risen_since if self._risen else self._group_began
            self._risen += GROUP
            self._recent = (self._recent + group)[-RISEN_POINTS:]
        else:
            self._risen = 0
            self._recent.clear()
        if is_far:
            if not self._far:
                self._far_since, self._far_before = self._group_began, max(list(self._highest)[:-1], default=0.0)
            self._far += GROUP
        else:
            self._far = 0
        wanted = min(max(FAR_POINTS, FAR_SHARE * self._trace.points), MOST_POINTS)
        far = self._far / wanted
        if lowest <= self._far_before and far < FAR_LONGER:
            far = min(far, 0.99)
        before = list(self._highest)[-3:-1]
        if (
            is_far
            and not self._found
            and before
            and self._trace.points <= SHORT
            and lowest > self._settings.jump * max(before)
        ):
            self._found, self._since, self._before = "jumped", self._group_began, self._best
            self._level = ordered[GROUP // 2]
        rising = self._risen / RISEN_POINTS
        if rising >= 1.0:
            noises = (lowest - best) / max(spread(self._recent), 1e-9 * best)
            score = mann_kendall(self._recent)
            rising = max(0.0, min(score / RISING_SCORE, noises / RISING_NOISES, rising))
        self._conclude(far, rising, ordered[GROUP // 2])

    def _conclude(self, far: float, rising: float, level: float) -> None:
        if self._found in {"blown", "worse"} and far < 1.0:
            return
        if far >= 1.0 and self._found != "far":
            self._since = self._since if self._found else self._far_since
            self._found, self._level, self._before = "far", level, self._best
        elif rising >= 1.0 and not self._found:
            self._found, self._since, self._level, self._before = "rising", self._risen_since, level, self._best
        if self._found:
            limit = (1.0 + (self._settings.risen if self._found == "rising" else self._settings.far)) / 2.0
            if level <= limit * self._best:
                self._found = ""
            elif level > 1.5 * self._level:
                self._level = level
        # Below 1 as long as nothing is found: the finding ends by its own rule.
        ratio = max(far, rising)
        self._ratio = (
            min(max(ratio, level / self._best / self._settings.far, 1.0), _LARGEST) if self._found else min(ratio, 0.99)
        )

    @property
    def held(self) -> bool:
        """Whether the signal is on."""
        return bool(self._found)

    def verdict(self) -> Verdict | None:
        """Return how far the loss is above its lowest level, over 2 (1 at least); below 1, how near a test is.

        Statistics: ``lowest`` level of the run, in units of the loss.
        """
        if self._ratio is None:
            return Verdict(ratio=0.0, severity="info", gated=self._gated) if self._filling else None
        statistics = {"lowest": self._best} if self._best < math.inf else {}
        if not self._found:
            return Verdict(ratio=self._ratio, statistics=statistics, severity="info", gated=self._gated)
        text = f"loss went from {self._before:.4g} to {self._level:.4g}"
        text += _WORDS[self._found]
        return Verdict(
            ratio=self._ratio,
            since_step=self._since,
            evidence=f"since step {self._since}: {text}",
            statistics=statistics,
            severity="critical" if self._found == "far" else "warning",
            gated=self._gated,
            action=_ACTION,
            confidence=0.95 if self._found == "far" else 0.8,
        )


def _groups(losses: list[float]) -> Iterator[tuple[float, ...]]:
    in_a_row = iter(losses)
    return zip(*[in_a_row] * GROUP, strict=True)


_WORDS = {
    "far": " and stays high",
    "jumped": ", and is there for 5 losses",
    "rising": ", and rises still",
    "blown": ", far above that of the untrained model",
    "worse": ": worse than the untrained model",
}
_ACTION = (
    "data: look at the batches of that step and before; parameters: go back to a checkpoint before that step and lower "
    "the learning rate by a third to a half, clip gradients, or make the warm-up longer"
)
