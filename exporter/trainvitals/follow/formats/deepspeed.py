"""DeepSpeed: what its engine prints, with the losses of what runs over it.

Sources: deepspeed/utils/logging.py and timer.py: "[Rank 0] step=40, skipped=2, lr=[5e-05], mom=[[0.9, 0.99]]" (skipped
is a total), "epoch=0/micro_step=34/global_step=34, RunningAvgSamplesPerSec=7.86, CurrSamplesPerSec=8.0,
MemAllocated=59.65GB" (GB of 2**30 bytes), of old "0/40, SamplesPerSec=83.4", "time (ms) | fwd: 652.4";
runtime/pipe/engine.py: "steps: 10 loss: 2.3048 iter time (s): 0.415 samples/sec: 77.673".

Only the engine of pipelines tells the loss.  It comes from the Hugging Face Trainer, or from what DeepSpeed's examples
print: "epoch: 0|step: 4|act_loss: 0.02", "Step at 4 with Perplexity: 61.5" (the loss is its logarithm), "ppl: 4998.2"
of an evaluation.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from trainvitals.follow.base import LIKELY, NO, Item, LineFormat, LineParser, Row
from trainvitals.follow.formats import plain
from trainvitals.follow.formats.transformers import read_dict
from trainvitals.follow.record import number
from trainvitals.follow.text import timestamp

_STEP = re.compile(r"\[Rank \d{1,6}\] step=(\d{1,12}), skipped=(\d{1,12}), lr=\[([^\],]{1,40})")
_TIMER = re.compile(r"(?:global_step=|\] \d{1,6}/)(\d{1,12}), (?=(?:RunningAvg)?SamplesPerSec=)(.{1,1000})")
_WORD = re.compile(r"([A-Za-z]{3,40})=([\d.]{1,24})(GB)?")
_TIMES = re.compile(r"time \(ms\) \|(.{1,4000})")
_TIME = re.compile(r"([a-z_]{2,60}): ([\d.]{1,20})")
_PIPE = re.compile(r"steps: (\d{1,12}) loss: (\S{1,40}) iter time \(s\): ([\d.]{1,20}) samples/sec: ([\d.]{1,20})")
_PERPLEXITY = re.compile(r"Step at (\d{1,12}) with Perplexity: (\S{1,40})")
_RESULT = re.compile(r"^(?:ppl: (\S{1,40})$|chosen_last_scores .{0,60}, acc \(higher is better\) : (\S{1,40}))")
_LOSS = re.compile(r"(?:^|, )loss: ([\d.na+-]{1,40}|-?inf)\s*$")
_SNIFF = re.compile(rb"\[logging\.py:\d+:log_dist\]|\[timer\.py:\d+:stop\]|steps: \d+ loss: \S+ iter time \(s\): ")
_NAMES = {
    "CurrSamplesPerSec": "samples_per_second",
    "SamplesPerSec": "samples_per_second",
    "MemAllocated": "memory_allocated_bytes",
    "MaxMemAllocated": "max_memory_allocated_bytes",
}
_MAX_TIMERS = 24


class _Parser:
    memory = ("_skipped", "_program_counts")

    def __init__(self) -> None:
        self._skipped = 0
        self._plain = plain.Plain().parser()
        #: Once the program counts, the engines (there may be several) do not.
        self._program_counts = False

    def feed(self, line: str) -> Iterable[Item]:
        if found := _STEP.search(line):
            return self._step(line, found)
        if found := _TIMER.search(line):
            return self._timer(line, found)
        if found := _TIMES.search(line):
            pairs = _TIME.findall(found[1])[:_MAX_TIMERS]
            values = {f"timer/{name}_seconds": value / 1e3 for name, text in pairs if (value := number(text))}
            return (Row(None, values),) if values else ()
        if "'epoch': " in line:
            # Its step is that of the engine before.
            return read_dict(line)
        return self._program(line)

    def _step(self, line: str, found: re.Match[str]) -> Iterable[Item]:
        values = {}
        rate, skipped = number(found[3]), int(found[2])
        if rate is not None:
            values["learning_rate"] = rate
        if skipped > self._skipped:
            values["skipped"] = float(skipped - self._skipped)
        self._skipped = skipped
        return (Row(self._number(int(found[1])), values, timestamp(line)),)

    def _timer(self, line: str, found: re.Match[str]) -> Iterable[Item]:
        values = {}
        for name, text, unit in _WORD.findall(found[2]):
            value = number(text)
            if name in _NAMES and value is not None:
                values[_NAMES[name]] = value * 2.0**30 if unit else value
        return (Row(self._number(int(found[1])), values, timestamp(line)),) if values else ()

    def _number(self, step: int) -> int | None:
        return None if self._program_counts else step

    def _program(self, line: str) -> Iterable[Item]:
        if found := _PIPE.search(line):
            step, loss, seconds, speed = found.groups()
            values = {"loss": number(loss), "step_seconds": number(seconds), "samples_per_second": number(speed)}
            known = {name: value for name, value in values.items() if value is not None}
            return (Row(int(step), known, timestamp(line)),)
        if found := _PERPLEXITY.search(line):
            value = number(found[2])
            if value is None:
                return ()
            loss = math.log(value) if value > 0.0 else math.nan
            return (Row(int(found[1]), {"loss": loss, "perplexity": value}),)
        if found := _RESULT.search(line):
            value = number(found[1] or found[2])
            name = "ppl" if found[1] else "acc"
            return () if value is None else (Row(None, {name: value}, split="validation"),)
        items = tuple(self._plain.feed(line))
        # A line with an epoch alone is a summary: the engine counts more finely.
        if any(isinstance(item, Row) and "epoch" in item.values for item in items):
            self._program_counts = True
            return items
        found = _LOSS.search(line)
        loss = None if found is None else number(found[1])
        return () if loss is None else (Row(None, {"loss": loss}),)


class DeepSpeed(LineFormat):
    """See the module."""

    name = "deepspeed"
    framework = "deepspeed"
    needles = (
        b"step=",
        b"SamplesPerSec=",
        b"time (ms) |",
        b"'epoch': ",
        b"loss",
        b"Perplexity: ",
        b"ppl: ",
        b"(higher is",
    )

    def sniff(self, head: bytes, path: str) -> int:  # noqa: ARG002
        """Return how sure it is: LIKELY, since what runs over it knows more; see :class:`Format`."""
        return LIKELY if _SNIFF.search(head) else NO

    def parser(self) -> LineParser:
        """Return a parser for one file."""
        return _Parser()
