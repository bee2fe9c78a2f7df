"""What a vendor's tools said on one machine, in a folder: to look at, to send, and to read again as a test.

``capture.json`` names each command, how it ended, and the file beside it with its output; and the devices of the vendor
on the bus.  What is asked is what the reader of the vendor asks: a capture is taken by letting it read.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainvitals.devices.base import SourceDownError, Vendor
from trainvitals.devices.tools import MISSING, Answer, MakeRun, Run
from trainvitals.telemetry import DeviceSample

FORMAT = 1
_NAME = "capture.json"
#: Seconds for all questions, commands and bytes of all their outputs; rounds without a new command end it.
_SECONDS, _MOST_COMMANDS, _MOST_BYTES = 90.0, 256, 8 << 20
_QUIET_ROUNDS = 3
_PAUSE = 0.2


class CaptureError(Exception):
    """A folder is no capture, or cannot take one; the message is one line."""


@dataclass
class Capture:
    """The answers of one vendor's tools by their commands, in the order in which they were asked first."""

    vendor: str
    answers: dict[tuple[str, ...], Answer] = field(default_factory=dict)
    #: Addresses on the bus with the numbers of maker and kind, as the kernel writes them.
    bus: dict[str, dict[str, str]] = field(default_factory=dict)

    def runner(self, take: MakeRun) -> MakeRun:
        """Return what runs tools and takes notes."""
        return lambda folders: _Recorder(take(folders), self)

    def replay(self, _folders: Sequence[str] = ()) -> Run:
        """Return what answers as the tools did; a command that was never asked is one that is missing."""
        return lambda command: self.answers.get(tuple(command), Answer(reason=MISSING))


class _Recorder:
    """Runs a tool and keeps its first answer."""

    def __init__(self, run: Run, capture: Capture) -> None:
        self._run = run
        self._capture = capture

    def __call__(self, command: Sequence[str], /) -> Answer:
        """Run a tool; see :class:`trainvitals.devices.tools.Run`."""
        answer = self._run(command)
        answers = self._capture.answers
        known = answers.get(tuple(command))
        full = len(answers) >= _MOST_COMMANDS or sum(len(one.text) for one in answers.values()) > _MOST_BYTES
        if known is None and not full:
            answers[tuple(command)] = answer
        return answer


def read(
    vendor: Vendor,
    capture: Capture,
    identities: set[str],
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """Let a reader read until it asks nothing new; return why it could not go on, empty when it could.

    What names a card goes into ``identities``.  Raises NoLibraryError where there is no tool.
    """
    until = clock() + _SECONDS
    try:
        vendor.open()
        quiet = asked = 0
        while quiet < _QUIET_ROUNDS and clock() < until:
            for index in vendor.devices():
                sample = vendor.read(index)
                identities |= {sample.uuid, *(key[1] for key in sample.values if key[0] == "hardware_info")}
            quiet, asked = (quiet + 1, asked) if len(capture.answers) == asked else (0, len(capture.answers))
            sleep(_PAUSE)
    except SourceDownError as error:
        return error.reason
    finally:
        vendor.close()
    return ""


def write(folder: str, capture: Capture, clean: Callable[[str], str], about: Mapping[str, str]) -> None:
    """Write a capture into a new folder that only its owner can read; ``clean`` is what is done to every text.

    Raises CaptureError when the folder is there already, or cannot be written: then nothing is left of it.
    """
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        raise CaptureError(f"{folder}: is there already; name a new folder") from None
    except OSError as error:
        raise CaptureError(f"{folder}: {error.strerror}") from None
    written: list[str] = []
    try:
        commands = []
        for number, (command, answer) in enumerate(capture.answers.items(), 1):
            name = f"{number:03d}.txt"
            _put(folder, name, clean(answer.text), written)
            seconds = round(answer.seconds, 3)
            commands.append({"command": list(command), "reason": answer.reason, "seconds": seconds, "file": name})
        document = {"format": FORMAT, "vendor": capture.vendor, **about, "commands": commands, "bus": capture.bus}
        _put(folder, _NAME, json.dumps(document, indent=1) + "\n", written)
    except OSError as error:
        for name in written:
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)
        raise CaptureError(f"{folder}: {error.strerror}") from None


def _put(folder: str, name: str, text: str, written: list[str]) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(os.path.join(folder, name), flags, 0o600)
    written.append(name)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def load(folder: str) -> Capture:
    """Return a capture.  Raises CaptureError for what is none."""
    try:
        with open(os.path.join(folder, _NAME), encoding="utf-8") as file:
            document: dict[str, Any] = json.load(file)
        if document["format"] != FORMAT:
            raise CaptureError(f"{folder}: format {document['format']}, expected {FORMAT}")
        capture = Capture(str(document["vendor"]), bus=document["bus"])
        for entry in document["commands"]:
            with open(os.path.join(folder, os.path.basename(entry["file"])), encoding="utf-8") as file:
                text = file.read()
            capture.answers[tuple(entry["command"])] = Answer(text, entry["reason"], entry["seconds"])
    except OSError as error:
        raise CaptureError(f"{error.filename}: {error.strerror}") from None
    except (ValueError, LookupError, TypeError) as error:
        raise CaptureError(f"{folder}: no capture: {error}") from None
    return capture


def as_document(sample: DeviceSample) -> dict[str, Any]:
    """Return what was read of a device as JSON: values by family and labels, with blanks between."""
    return {
        "uuid": sample.uuid,
        "name": sample.name,
        "pci_bus_id": sample.pci_bus_id,
        "up": sample.up,
        "values": {" ".join(key): value for key, value in sorted(sample.values.items())},
    }
