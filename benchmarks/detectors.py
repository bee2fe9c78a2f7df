"""How often the detectors are wrong, how late they are right, and what a step costs.

    python benchmarks/detectors.py [FOLDER]

FOLDER holds real logs, with or without a MANIFEST.tsv that labels them (default: ../shared/data).
Prints, for every curve that can be read, the first finding of each signal beside the labelled event; then false
alarms on curves whose loss is healthy, found and missed events, spikes of known size written into healthy curves,
and the time of ``observe`` and ``verdict``.

A step of a curve takes one second here; that matters only for how long a finding is held.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.curves import Curve, Point, read_folder

from trainvitals.detect import Detector, build
from trainvitals.detect.nonfinite import NonfiniteLoss
from trainvitals.detect.spike import LossSpike

DEFAULT_FOLDER = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
#: A finding that is active at the labelled step, or begins within so many points after it, is the labelled one.
LATE_POINTS = 40
#: The spike of BLOOM-176B at step 31214: loss over the level before, then an exponential way back; 28 steps in all.
BLOOM = (1.01, 1.18, 1.02, 1.07, 2.32, 1.59, 1.46, 1.28, *(1.0 + 0.28 * math.exp(-i / 7.0) for i in range(1, 21)))
#: Room for the warm-up, and for the decision after the spike.
LEAD_POINTS, GRACE_POINTS = 560, 5
PLACES_PER_CURVE = 40


@dataclass
class Result:
    """One curve seen by fresh detectors: first and last step of each finding, points on which there was a verdict."""

    curve: Curve
    findings: dict[str, list[tuple[int, int]]]
    evidence: dict[str, str]
    judged: dict[str, int]

    @property
    def alarms(self) -> int:
        """How many findings there were in all."""
        return sum(map(len, self.findings.values()))

    def finds_event(self) -> bool:
        """Whether a finding covers the labelled step; where the label has none, whether there is a finding."""
        event = self.curve.event_step()
        if event is None:
            return self.alarms > 0
        numbers = [step for step, _ in self.curve.points]
        at = next((index for index, step in enumerate(numbers) if step >= event), len(numbers) - 1)
        latest = numbers[min(at + LATE_POINTS, len(numbers) - 1)]
        return any(first <= latest and last >= event for pairs in self.findings.values() for first, last in pairs)


def watch(curve: Curve, detectors: Sequence[Detector]) -> Result:
    """Run detectors over a curve."""
    findings: dict[str, list[tuple[int, int]]] = {detector.signal: [] for detector in detectors}
    judged = dict.fromkeys(findings, 0)
    evidence: dict[str, str] = {}
    active = dict.fromkeys(findings, False)
    for step in curve.steps():
        for detector in detectors:
            detector.observe(step)
            verdict = detector.verdict()
            pairs = findings[detector.signal]
            judged[detector.signal] += verdict is not None
            if verdict is not None and verdict.active:
                pairs.append((pairs.pop()[0] if active[detector.signal] else step.step, step.step))
                evidence.setdefault(detector.signal, verdict.evidence)
            active[detector.signal] = verdict is not None and verdict.active
    return Result(curve, findings, evidence, judged)


def inject(points: Sequence[Point], at: int, factors: Iterable[float]) -> list[Point]:
    """Return the points around ``at`` with the losses from there on multiplied."""
    factors = list(factors)
    cut = list(points[max(0, at - LEAD_POINTS) : at + len(factors) + GRACE_POINTS])
    first = min(at, LEAD_POINTS)
    for offset, factor in enumerate(factors):
        step, values = cut[first + offset]
        cut[first + offset] = (step, {**values, "loss": values["loss"] * factor})
    return cut


def delays(curve: Curve, factors: Sequence[float], places: int = PLACES_PER_CURVE) -> list[int | None]:
    """Return, for random places in a curve, the points from the onset to the finding; None where it is missed."""
    places_in = random.Random(7)
    found: list[int | None] = []
    for _ in range(places):
        at = places_in.randrange(LEAD_POINTS + 500, len(curve.points) - len(factors) - GRACE_POINTS)
        detector = LossSpike()
        delay = None
        for index, step in enumerate(Curve("", "", "", inject(curve.points, at, factors)).steps()):
            detector.observe(step)
            verdict = detector.verdict()
            if verdict is not None and verdict.active and index >= LEAD_POINTS:
                delay = index - LEAD_POINTS + 1
                break
        found.append(delay)
    return found


def cost(curve: Curve) -> tuple[float, float]:
    """Return microseconds of processor time per step of ``observe`` and of ``verdict`` for all detectors of a rank."""
    detectors = build()
    steps = list(curve.steps())
    begun = time.process_time()
    for step in steps:
        for detector in detectors:
            detector.observe(step)
    observed = time.process_time()
    for _ in steps:
        for detector in detectors:
            detector.verdict()
    ended = time.process_time()
    return (observed - begun) / len(steps) * 1e6, (ended - observed) / len(steps) * 1e6


def print_curves(results: Sequence[Result]) -> None:
    """Print one line for each curve."""
    signals = [NonfiniteLoss.signal, LossSpike.signal]
    print(f"{'file':58} {'label':16} {'event':>7} {'points':>7}  " + "  ".join(f"{signal:>16}" for signal in signals))
    for result in results:
        curve = result.curve
        found = [str(result.findings[signal][0][0]) if result.findings[signal] else "-" for signal in signals]
        event = curve.event_step()
        print(
            f"{curve.file[-58:]:58} {curve.label[:16]:16} {'' if event is None else event:>7} {len(curve.points):>7}  "
            + "  ".join(f"{step:>16}" for step in found)
        )


def print_totals(results: Sequence[Result]) -> None:
    """Print false alarms, and what was found of what is labelled."""
    healthy = [result for result in results if result.curve.healthy]
    points = sum(len(result.curve.points) for result in healthy)
    judged = sum(result.judged[LossSpike.signal] for result in healthy)
    alarms = {signal: sum(len(result.findings[signal]) for result in healthy) for signal in results[0].findings}
    print(f"\nhealthy loss: {len(healthy)} curves, {points} points, {judged} of them judged by loss_spike")
    for signal, count in alarms.items():
        seen = judged if signal == LossSpike.signal else points
        print(f"  {signal}: {count} false alarms, {count / max(seen, 1) * 1e4:.2f} per 10,000 judged points")
    for result in healthy:
        for signal, evidence in result.evidence.items():
            print(f"    {result.curve.file}: {signal}, {evidence} ({len(result.findings[signal])} times)")
    for label in ("nan", "spike", "divergence"):
        labelled = [result for result in results if label in result.curve.label.split("+")]
        found = [result for result in labelled if result.finds_event()]
        print(f"{label}: found {len(found)} of {len(labelled)}")
        for result in labelled:
            if result not in found:
                broken = sum(not math.isfinite(values["loss"]) for _, values in result.curve.points)
                print(f"    missed: {result.curve.file} ({len(result.curve.points)} points, {broken} not finite)")


def print_injected(curves: Sequence[Curve]) -> None:
    """Print the share of injected changes that were found, and how late."""
    print(f"\nwritten into {len(curves)} healthy per-step curves, {PLACES_PER_CURVE} places each:")
    shapes = {
        f"BLOOM spike x {scale:g}": [1.0 + scale * (ratio - 1.0) for ratio in BLOOM] for scale in (1.0, 0.5, 0.25)
    }
    shapes |= {f"level +{share:.0%} for 400 steps": [1.0 + share] * 400 for share in (0.1, 0.05)}
    for name, factors in shapes.items():
        by_curve = {curve.file: delays(curve, factors) for curve in curves}
        times = sorted(delay for found in by_curve.values() for delay in found if delay is not None)
        share = {file: sum(delay is not None for delay in found) / len(found) for file, found in by_curve.items()}
        late = f", median {median(times):g}, worst {times[-1]} points after the onset" if times else ""
        print(f"  {name}: found {sum(share.values()) / len(share):.0%}{late}")
        print("    by curve: " + ", ".join(f"{Path(file).stem} {found:.0%}" for file, found in share.items()))


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER)
    folder = parser.parse_args().folder
    curves = read_folder(folder) if folder.is_dir() else []
    if not curves:
        parser.error(f"{folder}: no curve found")
    results = [watch(curve, [NonfiniteLoss(), LossSpike()]) for curve in curves]
    print_curves(results)
    print_totals(results)
    dense = [result.curve for result in results if result.curve.dense and not result.alarms]
    if dense:
        print_injected(dense)
    longest = max(curves, key=lambda curve: len(curve.points))
    observe, verdict = cost(longest)
    print(
        f"\ncost on {longest.file}: observe {observe:.1f} us per step and rank, verdict {verdict:.1f} us (target: < 50)"
    )


if __name__ == "__main__":
    main()
