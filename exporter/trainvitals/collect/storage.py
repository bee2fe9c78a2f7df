"""File systems and disks -> families."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from trainvitals.collect.base import Collector, Sink
from trainvitals.config import StorageSettings
from trainvitals.host.disks import Disks
from trainvitals.host.mount_probe import MountProbe, State
from trainvitals.host.mounts import Choice, Mount, Mounts, matches, without_credentials
from trainvitals.host.nfs_stats import NfsClient

_FILESYSTEM = "trainvitals_host_filesystem_"
_NFS = "trainvitals_host_nfs_"
_DISK = "trainvitals_host_disk_"


class StorageCollector(Collector):
    """Shows the file systems that ``choice`` takes from ``mounts``, what the NFS client counts, and the disks.

    ``read`` and ``write`` are glob patterns of mount points that are not only asked for their space.  Never waits for
    a file system longer than the probe does.  ``clock`` gives wall time, ``monotonic`` that of the probe.
    """

    name = "storage"

    def __init__(
        self,
        *,
        mounts: Mounts,
        choice: Choice,
        probe: MountProbe,
        nfs: NfsClient,
        disks: Disks,
        read: Sequence[str] = (),
        write: Sequence[str] = (),
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._mounts = mounts
        self._choice = choice
        self._probe = probe
        self._client = nfs
        self._disks = disks
        self._read = read
        self._write = write
        self._clock = clock
        self._monotonic = monotonic
        self._avoid: frozenset[Mount] = frozenset()
        self._shown: list[Mount] = []

    @classmethod
    def from_settings(cls, settings: StorageSettings) -> StorageCollector:
        """Return a collector of this node."""
        return cls(
            mounts=Mounts(),
            choice=Choice(include=settings.include, exclude=settings.exclude, limit=settings.limit),
            # What is stuck and unmounted has a worker still.
            probe=MountProbe(interval=settings.interval, timeout=settings.timeout, most=2 * settings.limit),
            nfs=NfsClient(),
            disks=Disks(),
            read=settings.read,
            write=settings.write,
        )

    def start(self) -> None:
        """Start the probe."""
        self._probe.start()

    def stop(self) -> None:
        """Stop the probe."""
        self._probe.stop()

    def collect(self, sink: Sink) -> None:
        """Add all parts; one that fails costs the others nothing and is raised at the end."""
        failure: Exception | None = None
        for add in (self._add_filesystems, self._add_nfs, self._add_disks):
            try:
                add(sink)
            except Exception as error:  # What a strange /proc makes of a part is that part's.
                failure = failure or error
        if failure is not None:
            raise failure

    def _add_filesystems(self, sink: Sink) -> None:
        self._shown = []
        mounts = self._mounts.read()
        chosen, left_out = self._choice.of(mounts, self._avoid)
        states = self._probe.ask({mount: self._actions(mount) for mount in chosen})
        # One that turned out to be no folder stays avoided until it is gone.
        unreached = {mount for mount, state in states.items() if state.finding and not state.finding.is_reached}
        reached = {mount for mount, state in states.items() if state.finding and state.finding.is_reached}
        self._avoid = frozenset(((self._avoid | unreached) - reached).intersection(mounts))
        for mount in chosen:
            if mount not in unreached and states[mount].stuck is not None:
                self._shown.append(mount)
                self._add_filesystem(sink, mount, states[mount])
        sink.add("trainvitals_host_filesystems_left_out", left_out)
        sink.add(f"{_FILESYSTEM}probe_restarts_total", self._probe.restarts)
        if not self._probe.is_answering:
            raise TimeoutError("the process that probes file systems does not answer")

    def _actions(self, mount: Mount) -> str:
        read = "r" if matches(mount.mountpoint, self._read) else ""
        write = "w" if matches(mount.mountpoint, self._write) and not mount.read_only else ""
        return f"s{read}{write}"

    def _add_filesystem(self, sink: Sink, mount: Mount, state: State) -> None:
        path = mount.mountpoint
        sink.add(f"{_FILESYSTEM}info", 1.0, path, mount.fstype, without_credentials(mount.source))
        sink.add(f"{_FILESYSTEM}read_only", float(mount.read_only), path)
        sink.add(f"{_FILESYSTEM}stuck", None if state.stuck is None else float(state.stuck), path)
        if state.since is not None:
            sink.add(f"{_FILESYSTEM}stuck_timestamp_seconds", self._wall(state.since), path)
        finding = state.finding
        if finding is None:
            return
        sink.add(f"{_FILESYSTEM}size_bytes", finding.size, path)
        sink.add(f"{_FILESYSTEM}available_bytes", finding.available, path)
        sink.add(f"{_FILESYSTEM}files", finding.files, path)
        sink.add(f"{_FILESYSTEM}files_free", finding.files_free, path)
        sink.add(f"{_FILESYSTEM}probe_duration_seconds", finding.seconds, path)
        sink.add(f"{_FILESYSTEM}probe_timestamp_seconds", self._wall(finding.finished), path)
        if finding.trouble:
            sink.add(f"{_FILESYSTEM}probe_error_info", 1.0, path, finding.trouble)

    def _wall(self, moment: float) -> float:
        return round(self._clock() - (self._monotonic() - moment), 3)

    def _add_nfs(self, sink: Sink) -> None:
        shown = {mount.mountpoint for mount in self._shown if mount.fstype in {"nfs", "nfs4"}}
        if not shown:
            return
        for path, stats in self._client.read().items():
            if path in shown:
                sink.add(f"{_NFS}operations_total", stats.operations, path)
                sink.add(f"{_NFS}retransmissions_total", stats.retransmissions, path)
                sink.add(f"{_NFS}timeouts_total", stats.timeouts, path)
                sink.add(f"{_NFS}queue_seconds_total", stats.queue_seconds, path)
                sink.add(f"{_NFS}response_seconds_total", stats.response_seconds, path)
                sink.add(f"{_NFS}read_bytes_total", stats.read_bytes, path)
                sink.add(f"{_NFS}written_bytes_total", stats.written_bytes, path)

    def _add_disks(self, sink: Sink) -> None:
        for disk in self._disks.read():
            sink.add(f"{_DISK}reads_total", disk.reads, disk.name)
            sink.add(f"{_DISK}read_bytes_total", disk.read_bytes, disk.name)
            sink.add(f"{_DISK}read_time_seconds_total", disk.read_seconds, disk.name)
            sink.add(f"{_DISK}writes_total", disk.writes, disk.name)
            sink.add(f"{_DISK}written_bytes_total", disk.written_bytes, disk.name)
            sink.add(f"{_DISK}write_time_seconds_total", disk.write_seconds, disk.name)
            sink.add(f"{_DISK}io_time_seconds_total", disk.busy_seconds, disk.name)
