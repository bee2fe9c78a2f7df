r"""The text logs of OpenMMLab: mmengine's and those of mmcv before it.

Sources: mmengine/logging: "Epoch(train) [1][ 103/3128]  lr: 1.0000e-01  eta: 6:12:01  time: 0.0142  data_time: 0.0006
memory: 217  loss: 2.0614", "Iter(train) [ 100/80000]  ...", "Epoch(val) [1][25/25]  accuracy/top1: 41.5000"; mmcv:
"Epoch [3][50/2503]\tlr: 0.02003, time: 1.093, data_time: 0.018, loss: 0.0397", "Iter [50/160000]",
"Epoch(val) [12][3750]\tmAP: 0.25".  Times are those of an iteration; memory is MB (of 2**20 bytes).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from trainvitals import names
from trainvitals.follow.base import NO, SURE, Facts, Item, LineFormat, LineParser, Row
from trainvitals.follow.record import number
from trainvitals.follow.text import timestamp
from trainvitals.telemetry import Event

_LINE = re.compile(
    r"(?:^|\s)(?:Epoch|Iter)(?:\((train|val|test)\))?\s{1,12}"
    r"(?:\[\s{0,9}(\d{1,9})\])?\[\s{0,9}(\d{1,12})(?:/\s{0,9}(\d{1,12}))?\]\s{1,8}(.{1,4000})"
)
_PAIR = re.compile(r"([A-Za-z_][\w./@-]{0,120}): ([+-]?(?:nan|inf|\d[\d.]{0,30}(?:e[+-]?\d{1,3})?))(?=,|\s|$)")
_SAVING = re.compile(r"Saving checkpoint at (\d{1,12}) (epochs|iterations)")
_SNIFF = re.compile(
    rb"(?:^|\s)(?:Epoch|Iter)(?:\((?:train|val|test)\))?\s{1,12}(?:\[\s*\d+\])?\[\s*\d+(?:/\s*\d+)?\]\s{1,8}[^\n]{0,300}"
    rb"(?:lr|time|data_time|mAP|loss)\b"
)
_NAMES = {
    "time": ("step_seconds", 1.0),
    "data_time": ("data_seconds", 1.0),
    "memory": ("memory_bytes", 2.0**20),
}


class _Parser:
    memory = ("_step", "_length")

    def __init__(self) -> None:
        self._step = 0
        self._length = 0

    def feed(self, line: str) -> Iterable[Item]:
        found = _LINE.search(line)
        if found is None:
            saving = _SAVING.search(line)
            if saving is None:
                return ()
            step = int(saving[1]) if saving[2] == "iterations" else -1
            return (Event(timestamp(line) or 0.0, "checkpoint", step, {"action": "save", "ok": True}),)
        mode, epoch, iteration, of, text = found.groups()
        values = {}
        for name, read in _PAIR.findall(text):
            ours, factor = _NAMES.get(name) or (names.ours(name), 1.0)
            value = number(read)
            # "copypaste" is a row of numbers.
            if value is not None and name != "eta" and not name.endswith("_copypaste"):
                values[ours] = value * factor
        moment = timestamp(line)
        if mode in {"val", "test"}:
            results = {name: value for name, value in values.items() if name not in _OF_TRAINING}
            split = "validation" if mode == "val" else "test"
            return (Row(self._step, results, moment, split=split),) if results else ()
        if not values:
            return ()
        self._step = int(iteration)
        if epoch is None:
            facts = (Facts(target_steps=int(of)),) if of else ()
            return (*facts, Row(self._step, values, moment))
        self._length = int(of) if of else self._length
        self._step += max(0, int(epoch) - 1) * self._length
        return (Row(self._step, {**values, "epoch": float(epoch)}, moment),)


_OF_TRAINING = frozenset({"step_seconds", "data_seconds", "memory_bytes", "learning_rate"})


class OpenMMLabText(LineFormat):
    """See the module."""

    name = "openmmlab"
    framework = "openmmlab"
    needles = (b"Epoch", b"Iter", b"Saving checkpoint at ")

    def sniff(self, head: bytes, path: str) -> int:  # noqa: ARG002
        """Return how sure it is; see :class:`Format`."""
        return SURE if _SNIFF.search(head) else NO

    def parser(self) -> LineParser:
        """Return a parser for one file."""
        return _Parser()
