"""What ultralytics and YOLOv5 print: a bar for each epoch, under a heading with the names of its numbers.

Sources: ultralytics/models/yolo/detect/train.py and engine/trainer.py ("Epoch  GPU_mem  box_loss  cls_loss  dfl_loss
Instances  Size", "1/100  2.12G  1.234  2.345  1.456  12  640: 100%|###| 50/50 [00:10<00:00, 4.9it/s]"; losses are means
over the epoch up to there), engine/validator.py (a heading "Class  Images  Instances  Box(P  R  mAP50  mAP50-95)" and a
row "all  128  929  0.512 ..."); yolov5/train.py has "obj_loss" and counts epochs from 0.  A step is an epoch: each is
told when its bar is full.  The loss is the sum of its parts, which have their weights already.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from trainvitals.follow.base import NO, SURE, Facts, Item, LineFormat, LineParser, Row
from trainvitals.follow.record import number

_HEADING = re.compile(r"(?:^|\s)Epoch\s{1,12}(?:GPU_mem|gpu_mem)\s{1,12}(\S.{1,400})")
_EPOCH = re.compile(r"(?:^|\s)(\d{1,9})/(\d{1,9})\s{1,12}([\d.]{1,12})G\s{1,12}([^:|%]{1,400}):\s{0,4}(\d{1,3})%")
_CLASSES = re.compile(r"(?:^|\s)Class\s{1,20}Images\s{1,20}(?:Instances|Labels)\s{1,20}(\S[^:|]{1,200})")
_ALL = re.compile(r"(?:^|\s)all\s{1,20}\d{1,12}\s{1,20}\d{1,12}\s{1,20}([-\d.e\s]{1,200})$")
_SNIFF = re.compile(rb"(?:^|\s)Epoch +(?:GPU_mem|gpu_mem) +\S*_?(?:loss|box)", re.MULTILINE)
#: Counts in a row, that are no measurements.
_COUNTS = frozenset({"Instances", "Size", "labels", "img_size", "Labels"})


class _Parser:
    def __init__(self) -> None:
        self._names: list[str] = []
        self._results: list[str] = []
        self._told: tuple[int, int] | None = None

    def feed(self, line: str) -> Iterable[Item]:
        if found := _HEADING.search(line):
            self._names = found[1].split()
        elif found := _EPOCH.search(line):
            return self._epoch(found)
        elif found := _CLASSES.search(line):
            # The first name comes with that of the task before it, the last with a bracket.
            self._results = [name.rpartition("(")[2].strip(")") for name in found[1].split()]
        elif found := _ALL.search(line):
            pairs = zip(self._results, map(number, found[1].split()), strict=False)
            values = {name: value for name, value in pairs if value is not None}
            return (Row(None, values, split="validation"),) if values else ()
        return ()

    def _epoch(self, found: re.Match[str]) -> Iterable[Item]:
        epoch, epochs = int(found[1]), int(found[2])
        if int(found[5]) < 100 or self._told == (epoch, epochs):
            return ()
        texts = found[4].split()
        if len(texts) != len(self._names):
            return ()
        pairs = zip(self._names, map(number, texts), strict=True)
        values = {name: value for name, value in pairs if value is not None and name not in _COUNTS}
        parts = [value for name, value in values.items() if name.endswith("loss") or name in {"box", "obj", "cls"}]
        if not parts:
            return ()
        self._told = (epoch, epochs)
        values["loss"] = math.fsum(parts) if all(map(math.isfinite, parts)) else sum(parts)
        values["memory_bytes"] = float(found[3]) * 1e9
        return (Facts(target_steps=epochs), Row(epoch, values))


class Ultralytics(LineFormat):
    """See the module."""

    name = "ultralytics"
    framework = "ultralytics"
    needles = (b"pu_mem", b"PU_mem", b"G ", b"Class ", b" all ")

    def sniff(self, head: bytes, path: str) -> int:  # noqa: ARG002
        """Return how sure it is; see :class:`Format`."""
        return SURE if _SNIFF.search(head) else NO

    def parser(self) -> LineParser:
        """Return a parser for one file."""
        return _Parser()
