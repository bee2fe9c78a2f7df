"""Which rank and which job has which device -> mapping series.

Device series never change their labels: what belongs to whom is said by series of its own, whose value is 1.
A device is known by its UUID or its PCI address.  Its index is never used to find it: it may count otherwise in
a container, in a job and in the tools of the vendor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from trainvitals.collect.base import Collector, NoData, Sink
from trainvitals.collect.idle import IdleDevices
from trainvitals.collect.ranks import LiveRank
from trainvitals.config import AttributionSettings
from trainvitals.host import cgroups, processes, slurm
from trainvitals.rankfile import boot_id
from trainvitals.telemetry import DeviceProcess, DeviceSample, pci_address

#: Processes on one device that are looked at.
_MOST_PROCESSES = 1024


@dataclass(frozen=True, order=True)
class Place:
    """A device, or an instance of a split one: then with the numbers of the instance."""

    device: str
    uuid: str
    gpu_instance: str = ""
    compute_instance: str = ""

    @property
    def labels(self) -> tuple[str, str, str, str]:
        """The labels that name it."""
        return (self.device, self.uuid, self.gpu_instance, self.compute_instance)

    @property
    def whole(self) -> Place:
        """The device that it is on."""
        return Place(self.device, self.uuid)


class AttributionCollector(Collector):
    """Maps ranks, Slurm jobs, pods and containers to devices.

    ``live`` gives the ranks that live, ``devices`` the newest samples; both are called from this collector's thread.
    ``sees_host`` says whether the process ids of drivers mean the same processes here: without it, a rank is known
    only by what its probe told.
    """

    name = "attribution"

    def __init__(
        self,
        live: Callable[[], Sequence[LiveRank]],
        devices: Callable[[], Iterable[DeviceSample]],
        jobs: slurm.JobFolder,
        minors: slurm.Minors | None = None,
        groups: cgroups.Cgroups | None = None,
        *,
        sees_host: bool | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._live = live
        self._devices = devices
        self._jobs = jobs
        self._minors = minors or slurm.Minors()
        self._groups = groups or cgroups.Cgroups()
        self._sees_host = processes.sees_the_host() if sees_host is None else sees_host
        self._board = _Board()
        self._idle = IdleDevices()
        self._clock = clock

    @classmethod
    def from_settings(
        cls,
        settings: AttributionSettings,
        live: Callable[[], Sequence[LiveRank]],
        devices: Callable[[], Iterable[DeviceSample]],
        clock: Callable[[], float] = time.time,
    ) -> AttributionCollector:
        """Return a collector that reads the prolog's files from where the settings say."""
        return cls(live, devices, slurm.JobFolder(settings.slurm_folder, boot_id=boot_id(), clock=clock), clock=clock)

    def collect(self, sink: Sink) -> None:
        """Add all mappings.  Raises NoData when there is neither a rank nor a job, nor a process on a device."""
        devices = list(self._devices())
        self._board.update(devices)
        ranks = list(self._live())
        failure: OSError | None = None
        try:
            jobs = self._jobs.jobs()
        except OSError as error:
            # A folder that is not to be trusted costs what it would have told.
            jobs, failure = [], error
        round_ = _Round(self._board, ranks, jobs, self._placement, sees_host=self._sees_host)
        if not ranks and not jobs and not round_.processes and failure is None:
            raise NoData
        for rank, places in round_.places.items():
            for place in places:
                sink.add("trainvitals_rank_device_info", 1.0, rank.run, rank.rank, *place.labels)
        _add_memory(sink, round_)
        allocated = list(self._allocated(jobs))
        _add_jobs(sink, round_, allocated)
        had = {place.uuid for places in round_.places.values() for place in places}
        self._idle.add(sink, self._clock(), devices, had | {place.uuid for place, _ in allocated})
        _add_containers(sink, round_)
        if failure is not None:
            raise failure

    def _placement(self, pid: int) -> cgroups.Placement | None:
        paths = self._groups.of(pid) if pid > 0 else None
        return None if paths is None else cgroups.placement(paths)

    def _allocated(self, jobs: Iterable[slurm.Job]) -> Iterator[tuple[Place, slurm.Job]]:
        """Yield what Slurm gave to each job."""
        for job in jobs:
            places = [self._board.find(uuid) for uuid in job.uuids]
            for minor in job.minors:
                uuid, address = self._minors.find(minor) or ("", "")
                places.append(self._board.find(uuid) or self._board.find_address(address))
            for place in dict.fromkeys(places):
                if place is not None:
                    yield place, job


class _Board:
    """The devices by what names them; a device that does not answer keeps its processes and instances."""

    def __init__(self) -> None:
        self._kept: dict[str, DeviceSample] = {}
        self._by_uuid: dict[str, Place] = {}
        self._by_address: dict[str, Place] = {}

    def update(self, devices: Iterable[DeviceSample]) -> None:
        """Take the newest samples."""
        kept: dict[str, DeviceSample] = {}
        self._by_uuid, self._by_address = {}, {}
        for device in devices:
            if not device.uuid or device.uuid in kept:
                continue
            before = self._kept.get(device.uuid)
            # What it had when it went down is what hangs on it now; its values are old.
            kept[device.uuid] = device if device.up or before is None else replace(before, up=False, index=device.index)
            place = Place(str(device.index), device.uuid)
            self._by_uuid[_bare(device.uuid)] = place
            address = pci_address(device.pci_bus_id)
            if address:
                self._by_address[address] = place
            for instance, uuid in _instances(kept[device.uuid], place):
                self._by_uuid.setdefault(_bare(uuid), instance)
        self._kept = kept

    def find(self, uuid: str) -> Place | None:
        """Return the device or the instance with this UUID."""
        return self._by_uuid.get(_bare(uuid)) if uuid else None

    def find_address(self, address: str) -> Place | None:
        """Return the device at this PCI address, in any spelling."""
        return self._by_address.get(pci_address(address)) if address else None

    def processes(self) -> Iterator[tuple[Place, DeviceProcess, bool]]:
        """Yield the processes on all devices, each with its place and whether the device answers."""
        for device in self._kept.values():
            place = Place(str(device.index), device.uuid)
            for process in device.processes[:_MOST_PROCESSES]:
                instance = process.mig or ("", "")
                yield replace(place, gpu_instance=instance[0], compute_instance=instance[1]), process, device.up


