"""What ``torch.save`` writes: a zip archive with the pickled structure and one entry for each tensor.

The directory of a zip stands at its end, so that a file that was cut short has none.  Entries are stored, each with a
CRC-32.  The step is looked for in the pickle's opcodes, without loading it.
"""

from __future__ import annotations

import os
import pickletools
import zipfile
import zlib

from trainvitals.supervise.checkpoints.base import DamagedError

#: Larger archives have their structure checked, and the sums of small entries only: reading them takes minutes.
WHOLE = 1 << 30
_LARGEST_SMALL = 16 << 20
#: Names under which programs keep the step.
_STEPS = ("global_step", "step", "iteration", "iter", "current_step")
_CHUNK = 1 << 20
_LOCAL_HEADER = b"PK\x03\x04"
_PUT = ("PUT", "MEMOIZE")


class TorchZip:
    """Files of ``torch.save``."""

    name = "torch.save"
    endings: tuple[str, ...] = (".pt", ".pth", ".bin", ".tar")

    def claims(self, path: str) -> bool:
        """Whether it is a file with a usual ending."""
        return path.endswith(self.endings) and os.path.isfile(path)

    def verify(self, path: str) -> None:
        """Check that the archive is whole."""
        size = os.path.getsize(path)
        if size == 0:
            raise DamagedError("it is empty")
        try:
            with zipfile.ZipFile(path) as archive:
                _verify_entries(archive, size)
        except zipfile.BadZipFile:
            raise DamagedError(_no_archive(path, size)) from None
        except (zlib.error, EOFError, NotImplementedError, ValueError, RuntimeError) as error:
            raise DamagedError(f"the archive cannot be read ({type(error).__name__})") from None

    def step(self, path: str) -> int | None:
        """Return the number under the first usual name."""
        try:
            with zipfile.ZipFile(path) as archive:
                name = next((name for name in archive.namelist() if name.endswith("data.pkl")), None)
                if name is None or archive.getinfo(name).file_size > _LARGEST_SMALL:
                    return None
                return step_of_pickle(archive.read(name))
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError, RuntimeError):
            return None


def _verify_entries(archive: zipfile.ZipFile, size: int) -> None:
    entries = archive.infolist()
    if not any(entry.filename.endswith("data.pkl") for entry in entries):
        raise DamagedError("it has no data.pkl: another kind of archive")
    if archive.fp is None:
        raise DamagedError("it is closed")
    for entry in entries:
        if entry.header_offset + entry.compress_size > size:
            raise DamagedError(f"it is cut short: {entry.filename} reaches beyond its {size} bytes")
        archive.fp.seek(entry.header_offset)
        if archive.fp.read(4) != _LOCAL_HEADER:
            raise DamagedError(f"{entry.filename} is not where the directory says")
        # torch.serialization.set_crc32_options(False) writes zeros in their place.
        if entry.CRC and (size <= WHOLE or entry.file_size <= _LARGEST_SMALL):
            _verify_sum(archive, entry)


def _verify_sum(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
    """Read an entry to its end, where its sum is compared."""
    try:
        with archive.open(entry) as file:
            while file.read(_CHUNK):
                pass
    except zipfile.BadZipFile:
        raise DamagedError(f"the checksum of {entry.filename} is wrong") from None


def _no_archive(path: str, size: int) -> str:
    with open(path, "rb") as file:
        begin = file.read(4)
    if begin == _LOCAL_HEADER:
        return f"it is cut short: no directory at the end of its {size} bytes"
    return "it is no archive of torch.save"


def step_of_pickle(data: bytes) -> int | None:
    """Return the whole number that a pickled mapping holds under the first name for steps, without loading it."""
    found: dict[str, int] = {}
    key = None
    try:
        for code, value, _ in pickletools.genops(data):
            if code.name.endswith(_PUT):
                continue
            if key is not None and code.name.startswith(("BININT", "INT", "LONG")) and isinstance(value, int):
                found.setdefault(key, value)
            key = value if code.name.endswith("UNICODE") and value in _STEPS else None
    except (ValueError, IndexError, OverflowError, UnicodeDecodeError):
        pass  # What was read until here counts.
    step = next((found[name] for name in _STEPS if name in found), None)
    return step if step is not None and step >= 0 else None
