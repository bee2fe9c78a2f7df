"""Runs: which ranks there are, which of them to show, and the verdicts on each run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainvitals.collect import data, log_errors
from trainvitals.collect.keeper import Keeper
from trainvitals.collect.odd_steps import OddSteps
from trainvitals.collect.rank import FaultsNear, Rank
from trainvitals.collect.source import Source
from trainvitals.detect import Category, Detector, Verdict, recurring, stall, straggler
from trainvitals.rankfile.ledger import Name

#: Seconds for which a rank is remembered whose sources cannot be read any more, and how many such ranks.
FORGET_AFTER = 60.0
MAX_ABSENT = 256
#: Signals that no detector of steps makes, in the order in which they are shown behind the others.
_LAST = (data.SIGNAL, log_errors.SIGNAL)


@dataclass(frozen=True)
class Finding:
    """The verdict of one detector on a run: the worst rank's, and all ranks on which the signal is active."""

    signal: str
    category: str
    verdict: Verdict
    ranks: tuple[int, ...]
    #: What was in the batches of the steps, or could not be read; in words, where the data is watched.
    samples: str = ""
    #: Where it was as a log says, which knows better than the number of the rank whose log it is.
    place: str = ""
    #: What changed before it, and what broke at the same time, in words.
    before: str = ""

    @property
    def evidence(self) -> str:
        """Since which step, with which numbers, and what came before it."""
        return "; ".join(part for part in (self.verdict.evidence, self.before) if part)

    @property
    def location(self) -> str:
        """Where, in words: "rank 3; file shard-7.tar" or "ranks 0, 1, 2 and 5 more"."""
        if self.place:
            return self.place
        shown = ", ".join(str(rank) for rank in self.ranks[:8])
        more = f" and {len(self.ranks) - 8} more" if len(self.ranks) > 8 else ""
        ranks = f"rank{'s' * (len(self.ranks) > 1)} {shown}{more}"
        return f"{ranks}; {self.samples}" if self.samples else ranks


