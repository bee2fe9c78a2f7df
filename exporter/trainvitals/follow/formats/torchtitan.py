"""torchtitan: what it prints, and the events that it writes for each rank.

Sources: torchtitan/components/metrics.py: "step: 14  loss:  3.24408  grad_norm:  0.8312  memory:  9.46GiB(64.92%)  tps:
7,285  tflops: 0.55  mfu: 0.10%" (mfu is N/A for quantized weights, tps that of one device) and "validate step: 20
loss: ...", coloured also in files; torchtitan/observability: one JSON object a line with rank, step, log_type_name,
value and time_us; names and numbers are in those of the type metric_value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from trainvitals import names
from trainvitals.follow.base import NO, SURE, Facts, Item, LineFormat, LineParser, Row
from trainvitals.follow.record import load, number
from trainvitals.follow.text import timestamp
from trainvitals.telemetry import Event

_LINE = re.compile(r"(?:^|[\s\]:>])(validate )?step: {1,12}(\d{1,12})  (.{1,2000})")
_STARTS = re.compile(r"[Tt]raining starts at step .{0,400}total steps (\d{1,12})")
_COMPLETED = re.compile(r" - INFO - Training completed")
_PAIR = re.compile(r"([A-Za-z_][\w/ ]{0,80}?): {0,12}([+-]?(?:nan|inf|[\d.][\d.,]{0,30}(?:e[+-]?\d{1,3})?))(GiB|%)?")
_SAVED = re.compile(r"Saving the checkpoint|Finished saving the checkpoint in ([\d.]{1,12}) seconds")
_SNIFF = re.compile(rb"(?:^|[\s\]:>])step: +\d+  loss: +[\dni.-]+ ")
_UNITS = {
    "tps": ("tokens_per_second_per_device", 1.0),
    # What tps was called in 2024.
    "wps": ("tokens_per_second_per_device", 1.0),
    "tflops": ("flops_per_device", 1e12),
    "mfu": ("mfu", 1e-2),
    "memory": ("memory_bytes", 2.0**30),
}


class _Parser:
    def feed(self, line: str) -> Iterable[Item]:
        found = _LINE.search(line)
        if found is None:
            if starts := _STARTS.search(line):
                return (Facts(target_steps=int(starts[1])),)
            if _COMPLETED.search(line):
                return (Facts(finished=timestamp(line) or 0.0),)
            saved = _SAVED.search(line)
            if saved is None or saved[1] is None:
                return ()
            fields = {"action": "save", "ok": True, "seconds": float(saved[1])}
            return (Event(timestamp(line) or 0.0, "checkpoint", -1, fields),)
        values = {}
        for name, text, _ in _PAIR.findall(found[3]):
            ours, factor = _UNITS.get(name) or (names.ours(name), 1.0)
            value = number(text)
            if value is not None:
                values[ours] = value * factor
        split = "validation" if found[1] else ""
        return (Row(int(found[2]), values, timestamp(line, 0, found.start(2)), split=split),) if values else ()


class TorchTitan(LineFormat):
    """What is printed."""

    name = "torchtitan"
    framework = "torchtitan"
    needles = (b"step: ", b"saving the checkpoint in ", b"raining starts at step", b"Training completed")

    def sniff(self, head: bytes, path: str) -> int:  # noqa: ARG002
        """Return how sure it is; see :class:`Format`."""
        return SURE if _SNIFF.search(head) else NO

    def parser(self) -> LineParser:
        """Return a parser for one file."""
        return _Parser()


class _EventParser:
    def feed(self, line: str) -> Iterable[Item]:
        record = load(line)
        if record is None or record.get("log_type_name") != "metric_value":
            return ()
        name, value, step = record.get("event_name"), number(record.get("value")), record.get("step")
        if not isinstance(name, str) or not 0 < len(name) <= 200 or value is None:
            return ()
        if not isinstance(step, int) or step < 0:
            return ()
        rank, moment = record.get("rank"), number(record.get("time_us"))
        return (
            Row(
                step,
                {names.ours(name): value},
                None if moment is None else moment * 1e-6,
                rank if isinstance(rank, int) and 0 <= rank < 1 << 24 else None,
            ),
        )


class TorchTitanEvents(LineFormat):
    """The structured log of one rank."""

    name = "torchtitan-events"
    framework = "torchtitan"
    needles = (b"metric_value",)
    prefixed = False
    _mark = re.compile(rb'^\{[^\n]*"log_type_name": ?"', re.MULTILINE)

    def sniff(self, head: bytes, path: str) -> int:  # noqa: ARG002
        """Return how sure it is; see :class:`Format`."""
        return SURE if self._mark.search(head) else NO

    def parser(self) -> LineParser:
        """Return a parser for one file."""
        return _EventParser()
