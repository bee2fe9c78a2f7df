"""What the exporter's page shows of this node, as plain data that goes into JSON as it is: docs/page.md has its shape.

Made once at each poll, bounded, whatever the sources say.  What is not known is not in it.  A value that can be called
stands for what it returns: curves are drawn only when somebody looks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from trainvitals.collect import data, log_errors
from trainvitals.collect.base import clean
from trainvitals.collect.devices_overview import show_devices
from trainvitals.collect.faults import FaultSeen
from trainvitals.collect.occurrences import Occurrences
from trainvitals.collect.rank import Rank
from trainvitals.collect.rates import Windows
from trainvitals.collect.runs import Finding
from trainvitals.detect import gauges, stall, straggler
from trainvitals.metrics import LOGGED_STATES
from trainvitals.telemetry import DeviceSample

#: Runs and ranks of a run that are shown, and points of all curves together; a curve has 600 at most.
MAX_RUNS, MAX_RANKS, MAX_POINTS = 64, 64, 9600
_MAX_CURVE = 600
_MAX_RESULTS = 8
#: From the best to the worst: a run is in the worst state of its ranks.
_STATES = ("finished", "running", "silent", "failed", "died")
#: What must be there before signals that no detector of steps makes say anything.
_NEEDS = {
    stall.SIGNAL: stall.NEEDS,
    straggler.SIGNAL: straggler.NEEDS,
    data.SIGNAL: "a loader that is watched (trainvitals.data)",
    log_errors.SIGNAL: "a log that is followed",
}
_BEFORE, _BEHIND = (stall.SIGNAL, straggler.SIGNAL), (data.SIGNAL, log_errors.SIGNAL)


_RATES = ("steps", "tokens", "samples")


class _Node(NamedTuple):
    """Devices by their UUID, their mean utilization of late, and the time."""

    devices: Mapping[str, DeviceSample]
    loads: Mapping[str, float]
    now: float


class Overview:
    """Keeps what the gauges look back for.

    ``devices`` and ``faults`` return the newest samples and what drivers reported; both may be asked in any thread.
    """

    def __init__(
        self,
        devices: Callable[[], Sequence[DeviceSample]] = tuple,
        faults: Callable[[], Sequence[FaultSeen]] = tuple,
    ) -> None:
        self._devices = devices
        self._faults = faults
        self._happened = Occurrences()
        self._paces = Windows(gauges.WINDOW_SECONDS)
        self._loads = Windows(gauges.WINDOW_SECONDS, (0.0, 0.0))
        self._load: dict[str, tuple[float, float]] = {}
        #: The runs and who computes on which device; replaced as a whole, so that any thread may take it.
        self._seen: tuple[list[dict[str, Any]], int, dict[str, tuple[str, int]]] = ([], 0, {})

    def observe(self, runs: Mapping[str, list[Rank]], findings: Mapping[str, list[Finding]], now: float) -> None:
        """Take what a poll found: the ranks and the verdicts of each run."""
        devices = {device.uuid: device for device in self._devices() if device.uuid}
        node = _Node(devices, self._measure(devices, now), now)
        shown = [self._run(run, ranks, findings.get(run, ()), node) for run, ranks in runs.items()]
        self._paces.forget()
        self._happened.forget(runs)
        shown.sort(key=_importance)
        more = max(0, len(shown) - MAX_RUNS)
        del shown[MAX_RUNS:]
        most = min(_MAX_CURVE, MAX_POINTS // max(1, len(shown))) // 2
        for one in shown:
            # Drawn by whoever makes JSON of it, if anybody does.
            one["curve"] = partial(one["curve"].copy().draw, most)
        living = [(run, rank.identity) for run, ranks in runs.items() for rank in ranks if rank.up]
        users = {who.device_uuid: (clean(run), who.rank) for run, who in living if who.device_uuid}
        self._seen = (shown, more, users)

    def snapshot(self, now: float) -> dict[str, Any]:
        """Return all that is shown; in any thread."""
        runs, more, users = self._seen
        faults = self._faults()
        return {
            "time": round(now, 1),
            "limits": {"bad": gauges.BAD, "good": gauges.GOOD, "noise": gauges.NOISE},
            "runs": runs,
            "more_runs": more,
            **show_devices(self._devices(), faults, users),
        }

    def _measure(self, devices: Mapping[str, DeviceSample], now: float) -> dict[str, float]:
        """Return the mean utilization of each device over the last minutes."""
        means = {}
        for uuid, device in devices.items():
            used = device.values.get(("utilization_ratio",))
            if used is not None and 0.0 <= used <= 1.0:
                total, count = self._load.get(uuid, (0.0, 0.0))
                self._load[uuid] = (total + used, count + 1.0)
                grown = self._loads.add(uuid, now, self._load[uuid]).grown()[1]
                if grown[1] > 0.0:
                    means[uuid] = grown[0] / grown[1]
        self._load = {uuid: load for uuid, load in self._load.items() if uuid in devices}
        self._loads.forget()
        return means

    def _run(self, run: str, ranks: list[Rank], findings: Sequence[Finding], node: _Node) -> dict[str, Any]:
        began = max(rank.started for rank in ranks)
        # Ranks of the newest attempt: they live, or they ended after its start.
        current = [rank for rank in ranks if rank.up or rank.heartbeat >= began]
        speaker = min(current or ranks, key=lambda rank: ("loss" not in rank.values, rank.identity.rank))
        state = max((rank.state for rank in ranks), key=_STATES.index)
        steps = [rank.last_step.step for rank in current if rank.last_step is not None]
        found: dict[str, Any] = {
            "run": clean(run),
            "state": state,
            "framework": clean(speaker.identity.framework),
            "attempt": speaker.identity.attempt,
            "world_size": speaker.identity.world_size,
            "is_log": speaker.states == LOGGED_STATES,
            "ranks_here": len(ranks),
            "step": max(steps, default=None),
            "target": max((rank.target_steps for rank in current if rank.target_steps), default=None),
            "phase": clean(speaker.phase) if speaker.up else None,
            "age": _age(current, node.now),
            "remaining": _remaining(current),
            "values": _values(current),
            "evaluations": _evaluations(speaker),
            "signals": _signals(speaker, findings),
            "ranks": [_rank(rank, node.devices) for rank in sorted(ranks, key=_number)[:MAX_RANKS]],
            "events": self._happened.look(run, state, ranks, findings, node.now),
            "curve": speaker.curve,
        }
        found["rates"], pace = self._pace(run, ranks, node.now)
        found.update(_gauges(found, current, findings, pace, node))
        return {name: value for name, value in found.items() if value is not None and value != ""}

    def _pace(self, run: str, ranks: Sequence[Rank], now: float) -> tuple[dict[str, float], tuple[float, float]]:
        """Return what was done in a second of late, and the seconds in training and in all; ranks together.

        Steps are those of the fastest rank.
        """
        training = whole = 0.0
        rates = dict.fromkeys(_RATES, 0.0)
        for rank in ranks:
            spent = rank.phase_seconds
            done = [rank.counters.get(name, 0.0) for name in _RATES]
            trained = sum(spent.get(phase, 0.0) for phase in gauges.TRAINING_PHASES)
            window = self._paces.add((run, rank.identity.rank), now, (trained, sum(spent.values()), *done))
            seconds, grown = window.grown()
            training, whole = training + grown[0], whole + grown[1]
            if seconds > 0.0:
                for name, amount in zip(_RATES, grown[2:], strict=True):
                    rate = amount / seconds
                    rates[name] = max(rates[name], rate) if name == "steps" else rates[name] + rate
        shown = {name: float(f"{rate:.4g}") for name, rate in rates.items() if rate > 0.0}
        return shown, (training, whole)


def _gauges(
    found: Mapping[str, Any],
    current: Sequence[Rank],
    findings: Sequence[Finding],
    pace: tuple[float, float],
    node: _Node,
) -> dict[str, Any]:
    """Return the gauges, and what they are made of."""
    learning = {one.signal: one.verdict.ratio for one in findings if one.signal in gauges.LEARNING_SIGNALS}
    worst = max(learning, key=lambda signal: learning[signal], default=None)
    uuids = [rank.identity.device_uuid for rank in current if rank.up]
    busy = [node.loads[uuid] for uuid in uuids if uuid in node.loads]
    answers = [node.devices[uuid].up for uuid in uuids if uuid in node.devices]
    states = [rank.state for rank in current]
    # The log of a run speaks for all its ranks.  Ranks on other nodes are seen there.
    expected = 1 if found["is_log"] else len(current)
    values = (
        gauges.progress(found["step"], found["target"]),
        gauges.learning(learning.values()),
        gauges.efficiency(*pace, busy),
        gauges.health(states, expected, answers),
    )
    because = {
        "signal": worst,
        "ratio": None if worst is None else round(learning[worst], 3),
        "training": round(pace[0] / pace[1], 3) if pace[1] > 0.0 else None,
        "busy": round(sum(busy) / len(busy), 3) if busy else None,
        "well": sum(state in gauges.WELL for state in states),
        "expected": expected,
        "devices_up": sum(answers) if answers else None,
        "devices": len(answers) or None,
    }
    named = zip(gauges.GAUGES, values, strict=True)
    return {
        "gauges": {name: round(value, 4) for name, value in named if value is not None},
        "because": {name: value for name, value in because.items() if value is not None},
    }


def _importance(run: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what runs are ordered by: those that ask for somebody first, then those that live."""
    worst = {signal["state"] for signal in run["signals"]}
    return ("act" not in worst, run["state"] not in {"failed", "died"}, run["state"] != "running", run["run"])