class Runs:
    """All runs with a rank on this node.

    ``detectors`` makes fresh ones for a rank, ``keeper`` knows what those before a restart of the exporter knew,
    ``faults`` says which faults of devices there were.
    """

    def __init__(
        self,
        detectors: Callable[[], list[Detector]],
        keeper: Keeper | None = None,
        faults: FaultsNear = lambda *_: [],
    ) -> None:
        self.keeper = keeper
        self._faults = faults
        self._make_detectors = detectors
        self._ranks: dict[tuple[str, int], Rank] = {}
        self._owners: dict[str, int] = {}
        #: Of each name and rank, the states that its source can be in: those of a log, or of the probe.
        self._kinds: dict[tuple[str, int], Sequence[str]] = {}
        self._to_show: list[Rank] = []
        self._broken = 0
        self._stragglers: dict[str, straggler.Straggler] = {}
        self._odd = OddSteps()
        #: Sources that were left out of the last poll: somebody else lives under their run and rank.
        self.duplicates = 0

    @property
    def broken(self) -> int:
        """Things in sources that check but make no sense; each cost itself."""
        return self._broken + sum(rank.broken for rank in self._ranks.values())

    def update(self, sources: Sequence[Source], now: float) -> None:
        """Take over one poll of all sources; they come in the order in which they were started."""
        self.duplicates = 0
        groups = self._group(sources)
        shown: dict[tuple[str, int], Source] = {}
        for key, group in groups.items():
            rank = self._ranks.get(key)
            if rank is None:
                rank = self._ranks[key] = self._new_rank(group)
            rank.seen = now
            try:
                source = _shown(group)
                self.duplicates += sum(other.alive for other in group if other is not source)
                rank.update(group, source, now)
            except Exception:
                rank.complain(f"{group[-1].path!r} makes no sense")
            else:
                shown[key] = source
        self._forget(shown, now)
        self._choose(shown, groups)
        self._compare(now)
        self._odd.update(self._to_show)

    def _new_rank(self, group: Sequence[Source]) -> Rank:
        rank = Rank(group[0].identity, self._make_detectors())
        if self.keeper is not None and not self.keeper.resume(rank, group, self._make_detectors):
            return Rank(group[0].identity, self._make_detectors())
        return rank

    def keep(self, *, now: bool = False) -> None:
        """Let what the detectors know be kept, when it is time to or at once."""
        if self.keeper is not None:
            (self.keeper.close if now else self.keeper.keep)(list(self._ranks.values()), self._stragglers)

    def _group(self, sources: Sequence[Source]) -> dict[tuple[str, int], list[Source]]:
        """Return the sources of each rank.  A name of a run belongs to the user who had it first."""
        groups: dict[tuple[str, int], list[Source]] = {}
        names: set[str] = set()
        for source in sources:
            if self._owns(source, source.identity.run):
                # A log is told apart from a process that has the probe, whoever had the name first.
                while self._kinds.get((source.run, source.identity.rank), source.states) != source.states:
                    source.job += 1
                _number_job(source, groups)
                if self._owns(source, source.run):
                    groups.setdefault((source.run, source.identity.rank), []).append(source)
                    self._kinds[source.run, source.identity.rank] = source.states
                    names |= {source.identity.run, source.run}
                    continue
            self.duplicates += 1
        self._owners = {run: owner for run, owner in self._owners.items() if run in names}
        self._kinds = {key: kind for key, kind in self._kinds.items() if key in groups}
        return groups

    def _owns(self, source: Source, run: str) -> bool:
        return self._owners.setdefault(run, source.owner) == source.owner

    def _forget(self, shown: Mapping[tuple[str, int], Source], now: float) -> None:
        absent = sorted((rank.seen, key) for key, rank in self._ranks.items() if key not in shown)
        for index, (seen, key) in enumerate(reversed(absent)):
            if index >= MAX_ABSENT or now - seen > FORGET_AFTER:
                self._broken += self._ranks.pop(key).broken

    def _choose(
        self, shown: Mapping[tuple[str, int], Source], groups: Mapping[tuple[str, int], Sequence[Source]]
    ) -> None:
        """Choose the ranks to show, the most important first: where the room ends, the rest has no series.

        What lives comes first, then users with few ranks, so that nobody can use up the series of others.
        """
        restarts = _Restarts(shown.values(), groups)
        load = Counter(source.owner for source in shown.values())

        def place(key: tuple[str, int]) -> tuple[object, ...]:
            rank = self._ranks[key]
            # All that lives is active; in the order of names, the same ones are shown at each poll.
            return (not rank.up, load[rank.owner], 0.0 if rank.up else -rank.heartbeat, key)

        keys = [key for key, source in shown.items() if not restarts.supersede(source)]
        self._to_show = [self._ranks[key] for key in sorted(keys, key=place)]

    def _compare(self, now: float) -> None:
        """Compare the ranks of each run that has several on this node."""
        by_run = {run: [rank for rank in ranks if rank.up] for run, ranks in self.by_run().items()}
        runs = {run: ranks for run, ranks in by_run.items() if len(ranks) > 1}
        self._stragglers = {run: self._stragglers.get(run) or self._new_straggler(ranks) for run, ranks in runs.items()}
        for run, ranks in runs.items():
            self._stragglers[run].observe(now, {rank.identity.rank: rank.phase_seconds for rank in ranks})

    def _new_straggler(self, ranks: Sequence[Rank]) -> straggler.Straggler:
        make = straggler.Straggler
        return make() if self.keeper is None else self.keeper.resume_run(ranks, make)

    def follows(self, source: Source) -> bool:
        """Whether what a source tells was taken: its name may belong to somebody else."""
        rank = self._ranks.get((source.run, source.identity.rank))
        return rank is not None and source.incarnation in rank.marks

    def ranks(self) -> list[Rank]:
        """Return the ranks to show, the most important first."""
        return list(self._to_show)

    def by_run(self) -> dict[str, list[Rank]]:
        """Return the ranks to show of each run."""
        runs: dict[str, list[Rank]] = {}
        for rank in self._to_show:
            runs.setdefault(rank.identity.run, []).append(rank)
        return runs

    def findings(self, ranks: Iterable[Rank], now: float) -> list[Finding]:
        """Return the verdicts on the ranks of one run, in the order of the table of detectors; then data and log."""
        verdicts: dict[str, list[tuple[Rank, Verdict, Category]]] = {}
        for rank in ranks:
            peers = self._stragglers.get(rank.identity.run)
            for signal, category, judge in _judges(rank, now, peers):
                try:
                    verdict = judge()
                except Exception:
                    rank.complain(f"detector {signal} has no verdict")
                    continue
                if signal == recurring.RecurringOutlier.signal:
                    verdict = self._odd.verdict(rank, verdict)
                if verdict is not None:
                    verdicts.setdefault(signal, []).append((rank, verdict, category))
        findings = []
        for signal in sorted(verdicts, key=lambda signal: _LAST.index(signal) + 1 if signal in _LAST else 0):
            speaker, worst, category = max(verdicts[signal], key=lambda entry: entry[1].ratio)
            active = [(rank, verdict) for rank, verdict, _ in verdicts[signal] if verdict.active]
            numbers = tuple(rank.identity.rank for rank, _ in active)
            place = speaker.log_errors.place if signal == log_errors.SIGNAL else ""
            before = speaker.explain(signal, worst, self._faults, now)
            findings.append(Finding(signal, category, worst, numbers, _samples(signal, active), place, before))
        return findings


