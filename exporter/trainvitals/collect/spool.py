"""The spool: finds rank files, reads them, and hands on what is new.  A bad file costs itself and is counted.

Users can write here.  So files are opened anew at each poll (a thousand files cost no descriptors), a user can crowd
out nobody else, and whatever a file holds is bounded before it is used.
"""

from __future__ import annotations

import contextlib
import glob
import logging
import math
import os
import stat
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from trainvitals import orders, rankfile
from trainvitals.collect import data
from trainvitals.collect.source import Mark
from trainvitals.metrics import PROBED_STATES
from trainvitals.rankfile.ledger import DataCounters, path_of_data
from trainvitals.spooled import events
from trainvitals.spooled.identity import identity_of
from trainvitals.telemetry import Event, Identity, Step

log = logging.getLogger(__name__)

#: A folder can hold so many rank files; of more, the newest count and the rest is rejected.
MAX_FILES = 1024
#: CPU seconds that the files of one folder may take at a poll; a healthy rank takes a few 0.0001.
MAX_SECONDS = 1.0
#: Times beyond are no times of ours: seconds since boot.
_LONGEST_UPTIME = 1e10
#: Seconds by which the anchor of a file may differ from the clocks of now.  A clock that is slewed all the time must
#: not move the start of every run.
_TOLERANCE = 2.0
#: A trainer makes its file in much less than so many seconds; one that took longer was killed.
_LONGEST_START = 3600.0


@dataclass
class RankFile:
    """One rank file and what was read from it at the last poll."""

    path: str
    inode: tuple[int, int]
    owner: int
    header: rankfile.Header
    identity: Identity
    names: list[str]
    state: rankfile.State
    alive: bool = True
    #: The writer's process id as this process sees it; 0 when it is gone or cannot be seen.
    pid: int = 0
    #: Whether the last poll was the first.
    is_new: bool = False
    steps: list[Step] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    #: Of each of these, the sequence of its record, and the number of its line.
    sequences: list[int] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    #: Sequence of the last record; None before the first poll.
    sequence: int | None = None
    #: The highest number of a step, and the wall time of the last record.
    count: int = 0
    last_record: float = 0.0
    #: When the exporter saw that the writer was gone; None while it lives.
    ended: float | None = None
    events_offset: int = 0
    #: Lines of the events file that were read.
    events_read: int = 0
    #: What the watched loaders handed out; None where none is watched.
    data: DataCounters | None = None
    #: What the file was like when it was read after its end and nothing new was found; None before that.
    read_whole: tuple[int, ...] | None = None
    #: Which of the jobs that train under one name at one time; the first is 1.
    job: int = 1
    #: Seconds by which the wall clock was set since the start of the process (or stood, while the machine slept).
    correction: float = 0.0

    @property
    def resumed(self) -> bool:
        """It has its numbers for ever."""
        return True

    @property
    def mark(self) -> Mark:
        """The sequence of the last record, and the number of the last line of its events."""
        return Mark(self.sequence or 0, self.events_read)

    def judged(self, mark: Mark) -> tuple[int, int, int]:
        """Return how many of ``history``, ``steps`` and ``events`` are not behind a mark."""
        return 0, bisect_right(self.sequences, mark.step), bisect_right(self.lines, mark.event)

    @property
    def places(self) -> None:
        """Its events have times of their own."""

    @property
    def run(self) -> str:
        """The name under which the run is shown."""
        return self.identity.run if self.job == 1 else f"{self.identity.run}~{self.job}"

    @property
    def incarnation(self) -> tuple[int, int, float]:
        """What no other file has, not even one that took the place and the inode of this one."""
        return (*self.inode, self.header.started_monotonic)

    @property
    def states(self) -> tuple[str, ...]:
        """The states that it can be in."""
        return PROBED_STATES

    @property
    def history(self) -> tuple[Step, ...]:
        """No step: what is in the ring is new to an exporter that was restarted."""
        return ()

    @property
    def status(self) -> str:
        """One of ``states``; a free lock without a word is a death."""
        if self.state.flags & rankfile.FLAG_FAILED:
            return "failed"
        if self.state.flags & rankfile.FLAG_FINISHED:
            return "finished"
        return "running" if self.alive else "died"

    @property
    def started(self) -> float:
        """Wall time of the start of the process."""
        return self.header.started_wall + self.correction

    @property
    def started_monotonic(self) -> float:
        """CLOCK_MONOTONIC at that start."""
        return self.header.started_monotonic

    @property
    def last_activity(self) -> float:
        """Wall time of the last call of the probe that left a trace."""
        return max(self.wall(self.state.heartbeat), self.last_record)

    @property
    def phase(self) -> str:
        """The phase that the process is in."""
        index = self.state.phase
        return rankfile.PHASES[index] if index < len(rankfile.PHASES) else "other"

    @property
    def disabled(self) -> bool:
        """Whether the probe switched itself off."""
        return bool(self.state.flags & rankfile.FLAG_DISABLED)

    @property
    def counters(self) -> dict[str, float]:
        """What the process counted, by name."""
        state = self.state
        counters: dict[str, float] = {
            "steps": max(state.count, self.count),
            "skipped": state.skipped,
            "nonfinite": state.nonfinite,
            "samples": state.samples,
            "tokens": state.tokens,
            "errors": state.errors,
            "dropped": state.dropped,
        }
        if self.data is not None:
            counters["batches"], counters["batch_samples"] = self.data.batches, self.data.samples
            counters["batch_bytes"], counters["data_errors"] = self.data.bytes, self.data.errors
        return counters

    @property
    def data_path(self) -> str:
        """The data file; empty where there is none."""
        return "" if self.data is None else path_of_data(self.path)

    def phase_seconds(self, now: float) -> dict[str, float]:
        """Return the seconds spent in each phase, the present one until now; phases of no time are left out."""
        phase = self.phase
        running = max(0.0, now - self.wall(self.state.phase_since)) if self.alive else 0.0
        phases = zip(rankfile.PHASES, self.state.phase_seconds, strict=False)
        seconds = {name: before + running if name == phase else before for name, before in phases}
        return {name: value for name, value in seconds.items() if value}

    def seconds(self, before: Step, step: Step) -> float | None:
        """Return how long a step took; None when the one before it was lost."""
        return max(0.0, step.time - before.time) if step.count == before.count + 1 else None

    def wall(self, monotonic: float) -> float:
        """Turn the file's monotonic time into wall time."""
        return self.started + monotonic - self.header.started_monotonic

    def correct(self, offset: float) -> None:
        """Believe the reader's clocks more than the file's anchor; ``offset`` is wall time minus monotonic time.

        The monotonic clock is the same one since the boot, whoever reads it.
        """
        correction = offset - (self.header.started_wall - self.header.started_monotonic)
        change = correction - self.correction
        if abs(change) > _TOLERANCE:
            self.correction = correction
            self.last_record += change if self.last_record else 0.0


