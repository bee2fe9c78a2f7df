"""npu-smi and hccn_tool as a test wants them."""

from __future__ import annotations

from pathlib import Path

from trainvitals.devices.ascend.reader import Ascend
from trainvitals.devices.tools import MISSING, Answer

FOLDER = Path(__file__).parent


def text(name):
    """Return what a tool prints: a fixture."""
    return (FOLDER / f"{name}.txt").read_text()


class Tools:
    """Answers by the table, and by kind (``common``, ``-link``) for every card, or for one: ``("common", "1")``.

    An answer is a text or an Answer; a kind without one is a tool that is not there.  ``now`` is the clock.
    """

    def __init__(self, table, answers=()):
        self.table = table
        self.answers = dict(answers)
        self.calls = []
        self.now = 1000.0
        #: Seconds that each question takes.
        self.cost = 0.0

    def __call__(self, command):
        """Answer."""
        self.calls.append(" ".join(command))
        self.now += self.cost
        if command[0] == "hccn_tool":
            answer = self._one(command[3], command[2])
        elif "-t" in command:
            answer = self._one(command[3], command[5])
        else:
            answer = self.table
        return answer if isinstance(answer, Answer) else Answer(answer, seconds=self.cost)

    def _one(self, kind, card):
        return self.answers.get((kind, card), self.answers.get(kind, Answer(reason=MISSING)))

    def reader(self):
        """Return a reader that is connected."""
        reader = Ascend(self, bus="/nowhere", clock=lambda: self.now)
        reader.open()
        return reader


def read(tools, reader=None):
    """Return the samples of one round by their index."""
    reader = reader or tools.reader()
    return {index: reader.read(index) for index in reader.devices()}
