"""hy-smi as a test wants it."""

from __future__ import annotations

import json
from pathlib import Path

from trainvitals.devices.hygon.reader import Hygon
from trainvitals.devices.tools import MISSING, Answer

FOLDER = Path(__file__).parent


def text(name):
    """Return what the tool prints: a fixture."""
    return (FOLDER / f"{name}.json").read_text()


def printed(**cards):
    """Return what the tool prints of cards: ``card0={"HCU use (%)": "7"}``."""
    return json.dumps(cards)


#: What stays the same of a card that is not here.
NOBODY = printed(card9={"PCI Bus": "0000:FF:00.0"})


class Tool:
    """Answers what changes, what stays and the driver; an answer is a text or an Answer, or a list of them in turn.

    ``named`` is the tool that is installed, ``now`` is the clock, ``bus`` a folder of PCI devices.
    """

    def __init__(self, bus, changes, stays=NOBODY, driver="Driver Version: 6.3.31-V1.9.0\n", named="hy-smi"):
        self.bus = bus
        bus.mkdir(exist_ok=True)
        self.changes, self.stays, self.driver, self.named = changes, stays, driver, named
        self.calls = []
        self.now = 100.0

    def place(self, address, vendor="0x1d94", kind="0x120000"):
        """Put a device on the bus."""
        folder = self.bus / address
        folder.mkdir()
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "class").write_text(f"{kind}\n")

    def __call__(self, command):
        """Answer."""
        if command[0] != self.named:
            return Answer(reason=MISSING)
        self.calls.append(" ".join(command))
        which = "driver" if "--json" not in command else "changes" if "--showuse" in command else "stays"
        answer = getattr(self, which)
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        return answer if isinstance(answer, Answer) else Answer(answer)

    def reader(self):
        """Return a reader that is connected."""
        reader = Hygon(self, bus=str(self.bus), clock=lambda: self.now)
        reader.open()
        return reader


def read(reader):
    """Return the samples of one round by their index."""
    return {index: reader.read(index) for index in reader.devices()}
