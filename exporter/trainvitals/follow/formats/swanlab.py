"""What SwanLab keeps of a run on disk: ``run-ID.swanlab`` (since 0.8), ``backup.swanlab`` (before).

Source: the package ``swanlab`` (swanlab/proto/swanlab/record/v1: Record, ScalarRecord, StartRecord, FinishRecord;
before that JSON objects with model_type and data) and the framing in :mod:`trainvitals.follow.leveldb`; the header is
":SWL" and 0xE1D6, and its version is 2 for messages.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from trainvitals.follow.base import NO, SURE, BlockFormat, BlockParser, Facts, Item, Row
from trainvitals.follow.leveldb import Pieces
from trainvitals.follow.messages import message_types
from trainvitals.follow.record import Records, load, number
from trainvitals.follow.series import Series
from trainvitals.follow.text import timestamp

#: Readings of the machine, which have steps of their own.
_SYSTEM = "__swanlab__"
_MAGIC = b":SWL\xd6\xe1"
_MESSAGES = {
    "Record": {"start": (10, "Start"), "finish": (11, "Finish"), "scalar": (13, "Scalar")},
    "Start": {"started": (12, "Timestamp")},
    "Finish": {"finished": (3, "Timestamp")},
    "Scalar": {"key": (1, "bytes"), "step": (2, "int64"), "time": (4, "Timestamp"), "value": (5, "Value")},
    "Value": {"number": (1, "double")},
    "Timestamp": {"seconds": (1, "int64"), "nanos": (2, "int32")},
}


class _Parser:
    def __init__(self, record: Any) -> None:
        self._record = record
        self._pieces = Pieces()
        self._records = Records(steps=(), times=())
        self._series = Series()

    def feed(self, data: bytes) -> Iterator[Item]:
        """Return what became complete.  Raises ValueError behind it, where something was damaged."""
        bad = self._pieces.bad
        broken = 0
        for piece in self._pieces.feed(data):
            try:
                items = self._old(piece) if piece.startswith(b'{"') else self._new(self._record.FromString(piece))
            except Exception:
                broken += 1  # DecodeError, or what else the library says to garbage.
                continue
            yield from items
        if broken or self._pieces.bad > bad:
            raise ValueError(f"{broken + self._pieces.bad - bad} damaged records")

    def _new(self, record: Any) -> tuple[Item, ...]:
        if record.HasField("scalar"):
            scalar = record.scalar
            key = scalar.key[:800].decode("utf-8", "replace")
            return self._rows(key, scalar.step, scalar.value.number, _time(scalar.time))
        if record.HasField("start"):
            return (Facts(started=_time(record.start.started) or 0.0),)
        if record.HasField("finish"):
            return (Facts(finished=_time(record.finish.finished) or 0.0),)
        return ()

    def _old(self, text: bytes) -> tuple[Item, ...]:
        record = load(text) or {}
        kind, data = record.get("model_type"), record.get("data")
        if not isinstance(data, dict):
            return ()
        if kind == "Header":
            return (Facts(started=_stamp(data.get("create_time")) or 0.0),)
        if kind == "Footer":
            return (Facts(finished=_stamp(data.get("create_time")) or 0.0),)
        metric, key, step = data.get("metric"), data.get("key"), data.get("step")
        if kind != "Scalar" or not isinstance(metric, dict) or not isinstance(key, str) or step.__class__ is not int:
            return ()
        value = number(metric.get("data"))
        return () if value is None else self._rows(key, step, value, _stamp(metric.get("create_time")))

    def _rows(self, key: str, step: int, value: float, moment: float | None) -> tuple[Item, ...]:
        if key.startswith(_SYSTEM):
            return ()
        found = self._records.rows({key: value}, self._series.place(key, step))
        return tuple(item._replace(time=moment) if isinstance(item, Row) else item for item in found)


def _stamp(text: object) -> float | None:
    return timestamp(text) if isinstance(text, str) else None


def _time(stamp: Any) -> float | None:
    moment = float(stamp.seconds) + stamp.nanos / 1e9
    return moment if 1e9 < moment < 1e11 else None


class SwanLab(BlockFormat):
    """See the module."""

    name = "swanlab"
    extra = "logs"

    def sniff(self, head: bytes, path: str) -> int:  # noqa: ARG002
        """Return how sure it is; see :class:`Format`."""
        return SURE if head.startswith(_MAGIC) else NO

    def parser(self, path: str = "") -> BlockParser:  # noqa: ARG002
        """Return a parser for one file."""
        return _Parser(_record_type())


@functools.lru_cache(maxsize=1)
def _record_type() -> Any:
    return message_types("swanlab", _MESSAGES)["Record"]
