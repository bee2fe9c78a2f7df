"""Stop-loss: what was agreed before the run to end it by has come true.

Four rules can be agreed, in the settings of this signal, and none is by default: what one more device-hour (or 1,000
steps) has to buy at least, a loss that is enough, evaluations without a better one, and device-hours that are too
many.  Without a rule nothing is said: when an effort is no longer worth it, is for its owner to say beforehand.

The gain is that of the last quarter of the run: the median of the slopes between its blocks (Theil and Sen), and the
upper end of its 80 % interval by Kendall's variance (Sen 1968).  Even that has to be too little, twice in a row, and
the interval no wider than the gain that was agreed: noise that hides such a gain is no lack of it.

A learning rate that is still high has its gain before it: in public runs the last fifth of the steps brought 0.02 to
0.03 of the loss under a cosine, and 0.10 to 0.12 where a constant rate is taken down at the end.  So gain and patience
count only where the rate has come down to 15 % of its peak, and from there on; where no rate is told, or it is
constant by plan, ``decays: false`` says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from trainvitals.detect.base import Category, Severity, Verdict, one_by_one
from trainvitals.detect.evaluations import validation_loss
from trainvitals.detect.pace import Pace
from trainvitals.detect.settings import setting
from trainvitals.detect.trend import Block, Trace
from trainvitals.telemetry import Event, Step, Steps

#: The upper end of an 80 % interval, in standard errors.
UPPER = 1.28
#: The gain is that of so much of the run, and of so many blocks at least.
WINDOW, LEAST_BLOCKS = 0.25, 5
_HOUR, _THOUSAND = 3600.0, 1000.0
_LARGEST = 1e38


@dataclass(frozen=True, kw_only=True)
class StopLossSettings:
    """What was agreed.  Each of the first five is a rule of its own; null: it was not agreed."""

    least_gain_per_device_hour: float | None = setting(
        None, "loss", "stop when one more hour of one device buys less; 0.001, say"
    )
    least_gain_per_1000_steps: float | None = setting(
        None, "loss", "the same by steps, for logs that tell no times; 0.002, say"
    )
    target_loss: float | None = setting(
        None, "loss", "stop when the loss is there: of the validation, else of the training", least=None
    )
    patience_evaluations: int | None = setting(
        None, "evaluations", "stop after so many without a better validation loss; 10, say", least=1
    )
    most_device_hours: float | None = setting(None, "hours", "stop when so many hours of devices were spent", most=1e12)
    least_improvement: float = setting(0.0, "loss", "an evaluation is better by more than this")
    devices: int = setting(1, "devices", "of the whole run: a rank does not tell how many wait with it", least=1)
    grace_steps: int = setting(1000, "steps", "before which only the target and the hours count")
    decays: bool = setting(
        True,
        "",
        "the learning rate comes down before the end, and nothing is given up before it has; false: it does not",
    )
    decayed: float = setting(
        0.15,
        "share of the peak",
        "where the rate has come down; a cosine to a tenth is there for its last 15 %",
        most=1.0,
    )
    in_a_row: int = setting(2, "tests", "one alone is chance", least=1)

    @property
    def is_agreed(self) -> bool:
        """Whether there is any rule."""
        rules = (
            self.least_gain_per_device_hour,
            self.least_gain_per_1000_steps,
            self.target_loss,
            self.patience_evaluations,
            self.most_device_hours,
        )
        return any(rule is not None for rule in rules)


class _Gain(NamedTuple):
    """Loss per unit of effort: the middle, and the upper end of its interval."""

    middle: float
    upper: float


class _Rule(NamedTuple):
    """How far a rule is: 1 or more has come true.  ``words`` say what was agreed, and say the same at every step."""

    ratio: float
    severity: Severity
    words: str


class StopLoss:
    """Watches the loss of the training and that of the validation, the learning rate, and the time of the steps."""

    signal = "stop_loss"
    category: Category = "parameter"
    needs = "a rule that was agreed beforehand: detectors.stop_loss in the settings"
    settings = StopLossSettings

    def __init__(self, settings: StopLossSettings = StopLossSettings()) -> None:
        self._settings = settings
        self._pace = Pace()
        self._hours = 0.0
        self._split = ""
        self._best = math.inf
        self._best_step = 0
        self._without = 0
        self._reached = False
        self._begin()

    def _begin(self) -> None:
        self._trace = Trace()
        self._first: int | None = None
        self._last = -1
        self._peak = 0.0
        self._rate: float | None = None
        #: The step from which on the learning rate is down.
        self._down_since: int | None = None
        self._too_little = {True: 0, False: 0}
        self._gains: dict[bool, _Gain] = {}
        self._since: int | None = None

    def observe(self, step: Step) -> None:
        """Take the next step; a test is made for each block, 32 to 64 in a run."""
        if not self._settings.is_agreed:
            return
        lap = self._pace.observe(step)
        if lap is not None:
            self._hours += lap.seconds * lap.steps / _HOUR
        self._follow(step.values.get("learning_rate"), step.step)
        loss = step.values.get("loss")
        if loss is None or not math.isfinite(loss):
            return
        if step.step < self._last:
            self._go_back(step.step)
        self._last = step.step
        self._first = step.step if self._first is None else self._first
        # Blocks carry what was spent in place of the time: pauses between attempts bought nothing.
        is_closed = self._trace.push(step.step, self._hours, loss)
        if is_closed:
            self._judge()
        if is_closed or self._settings.most_device_hours is not None:
            self._note()

    def observe_all(self, steps: Steps) -> int:
        """Take the next steps: at once, where nothing was agreed."""
        return one_by_one(self, steps) if self._settings.is_agreed else len(steps)

    def observe_event(self, event: Event) -> None:
        """Take the next evaluation: the first split that has a loss is the one that counts."""
        name, values = event.fields.get("name"), event.fields.get("values")
        if not self._settings.is_agreed or event.kind != "evaluation" or not isinstance(values, Mapping):
            return
        if not isinstance(name, str) or name == "train" or self._split not in {"", name}:
            return
        loss = _loss(values)
        if loss is None:
            return
        self._split = name
        target = self._settings.target_loss
        self._reached = target is not None and loss <= target
        if loss < self._best - self._settings.least_improvement:
            self._best, self._best_step, self._without = loss, event.step, 0
        elif self._counts(event.step):
            self._without += 1
        self._note()

    def _follow(self, rate: float | None, step: int) -> None:
        if rate is None or rate == self._rate or not 0.0 <= rate < math.inf:
            return
        self._rate = rate
        self._peak = max(self._peak, rate)
        if rate > self._settings.decayed * self._peak:
            self._down_since = None
        elif self._down_since is None and self._peak > 0.0:
            self._down_since = step

    def _counts(self, step: int) -> bool:
        """Whether a lack of gain at a step counts: the learning rate was given its chance."""
        settings = self._settings
        if self._first is None or step - self._first < settings.grace_steps:
            return False
        return not settings.decays or (self._down_since is not None and step >= self._down_since)

    def _go_back(self, step: int) -> None:
        self._trace.cut(step)
        self._too_little = {True: 0, False: 0}
        self._gains.clear()
        self._without = 0
        if not self._trace.blocks:
            self._begin()

    def _judge(self) -> None:
        """Look what the last part of the run bought."""
        settings, blocks = self._settings, self._trace.blocks
        if not self._split and settings.target_loss is not None:
            recent = sorted(block.value for block in blocks[-3:])
            self._reached = len(recent) == 3 and recent[1] <= settings.target_loss
        for by_hours, least in (
            (True, settings.least_gain_per_device_hour),
            (False, settings.least_gain_per_1000_steps),
        ):
            if least is None:
                continue
            gain = self._gain(by_hours=by_hours)
            if gain is None:
                self._gains.pop(by_hours, None)
                self._too_little[by_hours] = 0
                continue
            self._gains[by_hours] = gain
            # An interval that is wider than what was agreed cannot tell such a gain from none.
            is_known = gain.upper - gain.middle <= least or least == 0.0
            self._too_little[by_hours] = self._too_little[by_hours] + 1 if gain.upper < least and is_known else 0

    def _gain(self, *, by_hours: bool) -> _Gain | None:
        blocks = self._trace.blocks
        begin, end = blocks[0].first, blocks[-1].last
        since = end - WINDOW * (end - begin)
        if self._settings.decays:
            if self._down_since is None:
                return None
            since = max(since, self._down_since)
        window = [block for block in blocks if block.first >= since]
        if len(window) < LEAST_BLOCKS or not self._counts(window[-1].last):
            return None
        efforts = [self._effort(block, by_hours=by_hours) for block in window]
        return _slope(efforts, [block.value for block in window])

    def _effort(self, block: Block, *, by_hours: bool) -> float:
        return block.time * self._settings.devices if by_hours else block.last / _THOUSAND

    def _note(self) -> None:
        is_met = any(rule.ratio >= 1.0 for rule in self._rules())
        self._since = (self._last if self._since is None else self._since) if is_met else None

    def _rules(self) -> list[_Rule]:
        """Return the rules that were agreed, as far as something can be said of them."""
        settings = self._settings
        found = []
        if settings.target_loss is not None and (self._trace.blocks or self._split):
            words = f"the loss is at the agreed {settings.target_loss:.4g}"
            found.append(_Rule(float(self._reached), "info", words))
        if settings.most_device_hours is not None:
            words = f"the agreed {settings.most_device_hours:.4g} device-hours are spent"
            spent = self._hours * settings.devices
            found.append(
                _Rule(spent / settings.most_device_hours if settings.most_device_hours else 1.0, "warning", words)
            )
        for by_hours, least, unit in (
            (True, settings.least_gain_per_device_hour, "device-hour"),
            (False, settings.least_gain_per_1000_steps, "1,000 steps"),
        ):
            gain = self._gains.get(by_hours)
            if least is not None and gain is not None:
                ratio = min(least / max(gain.upper, 0.1 * least), 10.0) if least > 0.0 else float(gain.upper < 0.0)
                sure = self._too_little[by_hours] >= settings.in_a_row
                words = f"one more {unit} buys less than the agreed {least:.4g} of the loss"
                found.append(_Rule(max(1.0, ratio) if sure else min(ratio, 0.99), "warning", words))
        if settings.patience_evaluations is not None and self._split:
            words = f"{settings.patience_evaluations} evaluations without a better loss than at step {self._best_step}"
            found.append(_Rule(self._without / settings.patience_evaluations, "warning", words))
        return found

    @property
    def held(self) -> bool:
        """Whether a rule has come true."""
        return self._since is not None

    def verdict(self) -> Verdict | None:
        """Return how far the rule is that is the furthest; None as long as none was agreed, or nothing can be said.

        Statistics: ``gain`` and ``gain_upper`` per device-hour or 1,000 steps, ``device_hours`` so far, and
        ``evaluations_without_gain``.
        """
        rules = self._rules()
        gated = self._gated()
        if not rules and not gated:
            return None
        statistics = {"device_hours": round(self._hours * self._settings.devices, 3)}
        if self._settings.patience_evaluations is not None:
            statistics["evaluations_without_gain"] = float(self._without)
        for gain in self._gains.values():
            statistics |= {"gain": gain.middle, "gain_upper": gain.upper}
        # Of several the gravest counts, and of these the one that is furthest.
        met = [rule for rule in rules if rule.ratio >= 1.0]
        if not met or self._since is None:
            ratio = min(max((rule.ratio for rule in rules), default=0.0), 0.99)
            return Verdict(ratio=ratio, statistics=statistics, severity="info", gated=gated)
        rule = max(met, key=lambda found: (found.severity == "warning", found.ratio))
        return Verdict(
            ratio=min(rule.ratio, 10.0),
            since_step=self._since,
            evidence=f"since step {self._since}: {rule.words}",
            statistics=statistics,
            severity=rule.severity,
            action=_REACHED if rule.severity == "info" else _ACTION,
            confidence=0.9,
            gated=gated,
        )

    def _gated(self) -> str:
        settings = self._settings
        wants_gain = (
            settings.least_gain_per_device_hour is not None
            or settings.least_gain_per_1000_steps is not None
            or settings.patience_evaluations is not None
        )
        if not wants_gain or not settings.decays or self._down_since is not None or self._first is None:
            return ""
        if self._rate is None:
            return "no learning rate is told: set decays to false if it does not come down before the end"
        return "the learning rate has not come down yet: its decay is to have its chance first"


_REACHED = "data: none; parameters: stop, as was agreed, and keep the best checkpoint"
_ACTION = (
    "data: see whether better or other data is at hand, which buys more than steps do; parameters: stop, as was "
    "agreed, and keep the best checkpoint; model: if the loss is not good enough, a larger one"
)


def _loss(values: Mapping[object, object]) -> float | None:
    numbers = {
        str(name): float(value)
        for name, value in values.items()
        if isinstance(value, (int, float)) and abs(value) < _LARGEST
    }
    loss = validation_loss(numbers)
    return loss if loss is not None and math.isfinite(loss) else None


def _slope(efforts: list[float], values: list[float]) -> _Gain | None:
    """Return the fall of values per unit of effort: Theil and Sen's, with Sen's interval; None without any effort."""
    count = len(values)
    slopes = sorted(
        (values[i] - values[j]) / (efforts[j] - efforts[i])
        for i in range(count)
        for j in range(i + 1, count)
        if efforts[j] > efforts[i]
    )
    if not slopes:
        return None
    deviation = UPPER * math.sqrt(count * (count - 1) * (2 * count + 5) / 18.0)
    upper = min(len(slopes) - 1, math.ceil((len(slopes) + deviation) / 2.0))
    middle = slopes[len(slopes) // 2] if len(slopes) % 2 else sum(slopes[len(slopes) // 2 - 1 :][:2]) / 2.0
    return _Gain(middle, slopes[upper])
