"""PaddleNLP's trainer.

Source: paddlenlp.trainer: "[2025-08-31 16:19:16,001] [    INFO] - loss: 3.25806544, learning_rate: 2.99e-05,
global_step: 10, interval_runtime: 2.2594, interval_samples_per_second: 3.544, interval_steps_per_second: 4.42, epoch:
0.0268"; later "progress_or_epoch", memory in GB (of 2**30 bytes) and TFLOPS of the device.  interval_runtime is the
time of all steps since the line before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from trainvitals.follow.base import NO, SURE, Item, LineFormat, LineParser, Row
from trainvitals.follow.record import Records
from trainvitals.follow.text import timestamp
from trainvitals.telemetry import Event

_PAIR = re.compile(r"([A-Za-z_][\w/.-]{0,120}): ([^\s,]{1,64})(?=,|\s|$)")
_SAVING = re.compile(r"Saving model checkpoint to (\S{1,1000})")
_STEP = re.compile(r"checkpoint-(\d{1,12})")
_SNIFF = re.compile(rb"(?:^|\s)\[ {0,8}INFO\][^\n]{0,200} - [^\n]{0,2000}(?:global_step: \d+|eval_loss: [\d.]+),")
_UNITS = {
    "current_memory_allocated": ("memory_allocated_bytes", 2.0**30),
    "current_memory_reserved": ("memory_reserved_bytes", 2.0**30),
    "max_memory_allocated": ("max_memory_allocated_bytes", 2.0**30),
    "max_memory_reserved": ("max_memory_reserved_bytes", 2.0**30),
    "interval_runtime": ("interval_seconds", 1.0),
    "interval_samples_per_second": ("samples_per_second", 1.0),
    "interval_steps_per_second": ("steps_per_second", 1.0),
    "interval_tokens_per_second_per_device": ("tokens_per_second_per_device", 1.0),
    "interval_hardware_tflops_per_device": ("flops_per_device", 1e12),
    "progress_or_epoch": ("epoch", 1.0),
}


class _Parser:
    def __init__(self) -> None:
        self._records = Records(_UNITS, steps=("global_step",))

    def feed(self, line: str) -> Iterable[Item]:
        if found := _SAVING.search(line):
            step = _STEP.search(found[1])
            fields = {"action": "save", "ok": True, "path": found[1]}
            return (Event(timestamp(line) or 0.0, "checkpoint", int(step[1]) if step else -1, fields),)
        _, dash, text = line.partition(" - ")
        record = dict(_PAIR.findall(text if dash else line))
        if not record.keys() & {"global_step", "eval_loss", "train_runtime"}:
            return ()
        moment = timestamp(line)
        items = self._records.rows(record)
        return tuple(item._replace(time=moment) if isinstance(item, Row) else item for item in items)


class PaddleNLP(LineFormat):
    """See the module."""

    name = "paddlenlp"
    framework = "paddlenlp"
    needles = (b"global_step: ", b"eval_loss: ", b"train_runtime: ", b"Saving model checkpoint to ")

    def sniff(self, head: bytes, path: str) -> int:  # noqa: ARG002
        """Return how sure it is; see :class:`Format`."""
        return SURE if _SNIFF.search(head) else NO

    def parser(self) -> LineParser:
        """Return a parser for one file."""
        return _Parser()
