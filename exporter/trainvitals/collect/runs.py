"""Runs: which ranks there are, which of them to show, and the verdicts on each run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainvitals.collect import data
from trainvitals.collect.rank import Rank
from trainvitals.collect.spool import RankFile
from trainvitals.detect import Category, Detector, Verdict
from trainvitals.rankfile.ledger import Name

#: Seconds for which a rank is remembered whose files cannot be read any more, and how many such ranks.
FORGET_AFTER = 60.0
MAX_ABSENT = 256


@dataclass(frozen=True)
class Finding:
    """The verdict of one detector on a run: the worst rank's, and all ranks on which the signal is active."""

    signal: str
    category: str
    verdict: Verdict
    ranks: tuple[int, ...]
    #: What was in the batches of the steps, or could not be read; in words, where the data is watched.
    samples: str = ""

    @property
    def location(self) -> str:
        """Where, in words: "rank 3; file shard-7.tar" or "ranks 0, 1, 2 and 5 more"."""
        shown = ", ".join(str(rank) for rank in self.ranks[:8])
        more = f" and {len(self.ranks) - 8} more" if len(self.ranks) > 8 else ""
        ranks = f"rank{'s' * (len(self.ranks) > 1)} {shown}{more}"
        return f"{ranks}; {self.samples}" if self.samples else ranks


class Runs:
    """All runs with a rank on this node.  ``detectors`` makes fresh ones for a rank."""

    def __init__(self, detectors: Callable[[], list[Detector]]) -> None:
        self._make_detectors = detectors
        self._ranks: dict[tuple[str, int], Rank] = {}
        self._owners: dict[str, int] = {}
        self._to_show: list[Rank] = []
        self._broken = 0
        #: Files that were left out of the last poll: somebody else lives under their run and rank.
        self.duplicates = 0

    @property
    def broken(self) -> int:
        """Things in files that check but make no sense; each cost itself."""
        return self._broken + sum(rank.broken for rank in self._ranks.values())

    def update(self, files: Sequence[RankFile], now: float) -> None:
        """Take over one poll of the spool; ``files`` come in the order in which they were started."""
        self.duplicates = 0
        groups = self._group(files)
        shown: dict[tuple[str, int], RankFile] = {}
        for key, group in groups.items():
            rank = self._ranks.get(key)
            if rank is None:
                rank = self._ranks[key] = Rank(group[0].identity, self._make_detectors())
            rank.seen = now
            try:
                file = _shown(group)
                self.duplicates += sum(other.alive for other in group if other is not file)
                rank.update(group, file, now)
            except Exception:
                rank.complain(f"{group[-1].path!r} makes no sense")
            else:
                shown[key] = file
        self._forget(shown, now)
        self._choose(shown, groups)

    def _group(self, files: Sequence[RankFile]) -> dict[tuple[str, int], list[RankFile]]:
        """Return the files of each rank.  A name of a run belongs to the user who had it first."""
        groups: dict[tuple[str, int], list[RankFile]] = {}
        names: set[str] = set()
        for file in files:
            if self._owns(file, file.identity.run):
                _number_job(file, groups)
                if self._owns(file, file.run):
                    groups.setdefault((file.run, file.identity.rank), []).append(file)
                    names |= {file.identity.run, file.run}
                    continue
            self.duplicates += 1
        self._owners = {run: owner for run, owner in self._owners.items() if run in names}
        return groups

    def _owns(self, file: RankFile, run: str) -> bool:
        return self._owners.setdefault(run, file.owner) == file.owner

    def _forget(self, shown: Mapping[tuple[str, int], RankFile], now: float) -> None:
        absent = sorted((rank.seen, key) for key, rank in self._ranks.items() if key not in shown)
        for index, (seen, key) in enumerate(reversed(absent)):
            if index >= MAX_ABSENT or now - seen > FORGET_AFTER:
                self._broken += self._ranks.pop(key).broken

    def _choose(
        self, shown: Mapping[tuple[str, int], RankFile], groups: Mapping[tuple[str, int], Sequence[RankFile]]
    ) -> None:
        """Choose the ranks to show, the most important first: where the room ends, the rest has no series.

        What lives comes first, then users with few ranks, so that nobody can use up the series of others.
        """
        restarts = _Restarts(shown.values(), groups)
        load = Counter(file.owner for file in shown.values())

        def place(key: tuple[str, int]) -> tuple[object, ...]:
            rank = self._ranks[key]
            # All that lives is active; in the order of names, the same ones are shown at each poll.
            return (not rank.up, load[rank.owner], 0.0 if rank.up else -rank.heartbeat, key)

        keys = [key for key, file in shown.items() if not restarts.supersede(file)]
        self._to_show = [self._ranks[key] for key in sorted(keys, key=place)]

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
        """Return the verdicts on the ranks of one run, in the order of the table of detectors; then on its data."""
        verdicts: dict[str, list[tuple[Rank, Verdict, Category]]] = {}
        for rank in ranks:
            for signal, category, judge in _judges(rank, now):
                try:
                    verdict = judge()
                except Exception:
                    rank.complain(f"detector {signal} has no verdict")
                    continue
                if verdict is not None:
                    verdicts.setdefault(signal, []).append((rank, verdict, category))
        findings = []
        for signal in sorted(verdicts, key=lambda signal: signal == data.SIGNAL):
            _, worst, category = max(verdicts[signal], key=lambda entry: entry[1].ratio)
            active = [(rank, verdict) for rank, verdict, _ in verdicts[signal] if verdict.active]
            numbers = tuple(rank.identity.rank for rank, _ in active)
            findings.append(Finding(signal, category, worst, numbers, _samples(signal, active)))
        return findings


