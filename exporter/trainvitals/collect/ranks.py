"""Rank files and followed logs -> detectors -> families."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainvitals.collect.base import Collector, Sink
from trainvitals.collect.overview import Overview
from trainvitals.collect.policies import Policies
from trainvitals.collect.rank import Rank
from trainvitals.collect.runs import Finding, Runs
from trainvitals.collect.scribe import Scribe
from trainvitals.collect.source import Source
from trainvitals.collect.spool import Spool

log = logging.getLogger(__name__)

#: Values with a family of their own; all others share trainvitals_value.
_NAMED = ("loss", "learning_rate", "grad_norm")
#: Of watched loaders; absent where none is watched.
_DATA = ("batches", "batch_samples", "batch_bytes", "data_errors")
_COUNTERS = {
    "steps": "trainvitals_steps_total",
    "skipped": "trainvitals_skipped_steps_total",
    "nonfinite": "trainvitals_nonfinite_steps_total",
    "errors": "trainvitals_probe_errors_total",
    "dropped": "trainvitals_probe_dropped_total",
}


@dataclass(frozen=True, slots=True)
class LiveRank:
    """A rank whose process lives.  ``pid`` is 0 when the exporter cannot see the process.

    ``started`` is the CLOCK_MONOTONIC time at which the process made its rank file: the process is older.
    """

    run: str
    rank: int
    pid: int
    started: float
    device_uuid: str


class RanksCollector(Collector):
    """Shows the runs of this node.

    ``clock`` gives wall time, ``logs`` what is new in the logs that are followed; ``overview``, ``scribe`` and
    ``policies`` get what was found.
    """

    name = "ranks"

    def __init__(
        self,
        spool: Spool,
        runs: Runs,
        clock: Callable[[], float] = time.time,
        logs: Callable[[], Sequence[Source]] = tuple,
        *,
        overview: Overview | None = None,
        scribe: Scribe | None = None,
        policies: Policies | None = None,
    ) -> None:
        self._spool = spool
        self._logs = logs
        self._runs = runs
        self._clock = clock
        self._overview = overview
        self._scribe = scribe
        self._policies = policies
        self._complained: set[tuple[str, type[Exception]]] = set()
        #: The ranks that lived at the last poll; replaced as a whole, so that any thread may take it.
        self.live: tuple[LiveRank, ...] = ()

    def collect(self, sink: Sink) -> None:
        """Poll the sources and add all families of runs and ranks; without a run there are only the counters."""
        files = self._spool.poll()
        sources: list[Source] = [*files, *self._logs()]
        self._runs.update(sorted(sources, key=lambda source: source.started), self._clock())
        self._runs.keep()
        by_run = self._runs.by_run()
        findings: dict[str, list[Finding]] = {}
        # The process behind a log is not known.
        self.live = tuple(_live(rank) for rank in self._runs.ranks() if rank.up and rank.started_monotonic)
        for run, ranks in by_run.items():
            newest = max(ranks, key=lambda rank: rank.started).identity
            sink.add("trainvitals_run_info", 1.0, run, newest.attempt, newest.framework, newest.world_size)
            sink.add("trainvitals_world_size", newest.world_size, run)
            for rank in ranks:
                if rank.up:
                    _add_rank(sink, rank)
            findings[run] = self._runs.findings(ranks, self._clock())
            _add_findings(sink, run, findings[run])
            _add_eta(sink, run, ranks)
            _add_log_errors(sink, run, ranks)
            # What changes in a run changes on all of its ranks.
            min(ranks, key=lambda rank: (not rank.up, rank.identity.rank)).changes.add(sink, run)
        # A run may have lost more ranks than there is room for: those that live come first, of all runs.
        for rank in self._runs.ranks():
            if not rank.up:
                _add_rank(sink, rank)
        sink.add("trainvitals_rank_files", len(files))
        for reason, count in sorted({**self._spool.rejected, "duplicate": self._runs.duplicates}.items()):
            sink.add("trainvitals_rank_files_rejected", count or None, reason)
        sink.add("trainvitals_records_lost_total", self._spool.lost)
        sink.add("trainvitals_records_invalid_total", self._spool.invalid + self._runs.broken)
        sink.add("trainvitals_event_lines_rejected_total", self._spool.bad_lines)
        if (keeper := self._runs.keeper) is not None:
            sink.add("trainvitals_state_saved_timestamp_seconds", keeper.saved)
            sink.add("trainvitals_state_bytes", keeper.size or None)
            for reason, count in sorted(keeper.errors.items()):
                sink.add("trainvitals_state_errors_total", count, reason)
        overview, scribe, now = self._overview, self._scribe, self._clock()
        if overview is not None:
            self._hand_on("page", lambda: overview.observe(by_run, findings, now))
        if scribe is not None:
            self._hand_on("journal", lambda: scribe.observe(sources, self._runs, by_run, findings, now))
        if (policies := self._policies) is not None:
            self._hand_on("policies", lambda: policies.observe(by_run, findings, now))

    def _hand_on(self, name: str, give: Callable[[], None]) -> None:
        try:
            give()
        except Exception as error:
            # It stays as it was; the families are good.
            if (name, type(error)) not in self._complained:
                self._complained.add((name, type(error)))
                log.exception("the %s of the exporter cannot be renewed", name)


def _add_findings(sink: Sink, run: str, findings: Sequence[Finding]) -> None:
    for finding in findings:
        verdict = finding.verdict
        sink.add("trainvitals_signal_ratio", verdict.ratio, run, finding.signal)
        for name, value in verdict.statistics.items():
            sink.add("trainvitals_signal_statistic", value, run, finding.signal, name)
        if verdict.active:
            labels = (run, finding.signal, finding.category, verdict.severity, finding.location, finding.evidence)
            sink.add("trainvitals_finding_info", 1.0, *labels)


def _add_eta(sink: Sink, run: str, ranks: list[Rank]) -> None:
    """Add the time that is left, by the rank that has most of it."""
    left = [remaining for rank in ranks if (remaining := rank.remaining()) is not None]
    if left:
        longest = max(left, key=lambda remaining: remaining.p50)
        for probability, seconds in zip(("0.1", "0.5", "0.9"), longest, strict=True):
            sink.add("trainvitals_eta_seconds", seconds, run, probability)


def _add_log_errors(sink: Sink, run: str, ranks: list[Rank]) -> None:
    errors: Counter[tuple[str, str]] = Counter()
    for rank in ranks:
        errors.update(rank.log_errors.counts)
    for (category, cause), count in errors.items():
        sink.add("trainvitals_log_errors_total", count, run, category, cause)


def _live(rank: Rank) -> LiveRank:
    who = rank.identity
    return LiveRank(who.run, who.rank, rank.pid, rank.started_monotonic, who.device_uuid)


def _add_rank(sink: Sink, rank: Rank) -> None:
    who = rank.identity
    key = (who.run, who.rank)
    place = (who.local_rank, who.node_rank, who.attempt, who.device_uuid, who.pci_bus_id)
    sink.add("trainvitals_rank_info", 1.0, *key, *place)
    sink.add("trainvitals_rank_up", None if rank.state == "silent" else float(rank.up), *key)
    for state in rank.states:
        sink.add("trainvitals_rank_state", float(rank.state == state), *key, state)
    sink.add("trainvitals_probe_disabled", rank.disabled, *key)
    sink.add("trainvitals_start_timestamp_seconds", rank.started, *key)
    sink.add("trainvitals_heartbeat_timestamp_seconds", rank.heartbeat, *key)
    for counter, family in _COUNTERS.items():
        sink.add(family, rank.counters.get(counter), *key)
    for counter in ("samples", "tokens"):
        # Most runs report neither or one of them: absent is not 0.
        sink.add(f"trainvitals_{counter}_total", rank.counters.get(counter) or None, *key)
    for counter in _DATA:
        sink.add(f"trainvitals_{counter}_total", rank.counters.get(counter), *key)
    _add_progress(sink, rank, key)
    _add_values(sink, rank, key)
    _add_events(sink, rank, key)


def _add_progress(sink: Sink, rank: Rank, key: tuple[str, int]) -> None:
    sink.add("trainvitals_target_steps", rank.target_steps, *key)
    if rank.last_step is not None:
        sink.add("trainvitals_step", rank.last_step.step, *key)
        sink.add("trainvitals_last_step_timestamp_seconds", rank.last_step.time, *key)
        sink.histogram("trainvitals_step_duration_seconds", rank.buckets, rank.bucket_sum, *key)
    if rank.up and rank.phase:
        sink.add("trainvitals_phase", 1.0, *key, rank.phase)
    for phase, seconds in rank.phase_seconds.items():
        sink.add("trainvitals_phase_seconds_total", seconds, *key, phase)


def _add_values(sink: Sink, rank: Rank, key: tuple[str, int]) -> None:
    for name, value in rank.values.items():
        if name in _NAMED:
            sink.add(f"trainvitals_{name}", value, *key)
        else:
            sink.add("trainvitals_value", value, *key, name)
    for split, evaluation in rank.evaluations.items():
        sink.add("trainvitals_evaluation_step", evaluation.step, *key, split)
        for name, value in evaluation.values.items():
            sink.add("trainvitals_evaluation", value, *key, split, name)


def _add_events(sink: Sink, rank: Rank, key: tuple[str, int]) -> None:
    sink.add("trainvitals_checkpoints_total", rank.checkpoints, *key)
    sink.add("trainvitals_checkpoint_failures_total", rank.checkpoint_failures, *key)
    if rank.checkpoint is not None:
        sink.add("trainvitals_checkpoint_step", rank.checkpoint.step, *key)
        sink.add("trainvitals_checkpoint_timestamp_seconds", rank.checkpoint.time, *key)
        seconds = rank.checkpoint.fields.get("seconds")
        if isinstance(seconds, (int, float)):
            sink.add("trainvitals_checkpoint_duration_seconds", seconds, *key)
    for kind, count in rank.kinds.items():
        sink.add("trainvitals_events_total", count, *key, kind)