def _number(rank: Rank) -> int:
    return rank.identity.rank


def _short(value: float) -> float | str:
    """Return a number as JSON knows it, with six digits; what is none by its name."""
    return float(f"{value:.6g}") if math.isfinite(value) else str(value)


def _age(ranks: Sequence[Rank], now: float) -> float | None:
    """Return the seconds since the last step, or the start, of the rank that lives and is furthest behind."""
    ages = [now - (rank.started if rank.last_step is None else rank.last_step.time) for rank in ranks if rank.up]
    return round(max(0.0, *ages), 1) if ages else None


def _remaining(ranks: Sequence[Rank]) -> list[float] | None:
    left = [remaining for rank in ranks if (remaining := rank.remaining()) is not None]
    longest = max(left, key=lambda one: one.p50, default=None)
    return None if longest is None else [round(seconds) for seconds in longest if math.isfinite(seconds)]


def _values(ranks: Sequence[Rank]) -> dict[str, float | str]:
    """Return the newest loss, learning rate and gradient norm: means over the ranks that tell them."""
    found = {}
    for name in ("loss", "learning_rate", "grad_norm"):
        told = [rank.values[name] for rank in ranks if name in rank.values]
        if told:
            found[name] = _short(sum(told) / len(told))
    return found


def _evaluations(rank: Rank) -> list[list[Any]]:
    rows = [
        [clean(split), clean(name), _short(value), evaluation.step]
        for split, evaluation in rank.evaluations.items()
        for name, value in evaluation.values.items()
    ]
    return rows[:_MAX_RESULTS]


