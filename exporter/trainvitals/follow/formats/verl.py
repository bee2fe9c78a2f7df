"""verl: one line a step, of everything that it knows.

Source: verl/utils/logger: "step:34 - actor/pg_loss:0.042 - actor/grad_norm:0.129 - actor/lr:2e-06 - timing_s/step:74.0
- training/global_step:34"; Ray puts "(TaskRunner pid=16295) " before it, and may break a long line in the middle.
There is no loss that falls: what counts is the reward.  The actor's loss is called loss where there is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from trainvitals.follow.base import NO, SURE, Item, LineFormat, LineParser, Row

_LINE = re.compile(r"(?:^|[\s\]:>])step:(\d{1,12}) - (.{1,200000})")
_PAIR = re.compile(
    r"([A-Za-z_][^\s:]{0,160}):(?:np\.float\d\d\()?([+-]?(?:nan|inf|\d[\d.]{0,30}(?:e[+-]?\d{1,3})?))\)?(?= - |\s*$)"
)
_SNIFF = re.compile(rb"(?:^|[\s\]:>])step:\d+ - [A-Za-z_][\w/@.-]{1,160}:[+-]?[\dni]")
_NAMES = {
    "actor/loss": "loss",
    "train/loss": "loss",
    "actor/lr": "learning_rate",
    "train/lr": "learning_rate",
    "actor/grad_norm": "grad_norm",
    "train/grad_norm": "grad_norm",
    "timing_s/step": "step_seconds",
    "perf/time_per_step": "step_seconds",
    "perf/throughput": "tokens_per_second_per_device",
    "perf/mfu/actor": "mfu",
    "training/epoch": "epoch",
    "training/global_step": "",
}
_RESULTS = ("val-core/", "val-aux/", "val/")
_MAX_VALUES = 400


class _Parser:
    def feed(self, line: str) -> Iterable[Item]:
        found = _LINE.search(line)
        if found is None:
            return ()
        training: dict[str, float] = {}
        results: dict[str, float] = {}
        for name, text in _PAIR.findall(found[2])[:_MAX_VALUES]:
            value = float(text)
            prefix = next((prefix for prefix in _RESULTS if name.startswith(prefix)), "")
            if name == "training/total_steps":
                continue
            if prefix:
                # Core results first: the same name below val-aux is another one.
                results.setdefault(name.removeprefix(prefix) if prefix != "val-aux/" else name, value)
            elif ours := _NAMES.get(name, name):
                training.setdefault(ours, value)
        step = int(found[1])
        rows = [Row(step, training)] if training else []
        return (*rows, *([Row(step, results, split="validation")] if results else []))


class Verl(LineFormat):
    """See the module."""

    name = "verl"
    framework = "verl"
    needles = (b"step:",)

    def sniff(self, head: bytes, path: str) -> int:  # noqa: ARG002
        """Return how sure it is; see :class:`Format`."""
        return SURE if _SNIFF.search(head) else NO

    def parser(self) -> LineParser:
        """Return a parser for one file."""
        return _Parser()