class Spool:
    """The rank files below some folders.  ``patterns`` are folders or globs of folders.

    ``clock`` gives wall time, ``monotonic`` the seconds of CLOCK_MONOTONIC.  Files whose writer ended longer than
    ``keep`` seconds ago are shown no more, and removed where that is allowed, as are files of an earlier boot and
    unfinished ones.  ``remove`` switches that off.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        *,
        keep: float,
        remove: bool,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._patterns = patterns
        self._keep = keep
        self._remove = remove
        self._clock = clock
        self._monotonic = monotonic
        self._offset = 0.0
        self._files: dict[str, RankFile] = {}
        self._forgotten: dict[str, tuple[int, int]] = {}
        #: The files with orders to runs of which a rank was forgotten.
        self._mails: set[str] = set()
        self._complained: set[str] = set()
        self.rejected: Counter[str] = Counter()
        self.lost = 0
        self.invalid = 0
        self.bad_lines = 0

    def poll(self) -> list[RankFile]:
        """Return the files that can be read, oldest attempt first; their ``steps`` and ``events`` are new ones."""
        now = self._clock()
        self._offset = now - self._monotonic()
        self.rejected.clear()
        seen: set[str] = set()
        good: list[RankFile] = []
        for paths, owners in self._find():
            begun = time.thread_time()
            for path in paths:
                if path in seen:
                    continue
                seen.add(path)
                if time.thread_time() - begun > MAX_SECONDS:
                    self.rejected["slow"] += 1
                    continue
                file = self._poll_file(path, owners, now)
                if file is not None:
                    good.append(file)
        for known in (self._files, self._forgotten):
            for path in known.keys() - seen:
                del known[path]
        self._complained &= seen
        if self._mails and not self.rejected:  # One that cannot be read may be a live rank of such a run.
            self._remove_orders(now - self._keep)
        return sorted(good, key=lambda file: file.started)

    def missing(self) -> list[str]:
        """Return the folders that are named without a pattern and are not there."""
        return [path for path in self._patterns if not glob.has_magic(path) and not os.path.lexists(path)]

    def _find(self) -> Iterator[tuple[list[str], frozenset[int] | None]]:
        """Yield the paths of the rank files of each folder, with the users who may own them."""
        for pattern in self._patterns:
            # The name of a folder may hold what is special in a pattern: "runs[1]".
            folders = [pattern] if os.path.lexists(pattern) else glob.glob(pattern)
            for folder in sorted(map(os.path.normpath, folders)):
                try:
                    status = os.lstat(folder)
                    if not stat.S_ISDIR(status.st_mode):
                        self.rejected["not_a_folder"] += 1
                        continue
                    names = sorted(os.listdir(folder))
                except OSError:
                    self.rejected["folder"] += 1
                    continue
                # In a folder of one user only that user's files count; a sticky one is shared on purpose.
                owners = None if status.st_mode & stat.S_ISVTX else frozenset({status.st_uid, 0})
                if self._remove:
                    self._sweep(folder, names, owners)
                paths = [os.path.join(folder, name) for name in names if name.endswith(rankfile.RANK_SUFFIX)]
                if len(paths) > MAX_FILES:
                    self.rejected["too_many"] += len(paths) - MAX_FILES
                    paths = sorted(paths, key=_changed)[-MAX_FILES:]
                yield paths, owners

    def _poll_file(self, path: str, owners: frozenset[int] | None, now: float) -> RankFile | None:
        """Return the file at ``path``, or None where there is none to show."""
        signature = _signature(path)
        file = self._files.get(path)
        if file is not None and signature is not None and file.read_whole == signature:
            # Five hundred of these would cost more than all that lives.
            file.is_new, file.steps, file.events = False, [], []
            file.sequences, file.lines = [], []
            file.correct(self._offset)
            return self._unless_expired(file, now)
        try:
            with contextlib.closing(rankfile.Reader(path, owners=owners)) as reader:
                if self._forgotten.get(path) == reader.inode:
                    return None
                if file is None or (file.inode, file.header) != (reader.inode, reader.header):
                    self._check_boot(reader, now)
                    file = _open(reader)
                # One that turns bad stays known: what was read must not be read again when it recovers.
                self._files[path] = file
                before = self._progress(file)
                self._read(file, reader, now)
                file.read_whole = signature if not file.alive and self._progress(file) == before else None
        except rankfile.RankFileError as error:
            self.rejected[error.reason] += 1
            return None
        except Exception:
            self.rejected["broken"] += 1
            if path not in self._complained:
                self._complained.add(path)
                log.warning("rank file %r cannot be read", path, exc_info=True)
            return None
        return self._unless_expired(file, now)

    def _progress(self, file: RankFile) -> tuple[int | None, ...]:
        return (file.sequence, file.events_offset, self.rejected["events"], self.rejected["data"])

    def _unless_expired(self, file: RankFile, now: float) -> RankFile | None:
        if file.ended is not None and now - file.ended > self._keep:
            self._forget(file)
            return None
        return file

    def _read(self, file: RankFile, reader: rankfile.Reader, now: float) -> None:
        file.steps, file.events, file.sequences, file.lines = [], [], [], []
        file.is_new = file.sequence is None
        file.correct(self._offset)
        # The lock first: what was written before the writer ended is then surely read after.
        writer = reader.writer()
        file.alive, file.pid = writer is not None, writer or 0
        if file.alive:
            file.ended = None
        elif file.ended is None:
            file.ended = now
        self._read_text(file, reader)
        state = reader.read_state()
        if state is None or not _makes_sense(state):
            self.invalid += 1
        else:
            file.state = state
        records, invalid = reader.read_records(file.sequence or 0)
        if any(max(record.values, default=-1) >= len(file.names) for record in records):
            # A name that was added since.
            self._read_text(file, reader)
        self.invalid += invalid
        if records and file.sequence is not None:
            self.lost += records[-1].sequence - file.sequence - len(records) - invalid
        file.sequence = records[-1].sequence if records else file.sequence or 0
        for record in records:
            if (step := self._step(file, record)) is not None:
                file.steps.append(step)
                file.sequences.append(record.sequence)
        if file.steps:
            file.count = max(file.count, *(step.count for step in file.steps))
            file.last_record = max(file.last_record, file.steps[-1].time)
        self._read_events(file)
        self._read_data(file)

    def _read_text(self, file: RankFile, reader: rankfile.Reader) -> None:
        try:
            identity, names = reader.read_text()
        except rankfile.RankFileError as error:
            if error.reason != "identity":
                raise
            self.invalid += 1
        else:
            file.identity, file.names = identity_of(identity), names

    def _step(self, file: RankFile, record: rankfile.Record) -> Step | None:
        if not 0.0 <= record.time < _LONGEST_UPTIME or max(record.values, default=-1) >= len(file.names):
            self.invalid += 1
            return None
        values = {file.names[index]: value for index, value in record.values.items()}
        return Step(record.step, record.count, file.wall(record.time), values)

    def _read_events(self, file: RankFile) -> None:
        """Read what is new in the events file, which must belong to the owner of the rank file."""
        try:
            lines, file.events_offset = events.read_lines(events.path_of(file.path), file.events_offset, file.owner)
        except FileNotFoundError:
            return
        except OSError:
            self.rejected["events"] += 1
            return
        for line in lines:
            file.events_read += 1
            event = events.parse(line)
            if event is None:
                self.bad_lines += 1
            else:
                file.events.append(event)
                file.lines.append(file.events_read)

    def _read_data(self, file: RankFile) -> None:
        """Read the counters of the data file, which must belong to the owner of the rank file."""
        try:
            file.data = data.read_counters(file.path, file.owner) or file.data
        except (OSError, rankfile.RankFileError):
            self.rejected["data"] += 1

    def _forget(self, file: RankFile) -> None:
        """Show no more a file that ended long ago; remove it where the folder lets us."""
        self._forgotten[file.path] = file.inode
        del self._files[file.path]
        if not self._remove:
            return
        _unlink(file.path, lambda status: (status.st_dev, status.st_ino) == file.inode)
        self._mails.add(orders.path_of(os.path.dirname(file.path), file.identity.run))

    def _remove_orders(self, last: float) -> None:
        """Remove the orders to runs of which no rank is left."""
        known = {orders.path_of(os.path.dirname(file.path), file.identity.run) for file in self._files.values()}
        for mail in self._mails - known:
            for path in orders.left_alone(os.path.dirname(mail), last).get(mail, []):
                _unlink(path, lambda status: stat.S_ISREG(status.st_mode))
        self._mails.clear()

    def _check_boot(self, reader: rankfile.Reader, now: float) -> None:
        """Refuse a file of an earlier boot, and remove it once it is as old as an ended one may be."""
        if reader.header.boot_id == rankfile.boot_id():
            return
        if self._remove:
            last = now - self._keep
            _unlink(reader.path, lambda found: (found.st_dev, found.st_ino) == reader.inode and found.st_mtime < last)
        raise rankfile.RankFileError("boot", "written before the last boot")

    def _sweep(self, folder: str, names: Sequence[str], owners: frozenset[int] | None) -> None:
        """Remove what trainers left that were killed while they made their files."""
        last = self._clock() - _LONGEST_START

        def is_stale(found: os.stat_result) -> bool:
            owned = owners is None or found.st_uid in owners
            return owned and stat.S_ISREG(found.st_mode) and found.st_mtime < last

        unfinished = [name for name in names if name.endswith(rankfile.RANK_SUFFIX + rankfile.NEW_SUFFIX)]
        for name in unfinished[:MAX_FILES]:
            _unlink(os.path.join(folder, name), is_stale)

    def close(self) -> None:
        """Forget every file."""
        self._files.clear()
        self._forgotten.clear()


def _open(reader: rankfile.Reader) -> RankFile:
    """Return what is known of a file that was not read before; raises RankFileError."""
    header = reader.header
    if not 0.0 <= header.started_wall < events.LATEST_TIME or not 0.0 <= header.started_monotonic < _LONGEST_UPTIME:
        raise rankfile.RankFileError("header", "times")
    identity, names = reader.read_text()
    state = reader.read_state()
    if state is None or not _makes_sense(state):
        raise rankfile.RankFileError("state", "checksum or times")
    return RankFile(reader.path, reader.inode, reader.owner, header, identity_of(identity), names, state)


def _makes_sense(state: rankfile.State) -> bool:
    return 0.0 <= state.heartbeat < _LONGEST_UPTIME and 0.0 <= state.phase_since < _LONGEST_UPTIME


def _unlink(path: str, is_it: Callable[[os.stat_result], bool]) -> None:
    """Remove a file, and the events of a rank file, if it is still the one that is meant and the folder lets us."""
    folder, name = os.path.split(path)
    with contextlib.suppress(OSError):
        # By descriptor: the folder's owner may put a symbolic link in its place at any time.
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if is_it(os.stat(name, dir_fd=descriptor, follow_symlinks=False)):
                os.unlink(name, dir_fd=descriptor)
                if name.endswith(rankfile.RANK_SUFFIX):
                    for beside in (events.path_of(name), path_of_data(name)):
                        with contextlib.suppress(FileNotFoundError):
                            os.unlink(beside, dir_fd=descriptor)
        finally:
            os.close(descriptor)


def _signature(path: str) -> tuple[int, ...] | None:
    """Return what is another when another file, or other contents, came to a path."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _changed(path: str) -> float:
    """Return when a file was last changed; one that is gone or hides it counts as the oldest."""
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return -math.inf
