"""A vendor's tool as a test wants it, and the layouts that are known of each: a file beside this one per vendor."""

from __future__ import annotations

from pathlib import Path

import yaml

from trainvitals.devices.told import (
    biren,
    cambricon,
    enflame,
    gaudi,
    iluvatar,
    intel,
    kunlunxin,
    metax,
    moorethreads,
    thead,
    tpu,
)
from trainvitals.devices.told.reader import Told
from trainvitals.devices.tools import FAILED, MISSING, Answer

FOLDER = Path(__file__).parent
_MODULES = (biren, cambricon, enflame, gaudi, iluvatar, intel, kunlunxin, metax, moorethreads, thead, tpu)
TOOLS = {module.TOOL.vendor: module.TOOL for module in _MODULES}
LAYOUTS = {
    f"{path.stem}, {case['layout']}": (path.stem, case)
    for path in sorted(FOLDER.glob("*.yml"))
    for case in yaml.safe_load(path.read_text())
}
#: One layout for each vendor: the first.
FIRST = dict(reversed(LAYOUTS.values()))


class FakeTool:
    """Answers commands with texts or answers; refuses those that this version does not know."""

    def __init__(self, vendor, answers, bus, makers=None):
        self.tool = TOOLS[vendor]
        self.answers = dict(answers)
        self.bus = bus
        self.calls = []
        self.now = 100.0
        for address, maker in (makers or {}).items():
            (bus / address).mkdir(parents=True)
            (bus / address / "vendor").write_text(f"{maker}\n")

    def __call__(self, command):
        """Answer."""
        line = " ".join(command)
        self.calls.append(line)
        answer = self.answers.get(line)
        if answer is None:
            known = any(other.split()[0] == command[0] for other in self.answers)
            return Answer("error: unknown option\n", FAILED) if known else Answer(reason=MISSING)
        return answer if isinstance(answer, Answer) else Answer(answer)

    def say(self, answer):
        """Give every command the same answer."""
        self.answers = dict.fromkeys(self.answers, answer)

    def change(self, old, new):
        """Replace a text in every answer."""
        assert any(old in text for text in self.answers.values()), old
        self.answers = {command: text.replace(old, new) for command, text in self.answers.items()}

    def reader(self):
        """Return a reader that is connected."""
        reader = Told(self.tool, self, bus=str(self.bus), clock=lambda: self.now)
        reader.open()
        return reader


def of(vendor, tmp_path, case=None):
    """Return the tool of a vendor in its first layout."""
    case = case or FIRST[vendor]
    return FakeTool(vendor, case["answers"], tmp_path / "bus", case.get("bus"))


def read(reader):
    """Return the samples of one round by their index."""
    return {index: reader.read(index) for index in reader.devices()}
