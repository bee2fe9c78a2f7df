"""modded-nanogpt and what was made of it: ``step:N/M`` and words with a colon.

Sources: train_gpt.py of KellerJordan/modded-nanogpt, of four generations: "step:1/6203 train_loss:10.9187
train_time:74701ms step_avg:nanms" (the first steps have no mean), later without a loss ("step:1/1393 train_time:101ms
step_avg:101.21ms"), and results ("step:6203/6203 val_loss:3.2788 train_time:1339067ms step_avg:216.33ms"); forks add
val_bpb and tok/s, write "step:20/1000, tokens seen:2.49M, avg_train_loss:2.44 time:48/224s" or "loss:3.93 t:168532ms
avg:300.9ms".  The times are those since the begin of the training.  The file begins with the source of the program.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from trainvitals.follow.base import NO, SURE, Facts, Item, LineFormat, LineParser, Row

#: Something may stand before: the time that somebody added, or the name of a worker.
_LINE = re.compile(r"(?:^|[\s\]:>])step:(\d{1,12})/(\d{1,12}),? (.{1,1000})")
_WORD = re.compile(
    r"([A-Za-z_][\w/]{0,40}(?: seen)?): ?(nan|[+-]?inf|[+-]?[\d.]{1,30}(?:e[+-]?\d{1,3})?)"
    r"(?:/[\d.]{1,30})?([a-zA-Z]{0,2})"
)
_SNIFF = re.compile(
    rb"(?:^|[\s\]:>])step:\d+/\d+,? (?:[^\n]{0,40} )?(?:(?:avg_)?(?:train_|val_)?loss:[\dni]|train_time:[\d.]+m?s)",
    re.MULTILINE,
)
_UNITS = {"ms": 1e-3, "K": 1e3, "M": 1e6, "B": 1e9}
_TRAINING = {
    "loss": "loss",
    "train_loss": "loss",
    "avg_train_loss": "loss",
    "train_time": "elapsed_seconds",
    "time": "elapsed_seconds",
    "t": "elapsed_seconds",
    "tok/s": "tokens_per_second",
    "tokens seen": "total_tokens",
    "lr": "learning_rate",
    "grad_norm": "grad_norm",
    "norm": "grad_norm",
    # Seconds of a step as a mean since the begin: no duration of this one.
    "step_avg": "mean_step_seconds",
    "avg": "mean_step_seconds",
}


class _Parser:
    def __init__(self) -> None:
        self._trains = False

    def feed(self, line: str) -> Iterable[Item]:
        found = _LINE.search(line)
        if found is None:
            return ()
        step, target = int(found[1]), int(found[2])
        training: dict[str, float] = {}
        results: dict[str, float] = {}
        for word, number, unit in _WORD.findall(found[3]):
            try:
                value = float(number) * _UNITS.get(unit, 1.0)
            except ValueError:
                continue
            if word.startswith("val_"):
                results[word.removeprefix("val_")] = value
            elif word == "step_avg" and value != value:  # noqa: PLR0124  NaN: there is no mean yet.
                continue
            else:
                training[_TRAINING.get(word, word)] = value
        if results:
            rows = (Row(step, results, split="validation"),)
            # Some write results only: then these are the steps.
            elapsed = {"elapsed_seconds": training["elapsed_seconds"]} if "elapsed_seconds" in training else {}
            if self._trains or not step:
                elapsed = {}
            return (Facts(target_steps=target), *([Row(step, elapsed)] if elapsed else []), *rows)
        if not training.keys() & {"loss", "elapsed_seconds"}:
            return ()
        self._trains = True
        return (Facts(target_steps=target), Row(step, training))


class ModdedNanoGPT(LineFormat):
    """See the module."""

    name = "modded-nanogpt"
    framework = "modded-nanogpt"
    needles = (b"step:",)

    def sniff(self, head: bytes, path: str) -> int:  # noqa: ARG002
        """Return how sure it is; see :class:`Format`."""
        return SURE if _SNIFF.search(head) else NO

    def parser(self) -> LineParser:
        """Return a parser for one file."""
        return _Parser()
