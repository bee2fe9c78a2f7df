"""Captures: what tools said on a machine is recorded without its names, and read again as a test.

Each folder in captures/ is one, with what must be read from it in ``expected.json``, written by a person.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from tests.devices.told.tool import FIRST

from trainvitals.devices import capture
from trainvitals.devices.capture import Capture, CaptureError
from trainvitals.devices.tools import MISSING, TIMED_OUT, Answer
from trainvitals.devices.vendors import create
from trainvitals.doctor.record import cleaner, record

CAPTURES = sorted((Path(__file__).parent / "captures").iterdir())


@pytest.fixture
def bus(tmp_path, monkeypatch):
    """Return a function that puts the devices of a capture on the bus."""
    root = tmp_path / "bus"
    root.mkdir()
    monkeypatch.setenv("TRAINVITALS_PCI_DEVICES", str(root))

    def place(devices):
        for address, told in devices.items():
            (root / address).mkdir()
            for name, text in told.items():
                (root / address / name).write_text(f"{text}\n")
        return str(root)

    return place


def replayed(taken):
    """Return what the reader makes of a capture."""
    reader = create(taken.vendor, taken.replay)
    reader.open()
    samples = [capture.as_document(reader.read(index)) for index in reader.devices()]
    reader.close()
    return samples


@pytest.mark.parametrize("folder", CAPTURES, ids=lambda folder: folder.name)
def test_a_capture_is_read_as_a_person_reads_it(folder, bus):
    """Every folder of captures/."""
    taken = capture.load(str(folder))
    bus(taken.bus)

    assert replayed(taken) == json.loads((folder / "expected.json").read_text())


#: Two cards of MetaX, and a network card.
BUS = {
    "0000:0f:00.0": {"vendor": "0x9999", "device": "0x4040", "class": "0x038000"},
    "0000:34:00.0": {"vendor": "0x9999", "device": "0x4040", "class": "0x038000"},
    "0000:02:00.0": {"vendor": "0x8086", "device": "0x1521", "class": "0x020000"},
}


class Machine:
    """Tools of a machine with two cards of MetaX."""

    def __init__(self):
        self.answers = {command: Answer(text) for command, text in FIRST["metax"]["answers"].items()}

    def __call__(self, _folders):
        """Return what runs its tools."""
        return lambda command: self.answers.get(" ".join(command), Answer(reason=MISSING))


def test_what_the_tools_say_is_recorded_and_read_again(tmp_path, bus):
    """A folder for each vendor that is here, which nobody else may read; what is read from it is the same."""
    root = bus(BUS)
    folder = tmp_path / "capture"

    (line,) = record(str(folder), runner=Machine(), bus=root)

    assert line == f"metax: 1 commands in {folder}/metax"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.rglob("*")]}
    assert modes == {"capture": 0o700, "metax": 0o700, "capture.json": 0o600, "001.txt": 0o600}
    taken = capture.load(str(folder / "metax"))
    assert set(taken.bus) == {"0000:0f:00.0", "0000:34:00.0"}
    samples = replayed(taken)
    assert [sample["uuid"] for sample in samples] == ["0000:0f:00.0", "0000:34:00.0"]
    assert samples[0]["values"]["temperature_celsius gpu"] == 58.0


def test_a_tool_that_hangs_or_is_missing_is_recorded_as_that(tmp_path, bus):
    """The reason is what a developer needs most."""
    root = bus(BUS)
    machine = Machine()
    machine.answers = {"mx-smi": Answer("half a ta", TIMED_OUT, 5.0)}

    (line,) = record(str(tmp_path / "hung"), runner=machine, bus=root)
    machine.answers = {}
    (other,) = record(str(tmp_path / "none"), runner=machine, bus=root)

    assert line.endswith("; the reader says: timeout")
    assert other.endswith("; the reader says: mx-smi not found")
    taken = capture.load(str(tmp_path / "hung/metax"))
    assert taken.answers["mx-smi",] == Answer("half a ta", TIMED_OUT, 5.0)


def test_without_a_card_there_is_nothing_to_record(tmp_path, bus):
    """And no folder is left."""
    with pytest.raises(CaptureError, match="nothing to record"):
        record(str(tmp_path / "capture"), runner=Machine(), bus=bus({}))
    assert not (tmp_path / "capture").exists()


def test_a_folder_that_is_there_is_not_written_into(tmp_path, bus):
    """Whatever is in it; and one that cannot be made is said in one line."""
    root = bus(BUS)
    (tmp_path / "own.txt").write_text("mine")

    with pytest.raises(CaptureError, match="is there already; name a new folder"):
        record(str(tmp_path), runner=Machine(), bus=root)
    with pytest.raises(CaptureError, match="Not a directory"):
        record(str(tmp_path / "own.txt" / "capture"), runner=Machine(), bus=root)
    assert (tmp_path / "own.txt").read_text() == "mine"


def test_a_full_disk_leaves_nothing_half(tmp_path, monkeypatch):
    """What was written is removed again."""
    taken = Capture("metax", {("mx-smi",): Answer("text"), ("mx-smi", "-L"): Answer("more")})
    real = os.fdopen

    def full(descriptor, *arguments, **options):
        if sum(1 for _ in (tmp_path / "new").iterdir()) > 1:
            os.close(descriptor)
            raise OSError(28, "No space left on device")
        return real(descriptor, *arguments, **options)

    monkeypatch.setattr(os, "fdopen", full)
    with pytest.raises(CaptureError, match="No space left on device"):
        capture.write(str(tmp_path / "new"), taken, str, {})
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("text", "personal"),
    [
        ("UUID: 12345678-9abc-def0-1234-56789abcdef0", "12345678-9abc-def0-1234-56789abcdef0"),
        ("0, GPU-12345678-9abc-def0-1234-56789abcdef0, 7 %", "12345678-9abc-def0-1234-56789abcdef0"),
        ("    Serial Number                         : ABC-77-X", "ABC-77-X"),
        ('{"Serial Number": "ABC77X", "Temp": "30"}', "ABC77X"),
        ("00000000:31:00.0 0 0 KX02A1B2C3D4 52 0 49", "KX02A1B2C3D4"),
        ("| 35     LP1      68W / 300W  | 147456MiB | 4%          T1234567890    |", "T1234567890"),
        ("VDie ID : 11112222 33334444 55556666", "11112222 33334444 55556666"),
        ("MAC address: 9c:6b:00:ab:cd:ef", "9c:6b:00:ab:cd:ef"),
        ("ipaddr:10.20.30.41", "10.20.30.41"),
        ("log of gpu-node-17.corp", "gpu-node-17.corp"),
        ("/home/alice/train.py", "alice"),
    ],
)
def test_what_names_a_board_a_machine_or_a_person_is_replaced(text, personal):
    """By something of the same length and kind, each time the same."""
    clean = cleaner(["gpu-node-17.corp", "alice"])
    found = clean(text)

    assert personal not in found
    assert len(found) == len(text)
    assert [old for old in text if not old.isalnum()] == [new for new in found if not new.isalnum()]
    assert clean(text) == found
    assert cleaner(["gpu-node-17.corp", "alice"])(text) != found


@pytest.mark.parametrize(
    "text",
    [
        "| 0     /   MLU300-Q8    v1.2.1 |         0000:4F:00.0 | 37%                 0 |",
        "| EFSMI: 1.9.9.14          Driver Ver: 1.9.9.14                               |",
        "Serial Number : N/A",
        "Attached GPUs                                     : 2",
        "0, HL-300X, 1.30.0-aabbcc1, 131072 MiB, 2048 MiB, 301 W",
    ],
)
def test_what_a_reader_needs_stays(text):
    """Addresses on the bus, versions, models, marks and numbers."""
    assert cleaner(["gpu-node-17"])(text) == text


def test_the_table_of_processes_loses_their_names():
    """The numbers stay: a reader may count them."""
    text = (
        "| 0  MetaX C900 | 0000:0f:00.0 | 45% |\n"
        "| Process:                                            |\n"
        "|  GPU       PID       Process Name      GPU Memory   |\n"
        "|  0      967308       python secret.py  53971MiB     |\n"
    )
    found = cleaner([])(text)

    assert "secret" not in found
    assert "python" not in found
    assert "967308" in found
    assert "53971MiB" in found
    assert [len(line) for line in found.split("\n")] == [len(line) for line in text.split("\n")]
    assert found.startswith("| 0  MetaX C900 | 0000:0f:00.0 | 45% |\n")


def test_processes_among_sections_end_with_them():
    """What stands behind them is of the next card."""
    text = (
        "XPU 00000000:31:00.0\n    Processes\n        Process ID : 4711\n            Name : 17 secret\n"
        "    Clocks\n        Cluster : 1450 MHz\n    Processes : None\nXPU 00000000:32:00.0\n    Heat : 40 C\n"
    )

    assert cleaner([])(text) == text.replace("17 secret", "17 xxxxxx")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "No such file"),
        ("{", "no capture"),
        ("[]", "no capture"),
        ('{"format": 2}', "format 2, expected 1"),
        ('{"format": 1, "vendor": "metax"}', "no capture"),
        ('{"format": 1, "vendor": "metax", "bus": {}, "commands": [{"file": "9.txt", "command": []}]}', "No such file"),
    ],
)
def test_what_is_no_capture_is_said_in_one_line(text, message, tmp_path):
    """Whoever sends one may have edited it."""
    if text is not None:
        (tmp_path / "capture.json").write_text(text)

    with pytest.raises(CaptureError, match=message) as caught:
        capture.load(str(tmp_path))
    assert "\n" not in str(caught.value)
