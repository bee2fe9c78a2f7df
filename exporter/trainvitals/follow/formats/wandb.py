"""``run-ID.wandb``, in which W&B keeps a run on disk (offline, and before it is sent).

Source: the file ``wandb/proto/wandb_internal.proto`` of the package (Record, HistoryRecord, RunRecord, RunExitRecord)
and the framing in :mod:`trainvitals.follow.leveldb`; the header is ":W&B", 0xBEE1 and the version 0.  A history has a
key (or the parts of a nested one) and a value in JSON for each number; ``_step`` counts calls of ``log``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from trainvitals.follow.base import NO, SURE, BlockFormat, BlockParser, Facts, Item, Row
from trainvitals.follow.leveldb import Pieces
from trainvitals.follow.messages import message_types
from trainvitals.follow.record import Records, load, number

_MAGIC = b":W&B\xe1\xbe"
_MESSAGES = {
    "Record": {
        "history": (2, "History"), "config": (5, "Config"), "run": (17, "Run"), "exit": (18, "Exit"),
    },
    "History": {"item": (1, "Entry*"), "step": (2, "Step")},
    "Entry": {"key": (1, "bytes"), "nested_key": (2, "bytes*"), "value_json": (16, "bytes")},
    "Step": {"num": (1, "int64")},
    "Config": {"update": (1, "Entry*")},
    "Run": {"config": (4, "Config"), "start_time": (17, "Timestamp")},
    "Timestamp": {"seconds": (1, "int64"), "nanos": (2, "int32")},
    "Exit": {"exit_code": (1, "int32")},
}  # fmt: skip
#: Steps of the program itself are better than W&B's count of calls, which it is when nothing else is there.
_STEPS = ("trainer/global_step", "train/global_step", "global_step", "_step")
_TARGETS = ("max_steps", "total_steps", "train_iters", "max_iters", "num_steps", "total_iters")
_LONGEST = 64


class _Parser:
    def __init__(self, record: Any) -> None:
        self._record = record
        self._pieces = Pieces()
        self._records = Records({"_runtime": ("elapsed_seconds", 1.0), "_wandb": ("", 1.0)}, steps=_STEPS)
        self._started = False
        self._newest: float | None = None

    def feed(self, data: bytes) -> Iterator[Item]:
        """Return what became complete.  Raises ValueError behind it, where something was damaged."""
        bad = self._pieces.bad
        broken = 0
        for piece in self._pieces.feed(data):
            try:
                found = self._record.FromString(piece)
            except Exception:
                broken += 1  # DecodeError, or what else the library says to garbage.
                continue
            yield from self._items(found)
        if broken or self._pieces.bad > bad:
            raise ValueError(f"{broken + self._pieces.bad - bad} damaged records")

    def _items(self, found: Any) -> Iterator[Item]:
        if found.HasField("history"):
            yield from self._history(found.history)
        elif found.HasField("run"):
            run = found.run
            target = _target(run.config)
            started = run.start_time.seconds + run.start_time.nanos / 1e9
            # The record comes again whenever something of it is known better.
            if not self._started:
                self._started = True
                yield Facts(started=started if 1e9 < started < 1e11 else 0.0, target_steps=target)
            elif target is not None:
                yield Facts(target_steps=target)
        elif found.HasField("config"):
            if (target := _target(found.config)) is not None:
                yield Facts(target_steps=target)
        elif found.HasField("exit"):
            yield Facts(finished=self._newest or 0.0)

    def _history(self, history: Any) -> Iterator[Item]:
        record: dict[str, Any] = {}
        for item in history.item:
            text = item.value_json
            if len(text) > _LONGEST:
                continue  # A picture, a table.
            key = b"/".join(item.nested_key) if item.nested_key else item.key
            record[key[:800].decode("utf-8", "replace")] = _value(text)
        step = None
        if "_step" not in record and history.HasField("step"):
            step = history.step.num
        for item in self._records.rows(record, step if not any(name in record for name in _STEPS) else None):
            if isinstance(item, Row):
                self._newest = item.time or self._newest
            yield item


def _value(text: bytes) -> float | str | None:
    """Return a number, or NaN and infinity, which are words in quotes or not."""
    try:
        return float(text)
    except ValueError:
        word = text.decode("utf-8", "replace").strip('"')
        return number(word) if word in {"NaN", "Infinity", "-Infinity"} else None


def _target(config: Any) -> int | None:
    for item in config.update:
        key = b"/".join(item.nested_key) if item.nested_key else item.key
        if key.decode("utf-8", "replace") in _TARGETS and len(item.value_json) < _LONGEST:
            wrapped = load(item.value_json)
            found = number((wrapped or {}).get("value")) if wrapped else _value(item.value_json)
            if isinstance(found, float) and 0.0 < found < 2.0**53:
                return int(found)
    return None


class Wandb(BlockFormat):
    """See the module."""

    name = "wandb"
    extra = "logs"

    def sniff(self, head: bytes, path: str) -> int:  # noqa: ARG002
        """Return how sure it is; see :class:`Format`."""
        return SURE if head.startswith(_MAGIC) else NO

    def parser(self, path: str = "") -> BlockParser:  # noqa: ARG002
        """Return a parser for one file."""
        return _Parser(_record_type())


@functools.lru_cache(maxsize=1)
def _record_type() -> Any:
    return message_types("wandb", _MESSAGES)["Record"]
