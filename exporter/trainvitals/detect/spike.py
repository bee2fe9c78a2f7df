"""Loss spike: the loss rises out of its own noise and stays there for some steps.

Two tests against the 128 values before the last 8:

- level: the median of the last 8 values, in standard errors of such a median (6);
- outliers: the third largest of the last 5 values, in standard deviations of the upper tail (4).

The 128 values are looked at once for 128 losses.  With a look every 8, a loss that stays higher crept into them before
it was found: of 72 such levels written into healthy curves (10 % higher) 61 % were found, and 78 % now; spikes as
before.  It is also what makes a judgement of millions of steps cheap.

They come from a comparison of published rules on 74 healthy public curves (263,721 steps): mean and 6 sigma gave 24
false alarms in 10,000 steps; median and MAD with 6 errors, or with 3 of 5 values beyond 5 sigma, gave none and found
every spike of the shape of BLOOM-176B's (2.3 times the level, 30 steps).  benchmarks/detectors.py repeats that on
other curves.  With MAD alone, a run whose batches come in bursts of like data gave 6 false alarms in 20,000 steps,
and skewed noise gave up to 20 in 10,000.  So, against the published form:

- outliers are measured in units of the upper tail (4 of these are 5 sigma in a language model), and so is the level
  where that tail is longer than a language model's;
- both are divided for correlated noise: the level by its whole factor, outliers by the root;
- a segment is judged after 192 values and not after 384: no false alarm came of it, and where only every tenth step
  or fewer is logged, two of five labelled spikes had been too early.

A single value beyond 6 sigmas of the tail is counted (``events``) and not an alarm: in runs with the same data order
such outliers fall on the same steps, so they are data, not instability.

What is out of the noise may still be small: an excess by less than 15 % of the loss, by the third largest of 5 losses
in a row, is information.  Harder data, a term that is weighted anew, a learning rate that begins another cycle and the
mean of an epoch that has just begun make such steps (8 to 15 % in made-up healthy runs), and logs do not tell of them.
Where a new baseline fills, it takes twice the worst of the run.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from trainvitals.detect.base import Category, Latch, Timeline, Verdict, by_pieces
from trainvitals.detect.metric_names import Companions
from trainvitals.detect.segments import Kind, Segment
from trainvitals.detect.settings import setting
from trainvitals.detect.window import MAD_TO_SIGMA, MEDIAN_ERROR, Correlation, Level, Window, middle
from trainvitals.telemetry import Step, Steps

#: The range of a 32-bit float: no difference of two such losses overflows.
_LARGEST_LOSS = 1e38
#: Deviations beyond say nothing more.
_LARGEST_SIGMAS = 1e6
#: The finding is some steps old when the tests are sure of it: it began where so many sigmas were exceeded.
_ONSET_SIGMAS = 2.0
#: An outlier joins the baseline with so many tails, or a spike would hide the next.
_CAP = 5.0
#: A statistic at so many times its threshold is no edge of a noise.
_SURE = 1.5
#: The rise, as a share, of a loss that is twice what it was.
_DOUBLED = 1.0


@dataclass(frozen=True, kw_only=True)
class SpikeSettings:
    """Thresholds and windows, in points: a point is a step that has a finite loss."""

    level_errors: float = setting(
        6.0,
        "standard errors",
        "the median of the last losses above the baseline; 4 gave 2 false alarms in 10,000 steps",
    )
    outlier_sigmas: float = setting(
        4.0, "sigmas of the upper tail", "that so many of the last losses exceed; 5 sigmas in a language model"
    )
    outliers_of: tuple[int, int] = setting((3, 5), "losses", "so many of so many; 2 of 3 gave false alarms", least=1)
    baseline: int = setting(128, "losses", "what the last are compared with; fewer know their noise badly", least=16)
    recent: int = setting(8, "losses", "the last ones; a spike of BLOOM-176B lasted 30 steps", least=2)
    event_sigmas: float = setting(6.0, "sigmas of the upper tail", "a single loss beyond is counted, and no alarm")
    warning_rise: float = setting(
        0.15, "share", "a smaller rise is information: half a nat of a language model; healthy steps were below it"
    )
    #: The tail of the loss of single steps of language models, over the spread.
    usual_tail: float = 1.3
    warmup_steps: int = setting(
        500, "steps", "losses fall fast and jump in a warm-up; instabilities of a young run heal (BLOOM-104B)"
    )
    warmup_points: int = setting(192, "losses", "after a start, a resume or a rollback: one and a half baselines")
    learning_rate_jump: float = setting(
        0.2, "share", "a learning rate that rises by more from one report to the next opens a new baseline"
    )
    worse_share: float = setting(
        0.2, "share", "until there is a baseline again, only a loss above the worst of the run by so much is an outlier"
    )
    spread_floor: float = setting(0.0025, "share of the loss", "no loss is quieter than this")
    hold_seconds: float = setting(120.0, "seconds", "so long it stays on, so that several scrapes see it")
    hold_steps: int = setting(8, "steps", "so long it stays on, so that what comes and goes is one finding")
    recover_steps: int = setting(
        200, "steps", "not back after so many is critical; recovering spikes took 30 to 100 steps", least=1
    )
    recover_points: int = setting(24, "losses", "and as many of these, where not every step has one", least=1)
    doubled_points: int = setting(5, "losses", "above twice the baseline for so many is critical as well", least=1)
    accept_points: int = setting(512, "losses", "a level that lasts for so many is the new normal", least=1)
    accept_seconds: float = setting(3600.0, "seconds", "and for so long")

    def __post_init__(self) -> None:
        wanted, of = self.outliers_of
        if wanted > of:
            raise ValueError(f"outliers_of: expected some of as many or more, found {wanted} of {of}")


class _Point(NamedTuple):
    #: The number of its step, and the step's count.
    step: int
    of: int
    loss: float
    sigmas: float
    #: What joins the baseline: an outlier in a capped form, or a spike would hide the next.
    capped: float


@dataclass
class _Episode:
    """An excess that has not recovered.  The baseline is frozen meanwhile, or it would climb after the spike."""

    begun: Step
    level: Level
    points: int = 0
    doubled: int = 0


class LossSpike:
    """Watches ``values["loss"]``; the ratio is the larger of the two tests over its threshold.

    Active until the loss is back at its baseline (or has stayed at its new level for an hour and 512 points), and
    for two minutes more.  A rollback or a restart ends it at once, but for these two minutes.
    """

    signal = "loss_spike"
    category: Category = "parameter"
    needs = "192 steps with a loss, behind the warm-up"
    segments: frozenset[Kind] = frozenset({"batch_size", "sequence_length", "precision", "data"})
    settings = SpikeSettings

    def __init__(self, settings: SpikeSettings = SpikeSettings()) -> None:
        self._settings = settings
        self._latch = Latch(hold_seconds=settings.hold_seconds, hold_steps=settings.hold_steps)
        self._timeline = Timeline()
        self._correlation = Correlation(2 * settings.baseline)
        self._learning_rate: float | None = None
        self._points = 0
        #: A loss beside a reward grows with what is learnt, and as unevenly: what is odd about it is information.
        self._beside = Companions()
        self._events = 0
        self._ratio: float | None = None
        self._numbers: dict[str, float] = {}
        #: The yardstick while a new baseline fills, with the highest baseline of the run as its center.
        self._worst: Level | None = None
        #: Of the finding that is shown.
        self._since = 0
        self._counts: tuple[int, ...] = ()
        self._before = self._peak = self._height = self._unrecovered = 0.0
        #: Fewer recent losses than this above so many tails are nothing to any test, whatever they are.
        self._calm_tails = 0.99 * min(
            settings.outlier_sigmas,
            settings.level_errors * MEDIAN_ERROR / math.sqrt(settings.recent) / settings.usual_tail,
        )
        self._few = min(settings.outliers_of[0], settings.recent // 2)
        #: The level by which calm losses are passed, as the window gave it and with its floor; what is above these
        #: tails; and what is counted or capped.
        self._known: Level | None = None
        self._level = Level(0.0, 0.0, 0.0)
        self._limit = self._ceiling = -math.inf
        #: So many points are judged in full, because enough that are large are among the recent.
        self._loud = 0
        #: The ratio and its numbers are those of an earlier step.
        self._is_stale = False
        #: A smaller rise, as a share, is information.
        self._rise = settings.warning_rise
        #: Why the last baseline ended, in words, where it was a change by plan.
        self._gated = ""
        #: Whether there was one before it.
        self._filling = False
        self._begin_segment()

    @property
    def held(self) -> bool:
        """Whether the signal is on, or held."""
        return self._latch.held

    def begin_segment(self, segment: Segment) -> None:
        """Begin a new baseline; in an episode a change may be an answer to the spike, and must not hide it."""
        if self._episode is not None:
            return
        self._filling = self._filling or self._ratio is not None or self._is_stale
        self._begin_segment()
        if segment.kind in {"sequence_length", "data"}:
            # What was worse than ever is another level now.
            self._worst = None
        if not self._latch.held:
            self._ratio = None
        self._is_stale = False
        self._gated = segment.why

    def _begin_segment(self) -> None:
        self._baseline = Window(self._settings.baseline)
        self._recent: deque[_Point] = deque(maxlen=self._settings.recent)
        self._episode: _Episode | None = None
        self._is_calm = False
        self._known = None

    def observe(self, step: Step) -> None:
        """Take the next step; a rollback, a restart and a raised learning rate open a new segment.

        Losses that are not finite are another detector's, and are left out here.
        """
        if self._timeline.begins_anew(step):
            self._begin_anew()
        self._beside.take(step.values)
        self._follow_learning_rate(step.values.get("learning_rate"))
        loss = step.values.get("loss")
        if loss is not None and math.isfinite(loss):
            self._take(loss, step)

    def observe_all(self, steps: Steps) -> int:
        """Take the next steps, up to one that turns the signal on; return how many."""
        rates = steps.columns.get("learning_rate")
        if (rates is not None and not steps.is_finite("learning_rate")) or not self._timeline.leads_to(steps):
            return by_pieces(self, steps)
        if self._timeline.begins_anew(steps[0]):
            self._begin_anew()
        self._beside.take(steps.columns)
        taken = 0
        for end in self._stretches(steps):
            if rates is not None:
                self._follow_learning_rate(rates[taken])
            taken, goes_on = self._take_stretch(steps, taken, end)
            if rates is not None:
                self._learning_rate = rates[taken - 1]
            if not goes_on:
                break
        self._timeline.go_on(steps, taken)
        return taken

    def _begin_anew(self) -> None:
        self._latch.settle()
        self._points = 0
        self._learning_rate = None
        self._gated, self._filling = "", False
        self._begin_segment()

    def _stretches(self, steps: Steps) -> list[int]:
        """Return where stretches without a jump of the learning rate end."""
        rates, most = steps.columns.get("learning_rate"), 1.0 + self._settings.learning_rate_jump
        if rates is None:
            return [len(steps)]
        low, high = steps.extent("learning_rate")
        if high <= low * most:
            return [len(steps)]
        jumps = [place for place, (before, rate) in enumerate(pairwise(rates), 1) if rate > before * most]
        return [*jumps, len(steps)]

    def _take_stretch(self, steps: Steps, begin: int, end: int) -> tuple[int, bool]:
        """Take the losses between these places, and return the place behind the last one.

        Return also whether it goes on from there: not behind a step that turned the signal on.
        """
        losses = steps.columns.get("loss")
        if losses is None:
            return end, True
        is_finite = steps.is_finite("loss")
        place = begin
        while place < end:
            if self._is_calm and (passed := self._pass_all(steps, losses, place, end)):
                place += passed
                continue
            loss = losses[place]
            place += 1
            if is_finite or math.isfinite(loss):
                held = self._latch.held
                self._take(loss, Step(steps.numbers[place - 1], steps.first + place - 1, steps.times[place - 1], {}))
                if self._latch.held and not held:
                    return place, False
        return end, True

    def _take(self, loss: float, step: Step) -> None:
        self._points += 1
        if self._is_calm and self._pass(loss, step):
            return
        ratio = self._judge(max(-_LARGEST_LOSS, min(loss, _LARGEST_LOSS)), step)
        shown = self._latch.update(ratio or 0.0, step)
        self._ratio = shown if ratio is not None or self._latch.held else None
        self._is_stale = False
        self._is_calm = ratio is not None and self._episode is None and not self._latch.held and self._baseline.full

    def _pass(self, loss: float, step: Step) -> bool:
        """Take a loss that no test can find odd, as nearly all are, and return whether it was one.

        It does what :meth:`_judge` would do, at a fifth of the cost: the ratio is only made when somebody asks for it.
        """
        known = self._baseline.level()
        if known is not self._known:
            self._know(known)
        if not -_LARGEST_LOSS <= loss < self._ceiling:
            self._loud = self._settings.recent
            return False
        if self._loud:
            self._loud = self._loud - 1 or int(self._large() >= self._few)
            return False
        if loss >= self._limit and self._large() + 1 >= self._few:
            self._loud = self._settings.recent
            return False
        recent, oldest = self._recent, self._recent[0]
        self._baseline.push(oldest.capped)
        self._correlation.push(oldest.sigmas)
        sigmas = _bounded((loss - known.center) / self._level.tail)
        recent.append(_Point(step.step, step.count, loss, sigmas, loss))
        self._is_stale = True
        return True

    def _pass_all(self, steps: Steps, losses: list[float], begin: int, end: int) -> int:
        """Take losses from this place on, as long as :meth:`_pass` would, up to the next look at the baseline.

        Return how many they were.
        """
        if self._loud:
            return 0
        known = self._baseline.level()
        if known is not self._known:
            self._know(known)
        if self._loud or self._level.spread <= 0.0:
            return 0
        chunk = losses[begin : min(end, begin + self._baseline.room)]
        center, tail = known.center, self._level.tail
        low = steps.extent("loss")[0] if steps.is_finite("loss") else min(chunk)
        if (
            not (steps.is_finite("loss") or math.isfinite(sum(chunk)))
            or low < -_LARGEST_LOSS
            or low - center <= -_LARGEST_SIGMAS * tail
        ):
            return 0
        nearly = center + self._calm_tails * tail
        nearly -= 1e-9 * (abs(center) + tail)
        if max(chunk) >= nearly:
            large = [place for place, loss in enumerate(chunk) if loss >= nearly]
            calm = self._calm_length(chunk, [(chunk[place] - center) / tail for place in large], large)
            if not calm:
                return 0
            del chunk[calm:]
        count = len(chunk)
        recent = self._recent
        self._baseline.extend([*[point.capped for point in recent], *chunk][:count])
        self._correlation.extend_raw([point.sigmas for point in recent][:count], 0.0, 1.0)
        if count > len(recent):
            self._correlation.extend_raw(chunk[: count - len(recent)], center, tail)
        first = max(0, count - self._settings.recent)
        for place in range(begin + first, begin + count):
            loss = losses[place]
            recent.append(_Point(steps.numbers[place], steps.first + place, loss, (loss - center) / tail, loss))
        self._points += count
        self._is_stale = True
        return count

    def _calm_length(self, chunk: list[float], sigmas: list[float], candidates: list[int]) -> int:
        """Return how many of these losses :meth:`_pass` would take before the first that it would not.

        ``candidates`` are the places of those that may be large, ``sigmas`` are theirs.
        """
        recent, limit, tails = self._settings.recent, self._limit, self._calm_tails
        large = [
            place - recent for place, point in enumerate(self._recent) if point.loss >= limit or point.sigmas >= tails
        ]
        for place, above in zip(candidates, sigmas, strict=True):
            loss = chunk[place]
            if loss >= limit:
                if loss >= self._ceiling or len([known for known in large if known >= place - recent]) + 1 >= self._few:
                    return place
                large.append(place)
            elif above >= tails:
                large.append(place)
        return len(chunk)

    def _know(self, known: Level) -> None:
        self._known, self._level = known, self._floored(known)
        tail = self._level.tail
        is_level = self._level.spread > 0.0
        self._limit = known.center + self._calm_tails * tail
        self._ceiling = known.center + min(_CAP, self._settings.event_sigmas) * tail if is_level else -math.inf
        if self._large() >= self._few:
            self._loud = self._settings.recent
        self._remember(self._level)

    def _large(self) -> int:
        """Return how many of the recent losses are large, by the level of now or by that of their time."""
        limit, tails = self._limit, self._calm_tails
        return len([point for point in self._recent if point.loss >= limit or point.sigmas >= tails])

    def _follow_learning_rate(self, rate: float | None) -> None:
        """Only a rise counts: after a drop the loss falls, and the old baseline stays a fair one."""
        before = self._learning_rate
        if rate is None or not math.isfinite(rate):
            return
        self._learning_rate = rate
        # In an episode a new rate is an answer to the spike, and must not hide it.
        if before is not None and rate > before * (1.0 + self._settings.learning_rate_jump) and self._episode is None:
            self._begin_segment()

    def _reference(self) -> Level | None:
        """Return the level to judge by, if there is one.

        While the baseline fills, only a loss that is much worse than the run ever was can be judged.
        """
        if self._episode is not None:
            return self._episode.level
        if not self._baseline.full:
            return self._worst
        return self._floored(self._baseline.level())

    def _floored(self, level: Level) -> Level:
        floor = self._settings.spread_floor * abs(level.center)
        return Level(level.center, max(level.spread, floor), max(level.tail, floor))

    def _judge(self, loss: float, step: Step) -> float | None:
        settings = self._settings
        level = self._reference()
        if level is None or level.spread == 0.0:
            # A spread of 0 is a loss that was always exactly 0.
            self._push(_Point(step.step, step.count, loss, 0.0, loss))
            return None
        sigmas = _bounded((loss - level.center) / level.tail)
        self._push(_Point(step.step, step.count, loss, sigmas, min(loss, level.center + _CAP * level.tail)))
        if self._episode is None and (self._points <= settings.warmup_points or step.step < settings.warmup_steps):
            return None
        self._events += sigmas > settings.event_sigmas
        ratio = self._test(level)
        if self._episode is None:
            if self._baseline.full:
                self._remember(level)
            if ratio < 1.0:
                return ratio
            self._begin_episode(step, level)
        return max(ratio, 1.0) if self._goes_on(loss, step) else ratio

    def _remember(self, level: Level) -> None:
        highest = level.center if self._worst is None else max(self._worst.center, level.center)
        margin = self._settings.worse_share / self._settings.outlier_sigmas * abs(highest)
        self._worst = Level(highest, max(level.spread, margin), max(level.tail, margin))

    def _test(self, level: Level) -> float:
        settings = self._settings
        factor = self._correlation.factor
        wanted, of = settings.outliers_of
        outlier = errors = 0.0
        if len(self._recent) >= of:
            newest = sorted([point.sigmas for point in self._recent][-of:])
            outlier = newest[-wanted] / math.sqrt(factor)
        if len(self._recent) == settings.recent and self._baseline.full:
            sigma = max(level.spread, level.tail / settings.usual_tail)
            error = MEDIAN_ERROR * factor / math.sqrt(settings.recent)
            errors = _bounded((self._recent_middle() - level.center) / sigma / error)
        self._numbers = {
            "level_errors": errors,
            "outlier_sigmas": outlier,
            "baseline": level.center,
            "spread": level.spread,
        }
        return max(errors / settings.level_errors, outlier / settings.outlier_sigmas, 0.0)

    def _recent_middle(self) -> float:
        return middle(sorted([point.loss for point in self._recent]))

    def _begin_episode(self, step: Step, level: Level) -> None:
        self._episode = _Episode(step, level)
        if self._latch.open:
            return
        odd = [point for point in self._recent if point.sigmas >= _ONSET_SIGMAS]
        self._since = odd[0].step if odd else step.step
        self._counts = tuple(point.of for point in odd)
        self._before = level.center
        self._peak = max(point.loss for point in self._recent)
        self._unrecovered = self._height = 0.0
        self._rise = self._settings.warning_rise if self._baseline.full else _DOUBLED

    def _goes_on(self, loss: float, step: Step) -> bool:
        """Follow the episode; return whether it goes on."""
        settings, episode = self._settings, self._episode
        if episode is None:
            return False
        level = episode.level
        episode.points += 1
        wanted, of = settings.outliers_of
        self._height = max(self._height, sorted([point.loss for point in self._recent][-of:])[-wanted])
        # The peak is part of a label, so it moves on in strides.
        if loss - self._before > 1.5 * (self._peak - self._before):
            self._peak = loss
        limit = max(2.0 * level.center, level.center + 5.0 * level.tail)
        episode.doubled = episode.doubled + 1 if level.center > 0.0 and loss > limit else 0
        if episode.points >= settings.recent and self._is_back(level):
            self._episode = None
            return False
        steps = (step.step - episode.begun.step) / settings.recover_steps
        slow = min(steps, episode.points / settings.recover_points)
        self._unrecovered = max(self._unrecovered, slow, episode.doubled / settings.doubled_points)
        if episode.points >= settings.accept_points and step.time - episode.begun.time >= settings.accept_seconds:
            self._remember(level._replace(center=self._recent_middle()))
            self._latch.settle()
            self._begin_segment()
            return False
        return True

    def _is_back(self, level: Level) -> bool:
        return self._recent_middle() < level.center + 2.0 * level.spread / MAD_TO_SIGMA

    def _push(self, point: _Point) -> None:
        """Take a point; the one that leaves the recent ones joins the baseline, unless that is frozen."""
        if len(self._recent) == self._settings.recent and self._episode is None:
            oldest = self._recent[0]
            self._baseline.push(oldest.capped)
            self._correlation.push(oldest.sigmas)
        self._recent.append(point)

    def verdict(self) -> Verdict | None:
        """Return the ratio, held while the signal is; None during warm-up and while the first baseline fills.

        Statistics: ``level_errors`` and ``outlier_sigmas`` (thresholds 6 and 4), ``baseline`` and ``spread`` (in
        units of the loss), ``events`` (single points beyond 6 sigmas so far) and ``unrecovered``: 1 or more when the
        loss was not back after 200 steps, or above twice the baseline for 5 points.
        """
        if self._is_stale:
            self._ratio, self._is_stale = self._test(self._level), False
        if self._ratio is None:
            return Verdict(ratio=0.0, severity="info", gated=self._gated) if self._filling else None
        held = self._latch.held
        unrecovered = self._unrecovered if held else 0.0
        statistics = {**self._numbers, "events": float(self._events), "unrecovered": unrecovered}
        gated = "" if self._baseline.full else "a new baseline fills: only a loss that is worse than ever counts"
        if gated and self._gated:
            gated = f"{self._gated}; {gated}"
        if not held:
            return Verdict(ratio=self._ratio, statistics=statistics, severity="info", gated=gated)
        evidence = f"since step {self._since}: loss rose from {self._before:.4g} to {self._peak:.4g}"
        if unrecovered >= 1.0:
            evidence += ", and did not come back soon"
        # Two symptoms: the tests agree, or it stays.
        sure = unrecovered >= 1.0 or self._ratio >= _SURE
        return Verdict(
            ratio=self._ratio,
            since_step=self._since,
            evidence=evidence,
            statistics=statistics,
            counts=self._counts,
            severity="info" if self._is_mild() else "critical" if unrecovered >= 1.0 else "warning",
            action=_ACTION_STAYS if unrecovered >= 1.0 else _ACTION,
            confidence=0.95 if sure else 0.8,
            gated=gated,
        )

    def _is_mild(self) -> bool:
        """Whether such a rise happens to runs that are well: it is small, or the loss may rise as it likes."""
        is_small = self._before > 0.0 and self._height < (1.0 + self._rise) * self._before
        return self._beside.free or is_small


_ACTION = (
    "data: look at the batches of these steps, and whether another run with the same order has the spike too; "
    "parameters: if it is this run alone and comes again, lower the learning rate by 10 to 33 %"
)
_ACTION_STAYS = (
    "data: skip the batches of these steps; parameters: go back to a checkpoint before the first of them and lower the "
    "learning rate by 10 to 33 %, clip gradients lower, or lower beta2 from 0.999 to 0.95"
)


def _bounded(sigmas: float) -> float:
    return max(-_LARGEST_SIGMAS, min(sigmas, _LARGEST_SIGMAS))
