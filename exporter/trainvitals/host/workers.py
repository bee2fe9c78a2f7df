"""Training processes with their data-loader workers, followed from round to round.

A worker is a child that was forked from the training process and runs no other program, or one that PyTorch named so
(2.6 and newer do), also where a fork server stands between.  Compilers, loggers and shells that a training starts run
programs of their own and do not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace

from trainvitals.host.processes import Process, Processes

#: What PyTorch calls the processes of a DataLoader.
_WORKER_NAME = b"pt_data_worker"
#: After so many rounds every process is looked at again: a number may have come to another one unseen.
_LOOK_AGAIN = 60
#: A start is known to a hundredth of a second, and the clocks of boot and run time are read one after the other.
_TOLERANCE = 1.0
#: So many workers of one process are followed, and so many that were left behind.
_MOST_WORKERS = 1024


@dataclass(frozen=True, slots=True)
class Usage:
    """One training process now, and its workers together.

    ``workers_cpu_seconds`` goes on when workers end and others begin.  Memory that workers share counts in each.
    """

    process: Process
    descriptors_ratio: float | None
    workers: int
    workers_cpu_seconds: float
    workers_resident_bytes: int
    workers_blocked: int


@dataclass(frozen=True)
class Orphans:
    """Workers that live on although their parent is gone: somebody else became their parent."""

    count: int = 0
    resident_bytes: int = 0


@dataclass
class _Followed:
    """A training process and the last that was seen of its workers, by process id."""

    process: Process
    workers: dict[int, Process] = field(default_factory=dict)
    #: CPU time of workers that are not among them any more, and those of them that may come back into sight.
    ended_cpu_seconds: float = 0.0
    lost: dict[int, Process] = field(default_factory=dict)

    def take(self, workers: dict[int, Process], pids: set[int]) -> None:
        """Take over the workers that were found among ``pids``; their CPU time never counts twice and never falls."""
        for pid, known in self.workers.items():
            now = workers.get(pid)
            if now is None or not _is_same(now, known):
                self.ended_cpu_seconds += known.cpu_seconds
                self.lost[pid] = known
        for pid, now in workers.items():
            known = self.lost.pop(pid, now)
            if known is not now and _is_same(now, known):
                # It could not be read for a while: no memory, no descriptor.
                self.ended_cpu_seconds -= known.cpu_seconds
        self.lost = {pid: known for pid, known in self.lost.items() if pid in pids}
        self.workers = workers


class Workers:
    """Follows training processes.  Not thread-safe.

    ``uptime`` gives CLOCK_BOOTTIME, in which processes start, less CLOCK_MONOTONIC, in which rank files are dated:
    they differ by the time that the machine slept.
    """

    def __init__(self, table: Processes, slept: Callable[[], float] | None = None) -> None:
        self._table = table
        self._slept = slept or _slept
        self._followed: dict[Hashable, _Followed] = {}
        self._orphans: dict[int, Process] = {}
        #: Processes that are none of ours, so that only new ones are read.
        self._others: set[int] = set()
        self._rounds = 0

    def update(self, processes: Mapping[Hashable, tuple[int, float]]) -> dict[Hashable, Usage]:
        """Return what each process uses.  ``processes`` maps a key to a process id and a CLOCK_MONOTONIC time.

        The process must have been there at that time: a later one has taken over a number that was free again.
        One that cannot be seen is left out.
        """
        followed: dict[Hashable, _Followed] = {}
        for key, (pid, alive_at) in processes.items():
            process = self._table.read(pid) if pid > 0 else None
            if process is not None and process.started <= alive_at + self._slept() + _TOLERANCE:
                followed[key] = self._follow(key, process)
        self._leave_behind(followed)
        if followed.keys() - self._followed.keys() or self._rounds % _LOOK_AGAIN == 0:
            # A child may be older than our knowledge of its parent.
            self._others.clear()
        self._rounds += 1
        self._followed = followed
        self._find_workers()
        return {key: self._usage(entry) for key, entry in followed.items()}

    def orphans(self) -> Orphans:
        """Return what is left behind now by processes that were followed."""
        alive = {}
        for pid, known in self._orphans.items():
            process = self._table.read(pid)
            if process is not None and process.started == known.started:
                alive[pid] = process
        left = [process for pid, process in alive.items() if process.parent != self._orphans[pid].parent]
        # One that still has its parent was only lost from sight; the parent's number tells it at the next round too.
        self._orphans = {pid: self._orphans[pid] for pid in alive}
        return Orphans(len(left), sum(process.resident_bytes for process in left))

    def _follow(self, key: Hashable, process: Process) -> _Followed:
        known = self._followed.get(key)
        if known is not None and _is_same(known.process, process):
            return replace(known, process=process)
        return _Followed(process)

    def _leave_behind(self, followed: Mapping[Hashable, _Followed]) -> None:
        for key, known in self._followed.items():
            now = followed.get(key)
            if now is None or not _is_same(known.process, now.process):
                room = _MOST_WORKERS - len(self._orphans)
                self._orphans.update(list(known.workers.items())[:room])

    def _find_workers(self) -> None:
        """Bring the workers of all followed processes up to date."""
        roots = {entry.process.pid: entry for entry in self._followed.values()}
        pids = self._table.pids() if roots else set()
        self._others &= pids
        found = {pid: process for pid in pids - self._others - roots.keys() if (process := self._table.read(pid))}
        workers: dict[int, dict[int, Process]] = {pid: {} for pid in roots}
        related = set()
        for pid, process in found.items():
            root = process.parent if process.parent in roots else _grandparent(process, found)
            if root not in roots:
                continue
            related.add(pid)
            is_child = process.parent == root
            is_worker = process.name == _WORKER_NAME or (is_child and _is_forked(process, roots[root].process))
            if is_worker and len(workers[root]) < _MOST_WORKERS:
                workers[root][pid] = process
        self._others |= found.keys() - related
        for pid, entry in roots.items():
            entry.take(workers[pid], pids)
            for worker in workers[pid]:
                self._orphans.pop(worker, None)

    def _usage(self, entry: _Followed) -> Usage:
        workers = entry.workers.values()
        return Usage(
            process=entry.process,
            descriptors_ratio=self._table.descriptors_ratio(entry.process.pid),
            workers=len(workers),
            # Rounded: the same numbers added in another order would be a hair less, and a counter must never fall.
            workers_cpu_seconds=round(entry.ended_cpu_seconds + sum(worker.cpu_seconds for worker in workers), 3),
            workers_resident_bytes=sum(worker.resident_bytes for worker in workers),
            workers_blocked=sum(worker.is_blocked for worker in workers),
        )


def _slept() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()


def _is_same(one: Process, other: Process) -> bool:
    return (one.pid, one.started) == (other.pid, other.started)


def _grandparent(process: Process, found: Mapping[int, Process]) -> int:
    parent = found.get(process.parent)
    return 0 if parent is None else parent.parent


def _is_forked(child: Process, parent: Process) -> bool:
    """Whether a child runs its parent's program still; by its name where the kernel does not show more."""
    if child.image is None or parent.image is None:
        return child.name == parent.name
    return child.image == parent.image