class _Round:
    """What belongs together in one round."""

    def __init__(
        self,
        board: _Board,
        ranks: Iterable[LiveRank],
        jobs: Iterable[slurm.Job],
        placement: Callable[[int], cgroups.Placement | None],
        *,
        sees_host: bool,
    ) -> None:
        self.by_pid = {rank.pid: rank for rank in ranks if rank.pid > 0}
        # Of a device that does not answer the list is old: only a rank is known to be the same process still.
        self.processes = [
            (place, process, up)
            for place, process, up in (board.processes() if sees_host else ())
            if up or process.pid in self.by_pid
        ]
        self.jobs = {job.job_id: job for job in jobs}
        self._by_sluid = {job.sluid: job for job in jobs if job.sluid}
        #: The places of each rank.
        self.places: dict[LiveRank, tuple[Place, ...]] = {}
        for rank in ranks:
            told = board.find(rank.device_uuid)
            seen = (place for place, process, _ in self.processes if rank.pid > 0 and process.pid == rank.pid)
            self.places[rank] = (told,) if told else tuple(sorted(set(seen)))
        pids = {process.pid for _, process, _ in self.processes} | self.by_pid.keys()
        #: Where the processes of ranks and on devices belong.
        self.placements = {pid: found for pid in pids if (found := placement(pid)) is not None}

    def job(self, placement: cgroups.Placement) -> slurm.Job | None:
        """Return the job of a process; with no more than its number where no prolog told of it."""
        name = placement.slurm_job
        return (self.jobs.get(name) or self._by_sluid.get(name) or slurm.Job(name)) if name else None

    def used(self) -> Iterator[tuple[Place, cgroups.Placement]]:
        """Yield what the processes on devices and the ranks say of the places that they use."""
        for place, process, _ in self.processes:
            if process.pid in self.placements:
                yield place, self.placements[process.pid]
        for rank, places in self.places.items():
            if rank.pid in self.placements:
                for place in places:
                    yield place, self.placements[rank.pid]


def _bare(uuid: str) -> str:
    """Return a UUID as it is compared.  CUDA tells that of an instance without saying what it is of."""
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")


def _instances(device: DeviceSample, place: Place) -> Iterator[tuple[Place, str]]:
    for family, *labels in device.values:
        if family == "mig_info" and len(labels) >= 3:
            yield replace(place, gpu_instance=labels[0], compute_instance=labels[1]), labels[2]


def _add_memory(sink: Sink, round_: _Round) -> None:
    """Add the memory of each rank on each device, and of all other processes together."""
    sums: dict[tuple[str, str, str, str], float | None] = {}
    for place, process, up in round_.processes:
        rank = round_.by_pid.get(process.pid)
        key = (place.device, place.uuid, rank.run if rank else "", str(rank.rank) if rank else "")
        before = sums.get(key, 0.0)
        # One process whose share is not known makes the sum unknown.
        known = up and before is not None and process.memory_bytes is not None
        sums[key] = before + process.memory_bytes if known else None  # type: ignore[operator]
    for key, total in sums.items():
        sink.add("trainvitals_device_process_memory_bytes", total, *key)


def _add_jobs(sink: Sink, round_: _Round, allocated: Iterable[tuple[Place, slurm.Job]]) -> None:
    owners: dict[tuple[Place, str], slurm.Job] = {(place, job.job_id): job for place, job in allocated}
    for place, placement in round_.used():
        job = round_.job(placement)
        # A job that has the whole device has its instances as well.
        if job is not None and (place.whole, job.job_id) not in owners:
            owners[place, job.job_id] = job
    for (place, job_id), job in sorted(owners.items(), key=lambda item: item[0]):
        sink.add("trainvitals_device_slurm_job_info", 1.0, *place.labels, job_id, job.user)
    for rank in round_.places:
        own = round_.placements.get(rank.pid)
        job = round_.job(own) if own else None
        if own and job:
            labels = (job.job_id, own.slurm_step, job.user)
            sink.add("trainvitals_rank_slurm_job_info", 1.0, rank.run, rank.rank, *labels)


def _add_containers(sink: Sink, round_: _Round) -> None:
    found = {(place, *_container(placement)): None for place, placement in round_.used()}
    for place, *container in sorted(found):
        if any(container):
            sink.add("trainvitals_device_container_info", 1.0, *place.labels, *container)
    for rank in round_.places:
        own = round_.placements.get(rank.pid)
        if own and any(_container(own)):
            sink.add("trainvitals_rank_container_info", 1.0, rank.run, rank.rank, *_container(own))


def _container(placement: cgroups.Placement) -> tuple[str, str, str]:
    return (placement.pod_uid, placement.container_id, placement.runtime)
