"""The trainer's side."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import time
import zlib
from typing import Any

from trainvitals.rankfile.layout import (
    CRC,
    FILE_SIZE,
    HEADER,
    LAYOUT,
    MAGIC,
    NEW_SUFFIX,
    RECORD_AREA,
    RING_OFFSET,
    RING_RECORDS,
    SEALED_STATE,
    STATE_AREA,
    STATE_OFFSET,
    TEXT,
    TEXT_AREA,
    TEXT_OFFSET,
    VALUES_PER_RECORD,
    VERSION,
    WHOLE_RECORD,
    State,
    boot_id,
    check_of,
    lock,
)

#: What is kept of an identity that does not fit; the rest of the text area is for names.
_ESSENTIAL = (
    "run",
    "attempt",
    "rank",
    "local_rank",
    "node_rank",
    "world_size",
    "framework",
    "target_steps",
    "device_uuid",
    "pci_bus_id",
    "pid",
)
_LONGEST_IDENTITY = 3072


class Writer:
    """The trainer's side: creates the file under a temporary name, locks it, then renames it into place.

    Raises OSError when the folder is missing, read-only or full; nothing is left behind then.
    """

    def __init__(self, path: str, identity: dict[str, Any]) -> None:
        self.path = path
        self.identity = _shortened(identity)
        self.names: list[str] = []
        self.state = State()
        self._state_sequence = 0
        self._text_sequence = 0
        temporary = path + NEW_SUFFIX
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(temporary, flags, 0o644)
        try:
            # ftruncate would leave a sparse file, and a later write to a full tmpfs is a SIGBUS.
            os.posix_fallocate(self._descriptor, 0, FILE_SIZE)
            lock(self._descriptor)
            self.map = mmap.mmap(self._descriptor, FILE_SIZE, mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0))
            self._write_header()
            self.write_text()
            self.write_state()
            os.rename(temporary, path)
        except BaseException:
            if hasattr(self, "map"):
                self.map.close()
            os.close(self._descriptor)
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        #: The file as words of 8 bytes, for what is written in every step.
        self.floats, self.integers = memoryview(self.map).cast("d"), memoryview(self.map).cast("q")

    def _write_header(self) -> None:
        now, wall = time.monotonic(), time.time()
        body = HEADER.pack(
            MAGIC,
            VERSION,
            *LAYOUT,
            boot_id().encode("ascii", "replace")[:36],
            now,
            wall,
        )
        self.map[: len(body) + 4] = body + CRC.pack(zlib.crc32(body))
        self.state.phase_since = self.state.heartbeat = now

    def write_state(self) -> None:
        """Publish ``self.state``: about a microsecond."""
        self._state_sequence = sequence = self._state_sequence + 1
        body = self.state.pack(sequence)
        SEALED_STATE.pack_into(self.map, STATE_OFFSET + (sequence & 1) * STATE_AREA, body, zlib.crc32(body))

    def write_text(self) -> bool:
        """Publish ``self.identity`` and ``self.names``; return False, and publish nothing, when they do not fit."""
        text = json.dumps({"identity": self.identity, "names": self.names}, default=str).encode()
        if len(text) > TEXT_AREA - TEXT.size:
            return False
        self._text_sequence += 1
        offset = TEXT_OFFSET + (self._text_sequence & 1) * TEXT_AREA
        head = TEXT.pack(self._text_sequence, len(text), zlib.crc32(text))
        self.map[offset : offset + len(head) + len(text)] = head + text
        return True

    def write_record(self, sequence: int, count: int, step: int, now: float, values: dict[int, float]) -> None:
        """Write one record; ``values`` has at most :data:`VALUES_PER_RECORD` entries."""
        indexes = sorted(values)
        mask = sum(1 << index for index in indexes)
        numbers = [values[index] for index in indexes]
        check = check_of(sequence, count, step, now, mask, numbers)
        numbers += [0.0] * (VALUES_PER_RECORD - len(numbers))
        offset = RING_OFFSET + sequence % RING_RECORDS * RECORD_AREA
        WHOLE_RECORD.pack_into(self.map, offset, sequence, count, step, now, mask, *numbers, check)

    def close(self) -> None:
        """Unmap and unlock.  A clean end sets a flag first; see :data:`FLAG_FINISHED`."""
        self.floats.release()
        self.integers.release()
        self.map.close()
        os.close(self._descriptor)


def _shortened(identity: dict[str, Any]) -> dict[str, Any]:
    """Return an identity that leaves room for the names: a rank must never lose its number to a long text."""
    if len(json.dumps(identity, default=str)) <= _LONGEST_IDENTITY:
        return identity
    known = {name: identity[name] for name in _ESSENTIAL if name in identity}
    return {name: value if isinstance(value, int) else str(value)[:64] for name, value in known.items()}
