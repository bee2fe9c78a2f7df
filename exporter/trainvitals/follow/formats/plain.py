"""What people print themselves: a step and a loss in one line, in any words.

A careful guess.  A line counts if a number stands behind a word for a step (step, iteration, epoch) and another behind
one for a loss: "Epoch [2/5], Step [100/600], Loss: 0.5", "iter 238 step 119: loss 10.82, iter time: 215.2ms", "epoch 20
train_loss 1.8 dev_f1 0.42", "[TRAIN] epoch: 1, iter: 20/503, loss: 2.08, lr: 0.009", and a bar of tqdm with an epoch
before it and a loss behind.  "Epoch 3/20" may also stand alone, with losses in the lines below.  Words and forms are
those of the tutorials and examples of PyTorch ("Epoch: [0][ 11/5005] ... Loss 6.9e+00 (7.1e+00)", "Train Epoch: 1
[640/60000 (1%)]", "loss: 2.3  [ 64/60000]", "[1,  2000] loss: 2.173"), torchvision, timm, Detectron2, litgpt, OLMo
("[step=10/1000,epoch=0]" above the values), PaddleSeg and DeepSpeed-Chat; some words may be Chinese.

A step that begins anew in each epoch is counted on.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from trainvitals import names
from trainvitals.follow import words
from trainvitals.follow.base import GUESS, NO, Facts, Item, LineFormat, LineParser, Row
from trainvitals.follow.record import number
from trainvitals.follow.text import timestamp

#: With what the C library of Windows writes for what is no number.
_NUMBER = (
    r"[+-]?(?:nan|inf(?:inity)?|1\.#(?:QNAN|SNAN|IND|INF)0{0,6}"
    r"|\d[\d,]{0,20}\.?\d{0,20}(?:e[+-]?\d{1,3})?|\.\d{1,20})(?!\.?#)"
)
#: A name of one or two words, a sign or a bracket, a number, of how many, a unit; no clock, date or version.
_PAIR = re.compile(
    r"(?<![\w.])([A-Za-z][\w./@-]{0,60}(?: [A-Za-z][\w./@-]{0,60})?)(?: ?\([A-Za-z_ ./]{1,30}\))?"
    r"(?:[\"']?: ?[\"']?| ?[:=] ?|\s{1,8})"
    rf"[\[(]?\s{{0,12}}({_NUMBER})(?:\s?/\s?(\d{{1,12}}))?\s?(ms|%|it/s|s)?(?![\w/]|:\d|\.\d|-\d)",
    re.IGNORECASE,
)
_BAR = re.compile(r"\| (\d{1,12})/(\d{1,12}) \[[^\]\n]{0,40}")
#: Behind an epoch, or behind a loss: how far it is.
_PLACE = re.compile(
    r"(?:(?<![\w])(?:epoch|train):? ?\[?\s{0,6}\d{1,9}(?: ?/ ?\d{1,9})?\]?\s{0,4}|loss:? \S{1,30}\s{1,4})"
    r"\[\s{0,9}(\d{1,12})\s{0,4}/\s{0,4}(\d{1,12})(?: ?\(\s{0,4}\d{1,3}(?:\.\d{1,6})?%\))?\]",
    re.IGNORECASE,
)
#: "[1,  2000] loss: 2.173": epoch and batch.
_PLACES = re.compile(r"(?:^|\s)\[(\d{1,9}), {0,8}(\d{1,12})\] loss: ", re.IGNORECASE)
_TIMM = re.compile(r"^Train: (\d{1,9}) \[")
_ALONE = re.compile(r"\W{0,12}epoch:? ?\[?(\d{1,9})(?: ?/ ?(\d{1,9}))?\]?\W{0,12}", re.IGNORECASE)
_STEP_ALONE = re.compile(r"(?:.{0,200}\s)?\[step=(\d{1,12})(?:/(\d{1,12}))?(?:,epoch=\d{1,9}(?:/\d{1,9})?)?\]\s{0,4}")
#: A line that begins so is about an evaluation.
_EVALUATION = re.compile(r"\W{0,20}(test|testing|val|valid|validation|eval|evaluation)\b(?! loss\b)", re.IGNORECASE)
_NAMES_OF_IT = frozenset({"test", "testing", "val", "valid", "validation", "eval", "evaluation", "time"})
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
    line = line[:_LONGEST] if line.isascii() else words.translated(line[:_LONGEST])
    for key, text, of, unit in _PAIR.findall(line)[:_MAX_VALUES]:
        value = _windows(text) if "#" in text else number(text)
        word = key.rpartition(" ")[2].lower()
        if value is None or _is_no_value(key, word, unit):
            continue
        total = int(of) if of else None
        if word in words.EPOCHS and value >= 0.0 and value.is_integer():
            counts.setdefault("epoch", (int(value), total))
        elif word in words.STEPS and value >= 0.0 and value.is_integer():
            if (words.STEPS[word], value) > best:
                best, counts["step"] = (words.STEPS[word], value), (int(value), total)
        else:
            value = value / total if total and "acc" in word else value / _FACTORS.get(unit, 1.0)
            _sort_in(key, value, training, results)
    if "loss" not in training and (other := words.main_loss(training)) is not None:
        training["loss"] = training.pop(other)
    _add_places(line, training, counts)
    _name_times(training)
    if training and (evaluation := _EVALUATION.match(line)):
        split = "test" if evaluation[1].lower().startswith("test") else "validation"
        read = {name: value for name, value in training.items() if name.lower() not in _NAMES_OF_IT}
        return _Line(None, None, None, None, {}, {**results, split: {**read, **results.get(split, {})}})
    (epoch, epochs), (step, steps) = counts.get("epoch", _NOTHING), counts.get("step", _NOTHING)
    return _Line(epoch, epochs, step, steps, training, results)


def _is_no_value(key: str, word: str, unit: str) -> bool:
    """Whether a number is none of the training: the line of a source, how much of a bar is drawn."""
    if word in words.NO_VALUES:
        return key != "in s"
    return word.endswith((".py", ".cc", ".cpp")) or (unit == "%" and word in words.STEPS)


def _add_places(line: str, training: dict[str, float], counts: dict[str, tuple[int, int | None]]) -> None:
    """Add the step that has no word of its own: that of a bar, or in brackets."""
    if "epoch" not in counts and (timm := _TIMM.match(line)):
        counts["epoch"] = (int(timm[1]), None)
        training.pop("Train", None)
    if "step" in counts or not ("loss" in training or "epoch" in counts):
        return
    if place := _BAR.search(line) or _PLACE.search(line):
        counts["step"] = (int(place[1]), int(place[2]))
    elif place := _PLACES.search(line):
        counts["epoch"], counts["step"] = (int(place[1]), None), (int(place[2]), None)


def _name_times(training: dict[str, float]) -> None:
    """Rename times of an iteration and of waiting for its data, if both are told; one alone may be anything."""
    lower = {name.lower(): name for name in training}
    if "time" in lower and ("data" in lower or "data_seconds" in lower):
        training["step_seconds"] = training.pop(lower["time"])
        if "data" in lower:
            training["data_seconds"] = training.pop(lower["data"])


def _windows(text: str) -> float:
    return float("-inf" if text[0] == "-" else "inf") if "INF" in text.upper() else float("nan")


def _sort_in(key: str, value: float, training: dict[str, float], results: dict[str, dict[str, float]]) -> None:
    found = names.result(key.replace(" ", "_")) if " " in key else names.result(key)
    if found is not None:
        results.setdefault(found.split, {}).setdefault("loss" if found.name.lower() == "loss" else found.name, value)
        return
    plain = key.lower()
    if plain == "val":
        # litgpt's.
        results.setdefault("validation", {}).setdefault("loss", value)
        return
    ours = words.SECONDS.get(plain) or words.SPEEDS.get(plain) or names.ours(key)
    if set(plain.split()) == {"loss", "train"}:
        ours = "loss"
    if ours != "step":
        training.setdefault(ours, value)


class _Parser:
    memory = ("_epoch", "_before", "_step", "_length", "_heading", "_under_epoch", "_first", "_counts_steps")

    def __init__(self) -> None:
        self._epoch = self._before = self._step = 0
        self._length: int | None = None
        #: The epoch of a line of its own, and whether a step was told since anything began.
        self._heading: int | None = None
        self._under_epoch = False
        #: The number of the first epoch: 0 or 1, as a rule.
        self._first: int | None = None
        self._counts_steps = False

    def feed(self, line: str) -> Iterable[Item]:
        if alone := _ALONE.fullmatch(line[:_LONGEST]):
            self._heading, self._under_epoch = int(alone[1]), True
            self._begin_at(self._heading, alone[2] is not None)
            return ()
        if "[step=" in line and (alone := _STEP_ALONE.fullmatch(line[:_LONGEST])):
            self._heading, self._under_epoch, self._counts_steps = int(alone[1]), False, False
            return (Facts(target_steps=int(alone[2])),) if alone[2] else ()
        found = _read(line)
        if not found.has_loss:
            return ()
        if found.epoch is None and found.step is not None and self._heading is not None and self._under_epoch:
            found = found._replace(epoch=self._heading)
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
        if found.epoch is not None:
            self._begin_at(found.epoch, found.epochs is not None)
        if found.epoch is not None and found.epoch != self._epoch:
            if self._length is None and found.steps and self._first is not None and found.epoch > self._first:
                # Of the epochs before, only headings were seen.
                self._before = (found.epoch - self._first) * found.steps
            elif found.epoch < self._epoch:
                self._before = 0
            elif found.step <= self._step:
                self._before += self._length or self._step
            self._epoch = found.epoch
        self._step, self._length = found.step, found.steps
        return self._before + found.step

    def _begin_at(self, epoch: int, is_of_many: bool) -> None:
        """Remember the first epoch.  Who tells of how many counts from 1, as a rule: the log may begin later."""
        if self._first is None:
            self._first = min(epoch, 1) if is_of_many else epoch

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
    needles = (b"oss", b"poch", "损失".encode(), b"[step=")

    def sniff(self, head: bytes, path: str) -> int:  # noqa: ARG002
        """Return GUESS for a text with two steps of a loss that go on, in the same words; see :class:`Format`."""
        parser = _Parser()
        seen: deque[tuple[int, set[str]]] = deque(maxlen=8)
        for line in self._candidates(head):
            for item in parser.feed(line):
                if not isinstance(item, Row) or item.step is None:
                    continue
                told = set(item.values)
                if any(item.step > step and 2 * len(told & said) > len(told | said) for step, said in seen):
                    return GUESS
                seen.append((item.step, told))
        return NO

    def _candidates(self, head: bytes) -> Iterable[str]:
        lines = (line for line in head.split(b"\n") if any(needle in line for needle in self.needles))
        return [line[:_LONGEST].decode("utf-8", "replace") for line, _ in zip(lines, range(4000), strict=False)]

    def parser(self) -> LineParser:
        """Return a parser for one file."""
        return _Parser()


class Pairs(LineFormat):
    """Lines of a step and its loss, and nothing else."""

    name = "pairs"
    surest = GUESS
    _pair = re.compile(rf"\s{{0,20}}(\d{{1,12}})[\s,;]{{1,20}}({_NUMBER})\s{{0,20}}", re.IGNORECASE)

    def sniff(self, head: bytes, path: str) -> int:  # noqa: ARG002
        """Return GUESS for a text with nothing but rising steps and a broken number; see :class:`Format`."""
        lines = head.decode("utf-8", "replace").split("\n")[:50]
        found = [self._pair.fullmatch(line) for line in lines if line.strip()]
        steps = [int(pair[1]) for pair in found if pair is not None]
        rises = all(first < second for first, second in pairwise(steps))
        broken = sum("." in pair[2] for pair in found if pair is not None)
        return GUESS if len(found) == len(steps) >= 3 and rises and 2 * broken > len(found) else NO

    def parser(self) -> LineParser:
        """Return a parser for one file."""
        return _PairParser(self._pair)


class _PairParser:
    def __init__(self, pair: re.Pattern[str]) -> None:
        self._pair = pair

    def feed(self, line: str) -> Iterable[Item]:
        found = self._pair.fullmatch(line)
        return () if found is None else (Row(int(found[1]), {"loss": float(found[2].replace(",", ""))}),)
