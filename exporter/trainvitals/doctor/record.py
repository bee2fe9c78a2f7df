"""``trainvitals doctor --record DIR``: what the tools of the vendors that are here say, without whose machine it is."""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import os
import platform
import re
import secrets
import socket
from collections.abc import Callable, Iterable

from trainvitals._version import __version__
from trainvitals.devices import capture, detect
from trainvitals.devices.base import NoLibraryError
from trainvitals.devices.capture import Capture, CaptureError
from trainvitals.devices.pci import PCI_DEVICES
from trainvitals.devices.tools import MakeRun, Runner
from trainvitals.devices.vendors import VENDORS, create, matches
from trainvitals.telemetry import pci_address

#: What names a board, a person or a machine, wherever it stands: UUIDs, and the addresses of network cards.
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_MAC = re.compile(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", re.IGNORECASE)
#: Behind these words stands a number that names a board, or an address of a machine.
_NAMED = re.compile(
    r"""((?:serial(?:[ _]?n(?:umber|o))?|\bsn|uuid|unique[ _]id|vdie[ _]?id|die[ _]?id|board[ _]?id|host[ _]?name|
    (?:ip|inet6?)[ _]?(?:addr(?:ess)?)?|gateway|mac[ _]?addr(?:ess)?)["']?\s*[:=|]\s*["']?)([^\s"',|][^\n"',|]*)""",
    re.IGNORECASE | re.VERBOSE,
)
#: A serial number in a column without a name: long, of capital letters and digits, and without the dots of a version.
_SERIAL = re.compile(r"(?<![\w.-])(?=[0-9A-Z]*\d)(?=[0-9A-Z]*[A-Z])[0-9A-Z]{10,32}(?![\w.])")
_PROCESSES = re.compile(r"^\W*process|process[ _]?name", re.IGNORECASE)
#: A word of a table of processes that is no number, no border and no unit.
_WORD = re.compile(r"(?<![\w./-])(?=[\w./-]*[A-Za-z])(?!(?:\d*(?:MiB|GiB|KiB|MB|GB)|N/A|NA)\b)[\w./@:+-]+")
_PID = re.compile(r"\b\d{2,7}\b")
_MARK = re.compile(r"^(?:n/?a|none|unknown|not supported|-+|0+)$", re.IGNORECASE)


def record(folder: str, *, runner: MakeRun = Runner, bus: str = "", names: Iterable[str] = ()) -> list[str]:
    """Record the tools of every vendor with a card on the bus; return a line for each, what became of it.

    ``names`` are texts that name this machine or its users, beside those that it tells itself.  Raises CaptureError.
    """
    root = bus or os.environ.get("TRAINVITALS_PCI_DEVICES", PCI_DEVICES)
    found = detect.Census(matches(), root)
    present = [name for name, row in VENDORS.items() if row.tools and found.has(name)]
    if not present:
        raise CaptureError("no card of a vendor that is read through tools is on the PCI bus: nothing to record")
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        raise CaptureError(f"{folder}: is there already; name a new folder") from None
    except OSError as error:
        raise CaptureError(f"{folder}: {error.strerror}") from None
    own = [*_own_names(), *names]
    return [_one(name, os.path.join(folder, name), own, runner, root) for name in present]


def _one(name: str, folder: str, names: Iterable[str], runner: MakeRun, root: str) -> str:
    taken, identities = Capture(name, bus=_bus(matches()[name].vendor, root)), set[str]()
    try:
        trouble = capture.read(create(name, taken.runner(runner)), taken, identities)
    except NoLibraryError as error:
        trouble = str(error)
    # What names a card by its place says nothing of the board.
    clean = cleaner([*names, *(identity for identity in identities if not pci_address(identity))])
    about = {"trainvitals": __version__, "kernel": platform.release()}
    capture.write(folder, taken, clean, about)
    why = f"; the reader says: {trouble}" if trouble else ""
    return f"{name}: {len(taken.answers)} commands in {folder}{why}"


def _bus(vendor: int, root: str) -> dict[str, dict[str, str]]:
    """Return the devices of a maker on the bus, as the kernel tells them."""
    found = {}
    for address in sorted(os.listdir(root)):
        told = {name: _line(f"{root}/{address}/{name}") for name in ("vendor", "device", "class")}
        if told["vendor"] and int(told["vendor"], 16) == vendor:
            found[address] = told
    return found


def _line(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            text = file.read(32).strip()
            int(text, 16)
            return text
    except (OSError, ValueError):
        return ""


def _own_names() -> list[str]:
    """Return what names this machine and who is at it."""
    found = [socket.gethostname(), socket.getfqdn(), os.path.expanduser("~")]
    # A container may have no user of this number.
    with contextlib.suppress(KeyError, OSError):
        found.append(getpass.getuser())
    return found


def cleaner(names: Iterable[str]) -> Callable[[str], str]:
    """Return what takes names out of a text: the same one becomes the same invented one, of the same shape.

    So a table keeps its columns, and two chips of one board still have one number.  The key is thrown away.
    """
    key = secrets.token_bytes(16)
    words = sorted({name for name in names if len(name) > 2 and name not in {"root", "/root", "localhost"}}, key=len)
    own = re.compile("|".join(map(re.escape, reversed(words)))) if words else None

    def invented(text: str) -> str:
        digest = hashlib.blake2b(text.encode(), key=key).hexdigest() * (1 + len(text) // 128)
        return "".join(_like(old, new) for old, new in zip(text, digest, strict=False))

    def clean(text: str) -> str:
        text = _UUID.sub(lambda match: invented(match[0]), text)
        text = _MAC.sub(lambda match: invented(match[0]), text)
        text = _SERIAL.sub(lambda match: invented(match[0]), text)
        text = _NAMED.sub(lambda match: match[1] + (match[2] if _is_mark(match[2]) else invented(match[2])), text)
        if own is not None:
            text = own.sub(lambda match: invented(match[0]), text)
        return _without_processes(text)

    return clean


def _is_mark(text: str) -> bool:
    return _MARK.match(text.strip()) is not None


def _like(old: str, new: str) -> str:
    """Return a character of the kind of the old one, chosen by a digit in hexadecimal."""
    if old.isdigit():
        return str(int(new, 16) % 10)
    if not (old.isascii() and old.isalpha()):
        return old
    # A number in hexadecimal stays one.
    made = "abcdef"[int(new, 16) % 6] if old.lower() in "abcdef" else "ghijklmnopqrstuv"[int(new, 16)]
    return made.upper() if old.isupper() else made


def _without_processes(text: str) -> str:
    """Replace the names of processes and of their users.

    A table of processes ends the output; one among indented sections ends with them.
    """
    lines, depth = text.split("\n"), -1
    for place, line in enumerate(lines):
        own = len(line) - len(line.lstrip())
        if depth > 0 and line.strip() and own <= depth:
            depth = -1
        if depth >= 0 and _PID.search(line):
            key, colon, value = line.rpartition(" : ")
            lines[place] = key + colon + _WORD.sub(lambda match: "x" * len(match[0]), value)
        elif depth < 0 and _PROCESSES.search(line):
            depth = own
    return "\n".join(lines)
