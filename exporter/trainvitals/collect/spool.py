"""The spool: finds rank files, reads them, and hands on what is new.  A bad file costs itself and is counted."""

from __future__ import annotations

import contextlib
import glob
import json
import math
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from trainvitals import rankfile
from trainvitals.telemetry import Event, Identity, Step

#: A spool can hold so many rank files; the rest is counted as rejected.
MAX_FILES = 4096
_EVENT_CHUNK = 1 << 16
_LONGEST_TEXT = 256


@dataclass
class RankFile:
    """One open rank file and what was read from it at the last poll."""

    reader: rankfile.Reader
    identity: Identity
    names: list[str]
    started: float
    state: rankfile.State
    alive: bool = True
    steps: list[Step] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    sequence: int = 0
    #: When the exporter saw that the writer was gone; None while it lives.
    ended: float | None = None
    _events: int | None = None
    _events_offset: int = 0

    @property
    def last_activity(self) -> float:
        """Wall time of the last call of the probe that left a trace."""
        return self.wall(self.state.heartbeat)

    def wall(self, monotonic: float) -> float:
        """Turn the file's monotonic time into wall time."""
        return self.started + monotonic - self.reader.header.started_monotonic


class Spool:
    """The rank files below some folders.  ``patterns`` are folders or globs of folders.

    ``clock`` gives wall time.  Files whose writer ended longer than ``keep`` seconds ago are closed, and removed
    where that is allowed; ``remove`` switches the removal off.
    """

    def __init__(self, patterns: Sequence[str], *, keep: float, remove: bool, clock: Callable[[], float] = time.time) -> None:
        self._patterns = patterns
        self._keep = keep
        self._remove = remove
        self._clock = clock
        self._files: dict[str, RankFile] = {}
        self._forgotten: set[tuple[str, int]] = set()
        self.rejected: Counter[str] = Counter()
        self.lost = 0
        self.invalid = 0
        self.bad_lines = 0

    def poll(self) -> list[RankFile]:
        """Return the files that can be read, oldest attempt first; their ``steps`` and ``events`` are new ones."""
        now = self._clock()
        self.rejected.clear()
        seen: set[str] = set()
        good: list[RankFile] = []
        for path, owners in self._find():
            seen.add(path)
            file = self._poll_file(path, owners, now)
            if file is not None:
                good.append(file)
        for path in [path for path in self._files if path not in seen]:
            self._close(path)
        return sorted(good, key=lambda file: file.started)

    def _find(self) -> Iterator[tuple[str, frozenset[int] | None]]:
        """Yield the paths of rank files, with the users who may own them."""
        count = 0
        for pattern in self._patterns:
            for folder in sorted(glob.glob(pattern)):
                try:
                    status = os.lstat(folder)
                    names = sorted(os.listdir(folder)) if stat.S_ISDIR(status.st_mode) else []
                except OSError:
                    self.rejected["folder"] += 1
                    continue
                # In a folder of one user only that user's files count; a sticky one is shared on purpose.
                owners = None if status.st_mode & stat.S_ISVTX else frozenset({status.st_uid, 0})
                for name in names:
                    if name.endswith(rankfile.RANK_SUFFIX):
                        count += 1
                        if count > MAX_FILES:
                            self.rejected["too_many"] += 1
                        else:
                            yield os.path.join(folder, name), owners

    def _poll_file(self, path: str, owners: frozenset[int] | None, now: float) -> RankFile | None:
        file = self._files.get(path)
        try:
            if file is not None and not file.reader.is_at(path):
                self._close(path)
                file = None
            if file is None:
                file = self._open(path, owners)
                if file is None:
                    return None
                self._files[path] = file
            self._read(file, now)
        except rankfile.RankFileError as error:
            # One that was good before stays open: what was read must not be read again when it recovers.
            self.rejected[error.reason] += 1
            return None
        if file.ended is not None and now - file.ended > self._keep:
            self._forget(path, file)
            return None
        return file

    def _open(self, path: str, owners: frozenset[int] | None) -> RankFile | None:
        reader = rankfile.Reader(path, owners=owners)
        try:
            if (path, reader.inode[1]) in self._forgotten:
                reader.close()
                return None
            header = reader.header
            if header.boot_id != rankfile.boot_id():
                raise rankfile.RankFileError("boot", "written before the last boot")
            if not math.isfinite(header.started_wall) or not math.isfinite(header.started_monotonic):
                raise rankfile.RankFileError("header", "times")
            state = reader.read_state()
            if state is None:
                raise rankfile.RankFileError("state", "checksum")
            return RankFile(reader, _identity(reader.identity), [], header.started_wall, state)
        except BaseException:
            reader.close()
            raise

    def _read(self, file: RankFile, now: float) -> None:
        file.steps, file.events = [], []
        # The lock first: what was written before the writer ended is then surely read after.
        file.alive = file.reader.alive()
        file.ended = None if file.alive else file.ended or now
        try:
            identity, names = file.reader.read_text()
            file.identity, file.names = _identity(identity), names
        except rankfile.RankFileError as error:
            if error.reason != "identity":
                raise
            self.invalid += 1
        state = file.reader.read_state()
        if state is None or not math.isfinite(state.heartbeat) or not math.isfinite(state.phase_since):
            self.invalid += 1
        else:
            file.state = state
        records, invalid = file.reader.read_records(file.sequence)
        self.invalid += invalid
        if records:
            missing = records[-1].sequence - file.sequence - len(records) - invalid
            self.lost += max(0, missing) if file.sequence else 0
            file.sequence = records[-1].sequence
        file.steps = [step for record in records if (step := self._step(file, record)) is not None]
        file.events = list(self._read_events(file))

    def _step(self, file: RankFile, record: rankfile.Record) -> Step | None:
        if not math.isfinite(record.time) or any(index >= len(file.names) for index in record.values):
            self.invalid += 1
            return None
        values = {file.names[index]: value for index, value in record.values.items()}
        return Step(record.step, record.count, file.wall(record.time), values)

    def _read_events(self, file: RankFile) -> Iterator[Event]:
        if file._events is None:
            path = file.reader.path.removesuffix(rankfile.RANK_SUFFIX) + rankfile.EVENTS_SUFFIX
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError:
                return
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                return
            file._events = descriptor
        try:
            data = os.pread(file._events, _EVENT_CHUNK, file._events_offset)
        except OSError:
            return
        end = data.rfind(b"\n") + 1
        if not end and len(data) == _EVENT_CHUNK:
            end = len(data)  # One line that fills the chunk is no line of ours.
        file._events_offset += end
        for line in data[:end].splitlines():
            event = _event(line)
            if event is None:
                self.bad_lines += 1
            else:
                yield event

    def _forget(self, path: str, file: RankFile) -> None:
        """Stop showing a file that ended long ago; remove it where the folder lets us."""
        self._forgotten.add((path, file.reader.inode[1]))
        self._close(path)
        if self._remove:
            for name in (path, path.removesuffix(rankfile.RANK_SUFFIX) + rankfile.EVENTS_SUFFIX):
                with contextlib.suppress(OSError):
                    os.unlink(name)

    def _close(self, path: str) -> None:
        file = self._files.pop(path, None)
        if file is not None:
            file.reader.close()
            if file._events is not None:
                os.close(file._events)

    def close(self) -> None:
        """Close every file."""
        for path in list(self._files):
            self._close(path)


def _identity(fields: dict[str, object]) -> Identity:
    """Build an identity from what a file says; wrong types fall back to the defaults."""

    def text(name: str) -> str:
        value = fields.get(name)
        return value[:_LONGEST_TEXT] if isinstance(value, str) else ""

    def number(name: str, default: int) -> int:
        value = fields.get(name)
        return value if isinstance(value, int) and 0 <= value < 2**31 else default

    target = number("target_steps", 0)
    return Identity(
        run=text("run") or "unknown",
        rank=number("rank", 0),
        local_rank=number("local_rank", 0),
        world_size=number("world_size", 1),
        attempt=number("attempt", 0),
        framework=text("framework"),
        target_steps=target or None,
        device_uuid=text("device_uuid"),
    )


def _event(line: bytes) -> Event | None:
    try:
        document = json.loads(line)
        moment, kind, step = document.pop("time"), document.pop("kind"), document.pop("step", -1)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if not isinstance(kind, str) or not isinstance(step, int) or not isinstance(moment, float) or not math.isfinite(moment):
        return None
    return Event(moment, kind[:_LONGEST_TEXT], step, document)
