"""MindFormers, and MindSpore's own monitor of the loss.

Sources: mindformers.core.callback: "{ Epoch:[  1/  2], step:[    3/   19], loss: 9.676, per_step_time: 1754ms, lr:
9.98e-06, overflow cond: False, loss_scale: 1.0, global_norm: [10.579815], train_throughput_per_npu: 170.523T" and a
second line with a bar; in graphs that do not sink, "loss:[2.223/2.223], time:1951.615 ms, lr:[2.45e-06]" (the value of
the step, then the mean).  The step is that of the epoch.  The norm is printed as NumPy prints it: what is no number
there ("[1 31042]") is left out.  Before 2023 it printed the outputs as they were: "epoch: 0, current epoch percent:
0.037, step: 10, outputs are (Tensor(shape=[1], dtype=Float32, value= [ 1.85e-01]), Tensor(shape=[], dtype=Bool, value=
True), Tensor(... value= 4.19e+06))", which are loss, overflow and scale.  mindspore.train.LossMonitor: "epoch: 1 step:
10, loss is 2.25".
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from trainvitals.follow.base import NO, SURE, Facts, Item, LineFormat, LineParser, Row
from trainvitals.follow.record import number
from trainvitals.follow.text import timestamp

_LINE = re.compile(r"Epoch: ?\[ *(\d{1,9})/ *(\d{1,9})\], step: ?\[ *(\d{1,12})/ *(\d{1,12})\],(.{1,4000})")
_PAIR = re.compile(r"(overflow cond|[a-z_]{2,40})(?::| (?=\[)) ?(?:\[([^\]\n]{0,64})\]|([^\s,\[\]]{1,64}))")
_OUTPUTS = re.compile(
    r"epoch: (\d{1,9}), current epoch percent: [\d.]{1,9}, step: (\d{1,12}), outputs are \((.{1,2000})\)"
)
_VALUE = re.compile(r"value= \[?\s*([^\s\])]{1,40})")
_TIME = re.compile(r"per step time: ([\d.]{1,20}) ms")
_MONITOR = re.compile(r"epoch: ?(\d{1,9}),? step: ?(\d{1,12}), loss is ([^\s,\[\]]{1,40})")
_SNIFF = re.compile(
    rb"Epoch: ?\[ *\d+/ *\d+\], step: ?\[ *\d+/ *\d+\], ?loss: ?[\[\dni-]"
    rb"|current epoch percent: [\d.]+, step: \d+, outputs are \(|epoch: ?\d+,? step: ?\d+, loss is "
)
_NAMES = {
    "loss": ("loss", 1.0),
    "lr": ("learning_rate", 1.0),
    "global_norm": ("grad_norm", 1.0),
    "loss_scale": ("loss_scale", 1.0),
    "per_step_time": ("step_seconds", 1e-3),
    "time": ("step_seconds", 1e-3),
    "train_throughput_per_npu": ("flops_per_device", 1e12),
}


class _Parser:
    memory = ("_epoch", "_longest", "_last")

    def __init__(self) -> None:
        self._epoch = self._longest = self._last = 0

    def feed(self, line: str) -> Iterable[Item]:
        if found := _LINE.search(line):
            return self._line(line, found)
        if found := _OUTPUTS.search(line):
            read = dict(zip(("loss", "skipped", "loss_scale"), _VALUE.findall(found[3]), strict=False))
            read["skipped"] = "1" if read.get("skipped") == "True" else ""
            values = {name: value for name in read if (value := number(read[name])) is not None}
            return (Row(int(found[2]), {"epoch": float(found[1]), **values}),)
        if found := _MONITOR.search(line):
            return self._monitor(line, found)
        if found := _TIME.search(line):
            return (Row(None, {"step_seconds": float(found[1]) * 1e-3}),)
        return ()

    def _monitor(self, line: str, found: re.Match[str]) -> Iterable[Item]:
        """The step is that of the epoch, whose length shows when the next one begins."""
        epoch, step, loss = int(found[1]), int(found[2]), number(found[3])
        if epoch > self._epoch:
            self._longest = max(self._longest, self._last)
        self._epoch, self._last = epoch, step
        values = {"epoch": float(epoch)} if loss is None else {"epoch": float(epoch), "loss": loss}
        return (Row(max(0, epoch - 1) * self._longest + step, values, timestamp(line)),)

    def _line(self, line: str, found: re.Match[str]) -> Iterable[Item]:
        epoch, epochs, step, steps = (int(found[place]) for place in range(1, 5))
        values = {"epoch": float(epoch)}
        for name, bracketed, bare in _PAIR.findall(found[5]):
            if name in _NAMES:
                ours, factor = _NAMES[name]
                # Of the value of the step and a mean, the first.
                value = number((bracketed.partition("/")[0] or bare).removesuffix("ms").removesuffix("T"))
                if value is not None:
                    values[ours] = value * factor
            elif name == "overflow cond" and bare == "True":
                values["skipped"] = 1.0
        return (Facts(target_steps=epochs * steps), Row((epoch - 1) * steps + step, values, timestamp(line)))


class MindFormers(LineFormat):
    """See the module."""

    name = "mindformers"
    framework = "mindformers"
    needles = (b"Epoch:", b"outputs are (", b"per step time: ", b"loss is ")

    def sniff(self, head: bytes, path: str) -> int:  # noqa: ARG002
        """Return how sure it is; see :class:`Format`."""
        return SURE if _SNIFF.search(head) else NO

    def parser(self) -> LineParser:
        """Return a parser for one file."""
        return _Parser()
