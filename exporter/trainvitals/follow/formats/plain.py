"""What people print themselves: a step and a loss in one line, in any words.

A careful guess.  A line counts if a number stands behind a word for a step (step, iteration, epoch) and another behind
one for a loss: "Epoch [2/5], Step [100/600], Loss: 0.5", "iter 238 step 119: loss 10.82, iter time: 215.2ms", "epoch 20
train_loss 1.8 dev_f1 0.42", "[TRAIN] epoch: 1, iter: 20/503, loss: 2.08, lr: 0.009", and a bar of tqdm with an epoch
before it and a loss behind.  "Epoch 3/20" may also stand alone, with losses in the lines below.  Words and forms are
those of the tutorials of PyTorch, litgpt, timm, PaddleSeg and DeepSpeed-Chat.

A step that begins anew in each epoch is counted on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from trainvitals import names
from trainvitals.follow.base import GUESS, NO, Facts, Item, LineFormat, LineParser, Row
from trainvitals.follow.record import number
from trainvitals.follow.text import timestamp

_NUMBER = r"[+-]?(?:nan|inf(?:inity)?|\d[\d,]{0,20}\.?\d{0,20}(?:e[+-]?\d{1,3})?|\.\d{1,20})"
#: A name of one or two words, a sign or a bracket, a number, of how many, a unit; no clock, date or version.
_PAIR = re.compile(
    r"(?<![\w.])([A-Za-z][\w./@-]{0,60}(?: [A-Za-z][\w./@-]{0,60})?)(?: ?\([A-Za-z_ .]{1,30}\))?(?: ?[:=] ?|\s{1,8})"
    rf"[\[(]?\s{{0,12}}({_NUMBER})(?:\s?/\s?(\d{{1,12}}))?\s?(ms|%|it/s|s)?(?![\w/]|:\d|\.\d|-\d)",
    re.IGNORECASE,
)
_BAR = re.compile(r"\| (\d{1,12})/(\d{1,12}) \[[^\]\n]{0,40}")
_ALONE = re.compile(r"\W{0,12}epoch:? ?\[?(\d{1,9})(?: ?/ ?(\d{1,9}))?\]?\W{0,12}", re.IGNORECASE)
#: The higher, the surer; of two that are equally sure, the greater number counts more finely.
_STEPS = {
    "global_step": 3,
    "step": 2,
    "steps": 2,
    "iter": 2,
    "iteration": 2,
    "iters": 2,
    "update": 2,
    "it": 1,
    "batch": 1,
}
_EPOCHS = frozenset({"epoch", "ep"})
_SECONDS = {
    "iter time": "step_seconds", "iter_time": "step_seconds", "step time": "step_seconds", "step_time": "step_seconds",
    "batch time": "step_seconds", "batch_cost": "step_seconds", "data time": "data_seconds",
    "data_time": "data_seconds", "reader_cost": "data_seconds",
}  # fmt: skip
_FACTORS = {"ms": 1e3, "%": 1e2}
_NOTHING: tuple[int | None, int | None] = (None, None)
_MAX_VALUES = 64
_LONGEST = 2000


class _Line(NamedTuple):
    """What stands in a line."""

    epoch: int | None
    epochs: int | None
    step: int | None
    steps: int | None
    training: dict[str, float]
    results: dict[str, dict[str, float]]

    @property
    def has_loss(self) -> bool:
        return "loss" in self.training or any("loss" in values for values in self.results.values())


def _read(line: str) -> _Line:
    counts: dict[str, tuple[int, int | None]] = {}
    best = (0, 0.0)
    training: dict[str, float] = {}
    results: dict[str, dict[str, float]] = {}
    for key, text, of, unit in _PAIR.findall(line[:_LONGEST])[:_MAX_VALUES]:
        value = number(text)
        if value is None:
            continue
        word = key.rpartition(" ")[2].lower()
        total = int(of) if of else None
        if word in _EPOCHS and value >= 0.0 and value.is_integer():
            counts.setdefault("epoch", (int(value), total))
        elif word in _STEPS and value >= 0.0 and value.is_integer():
            if (_STEPS[word], value) > best:
                best, counts["step"] = (_STEPS[word], value), (int(value), total)
        else:
            _sort_in(key, value / _FACTORS.get(unit, 1.0), training, results)
    if "loss" not in training:
        other = next((name for name in training if "loss" in name.lower()), None)
        if other is not None:
            training["loss"] = training.pop(other)
    if "step" not in counts and ("loss" in training or "epoch" in counts) and (bar := _BAR.search(line)):
        counts["step"] = (int(bar[1]), int(bar[2]))
    (epoch, epochs), (step, steps) = counts.get("epoch", _NOTHING), counts.get("step", _NOTHING)
    return _Line(epoch, epochs, step, steps, training, results)


def _sort_in(key: str, value: float, training: dict[str, float], results: dict[str, dict[str, float]]) -> None:
    found = names.result(key.replace(" ", "_")) if " " in key else names.result(key)
    if found is not None:
        results.setdefault(found.split, {}).setdefault("loss" if found.name.lower() == "loss" else found.name, value)
        return
    ours = "loss" if set(key.lower().split()) == {"loss", "train"} else _SECONDS.get(key.lower(), names.ours(key))
    if ours != "step":
        training.setdefault(ours, value)


class _Parser:
    def __init__(self) -> None:
        self._epoch = self._before = self._step = 0
        self._length: int | None = None
        #: The epoch of a line of its own, and whether a step was told since anything began.
        self._heading: int | None = None
        self._counts_steps = False

    def feed(self, line: str) -> Iterable[Item]:
        if alone := _ALONE.fullmatch(line[:_LONGEST]):
            self._heading = int(alone[1])
            return ()
        found = _read(line)
        if not found.has_loss:
            return ()
        facts: tuple[Item, ...] = ()
        if found.step is None and found.epoch is None:
            if self._heading is None and not self._counts_steps:
                return ()
            step = None if self._counts_steps else self._heading
        else:
            step, facts = self._number(found), self._target(found)
        moment = timestamp(line)
        values = found.training
        if found.epoch is not None and found.step is not None:
            values = {**values, "epoch": float(found.epoch)}
        rows = [Row(step, values, moment)] if "loss" in values else []
        return (*facts, *rows, *(Row(step, result, moment, split=split) for split, result in found.results.items()))

    def _number(self, found: _Line) -> int:
        """Return the step of the run."""
        if found.step is None:
            return found.epoch or 0
        self._counts_steps = True
        if found.epoch is not None and found.epoch != self._epoch:
            if found.epoch < self._epoch:
                self._before = 0
            elif found.step <= self._step:
                self._before += self._length or self._step
            self._epoch = found.epoch
        self._step, self._length = found.step, found.steps
        return self._before + found.step

    def _target(self, found: _Line) -> tuple[Item, ...]:
        if found.step is None:
            return () if not found.epochs else (Facts(target_steps=found.epochs),)
        if not found.steps:
            return ()
        if found.epoch is not None and found.epochs:
            return (Facts(target_steps=found.epochs * found.steps),)
        return (Facts(target_steps=found.steps),) if found.epoch is None else ()


class Plain(LineFormat):
    """See the module."""

    name = "plain"
    surest = GUESS
    needles = (b"oss", b"poch")

    def sniff(self, head: bytes, path: str) -> int:  # noqa: ARG002
        """Return GUESS for a text with two steps of a loss that go on; see :class:`Format`."""
        parser, newest, steps = _Parser(), -1, 0
        for line in _lines_with_loss(head):
            for item in parser.feed(line):
                if isinstance(item, Row) and item.step is not None and item.step > newest:
                    newest, steps = item.step, steps + 1
            if steps >= 2:
                return GUESS
        return NO

    def parser(self) -> LineParser:
        """Return a parser for one file."""
        return _Parser()


def _lines_with_loss(head: bytes) -> Iterable[str]:
    lines = (line for line in head.split(b"\n") if b"oss" in line or b"poch" in line)
    return [line[:_LONGEST].decode("utf-8", "replace") for line, _ in zip(lines, range(4000), strict=False)]


class Pairs(LineFormat):
    """Lines of a step and its loss, and nothing else."""

    name = "pairs"
    surest = GUESS
    _pair = re.compile(rf"\s{{0,20}}(\d{{1,12}})[\s,;]{{1,20}}({_NUMBER})\s{{0,20}}", re.IGNORECASE)

    def sniff(self, head: bytes, path: str) -> int:  # noqa: ARG002
        """Return GUESS for a text with nothing but rising steps and a number; see :class:`Format`."""
        lines = head.decode("utf-8", "replace").split("\n")[:50]
        found = [self._pair.fullmatch(line) for line in lines if line.strip()]
        steps = [int(pair[1]) for pair in found if pair is not None]
        rises = all(first < second for first, second in pairwise(steps))
        return GUESS if len(found) == len(steps) >= 3 and rises else NO

    def parser(self) -> LineParser:
        """Return a parser for one file."""
        return _PairParser(self._pair)


class _PairParser:
    def __init__(self, pair: re.Pattern[str]) -> None:
        self._pair = pair

    def feed(self, line: str) -> Iterable[Item]:
        found = self._pair.fullmatch(line)
        return () if found is None else (Row(int(found[1]), {"loss": float(found[2].replace(",", ""))}),)
