"""What the Hugging Face Trainer prints, and all that is built upon it: Axolotl, LLaMA-Factory, ms-swift, TRL.

Sources: transformers.trainer_callback.PrinterCallback and ProgressCallback: {'loss': 1.0373, 'grad_norm': ...,
'learning_rate': ..., 'epoch': 0.05}; from version 5 on every value is a string of four digits; transformers.trainer:
"Total optimization steps = 1,250", "Saving model checkpoint to out/checkpoint-500".  PaddleNLP of 2022 prints the same
with a global_step.

No line says its step, as a rule.  The bar that is drawn before it does ("1311/36237 [11:37<5:12:34, 1.86it/s]"); it
may lag behind by a tenth of a second.  Without a bar (standard output alone) the lines are counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

from trainvitals.follow.base import NO, SURE, Facts, Item, LineFormat, LineParser, Row
from trainvitals.follow.record import STEPS, Records
from trainvitals.follow.text import timestamp
from trainvitals.telemetry import Event

#: A value may be in quotes, or in the name of its type ("np.float64(1.5)", "tensor(1.5, device='cuda:0')").
_PAIR = re.compile(r"'([^'\n]{1,200})': (?:'([^'\n]{0,64})'|(?:[A-Za-z_][\w.]{0,40}\()?([^\s,{}\[\]'()]{1,64}))")
#: A dict that says something of a training, and not of its settings.
_KNOWN = re.compile(r"loss|'(?:eval_|train_|reward|learning_rate'|grad_norm'|global_step|iteration')")
_DICT = re.compile(r"\{'[^'\n]{1,200}': ")
#: tqdm's bar without a description; that of an evaluation looks the same.
_BAR = re.compile(
    r"^(?:[\dT :.,+Z-]{8,40}(?:std(?:out|err) [FP] )?|std(?:out|err) [FP] )?\s{0,8}\d{1,3}%\|[^|]{0,400}"
    r"\| (\d{1,12})/(\d{1,12}) \["
)
_SAVING = re.compile(r"Saving model checkpoint to (\S{1,1000}?checkpoint-(\d{1,12}))(?:/|\s|$)")
_TARGET = re.compile(r"Total optimization steps ?= ?(\d[\d,]{0,19})")
#: An epoch is no step.
_STEPS = tuple(name for name in STEPS if "epoch" not in name)
_MAX_TOTALS = 64
_RUNNING = "***** Running training *****"
_SNIFF = re.compile(rb"'(?:epoch': '?[\d.]{1,24}'?[,}]|(?:iteration|global_step/max_steps)': '\d{1,12}/\d)")

#: Axolotl's.
_UNITS = {
    f"memory/{theirs}{unit}": (f"memory_{ours}_bytes", 2.0**30)
    for theirs, ours in (
        ("max_mem_active", "active"), ("max_active", "active"), ("max_mem_allocated", "allocated"),
        ("max_allocated", "allocated"), ("device_mem_reserved", "reserved"), ("device_reserved", "reserved"),
    )
    for unit in ("(gib)", " (GiB)")
}  # fmt: skip


class _Bars:
    """The number of the step, by the bars.

    The bar of an evaluation has another total.  Which total is the training's shows before a line with a loss; it is
    another one when only another one was drawn since the line before.
    """

    def __init__(self) -> None:
        self._steps: dict[int, int] = {}
        self.total: int | None = None
        self._newest: int | None = None

    def see(self, step: int, total: int) -> None:
        """Take a bar."""
        if len(self._steps) < _MAX_TOTALS or total in self._steps:
            self._steps[total] = step
            self._newest = total

    def at_loss(self) -> int | None:
        """Return the step that the training's bar told since the last line with a loss; None if there was none."""
        if self._steps and self.total not in self._steps:
            self.total = self._newest
        step = None if self.total is None else self._steps.get(self.total)
        self._steps.clear()
        return step


class _Parser:
    memory = ("_step",)

    def __init__(self) -> None:
        self._records = Records(_UNITS, steps=_STEPS)
        self._bars = _Bars()
        self._step = 0

    def feed(self, line: str) -> Iterable[Item]:
        if bar := _BAR.match(line):
            self._bars.see(int(bar[1]), int(bar[2]))
        if "'epoch': " in line or "'iteration': '" in line:
            return self._number(read_dict(line, self._records))
        if found := _SAVING.search(line):
            fields = {"action": "save", "ok": True, "path": found[1]}
            return (Event(timestamp(line) or 0.0, "checkpoint", int(found[2]), fields),)
        if found := _TARGET.search(line):
            return (Facts(target_steps=int(found[1].replace(",", ""))),)
        if _RUNNING in line:
            self._step, self._bars = 0, _Bars()
            return (Facts(started=0.0),)
        return ()

    def _number(self, items: tuple[Item, ...]) -> tuple[Item, ...]:
        """Return the items with the step of the training's row, if that has none."""
        if not any(isinstance(item, Row) and item.step is None and not item.split for item in items):
            return items
        step = self._bars.at_loss()
        # A bar that did not move since is one that lags behind, or that was drawn again below the line before.
        self._step = self._step + 1 if step is None or step == self._step else step
        numbered = (item._replace(step=self._step) if isinstance(item, Row) else item for item in items)
        return (*([Facts(target_steps=self._bars.total)] if self._bars.total else []), *numbered)


def read_dict(line: str, records: Records | None = None) -> tuple[Item, ...]:
    """Return what a printed dict in a line says; rows have a step only where the dict does."""
    begin = _DICT.search(line)
    if begin is None:
        return ()
    record = {key: quoted or bare for key, quoted, bare in _PAIR.findall(line, begin.start())}
    if not record.keys() & {"epoch", "iteration"} or _KNOWN.search(line, begin.start()) is None:
        return ()
    return (records or Records(_UNITS, steps=_STEPS)).rows(record)


class Transformers(LineFormat):
    """See the module."""

    name = "transformers"
    framework = "transformers"
    needles = (
        b"'epoch': ", b"'iteration': '", b"%|", b"Saving model checkpoint to ", b"Total optimization steps",
        _RUNNING.encode(),
    )  # fmt: skip

    def sniff(self, head: bytes, path: str) -> int:  # noqa: ARG002
        """Return how sure it is; see :class:`Format`."""
        for found in islice(_SNIFF.finditer(head), 50):
            begin = max(head.rfind(b"\n", 0, found.start()) + 1, found.start() - 4000)
            line = head[begin : found.end() + 4000].partition(b"\n")[0]
            if b"{'" in line and _KNOWN.search(line.decode("utf-8", "replace")):
                return SURE
        return NO

    def parser(self) -> LineParser:
        """Return a parser for one file."""
        return _Parser()
