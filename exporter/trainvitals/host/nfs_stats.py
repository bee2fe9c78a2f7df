"""What the kernel's NFS client counts per mount.

Source of the format: ``/proc/[pid]/mountstats``, written by fs/nfs/super.c and net/sunrpc/stats.c of the kernel
(``statvers`` 1.0 and 1.1) and described in nfs-utils' mountstats(8).  Reading it sends nothing to a server.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from trainvitals.host.mounts import unescape

#: One NFS mount takes some 6,000 bytes.
_MOST_BYTES = 16 << 20
#: Places of the server's bytes in the line of bytes, after its name.
_BYTES_READ, _BYTES_WRITTEN = 5, 6


@dataclass
class NfsStats:
    """Counters of one mount since it was mounted, summed over all kinds of requests."""

    operations: int = 0
    #: Requests that were sent again.
    retransmissions: int = 0
    #: Requests whose last repetition timed out; the client then says "server not responding".
    timeouts: int = 0
    #: Time that requests waited in the client before they were sent.
    queue_seconds: float = 0.0
    #: Time from sending to the answer.
    response_seconds: float = 0.0
    #: Bytes from and to the server, None where the kernel does not tell.
    read_bytes: int | None = None
    written_bytes: int | None = None


class NfsClient:
    """Reads the statistics of the NFS mounts below ``proc``."""

    def __init__(self, proc: str = "/proc") -> None:
        self._path = os.path.join(proc, "self", "mountstats")

    def read(self) -> dict[str, NfsStats]:
        """Return the statistics by mount point.  Raises OSError; a line that cannot be understood costs itself."""
        with open(self._path, "rb") as file:
            return parse(file.read(_MOST_BYTES))


def parse(text: bytes) -> dict[str, NfsStats]:
    """Return the statistics in a text in the format of mountstats; of mounts over each other, the topmost's."""
    found: dict[str, NfsStats] = {}
    stats: NfsStats | None = None
    in_operations = False
    for line in text.split(b"\n")[:-1]:
        words = line.split()
        if line.startswith((b"device ", b"no device ")):
            stats, in_operations = None, False
            mountpoint = _nfs_mountpoint(words)
            if mountpoint is not None:
                # A mount over another takes its place, whatever it is.
                found.pop(mountpoint, None)
                if b"fstype" in words and words[words.index(b"fstype") + 1 :][:1] in ([b"nfs"], [b"nfs4"]):
                    stats = found[mountpoint] = NfsStats()
        elif stats is None or not words:
            continue
        elif words[0] == b"bytes:":
            numbers = _numbers(words[1:])
            if len(numbers) > _BYTES_WRITTEN - 1:
                stats.read_bytes, stats.written_bytes = numbers[_BYTES_READ - 1], numbers[_BYTES_WRITTEN - 1]
        elif words[0] == b"per-op":
            in_operations = True
        elif in_operations and words[0].endswith(b":"):
            _add_operation(stats, _numbers(words[1:]))
    return found


def _nfs_mountpoint(words: list[bytes]) -> str | None:
    """Return the place of a line such as ``device server:/a mounted on /b with fstype nfs4 statvers=1.1``."""
    for index in range(1, len(words) - 2):
        if words[index : index + 2] == [b"mounted", b"on"]:
            return unescape(words[index + 2])
    return None


def _add_operation(stats: NfsStats, numbers: list[int]) -> None:
    # Requests, transmissions, major timeouts, bytes sent and received, milliseconds in the queue, until the answer and
    # in all; statvers 1.1 appends the number of errors.
    if len(numbers) < 8:
        return
    requests, transmissions, timeouts, _, _, queue_ms, response_ms = numbers[:7]
    stats.operations += requests
    stats.retransmissions += max(0, transmissions - requests)
    stats.timeouts += timeouts
    stats.queue_seconds += queue_ms / 1000
    stats.response_seconds += response_ms / 1000


def _numbers(words: list[bytes]) -> list[int]:
    return [int(word) for word in words] if all(word.isdigit() for word in words) else []
