"""Bottleneck: more devices, or better data?  An answer and no alarm: its ratio stays below 1.

Read from where the time of training went in the last ten minutes, in this order: what waits for data is not helped by
devices, what waits for communication is made worse by more of them, what the host holds up neither needs.  Only what
keeps its devices at work gets faster with more.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainvitals.detect.base import Category, Verdict
from trainvitals.detect.settings import setting
from trainvitals.detect.shares import PHASES, Share
from trainvitals.telemetry import Event, Step, Steps

#: From this share on, what is waited for is the answer (TensorFlow's profiler: highly input-bound).
WAITS = 0.2
#: Devices that have work in so much of the time are what the training is bound by.
BUSY = 0.8

#: The answers: what holds the training up, and what to do.
WHAT = {
    "data": "data",
    "communication": "communication",
    "host": "the host, which does not give its devices enough work",
    "device": "its devices",
}
ACTIONS = {
    "data": "Better data: more loader workers, prefetching, a faster or local store. More devices would wait as well.",
    "communication": "A better layout: larger batches per device, more accumulation, fewer nodes, faster links. "
    "More devices would make it worse.",
    "host": "Larger batches per device, compilation or graphs, fewer waits of the host. More devices would idle too.",
    "device": "More or faster devices, or cheaper steps (precision, kernels).",
}


@dataclass(frozen=True, kw_only=True)
class BottleneckSettings:
    """Thresholds."""

    waits: float = setting(WAITS, "share of the time", "less waiting than this is no bottleneck", most=1.0)
    busy: float = setting(BUSY, "share of the other time", "a device that computes so much is the bottleneck", most=1.0)


class Bottleneck:
    """Says which of data, communication, host and devices holds the training up."""

    signal = "bottleneck"
    category: Category = "resource"
    needs = "two minutes of training with the phases of the probe (for devices: with PyTorch on one)"
    settings = BottleneckSettings

    def __init__(self, settings: BottleneckSettings = BottleneckSettings()) -> None:
        self._settings = settings
        self._shares = {name: Share() for name in ("data", "communication", "device")}
        self._has_device = False

    def observe(self, step: Step) -> None:
        """Look at nothing: where the time goes is told by phases."""

    def observe_all(self, steps: Steps) -> None:
        """Look at nothing: where the time goes is told by phases."""

    def observe_event(self, event: Event) -> None:
        """Look at the seconds in each phase."""
        if event.kind == "restart":
            for share in self._shares.values():
                share.clear()
        elif event.kind == PHASES:
            self._has_device = self._has_device or bool(event.fields.get("device"))
            for name, share in self._shares.items():
                share.add_phases(event.step, name, event.fields)

    def verdict(self) -> Verdict | None:
        """Return the answer as the evidence, and the shares as statistics; None where nobody can say."""
        shares = {name: share.ratio for name, share in self._shares.items()}
        data, communication, device = (shares[name] or 0.0 for name in ("data", "communication", "device"))
        if shares["data"] is None:
            return None
        if max(data, communication) >= self._settings.waits:
            answer = "data" if data >= communication else "communication"
        elif not self._has_device:
            return None
        else:
            answer = "device" if device >= self._settings.busy * (1.0 - data - communication) else "host"
        statistics = {"data": data, "communication": communication}
        if self._has_device:
            statistics["device"] = device
        return Verdict(
            ratio=0.0,
            evidence=f"held up by {WHAT[answer]}",
            statistics=statistics,
            severity="info",
            action=ACTIONS[answer],
        )
