"""Keras' bars: an epoch in a line of its own, then a bar that is drawn anew with each batch.

Sources: keras.utils.Progbar: "Epoch 1/12", "61/82 [=====>....] - ETA: 37s - loss: 0.6019 - accuracy: 0.9263" (each
drawing behind carriage return and backspaces), at the end of the epoch "82/82 [====] - 5s 87us/step - loss: ... -
val_loss: ..."; Keras 3: "1878/1878 ━━━━━━ 4s 2ms/step - accuracy: 0.8596 - loss: 0.4874".  A total that is not known
yet is "Unknown" or left out.  With verbose=2 there is only the end, without a bar: "82/82 - 5s - loss: ... - 5s/epoch -
64ms/step".  The loss is a mean over the epoch up to there.  Steps are counted over the epochs.  A bar with another
total, behind one that has reached its end, is that of an evaluation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from trainvitals import names
from trainvitals.follow.base import NO, SURE, Facts, Item, LineFormat, LineParser, Row

_EPOCH = re.compile(r"(?:^|[\s\]:>])Epoch (\d{1,9})/(\d{1,9})\s*$")
_BAR = re.compile(
    r"(?:^|[\s\]:>])(\d{1,12})/(\d{1,12}|Unknown)\s{1,4}(?:\[[=>.]{3,200}\]|[━╸╺ ]{5,200})?"
    r"[^\n]{0,60}?(?: - |\s)(.{1,2000})"
)
_PAIR = re.compile(r"(?:^| )([A-Za-z_][\w/@.-]{0,80}): ([+-]?(?:nan|inf|\d[\d.]{0,30}(?:e[+-]?\d{1,3})?))(?= |$)")
_STEP_TIME = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(us|ms|s)/step")
_SECONDS = {"us": 1e6, "ms": 1e3, "s": 1.0}
_SNIFF = re.compile(
    rb"(?:^|[\s\]:>])\d+/(?:\d+|Unknown) +(?:\[[=>.]{3,200}\]|(?:\xe2\x94\x81|\xe2\x95\xb8|\xe2\x95\xba){3,200})"
    rb"[^\n]{0,120} - [^\n]{0,200}loss: |(?:^|[\s\]:>])\d+/(?:\d+ - |Unknown (?:- )?)\d+s [^\n]{0,200}?loss: ",
    re.MULTILINE,
)


class _Parser:
    memory = ("_epoch", "_epochs", "_before", "_batch", "_missed", "_total")

    def __init__(self) -> None:
        self._epoch, self._epochs = 1, 0
        self._before = self._batch = 0
        #: Epochs before the first that is seen: of a log that was rotated, or is read on in its middle.
        self._missed: int | None = None
        #: How many batches the training's bar has; None as long as no bar of this epoch was drawn.
        self._total: str | None = None

    def feed(self, line: str) -> Iterable[Item]:
        if found := _EPOCH.search(line):
            epoch = int(found[1])
            self._missed = epoch - 1 if self._missed is None else 0
            self._before = self._before + self._batch if epoch > self._epoch and not self._missed else 0
            self._epoch, self._epochs, self._batch = epoch, int(found[2]), 0
            self._total = None
            return ()
        found = _BAR.search(line)
        if found is None or "loss: " not in line:
            return ()
        pairs = {name: float(text) for name, text in _PAIR.findall(found[3])}
        if not any(name.endswith("loss") for name in pairs):
            return ()
        batch = int(found[1])
        items: list[Item] = []
        if self._total is None or self._total == "Unknown":
            self._total = found[2]
        elif found[2] != self._total and str(self._batch) == self._total:
            is_end = found[1] == found[2]
            return (Row(None, {names.ours(name): pairs[name] for name in pairs}, split="evaluation"),) if is_end else ()
        if found[2] != "Unknown" and self._epochs:
            items.append(Facts(target_steps=self._epochs * int(found[2])))
        training = {names.ours(name): value for name, value in pairs.items() if names.result(name) is None}
        results = {result.name: value for name, value in pairs.items() if (result := names.result(name)) is not None}
        if self._missed and found[2] != "Unknown":
            self._before, self._missed = self._missed * int(found[2]), 0
        step = self._before + batch
        training["epoch"] = float(self._epoch)
        if took := _STEP_TIME.search(line):
            training["step_seconds"] = float(took[1]) / _SECONDS[took[2]]
        # The last drawing of an epoch comes twice; what it has more is late.
        items.append(Row(step, training))
        if results:
            items.append(Row(step, results, split="validation"))
        self._batch = batch
        return items


class Keras(LineFormat):
    """See the module."""

    name = "keras"
    framework = "keras"
    needles = (b"Epoch ", b"loss: ")

    def sniff(self, head: bytes, path: str) -> int:  # noqa: ARG002
        """Return how sure it is; see :class:`Format`."""
        return SURE if _SNIFF.search(head) else NO

    def parser(self) -> LineParser:
        """Return a parser for one file."""
        return _Parser()
