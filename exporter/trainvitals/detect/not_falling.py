"""Loss not falling: a run that never learns, seen from its beginning.

Two tests on at least 20 points behind the warm-up of the learning rate:

- the loss, even with what its noise leaves open, is less than 5 % below where it began, and its last half has no
  trend downwards (Mann and Kendall, 5 % error);
- the loss stays within 1 % of ln C, where all C classes are guessed with the same probability, and is not below that
  by more than noise: a slow run that falls steadily below ln C has begun to know something.

A healthy run is 10 % below its beginning within some tens of points: of the public curves with a log every 50 steps or
an epoch, all are by the 20th.  Fine-tunes that fall by a tenth in all are flat for a while, and late starters at first:
so the first test is information until there are three times the points that it took to say so.  One that is stuck is
still stuck then, and one that falls by 7 % with noise of 6 % may be flat for half of its way.

A run that has learnt once is never judged again here: that it is flat later is
:mod:`plateau`, that it rises is :mod:`drift`.  A loss that is not positive has no share of itself to fall by
(rewards), and is not judged; neither is one beside a reward, nor that of two models against each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from trainvitals.detect.base import Category, Verdict, one_by_one
from trainvitals.detect.metric_names import Companions
from trainvitals.detect.settings import setting
from trainvitals.detect.trend import Trace, mann_kendall, spread
from trainvitals.detect.window import MEDIAN_ERROR, middle
from trainvitals.telemetry import Event, Step, Steps

#: Points that a test needs, and steps where a point is not an epoch: a run with a warm-up that its log does not show
#: has fallen by then (11 to 8 in language models).
POINTS, STEPS = 20, 200
#: A test is made at every fourth point, and seldom in a long run.
EVERY = 4
#: Below so many points a run may be slow and not stuck, unless it fell by less than half of what it should: fine-tunes
#: that fall by a tenth in all are down by 2 to 4 % at a fifth of their way.
SURE_POINTS = 40
#: And above, it is sure where it is still stuck after so many times the points that it took to say so.
SURE_LONGER = 3
#: So much below its beginning, a run is learning; at twice that it has learnt.
FALL = 0.05
LEARNT = 0.10
#: A score of a trend with 5 % error, one-sided.
TREND = 1.64
#: Near ln C: this share of it; a run that is below by more than the second share knows more than to guess.
CHANCE, BELOW_CHANCE = 0.01, 0.0015
#: The second share where the loss falls steadily: its noise is small then.
BELOW_STEADILY = 0.0005
#: Numbers of classes that are common.  From 20 on, integers are so close that each loss is near ln of one.
CLASSES = (2, 3, 4, 5, 6, 7, 8, 9, 10, 100, 1000)
#: The ratio is never larger: a loss that is constant would have an infinite one.
LARGEST = 10.0
#: A learning rate that rises by this share is in its warm-up.
WARM_UP_SHARE = 1.01
_FIRSTS = 3


@dataclass(frozen=True, kw_only=True)
class NotFallingSettings:
    """Thresholds."""

    points: int = setting(POINTS, "losses", "so many are needed, behind the last rise of the learning rate", least=8)
    steps: int = setting(STEPS, "steps", "and so many, where a point is no epoch")
    fall: float = setting(FALL, "share of the loss", "less of a fall than this is none", most=1.0)


class LossNotFalling:
    """Active while a run that was seen from its beginning has not learnt; released as soon as it does.

    Late starters (a loss that is flat for a while and then falls) are released too: nothing is held.
    """

    signal = "loss_not_falling"
    category: Category = "parameter"
    needs = "the beginning of the run, and 20 losses (200 steps or 20 epochs) behind the warm-up"
    settings = NotFallingSettings

    def __init__(self, settings: NotFallingSettings = NotFallingSettings()) -> None:
        self._settings = settings
        self._evaluations = 0
        #: Where the run began, over all of its attempts.
        self._highest = 0.0
        self._beside = Companions()
        self._begin()

    def _begin(self) -> None:
        self._trace = Trace()
        self._firsts: list[tuple[int, float]] = []
        self._last = -1
        #: Losses that say that this is no loss to fall: they are not positive.
        self._signs = 0
        self._rate = self._peak_rate = 0.0
        #: Points and step at which the learning rate rose last.
        self._warm = (0, 0)
        self._verdict: Verdict | None = None
        self._learnt = self._active = False
        #: Points behind the warm-up when it became active.
        self._active_at = 0

    def observe(self, step: Step) -> None:
        """Look at ``loss`` and ``learning_rate``; a step that the loss scaler skipped teaches nothing."""
        values = step.values
        if self._learnt:
            # The steps of a run that begins again are few; all others leave here.
            if step.step > self._firsts[0][0]:
                return
            self._begin()
        if self._beside.take(values):
            self._verdict, self._active = None, False
            return
        rate = values.get("learning_rate")
        if rate is not None and rate > self._peak_rate * WARM_UP_SHARE and rate < math.inf:
            self._peak_rate = rate
            self._warm = (self._trace.points, step.step)
        loss = values.get("loss")
        if loss is None or not -math.inf < loss < math.inf or values.get("skipped"):
            return
        if rate is not None:
            self._rate = rate
        if step.step < self._last:
            self._go_back(step.step)
        self._last = step.step
        if len(self._firsts) < _FIRSTS:
            self._firsts.append((step.step, loss))
        if loss <= 0.0:
            self._signs += 1
        if self._trace.push(step.step, step.time, loss) and self._trace.points % EVERY == 0:
            self._judge()

    def observe_all(self, steps: Steps) -> int:
        """Take the next steps, from one test to the next."""
        if self._learnt and steps.numbers[0] > self._firsts[0][0]:
            return len(steps)
        if self._beside.take(steps.columns):
            self._verdict, self._active = None, False
            return len(steps)
        losses, rates = steps.columns.get("loss"), steps.columns.get("learning_rate")
        if losses is None or not self._is_plain(steps):
            return one_by_one(self, steps)
        end, was_held = 0, self._active
        while end < len(losses):
            begin, points = end, self._trace.points
            end, is_closed = self._trace.push_all(steps, losses, begin)
            if rates is not None:
                self._take_rates(steps.numbers[begin:end], rates[begin:end], points)
            if steps.extent("loss")[0] <= 0.0:
                self._signs += sum(loss <= 0.0 for loss in losses[begin:end])
            self._last = steps.numbers[end - 1]
            if is_closed and self._trace.points % EVERY == 0:
                self._judge()
                if self._learnt:
                    return len(losses)
                if self._active and not was_held:
                    return end
                was_held = self._active
        return end

    def _is_plain(self, steps: Steps) -> bool:
        """Whether nothing in a block with losses has to be looked at alone."""
        columns = steps.columns
        return (
            not self._learnt
            and len(self._firsts) == _FIRSTS
            and steps.numbers[0] >= self._last
            and steps.is_finite("loss")
            and ("learning_rate" not in columns or steps.is_finite("learning_rate"))
            and ("skipped" not in columns or steps.extent("skipped") == (0.0, 0.0))
        )

    def _take_rates(self, numbers: list[int], rates: list[float], points: int) -> None:
        self._rate = rates[-1]
        if max(rates) > self._peak_rate * WARM_UP_SHARE:
            for place, rate in enumerate(rates):
                if rate > self._peak_rate * WARM_UP_SHARE:
                    self._peak_rate, self._warm = rate, (points + place, numbers[place])

    def observe_event(self, event: Event) -> None:
        """Count evaluations: where nearly each point has one, points are epochs."""
        if event.kind == "evaluation" and not self._learnt:
            self._evaluations += 1

    def _go_back(self, step: int) -> None:
        if step <= self._firsts[0][0]:
            self._begin()
        else:
            self._trace.cut(step)

    def _judge(self) -> None:
        points, blocks = self._trace.points, self._trace.blocks
        if points < self._settings.points or self._signs or not self._is_beginning():
            self._verdict, self._active = None, False
            return
        start = max(self._firsts[0][1], middle(sorted(value for _, value in self._firsts)))
        values = [block.value for block in blocks]
        late = values[len(values) * 2 // 3 :]
        level = middle(sorted(late))
        # An attempt that numbers its steps anew begins where the one before it had got to.
        self._highest = max(self._highest, start)
        half = values[len(values) // 2 :]
        if max(*values[-3:], level) < (1.0 - LEARNT) * self._highest and not _chance(half, 0.0)[0]:
            self._learnt, self._verdict = True, Verdict(ratio=0.0, severity="info")
            self._active = False
            return
        behind = points - self._warm[0]
        epochs = 2 * self._evaluations >= points
        if behind < self._settings.points or (not epochs and self._last - self._warm[1] < self._settings.steps):
            self._verdict, self._active = None, False
            return
        score = mann_kendall(half)
        classes, chance = _chance(half, score)
        error = MEDIAN_ERROR * spread(late) / math.sqrt(len(late)) / start
        fall = 1.0 - level / start
        flat = self._flatness(fall, fall + TREND * error, score)
        if TREND * error > self._settings.fall / 2:
            flat = min(flat, 0.99)  # The noise could hide a fall, and among many tests one would find none.
        statistics = {"fall": fall, "trend_score": score, "level": level}
        if not self._active:
            self._active_at = behind
        self._verdict = self._say(max(flat, chance), classes, start, statistics, fall + TREND * error)
        if self._active and not classes and error > 0.0 and self._may_be_slow(behind, fall + TREND * error, values):
            self._verdict = replace(self._verdict, severity="info", confidence=0.5)

    def _may_be_slow(self, behind: int, most: float, values: list[float]) -> bool:
        """Whether a run may be slow and no more than that: flat for short, or falling as a whole."""
        if behind < SURE_LONGER * self._active_at or (behind < SURE_POINTS and most >= self._settings.fall / 2):
            return True
        return mann_kendall(values) < -TREND

    def _flatness(self, fall: float, most: float, score: float) -> float:
        """Return the ratio of the first test, for a fall and what it is at most."""
        if fall < -2 * self._settings.fall:
            return 0.0  # It rises: not this signal's.
        flat = min(self._settings.fall / max(most, self._settings.fall / LARGEST), LARGEST)
        # What is active is released by a clear trend only, or it would come and go.
        if score < -TREND * (2 if self._active else 1):
            flat = min(flat, 1.0) * TREND / -score
        return flat

    def _say(self, ratio: float, classes: int, start: float, statistics: dict[str, float], most: float) -> Verdict:
        if ratio < 1.0:
            self._active = False
            return Verdict(ratio=ratio, statistics=statistics, severity="info")
        if self._rate < 0.1 * self._peak_rate and not self._active:
            text = "the learning rate is below a tenth of its peak: nothing falls there any more"
            return Verdict(ratio=0.0, statistics=statistics, severity="info", gated=text)
        self._active = True
        return Verdict(
            ratio=ratio,
            since_step=self._firsts[0][0],
            evidence=_evidence(self._firsts[0][0], start, classes),
            statistics=statistics,
            severity="warning",
            action=_ACTION_CHANCE if classes else _ACTION,
            confidence=0.9 if classes or most < self._settings.fall / 2 else 0.7,
            gated=f"judged from step {self._warm[1]} on, behind the warm-up" if self._warm[1] else "",
        )

    def _is_beginning(self) -> bool:
        """Whether the first point is the first of the run: not later than three intervals of the log."""
        (first, _), (second, _), (third, _) = self._firsts
        return first <= max(1, 3 * max(second - first, third - second))

    @property
    def held(self) -> bool:
        """Whether the signal is on."""
        return self._active

    def verdict(self) -> Verdict | None:
        """Return the share of 5 % over the fall so far (with what noise leaves open), at most 10.

        Statistics: ``fall`` (share of the first loss), ``trend_score`` of the last half, and ``level``.
        """
        return self._verdict


_ACTION = (
    "data: check that labels belong to inputs and that the loss sees what it should; parameters: check that weights "
    "change at all (frozen, optimizer not stepped, gradient scale), then raise the learning rate by 2 to 3 times"
)
_ACTION_CHANCE = (
    "data: check that labels belong to inputs and inputs are normalized; parameters: change the learning rate (down if "
    "gradients are large, up if they are tiny); model: look for dead units and for an activation that does not fit "
    "the loss"
)


def _chance(half: list[float], score: float) -> tuple[int, float]:
    """Return the number of classes that all are guessed alike, and the ratio; 0 and 0 if there is none."""
    level = middle(sorted(half[-5:]))
    below = BELOW_STEADILY if score < -2 * TREND else BELOW_CHANCE
    for classes in CLASSES:
        chance = math.log(classes)
        if not (1.0 - below) * chance <= level <= (1.0 + CHANCE) * chance:
            continue
        worst = max([abs(value - chance) for value in half]) / chance
        if worst <= CHANCE:
            return classes, min(CHANCE / max(worst, CHANCE / LARGEST), LARGEST)
    return 0, 0.0


def _evidence(first: int, start: float, classes: int) -> str:
    if classes:
        return f"since step {first}: the loss stays where all of {classes} classes are guessed, {math.log(classes):.4g}"
    return f"since step {first}: the loss is still near {start:.4g}, where it began"
