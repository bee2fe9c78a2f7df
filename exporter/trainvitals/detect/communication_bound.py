"""Communication: gradients are on their way and nothing is computed.

Only what the framework measures as exposed counts (the phase "communication" of the probe); what is hidden behind the
backward pass costs nothing.  A share that is large from the start is a matter of layout, one that grew is a link or a
rank that others wait for.  Published is a growth of 5 points over 15 minutes; there is no public log to measure it on,
so the thresholds here are those of the other waits: 20 % advice, 50 % a warning.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainvitals.detect.base import Category, Verdict
from trainvitals.detect.settings import setting
from trainvitals.detect.shares import PHASES, Finding, Share
from trainvitals.telemetry import Event, Step, Steps

INFO, WARNING = 0.2, 0.5
_ACTION = (
    "Look for a straggler (the rank that waits least) and at the links first. If all ranks wait alike: "
    "larger batches per device or more gradient accumulation, larger buckets, fewer nodes; more devices "
    "would wait more."
)


@dataclass(frozen=True, kw_only=True)
class CommunicationSettings:
    """Thresholds."""

    info: float = setting(INFO, "share of the time", "so much waiting for communication is information", most=1.0)
    warning: float = setting(WARNING, "share of the time", "and so much a warning", most=1.0)


class CommunicationBound:
    """Watches the share of exposed communication in the last ten minutes of training; ratio 1 is 20 %."""

    signal = "communication_bound"
    category: Category = "resource"
    needs = "two minutes of training with a phase communication (the probe measures it with PyTorch's DDP)"
    settings = CommunicationSettings

    def __init__(self, settings: CommunicationSettings = CommunicationSettings()) -> None:
        self._settings = settings
        self._share = Share()
        self._finding = Finding(settings.info, settings.warning)
        self._is_told = False

    @property
    def held(self) -> bool:
        """Whether there is a finding."""
        return self._finding.since is not None

    def observe(self, step: Step) -> None:
        """Look at nothing: a step does not tell it."""

    def observe_all(self, steps: Steps) -> None:
        """Look at nothing: steps do not tell it."""

    def observe_event(self, event: Event) -> None:
        """Look at the seconds in each phase."""
        if event.kind == "restart":
            self._share.clear()
        elif event.kind == PHASES:
            self._share.add_phases(event.step, "communication", event.fields)
            # A rank that never communicates, or whose framework does not measure it, is not judged.
            self._is_told = self._is_told or bool(event.fields.get("communication"))
            self._finding.update(self._share)

    def verdict(self) -> Verdict | None:
        """Return the share (statistic ``share``) over 20 % as the ratio."""
        share = self._share.ratio
        if share is None or not self._is_told:
            return None
        return self._finding.verdict(share, "goes into communication that nothing hides", _ACTION)