def _judges(rank: Rank, now: float) -> Iterator[tuple[str, Category, Callable[[], Verdict | None]]]:
    for detector in rank.detectors:
        yield detector.signal, detector.category, detector.verdict
    yield data.SIGNAL, "data", lambda: rank.data.verdict(now)


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


def _number_job(file: RankFile, groups: Mapping[tuple[str, int], Sequence[RankFile]]) -> None:
    """Tell two jobs that were given one name from a process that hangs in its end while its successor trains.

    Both live and report steps; the older of two jobs went on stepping after the newer had started.
    """
    while (
        file.alive
        and file.count
        and any(
            older.alive and older.count and older.last_record > file.started
            for older in groups.get((file.run, file.identity.rank), ())
        )
    ):
        file.job += 1


def _shown(files: Sequence[RankFile]) -> RankFile:
    """Return the file that speaks for a rank: a live one that reports steps, else a live one, else the newest.

    Two live files of one rank come from a process that still hangs in its end, or from a child that runs the
    training's script once more and reports nothing.  Such a child began while its parent was active; when both are
    gone, it is no successor.
    """
    chosen, best = files[0], (False, False, False, 0.0)
    active_until = 0.0
    for file in files:
        is_helper = not file.count and file.started < active_until
        if file.count:
            active_until = max(active_until, file.last_activity)
        merit = (file.alive, file.alive and file.count > 0, not is_helper, file.started)
        if merit > best:
            chosen, best = file, merit
    return chosen


class _Restarts:
    """Tells a rank that died from one that the run goes on without, on another node or in a smaller world.

    A run that lost a rank and started others after that did so in a restart: in a later attempt by its launcher's
    count, or visibly, because a rank has a second file.  Ranks of one attempt may start minutes apart.
    """

    def __init__(self, shown: Iterable[RankFile], groups: Mapping[tuple[str, int], Sequence[RankFile]]) -> None:
        #: By run: the latest start of a rank that was restarted, and of one in the highest attempt.
        self._restarted: dict[str, float] = {}
        self._highest: dict[str, tuple[int, float]] = {}
        for file in shown:
            run, who = file.run, file.identity
            if any(other.started < file.started and not other.alive for other in groups[run, who.rank]):
                self._restarted[run] = max(file.started, self._restarted.get(run, 0.0))
            self._highest[run] = max((who.attempt, file.started), self._highest.get(run, (0, 0.0)))

    def supersede(self, file: RankFile) -> bool:
        """Whether the run of this file went on without it."""
        if file.alive:
            return False
        attempt, started = self._highest[file.run]
        later = started if attempt > file.identity.attempt else 0.0
        return max(later, self._restarted.get(file.run, 0.0)) > file.last_activity