def _rank(rank: Rank, devices: Mapping[str, DeviceSample]) -> dict[str, Any]:
    found: dict[str, Any] = {"rank": rank.identity.rank, "state": rank.state}
    if rank.last_step is not None:
        found["step"] = rank.last_step.step
    if rank.up and rank.phase:
        found["phase"] = clean(rank.phase)
    device = devices.get(rank.identity.device_uuid)
    if device is not None:
        found["device"] = device.index
    return found


def _signals(speaker: Rank, findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return the check list, in the order of the detectors."""
    needs = {detector.signal: detector.needs for detector in speaker.detectors}
    found = {finding.signal: finding for finding in findings}
    known = {
        **{name: _NEEDS[name] for name in _BEFORE},
        **needs,
        **{name: _NEEDS[name] for name in _BEHIND},
        **dict.fromkeys(found.keys() - needs.keys() - _NEEDS.keys(), ""),
    }
    return [_signal(name, found.get(name), text) for name, text in known.items()]


def _signal(name: str, finding: Finding | None, needs: str) -> dict[str, Any]:
    if finding is None:
        return {"signal": name, "state": "cannot_say", "needs": needs}
    verdict = finding.verdict
    row: dict[str, Any] = {"signal": name, "state": "fine", "ratio": _short(verdict.ratio)}
    if verdict.active:
        row["state"] = "watch" if verdict.severity == "info" else "act"
        row["category"] = finding.category
        row["severity"] = verdict.severity
        row["where"] = clean(finding.location)
        row["evidence"] = clean(finding.evidence, 512)
        if verdict.since_step is not None:
            row["since"] = verdict.since_step
        if verdict.action:
            row["action"] = clean(verdict.action, 1024)
    elif verdict.ratio >= gauges.NOISE:
        row["state"] = "watch"
    return row
