"""JSON lines with a step: LLaMA-Factory, ms-swift, OpenMMLab, and what people write.

Sources: LLaMA-Factory's ``trainer_log.jsonl``, ms-swift's ``logging.jsonl``, mmengine's ``vis_data/scalars.json``
({"lr", "data_time", "loss", "time", "step"}, where the time is that of an iteration) and its predecessor in mmcv,
``*.log.json``: a first line with "env_info", then {"mode": "train", "epoch", "iter", "lr", ...} where the iteration
starts anew in each epoch, whose length nobody tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from trainvitals.follow import evidence
from trainvitals.follow.base import GUESS, LIKELY, NO, SURE, Item, LineFormat, LineParser, Piece, Row
from trainvitals.follow.columns import objects_of
from trainvitals.follow.record import STEPS, TIMES, Records, load, number

#: OpenMMLab's own: seconds of an iteration, and MB of the process's caching allocator.
_OPENMMLAB = {
    "time": ("step_seconds", 1.0),
    "data_time": ("data_seconds", 1.0),
    "memory": ("memory_bytes", 2.0**20),
    "mode": ("", 1.0),
}
_SPLITS = {"val": "validation", "test": "test"}


#: An epoch is no step, where there are parts of one.
_STEPS = tuple(name for name in STEPS if "epoch" not in name)


def _has_part_of_epoch(record: Mapping[str, Any]) -> bool:
    epoch = record.get("epoch")
    return epoch.__class__ is float and not epoch.is_integer() and not any(name in record for name in _STEPS)


class _Parser:
    """Any of them."""

    memory = ("_counts", "_count")

    def __init__(self) -> None:
        self._records = Records()
        self._counts, self._count = False, 0

    def feed(self, line: str) -> Iterable[Item]:
        record = load(line)
        if record is None:
            return ()
        if _has_part_of_epoch(record):
            # The Hugging Face Trainer's dicts as JSON: no line says its step, so they are counted.
            self._counts = True
        if not self._counts or any(name in record for name in _STEPS):
            return self._records.rows(record)
        self._count += "loss" in record
        return self._records.rows(record, step=self._count)

    def batch(self, lines: list[str]) -> Sequence[Piece] | None:
        """Return what lines say of which each is an object, without NaN."""
        columns = None if self._counts else objects_of(lines)
        if columns is not None and any(name in columns for name in _STEPS):
            rows = self._records.alike(columns)
            if rows is not None:
                return (rows,)
        records = list(map(orjson.loads, lines))
        if self._counts or set(map(type, records)) != {dict}:
            return None
        if ("epoch" in records[0] or "epoch" in records[-1]) and any(map(_has_part_of_epoch, records)):
            return None
        return self._records.many(records)


class _OpenMMLabParser:
    """Counts iterations over the epochs."""

    memory = ("_epoch", "_iteration", "_before", "_step")

    def __init__(self) -> None:
        # The iteration of an epoch is no step of the run, nor is the epoch.
        self._records = Records(_OPENMMLAB, steps=("step",), times=())
        self._epoch = self._iteration = self._before = self._step = 0

    def feed(self, line: str) -> Iterable[Item]:
        record = load(line)
        if record is None:
            return ()
        if "mode" not in record:
            return self._scalars(record)
        epoch, iteration = number(record.get("epoch")), number(record.get("iter"))
        if epoch is None or iteration is None:
            return ()
        if record["mode"] != "train":
            split = _SPLITS.get(str(record["mode"]), str(record["mode"])[:64])
            results = {key: value for key, value in record.items() if key not in _OF_TRAINING}
            return self._records.rows(results, step=self._step, split=split)
        if epoch != self._epoch:
            # The last iteration that was logged stands for the length of the epoch: short of it by less than an
            # interval.  A log that begins in the middle counts from there.
            self._before += self._iteration if epoch > self._epoch else -self._before
            self._epoch = int(epoch)
        self._iteration = int(iteration)
        self._step = self._before + self._iteration
        values = {key: value for key, value in record.items() if key != "iter"}
        return self._records.rows(values, step=self._step)

    def _scalars(self, record: Mapping[str, Any]) -> Iterable[Item]:
        """Results have a step and metrics, training has a loss beside."""
        if "step" not in record:
            return ()
        if "loss" in record or "lr" in record:
            return self._records.rows(record)
        found = self._records.rows(record)
        return tuple(item._replace(split="validation") if isinstance(item, Row) else item for item in found)


_OF_TRAINING = frozenset({"epoch", "iter", "lr", "mode"})


class JsonLines(LineFormat):
    """Any JSON lines of which each has a step."""

    name = "jsonl"
    prefixed = False

    def sniff(self, head: bytes, path: str) -> int:  # noqa: ARG002
        """Return how sure it is; see :class:`Format`."""
        steps: list[float] = []
        beside: list[object] = []
        name, is_known = "", False
        lines = [line for line in head.lstrip(b"\xef\xbb\xbf\r\n ").split(b"\n", 8)[:8] if line.strip()]
        for line in lines:
            record = load(line)
            if record is None:
                # A cut one at the end is no sign.
                if line is lines[-1] and steps:
                    break
                return NO
            rows = [item for item in Records().rows(record) if isinstance(item, Row)]
            if not rows or rows[0].step is None:
                continue
            name = next((key for key in STEPS if key in record), "")
            # One line may be a list of words with their numbers.
            losses = [row.values["loss"] for row in rows if "loss" in row.values]
            if losses and (len(lines) > 1 or not all(map(float.is_integer, losses))):
                return LIKELY
            is_known = is_known or any(evidence.is_known(key) for row in rows for key in row.values)
            steps.append(rows[0].step)
            beside += (value for key, value in record.items() if key not in TIMES and key != name)
        if is_known:
            return LIKELY if evidence.are_steps(steps, beside) else NO
        return GUESS if evidence.counts_steps(name, steps, beside) else NO

    def parser(self) -> LineParser:
        """Return a parser for one file."""
        return _Parser()


class _Known(JsonLines):
    """One that a program is known to write: by names that only it uses."""

    marks: re.Pattern[bytes]

    def sniff(self, head: bytes, path: str) -> int:
        """Return how sure it is; see :class:`Format`."""
        return SURE if super().sniff(head, path) and self.marks.search(head) else NO


class LlamaFactory(_Known):
    """LLaMA-Factory's ``trainer_log.jsonl``."""

    name = "llamafactory"
    framework = "llamafactory"
    marks = re.compile(rb'\{"current_steps": \d+, "total_steps": \d+, ')


class MsSwift(_Known):
    """ms-swift's ``logging.jsonl``, of all versions that tell it from others."""

    name = "ms-swift"
    framework = "ms-swift"
    marks = re.compile(rb'"global_step/max_steps": "|"train_speed\((?:iter/s|s/it)\)": ')


class OpenMMLab(JsonLines):
    """``scalars.json`` of mmengine and ``*.log.json`` of mmcv."""

    name = "openmmlab-json"
    framework = "openmmlab"
    _marks = re.compile(
        rb'^(?:\{"env_info": "|\{"mode": "train", "epoch": \d+, "iter": \d+, '
        rb'|\{[^{}\n]*"data_time": [^{}\n]*"(?:step|iter)": \d+)',
        re.MULTILINE,
    )

    def sniff(self, head: bytes, path: str) -> int:  # noqa: ARG002
        """Return how sure it is; see :class:`Format`."""
        return SURE if head.lstrip(b"\xef\xbb\xbf\r\n ").startswith(b"{") and self._marks.search(head) else NO

    def parser(self) -> LineParser:
        """Return a parser for one file."""
        return _OpenMMLabParser()
