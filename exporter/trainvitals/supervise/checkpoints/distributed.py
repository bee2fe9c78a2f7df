"""``torch.distributed.checkpoint``: a folder with ``.metadata``, which is written last, and ``__R_N.distcp`` files.

The metadata is a pickle; names of files are taken from its opcodes, without loading it.
"""

from __future__ import annotations

import os
import pickletools
import re

from trainvitals.supervise.checkpoints.base import DamagedError

_FILE = re.compile(r"__\d+_\d+\.distcp")
_LARGEST_METADATA = 1 << 30


class Distributed:
    """Folders of DCP.  There are no checksums: a file counts as whole when it is there and not empty."""

    name = "torch.distributed.checkpoint"

    def claims(self, path: str) -> bool:
        """Whether it is a folder with metadata, or with the files of some ranks."""
        if not os.path.isdir(path):
            return False
        names = os.listdir(path)
        return ".metadata" in names or any(_FILE.fullmatch(name) for name in names)

    def verify(self, path: str) -> None:
        """Check that the metadata is whole and all its files are there."""
        metadata = os.path.join(path, ".metadata")
        if not os.path.exists(metadata):
            raise DamagedError("it has no .metadata: the save did not end")
        if os.path.getsize(metadata) > _LARGEST_METADATA:
            raise DamagedError("its .metadata is too large to be one")
        with open(metadata, "rb") as file:
            names = _files(file.read())
        for name in sorted(names):
            part = os.path.join(path, name)
            if not os.path.exists(part):
                raise DamagedError(f"{name} is missing")
            if os.path.getsize(part) == 0:
                raise DamagedError(f"{name} is empty")

    def step(self, path: str) -> int | None:
        """Return None: it is the name of the folder that tells."""
        del path
        return None


def _files(data: bytes) -> set[str]:
    try:
        values = [value for _, value, _ in pickletools.genops(data)]
    except (ValueError, IndexError, OverflowError, UnicodeDecodeError):
        raise DamagedError("its .metadata is cut short") from None
    return {value for value in values if isinstance(value, str) and _FILE.fullmatch(value)}
