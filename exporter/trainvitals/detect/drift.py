"""Loss drift: the loss goes up slowly, without the edge that a spike has.

The median of 16 losses is compared with that of 256 before them, in standard errors of such a median; 5, twice in
a row, are a finding.  On 74 healthy public curves this gave no false alarm and found every rise by 30 % over 400
steps, and every step of 10 %, while a median of 8 against 128 found 1 % of these rises.

The error is the largest one of three: from the noise of single losses, from how the medians of 16 scatter, and from the
largest of these.  Losses that resemble their neighbours are no independent witnesses, which the second knows; data
that comes in bursts has a long tail, which the third knows.

A block that is lower than the one before it by more than an error is the tail of a spike: what drifts does not fall.
A rise of less than 15 % is information: so much comes of harder data or of the weight of a term, by design.  A loss
beside a reward, and that of two models against each other, may rise as it likes, and is not judged.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, islice

from trainvitals.detect.base import Category, Verdict, by_pieces
from trainvitals.detect.metric_names import Companions
from trainvitals.detect.segments import Kind, Segment
from trainvitals.detect.settings import setting
from trainvitals.detect.window import MAD_TO_SIGMA, MEDIAN_ERROR, middle
from trainvitals.telemetry import Step, Steps

_LARGEST = 1e6
#: The largest of 16 normal values is expected so many deviations above their middle.
_LARGEST_OF_16 = 1.77


@dataclass(frozen=True, kw_only=True)
class DriftSettings:
    """Thresholds and windows; a point is a step that has a finite loss."""

    errors: float = setting(
        5.0, "standard errors", "a median above the baseline; no false alarm in 74 healthy runs", least=1e-3
    )
    in_a_row: int = setting(2, "blocks", "one alone is a spike, or chance", least=1)
    block: int = setting(16, "losses", "whose median is one value; 8 found 1 % of drifts by 30 %", least=2)
    baseline: int = setting(16, "blocks", "what a block is compared with", least=4)
    lag: int = setting(4, "blocks", "left out in between, or the first part of a drift would be its own baseline")
    warmup_steps: int = setting(500, "steps", "the first steps of a run jump (BLOOM-104B, after its warm-up)")
    learning_rate_rise: float = setting(
        0.2, "share", "a learning rate so much above its lowest opens a new baseline: losses rise with it"
    )
    spread_floor: float = setting(0.0025, "share of the loss", "no loss is quieter than this, as for spikes")
    warning_rise: float = setting(
        0.15, "share", "a smaller rise is information: terms of a loss that are weighted anew, and harder data, do that"
    )
    back_errors: float = setting(2.0, "standard errors", "within so many it is over")
    accept_blocks: int = setting(64, "blocks", "a level that stays for so many is the new normal", least=1)


@dataclass
class _Episode:
    """A drift that has not gone back.  The baseline is frozen meanwhile, or it would climb after the loss."""

    since: int
    center: float
    error: float
    ratio: float
    worst: float
    highest: float
    blocks: int = 0


@dataclass
class _Segment:
    """What is compared: points of the present block, sorted blocks before it, their medians, where each began."""

    points: list[float] = field(default_factory=list)
    begun: int = 0
    blocks: deque[list[float]] = field(default_factory=deque)
    middles: deque[float] = field(default_factory=deque)
    above: list[tuple[int, list[float], float]] = field(default_factory=list)


class LossDrift:
    """Watches ``values["loss"]``.  Active until the loss is back at its level, or has been at a new one for long.

    A run that goes back, a learning rate that rises, and another batch, sequence length, precision or data begin a new
    segment.
    """

    signal = "loss_drift"
    category: Category = "parameter"
    needs = "352 steps with a loss behind step 500, at a learning rate that does not rise"
    segments: frozenset[Kind] = frozenset({"batch_size", "sequence_length", "precision", "data"})
    settings = DriftSettings

    def __init__(self, settings: DriftSettings = DriftSettings()) -> None:
        self._settings = settings
        self._last = -1
        self._lowest_rate = math.inf
        self._beside = Companions()
        self._gated = ""
        self._begin_segment("")

    def _begin_segment(self, why: str) -> None:
        self._segment = _Segment()
        self._episode: _Episode | None = None
        self._ratio: float | None = None
        #: In place of a ratio that nobody has asked for yet: the median of the last block, and those of its baseline.
        self._calm: tuple[float, list[float]] | None = None
        self._gated = why
        #: Whether a baseline fills that takes the place of another.
        self._filling = False

    def begin_segment(self, segment: Segment) -> None:
        """Begin a new baseline; other data in a drift is an answer to it, and must not hide it."""
        if self._episode is None or segment.kind in {"batch_size", "sequence_length"}:
            judged = self._filling or self._ratio is not None
            self._begin_segment(segment.why)
            self._filling = judged

    def observe(self, step: Step) -> None:
        """Take the next step: most cost a look at three values, one in 16 a test."""
        values = step.values
        if self._is_free(values):
            return
        rate = values.get("learning_rate")
        if rate is not None and rate != self._lowest_rate:
            self._follow_rate(rate)
        loss = values.get("loss")
        if loss is None or not -1e38 < loss < 1e38:
            return
        if step.step < self._last:
            self._begin_segment(f"the run went back to step {step.step}")
        self._last = step.step
        points = self._segment.points
        if not points:
            if step.step < self._settings.warmup_steps:
                return
            self._segment.begun = step.step
        points.append(loss)
        if len(points) == self._settings.block:
            self._segment.points = []
            self._close(sorted(points))

    def observe_all(self, steps: Steps) -> int:
        """Take the next steps, up to one that turns the signal on; return how many."""
        if self._is_free(steps.columns):
            return len(steps)
        if self._episode is not None or not self._is_steady(steps):
            return by_pieces(self, steps)
        taken, columns = len(steps), steps.columns
        if (losses := columns.get("loss")) is not None:
            taken = self._take_all(steps.numbers, losses)
            self._last = steps.numbers[taken - 1]
        if (rates := columns.get("learning_rate")) is not None:
            low = steps.extent("learning_rate")[0] if taken == len(steps) else min(rates[:taken])
            self._lowest_rate = min(self._lowest_rate, low)
        return taken

    def _is_free(self, names: Mapping[str, object]) -> bool:
        """Return whether the loss may rise as it likes; then there is nothing to be said of it."""
        if self._beside.free or not self._beside.take(names):
            return self._beside.free
        self._begin_segment("")
        return True

    def _is_steady(self, steps: Steps) -> bool:
        """Return whether all losses count, and the learning rate begins no segment."""
        columns = steps.columns
        if "loss" in columns:
            low, high = steps.extent("loss")
            # NaN compares as false.
            if not (low > -1e38 and high < 1e38):
                return False
        if (rates := columns.get("learning_rate")) is None:
            return True
        low, high = steps.extent("learning_rate")
        lowest, most = self._lowest_rate, 1.0 + self._settings.learning_rate_rise
        if not 0.0 <= low <= high < math.inf:
            return False
        return high <= min(low, lowest) * most or (
            rates[0] <= lowest * most and rates[0] == high and rates == sorted(rates, reverse=True)
        )

    def _take_all(self, numbers: list[int], losses: list[float]) -> int:
        """Take losses up to one that turns the signal on; return how many."""
        if numbers[0] < self._last:
            self._begin_segment(f"the run went back to step {numbers[0]}")
        size, points = self._settings.block, self._segment.points
        begin = 0 if points else bisect_left(numbers, self._settings.warmup_steps)
        if points:
            begin = min(size - len(points), len(losses))
            points += losses[:begin]
            if len(points) == size:
                self._segment.points = []
                self._close(sorted(points))
        end = len(losses) - (len(losses) - begin) % size
        if begin < end and self._episode is None:
            begin = self._take_blocks(numbers, losses, begin, end)
        if self._episode is not None:
            return begin
        if end < len(losses) and begin == end:
            self._segment.begun = numbers[end]
            self._segment.points = losses[end:]
        return len(losses)

    def _take_blocks(self, numbers: list[int], losses: list[float], begin: int, end: int) -> int:
        """Take whole blocks, up to one that turns the signal on; return the place behind it."""
        settings = self._settings
        baseline, most = settings.baseline, settings.baseline + settings.lag
        in_a_row = iter(losses[begin:end])
        blocks = list(map(sorted, zip(*[in_a_row] * settings.block, strict=True)))
        half, odd = settings.block // 2, settings.block % 2
        middles = [block[half] if odd else (block[half - 1] + block[half]) / 2 for block in blocks]
        place = 0
        while place < len(blocks):
            segment = self._segment
            if len(segment.middles) == most and not segment.above and settings.errors > _LARGEST_OF_16:
                known = [*segment.middles, *middles[place:]]
                count = _below(known, baseline, most)
                if count:
                    segment.blocks = deque([*segment.blocks, *blocks[place : place + count]][-most:])
                    segment.middles = deque(known[count : count + most])
                    self._ratio, self._calm = 0.0, (known[count + most - 1], known[count - 1 : count - 1 + baseline])
                    place += count
                    continue
            at = begin + place * settings.block
            segment.begun = numbers[at]
            self._close(blocks[place])
            place += 1
            if self._episode is not None:
                return at + settings.block
        return end

    def _follow_rate(self, rate: float) -> None:
        if rate < self._lowest_rate:
            self._lowest_rate = rate
        elif rate > self._lowest_rate * (1.0 + self._settings.learning_rate_rise) and rate < math.inf:
            self._lowest_rate = rate
            if self._episode is None:
                self._begin_segment("the learning rate rose")

    def _close(self, block: list[float]) -> None:
        """Take a block, whose losses are sorted."""
        segment, settings = self._segment, self._settings
        value = middle(block)
        if self._episode is not None:
            self._follow(self._episode, value)
            return
        if len(segment.middles) < settings.baseline + settings.lag:
            self._push(block, value)
            return
        middles = list(segment.middles)[: settings.baseline]
        if value <= max(middles) and settings.errors > _LARGEST_OF_16:
            # As nearly always: by the third error it is less than that.
            self._ratio, self._calm = 0.0, (value, middles)
            self._keep(block, value)
            return
        self._calm = None
        center = middle(sorted(middles))
        errors = 0.0
        if value > center:
            error = self._error(center, value, middles)
            errors = min((value - center) / error, _LARGEST) if error > 0.0 else 0.0
            if errors >= settings.errors:
                falls = bool(segment.above) and value < segment.above[-1][2] - error
                segment.above.append((segment.begun, block, value))
                if len(segment.above) >= settings.in_a_row and not falls:
                    since = segment.above[0][0]
                    self._episode = _Episode(since, center, error, errors / settings.errors, value, value)
                    segment.above.clear()
                self._ratio = errors / settings.errors if self._episode is not None else 0.99
                return
        self._keep(block, value)
        self._ratio = errors / settings.errors

    def _keep(self, block: list[float], value: float) -> None:
        segment = self._segment
        if segment.above:
            for _, held, known in segment.above:
                self._push(held, known)
            segment.above.clear()
        self._push(block, value)

    def _push(self, block: list[float], value: float) -> None:
        segment, most = self._segment, self._settings.baseline + self._settings.lag
        segment.blocks.append(block)
        segment.middles.append(value)
        if len(segment.middles) > most:
            segment.blocks.popleft()
            segment.middles.popleft()

    def _error(self, center: float, value: float, middles: list[float]) -> float:
        """Return the standard error of a block's median; that of single losses is looked at only if it can matter."""
        segment, settings = self._segment, self._settings
        scatter = _scatter(center, middles)
        if scatter > 0.0 and (value - center) < settings.errors * scatter:
            return scatter
        blocks = islice(segment.blocks, settings.baseline)
        deviations = sorted([abs(loss - center) for loss in chain.from_iterable(blocks)])
        sigma = max(MAD_TO_SIGMA * middle(deviations), settings.spread_floor * abs(center))
        return max(scatter, MEDIAN_ERROR * sigma / math.sqrt(settings.block))

    def _follow(self, episode: _Episode, value: float) -> None:
        settings = self._settings
        errors = min(max(0.0, (value - episode.center) / episode.error), _LARGEST)
        episode.blocks += 1
        episode.highest = max(episode.highest, value)
        # The level is part of a label, so it moves on in strides.
        if value - episode.center > 1.5 * (episode.worst - episode.center):
            episode.worst = value
        if errors < settings.back_errors:
            self._episode, self._ratio = None, errors / settings.errors
        elif episode.blocks >= settings.accept_blocks:
            self._begin_segment("the loss has stayed at a new level")
        else:
            episode.ratio = self._ratio = max(1.0, errors / settings.errors)

    @property
    def held(self) -> bool:
        """Whether the signal is on."""
        return self._episode is not None

    def verdict(self) -> Verdict | None:
        """Return the errors over 5; None until there is a baseline.

        Statistics: ``errors`` (threshold 5), and in a drift ``baseline``, in units of the loss.
        """
        if self._ratio is None:
            return Verdict(ratio=0.0, severity="info", gated=self._gated) if self._filling else None
        if self._calm is not None:
            value, middles = self._calm
            center = middle(sorted(middles))
            over = (value - center) / _scatter(center, middles) if value > center else 0.0
            self._ratio, self._calm = over / self._settings.errors, None
        errors = self._ratio * self._settings.errors
        episode = self._episode
        if episode is None:
            return Verdict(ratio=self._ratio, statistics={"errors": errors}, severity="info", gated=self._gated)
        return Verdict(
            ratio=self._ratio,
            since_step=episode.since,
            evidence=f"since step {episode.since}: loss drifts up from {episode.center:.4g} to {episode.worst:.4g}",
            statistics={"errors": errors, "baseline": episode.center},
            severity="warning" if episode.highest > (1.0 + self._settings.warning_rise) * episode.center else "info",
            action=_ACTION,
            confidence=0.9 if episode.blocks >= self._settings.in_a_row else 0.7,
            gated=self._gated,
        )


def _below(known: list[float], baseline: int, lag: int) -> int:
    """Return how many values in a row, each ``lag`` behind the first of its baseline, are not above the largest of it.

    The largest is looked for anew when it has left the baseline.
    """
    top, at = -math.inf, -1
    for count, value in enumerate(known[lag:]):
        if at < count or known[count + baseline - 1] >= top:
            row = known[count : count + baseline]
            top = max(row)
            at = count + row.index(top)
        if not value <= top:
            return count
    return len(known) - lag


def _scatter(center: float, middles: list[float]) -> float:
    """Return the standard deviation of medians."""
    deviation = MAD_TO_SIGMA * middle(sorted([abs(known - center) for known in middles]))
    return max(deviation, (max(middles) - center) / _LARGEST_OF_16)


_ACTION = (
    "data: see whether the mixture or the order of the data changed at that step; parameters: if it did not, lower the "
    "learning rate by 10 to 33 % from a checkpoint before that step"
)