def _judges(
    rank: Rank, now: float, peers: straggler.Straggler | None
) -> Iterator[tuple[str, Category, Callable[[], Verdict | None]]]:
    # What needs the time of day, or other ranks, is no detector of steps.
    yield stall.SIGNAL, stall.CATEGORY, lambda: rank.stalled(now)
    if peers is not None:
        yield straggler.SIGNAL, straggler.CATEGORY, lambda: peers.verdicts().get(rank.identity.rank)
    for detector in rank.detectors:
        yield detector.signal, detector.category, detector.verdict
    yield data.SIGNAL, "data", lambda: rank.data.verdict(now)
    yield log_errors.SIGNAL, rank.log_errors.category, rank.log_errors.verdict


def _samples(signal: str, active: Sequence[tuple[Rank, Verdict]]) -> str:
    """Name the files or samples behind a finding, of the worst ranks."""
    names: dict[int, Sequence[Name]] = {}
    for rank, verdict in sorted(active, key=lambda entry: -entry[1].ratio)[:4]:
        try:
            found = rank.data.bad() if signal == data.SIGNAL else rank.data.suspects(signal, verdict.counts)
        except Exception:
            rank.complain("its data file makes no sense")
            continue
        if found:
            names[rank.identity.rank] = found
    return data.in_words(names)


def _number_job(source: Source, groups: Mapping[tuple[str, int], Sequence[Source]]) -> None:
    """Tell two jobs that were given one name from a process that hangs in its end while its successor trains.

    Both live and report steps; the older of two jobs went on stepping after the newer had started.
    """
    while (
        source.alive
        and source.count
        and any(
            older.alive and older.count and older.last_record > source.started
            for older in groups.get((source.run, source.identity.rank), ())
        )
    ):
        source.job += 1


def _shown(sources: Sequence[Source]) -> Source:
    """Return the source that speaks for a rank: a live one that reports steps, else a live one, else the newest.

    Two live sources of one rank come from a process that still hangs in its end, or from a child that runs the
    training's script once more and reports nothing.  Such a child began while its parent was active; when both are
    gone, it is no successor.
    """
    chosen, best = sources[0], (False, False, False, 0.0)
    active_until = 0.0
    for source in sources:
        is_helper = not source.count and source.started < active_until
        if source.count:
            active_until = max(active_until, source.last_activity)
        merit = (source.alive, source.alive and source.count > 0, not is_helper, source.started)
        if merit > best:
            chosen, best = source, merit
    return chosen


class _Restarts:
    """Tells a rank that died from one that the run goes on without, on another node or in a smaller world.

    A run that lost a rank and started others after that did so in a restart: in a later attempt by its launcher's
    count, or visibly, because a rank has a second source.  Ranks of one attempt may start minutes apart.
    """

    def __init__(self, shown: Iterable[Source], groups: Mapping[tuple[str, int], Sequence[Source]]) -> None:
        #: By run: the latest start of a rank that was restarted, and of one in the highest attempt.
        self._restarted: dict[str, float] = {}
        self._highest: dict[str, tuple[int, float]] = {}
        for source in shown:
            run, who = source.run, source.identity
            if any(other.started < source.started and not other.alive for other in groups[run, who.rank]):
                self._restarted[run] = max(source.started, self._restarted.get(run, 0.0))
            self._highest[run] = max((who.attempt, source.started), self._highest.get(run, (0, 0.0)))

    def supersede(self, source: Source) -> bool:
        """Whether the run of this source went on without it."""
        if source.alive:
            return False
        attempt, started = self._highest[source.run]
        later = started if attempt > source.identity.attempt else 0.0
        return max(later, self._restarted.get(source.run, 0.0)) > source.last_activity
