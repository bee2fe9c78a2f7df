"""Training processes and their data-loader workers -> families."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

from trainvitals.collect.base import Collector, NoData, Sink
from trainvitals.collect.ranks import LiveRank
from trainvitals.host.cgroups import Cgroups
from trainvitals.host.limits import Limits, Usage
from trainvitals.host.processes import ProcessTable
from trainvitals.host.workers import Usage as ProcessUsage
from trainvitals.host.workers import Workers


class ProcessesCollector(Collector):
    """Shows what live ranks use.

    ``live`` gives them as the last poll of the spool saw them: it runs beside this collector, so that a rank is shown
    here one round later.  The process of a rank is the one that holds the lock of its file, whatever its own
    namespace of process ids calls it.
    """

    name = "processes"

    def __init__(
        self,
        live: Callable[[], Sequence[LiveRank]],
        workers: Workers | None = None,
        cgroups: Cgroups | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._live = live
        self._workers = workers or Workers(ProcessTable())
        self._cgroups = cgroups or Cgroups()
        self._limits = limits or Limits()

    def collect(self, sink: Sink) -> None:
        """Add the families of all live ranks.  Raises NoData without any, and without anything left behind."""
        ranks = {(rank.run, rank.rank): rank for rank in self._live()}
        wanted: Mapping[Hashable, tuple[int, float]] = {key: (rank.pid, rank.started) for key, rank in ranks.items()}
        usages = self._workers.update(wanted)
        orphans = self._workers.orphans()
        if not ranks and not orphans.count:
            raise NoData
        sink.add("trainvitals_orphaned_loader_workers", orphans.count)
        sink.add("trainvitals_orphaned_loader_resident_memory_bytes", orphans.resident_bytes)
        limits: dict[tuple[tuple[str, str], ...], Usage] = {}
        for key in ranks:
            usage = usages.get(key)
            sink.add("trainvitals_rank_process_visible", float(usage is not None), *key)
            if usage is not None:
                _add_process(sink, usage, key)
                _add_workers(sink, usage, key)
                self._add_limits(sink, usage.process.pid, key, limits)

    def _add_limits(
        self, sink: Sink, pid: int, key: tuple[str, int], known: dict[tuple[tuple[str, str], ...], Usage]
    ) -> None:
        paths = self._cgroups.of(pid)
        if paths is None:
            return
        # The ranks of a job mostly share a group: read once a round.
        group = tuple(sorted(paths.items()))
        usage = known.get(group)
        if usage is None:
            usage = known[group] = self._limits.of(paths)
        sink.add("trainvitals_rank_cgroup_memory_limit_bytes", usage.memory_limit, *key)
        sink.add("trainvitals_rank_cgroup_memory_used_bytes", usage.memory_used, *key)
        sink.add("trainvitals_rank_cgroup_oom_kills_total", usage.oom_kills, *key)
        sink.add("trainvitals_rank_cgroup_cpu_throttled_seconds_total", usage.throttled_seconds, *key)


def _add_process(sink: Sink, usage: ProcessUsage, key: tuple[str, int]) -> None:
    process = usage.process
    sink.add("trainvitals_rank_process_cpu_seconds_total", process.cpu_seconds, *key)
    sink.add("trainvitals_rank_process_resident_memory_bytes", process.resident_bytes, *key)
    sink.add("trainvitals_rank_process_threads", process.threads, *key)
    sink.add("trainvitals_rank_process_major_page_faults_total", process.major_faults, *key)
    sink.add("trainvitals_rank_process_blocked", float(process.is_blocked), *key)
    sink.add("trainvitals_rank_process_descriptors_ratio", usage.descriptors_ratio, *key)


def _add_workers(sink: Sink, usage: ProcessUsage, key: tuple[str, int]) -> None:
    sink.add("trainvitals_rank_loader_workers", usage.workers, *key)
    sink.add("trainvitals_rank_loader_blocked_workers", usage.workers_blocked, *key)
    sink.add("trainvitals_rank_loader_cpu_seconds_total", usage.workers_cpu_seconds, *key)
    sink.add("trainvitals_rank_loader_resident_memory_bytes", usage.workers_resident_bytes, *key)
