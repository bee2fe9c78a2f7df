"""Plateau: effort goes on, and the loss falls by next to nothing for it.

The steps so far are cut into quarters; the gain is the fall from the third to the last, as a share of the loss.  The
signal is on when even the upper end of its 80 % interval is below 0.3 %, and stays there for a tenth more steps: a
third more effort would buy no more than that, as things are.  Healthy language models gain 0.5 to 1 % in the last
fifth of a run at a constant learning rate or a cosine, and 3 % in a decay.  Where noise is larger than that, nothing
is said but of a log of 100 losses and more that is flat as a whole: from its first to its last third it gained less
than 1.5 %, at the upper end as above, and there is no trend in it.  A run that learns slowly gains more in a log that
begins anywhere in it.  Of 40 losses, where these are means of epochs: what is left of the noise of batches in a mean
over all of them is small, so a mean that goes up and down by 3 % and more, and gains less than that in all, oscillates.

It is information, not an alarm: a learning rate that is high still may have its whole gain before it (where the decay
is to come, gains of 0.1 nats and more were measured), and a flat stretch before a fall looks like this too.
Where the learning rate is in its warm-up, or has come down to a tenth of its peak, nothing is said; and neither of a
run that was seen from its beginning and is not a tenth below it: that is :mod:`not_falling`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from trainvitals.detect.base import Category, Verdict, one_by_one
from trainvitals.detect.segments import Kind, Segment
from trainvitals.detect.settings import setting
from trainvitals.detect.trend import Block, Trace, mann_kendall, spread
from trainvitals.detect.window import MEDIAN_ERROR, middle
from trainvitals.telemetry import Event, Step, Steps

POINTS = 40
GAIN = 0.003
#: The upper end of an 80 % interval, in standard errors.
UPPER = 1.28
#: What is on goes off at so many times the gain.
OFF = 2.0
#: Of a log whose noise is larger: so many losses, what all of them may have gained, and the score of a trend that is
#: none (beyond it by chance twice in three times).
LOUD_POINTS, LOUD_GAIN, LOUD_TREND = 100, 0.015, 1.0
#: The noise of the mean of an epoch, as a share, from which on it is the steps that are too large.
OSCILLATION = 0.03
#: So much more effort has to give the same result.
LONGER = 1.1
LEARNT = 0.1
WARM_UP_SHARE, TAIL = 1.01, 0.1


#: Of a quarter; where noise is larger than that, all of the log counts.
_RISES = "the loss rises"


@dataclass(frozen=True)
class _Finding:
    since: int
    evidence: str


@dataclass(frozen=True, kw_only=True)
class PlateauSettings:
    """Thresholds."""

    points: int = setting(POINTS, "losses", "so many are needed", least=8)
    gain: float = setting(GAIN, "share of the loss", "a last part that gains less is flat", most=1.0)


class Plateau:
    """Watches ``values["loss"]``; on while the last quarter of the steps bought less than 0.3 % of the loss.

    A loss that is not positive has no share of itself (rewards), and is not judged.
    """

    signal = "plateau"
    category: Category = "parameter"
    needs = "40 losses, in a log whose noise is not larger than the gain in question"
    #: What a step costs and gains.
    segments: frozenset[Kind] = frozenset({"batch_size", "sequence_length", "data"})
    stops = True
    settings = PlateauSettings

    def __init__(self, settings: PlateauSettings = PlateauSettings()) -> None:
        self._settings = settings
        self._gated = ""
        self._points = self._evaluations = 0
        self._begin()

    def _begin(self) -> None:
        self._trace = Trace()
        self._last = -1
        self._highest = 0.0
        self._from_beginning = False
        self._rate = self._peak_rate = 0.0
        self._risen_at = 0
        self._usable = True
        self._finding: _Finding | None = None
        self._candidate: int | None = None
        self._verdict: Verdict | None = None
        #: Whether a verdict was known before a change.
        self._filling = False

    def begin_segment(self, segment: Segment) -> None:
        """Compare from here on: steps of before bought other things."""
        last, rates = self._last, (self._rate, self._peak_rate, self._risen_at)
        judged = self._filling or self._verdict is not None
        self._begin()
        self._filling = judged
        self._last, (self._rate, self._peak_rate, self._risen_at) = last, rates
        self._gated = f"what was before: {segment.why}"

    def observe(self, step: Step) -> None:
        """Take the next step: a test is made for each block, 32 to 64 in a run."""
        values = step.values
        rate = values.get("learning_rate")
        if rate is not None and rate != self._rate and 0.0 <= rate < math.inf:
            self._rate = rate
            if rate > self._peak_rate * WARM_UP_SHARE:
                self._peak_rate, self._risen_at = rate, step.step
        loss = values.get("loss")
        if loss is None or not -math.inf < loss < math.inf:
            return
        if step.step < self._last:
            self._go_back(step.step)
        self._last = step.step
        if loss <= 0.0:
            self._usable, self._verdict, self._finding = False, None, None
        self._points += 1
        if self._trace.push(step.step, step.time, loss) and self._usable:
            self._judge()

    def observe_event(self, event: Event) -> None:
        """Count evaluations: where nearly each point has one, points are epochs."""
        self._evaluations += event.kind == "evaluation"

    def observe_all(self, steps: Steps) -> int:
        """Take the next steps, from one test to the next."""
        losses, rates = steps.columns.get("loss"), steps.columns.get("learning_rate")
        if losses is None or not self._is_plain(steps):
            return one_by_one(self, steps)
        end = 0
        while end < len(losses):
            begin = end
            end, is_closed = self._trace.push_all(steps, losses, begin)
            if rates is not None:
                self._take_rates(steps.numbers[begin:end], rates[begin:end])
            self._last = steps.numbers[end - 1]
            self._points += end - begin
            if is_closed and self._usable:
                was_held = self.held
                self._judge()
                if self.held or was_held:
                    return end
        return end

    def _is_plain(self, steps: Steps) -> bool:
        """Whether nothing in a block with losses has to be looked at alone."""
        if steps.numbers[0] < self._last or not steps.is_finite("loss"):
            return False
        if "learning_rate" in steps.columns and not (
            steps.is_finite("learning_rate") and steps.extent("learning_rate")[0] >= 0.0
        ):
            return False
        return not self._usable or steps.extent("loss")[0] > 0.0

    def _take_rates(self, numbers: list[int], rates: list[float]) -> None:
        self._rate = rates[-1]
        if max(rates) > self._peak_rate * WARM_UP_SHARE:
            for number, rate in zip(numbers, rates, strict=True):
                if rate > self._peak_rate * WARM_UP_SHARE:
                    self._peak_rate, self._risen_at = rate, number

    def _go_back(self, step: int) -> None:
        self._trace.cut(step)
        self._finding = self._candidate = self._verdict = None
        if not self._trace.blocks:
            self._begin()

    def _judge(self) -> None:
        blocks = self._trace.blocks
        if self._trace.points <= 3:
            self._highest = max(self._highest, blocks[-1].value)
            self._from_beginning = blocks[0].last <= max(1, 3 * (blocks[-1].last - blocks[0].last))
        if self._trace.points < self._settings.points or blocks[-1].last <= blocks[0].first:
            return
        first, last = blocks[0].first, blocks[-1].last
        third, fourth = (first + (last - first) * share for share in (0.5, 0.75))
        before = [block for block in blocks if third < block.last <= fourth]
        after = [block for block in blocks if block.last > fourth]
        if len(before) < 4 or len(after) < 4:
            self._verdict = self._finding = None
            return
        old, error = _level(before)
        new, other = _level(after)
        gain = (old - new) / old
        margin = UPPER * math.hypot(error, other) / old
        hours = max(0.0, (after[-1].time - before[-1].time) / 3600.0)
        statistics = {"gain": gain, "gain_upper": gain + margin, "hours": round(hours, 3)}
        gated = self._gate(third, gain + margin, new)
        if gated in {"", _RISES} and margin > self._settings.gain and self._is_loud_and_flat(statistics):
            return
        limit = self._settings.gain * (OFF if self._finding is not None else 1.0)
        if gated or margin > self._settings.gain or gain + margin >= limit:
            self._finding = self._candidate = None
            ratio = 0.0 if gated else min(self._settings.gain / max(gain, self._settings.gain), 0.99)
            known = gated or margin <= self._settings.gain or gain - margin > self._settings.gain
            self._verdict = Verdict(ratio=ratio, statistics=statistics, severity="info", gated=gated) if known else None
            return
        if self._candidate is None:
            self._candidate = last
        if self._finding is None and last - first >= LONGER * (self._candidate - first):
            self._finding = _Finding(before[0].first, _evidence(before[0].first, old, hours, self._settings.gain))
        if self._finding is None:
            self._verdict = Verdict(ratio=0.99, statistics=statistics, severity="info")
            return
        self._verdict = Verdict(
            ratio=max(1.0, min(self._settings.gain / max(gain + margin, self._settings.gain / 10.0), 10.0)),
            since_step=self._finding.since,
            evidence=self._finding.evidence,
            statistics=statistics,
            severity="info",
            action=_ACTION if self._rate > 0.0 else _ACTION_BLIND,
            confidence=0.8,
        )

    def _is_loud_and_flat(self, statistics: dict[str, float]) -> bool:
        """Whether nothing happens in all of a log whose noise hides what one quarter of it buys."""
        blocks = self._trace.blocks
        epochs = 2 * self._evaluations >= self._points
        if self._trace.points < LOUD_POINTS and not epochs:
            return False
        size = len(blocks) // 3
        old, error = _level(blocks[:size])
        new, other = _level(blocks[-size:])
        most = (old - new + UPPER * math.hypot(error, other)) / old
        values = [block.value for block in blocks]
        swing = spread(values) / old if epochs and len(values) == self._trace.points else 0.0
        oscillates = swing >= OSCILLATION
        off = OFF if self._finding is not None else 1.0
        limit = swing if oscillates else LOUD_GAIN
        if most >= limit * off or abs(mann_kendall(values)) >= LOUD_TREND * off:
            return False
        if self._finding is None:
            text = "goes up and down, and nowhere else, around" if oscillates else "is the same but for noise,"
            self._finding = _Finding(
                blocks[0].first, f"since step {blocks[0].first}, all that is known: loss {text} {old:.4g}"
            )
        self._verdict = Verdict(
            ratio=max(1.0, min(limit / max(most, limit / 10.0), 10.0)),
            since_step=self._finding.since,
            evidence=self._finding.evidence,
            statistics={**statistics, "gain_upper": most},
            severity="info",
            action=_ACTION_OSCILLATES if oscillates else _ACTION if self._rate > 0.0 else _ACTION_BLIND,
            confidence=0.6,
        )
        return True

    def _gate(self, third: float, upper: float, level: float) -> str:
        if self._from_beginning and level > (1.0 - LEARNT) * self._highest:
            return "the run has not learnt yet"
        if upper < -self._settings.gain:
            return _RISES
        if self._peak_rate > 0.0 and self._rate < TAIL * self._peak_rate:
            return "the learning rate is below a tenth of its peak, where every loss is flat"
        if self._risen_at > third:
            return "the learning rate rose within the last half of the steps"
        return ""

    @property
    def held(self) -> bool:
        """Whether the signal is on."""
        return self._finding is not None

    def verdict(self) -> Verdict | None:
        """Return 0.3 % over the gain; None as long as noise hides whether there is one.

        Statistics: ``gain`` and ``gain_upper`` (shares of the loss), and the ``hours`` that it took, of each device.
        """
        if not self._gated:
            return self._verdict
        if self._verdict is None:
            return Verdict(ratio=0.0, severity="info", gated=self._gated) if self._filling else None
        parts = (self._verdict.gated, self._gated)
        return replace(self._verdict, gated="; ".join(part for part in parts if part))


_ACTION = (
    "data: see whether it repeats; parameters: if the decay of the learning rate is to come, begin it; if it is over, "
    "stop; model: if neither helps, it is too small or the data says no more"
)
_ACTION_BLIND = (
    "data: see whether it repeats; parameters: lower the learning rate by 3 to 10 times if it is constant; if the loss "
    "stays, stop"
)

_ACTION_OSCILLATES = (
    "data: see whether the order of the data is new in each epoch; parameters: lower the learning rate by 3 to 10 "
    "times, or make the batch larger; model: normalize inputs"
)


def _level(blocks: list[Block]) -> tuple[float, float]:
    """Return the median of some blocks and its standard error."""
    values = [block.value for block in blocks]
    return middle(sorted(values)), MEDIAN_ERROR * spread(values) / math.sqrt(len(values))


def _evidence(since: int, level: float, hours: float, gain: float) -> str:
    text = f"since step {since}: loss fell by less than {gain:.1%} from {level:.4g}"
    return f"{text} in the {hours:.1f} hours of the last quarter" if hours >= 0.1 else text
