"""TensorBoard's event files, ``events.out.tfevents.*``, of TensorFlow, PyTorch, tensorboardX, Keras and all above.

Source: the record format of TensorFlow (tensorflow/core/lib/io/record_writer.h: a length of 8 bytes, its masked CRC,
the data, its masked CRC; CRC-32C, mask ``(crc >> 15 | crc << 17) + 0xa282ead8``) and the messages Event, Summary and
TensorProto.  A scalar is a ``simple_value``, or a tensor of one number whose tag has the plug-in "scalars" or none.

A record whose data is damaged costs itself; behind a damaged length the next whole record is looked for.
"""

from __future__ import annotations

import functools
import math
import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from trainvitals import names
from trainvitals.follow.base import NO, SURE, BlockFormat, BlockParser, Facts, Item, Row
from trainvitals.follow.messages import message_types
from trainvitals.follow.series import Series

_MESSAGES = {
    "Event": {"wall_time": (1, "double"), "step": (2, "int64"), "summary": (5, "Summary")},
    "Summary": {"value": (1, "Value*")},
    "Value": {"tag": (1, "bytes"), "simple_value": (2, "float"), "tensor": (8, "Tensor"), "metadata": (9, "Metadata")},
    "Metadata": {"plugin": (1, "Plugin")},
    "Plugin": {"name": (1, "bytes")},
    "Tensor": {
        "dtype": (1, "int32"),
        "content": (4, "bytes"),
        "float_val": (5, "float*"),
        "double_val": (6, "double*"),
        "int_val": (7, "int32*"),
        "int64_val": (10, "int64*"),
        "half_val": (13, "int32*"),
    },
}
#: DT_FLOAT and so on: how one number stands in the content, and the field of its own.
_DTYPES = {
    1: ("<f", "float_val"),
    2: ("<d", "double_val"),
    3: ("<i", "int_val"),
    9: ("<q", "int64_val"),
    14: ("<f", "half_val"),
    19: ("<e", "half_val"),
}
_BFLOAT16 = 14
_LENGTH, _MARK = struct.Struct("<QI"), struct.Struct("<I")
#: A record that is larger holds no scalars (an image, a graph), and is passed over.  Beyond the second is no length.
_LARGEST, _LONGEST = 1 << 22, 1 << 40
#: What a length looks like.
_BEGIN = re.compile(rb"(?!\0{4})[\0-\xff]{4}\0{4}")
_MAX_TAGS, _MAX_NAME = 4096, 200

#: Tags that count samples or tokens on their axis, not steps (Megatron-LM and its forks).
_OTHER_AXIS = re.compile(r"\bvs\.? (?:samples|tokens|gigaflos|.*time)|-vs-(?:samples|tokens)")
#: Megatron-LM: "lm loss validation", "lm loss validation ppl"; its forks set "lm-loss-validation/" before.
_MEGATRON_RESULT = re.compile(r"(?:[\w-]+/)?(.+) (validation|test)( ppl)?")
_KNOWN = {
    "gnorm": "grad_norm",
    "iteration-time": "step_seconds",
    "lm-loss-training/lm loss": "loss",
    "loss-scale": "loss_scale",
    "loss-scale/loss-scale": "loss_scale",
    "grad-norm/grad-norm": "grad_norm",
    "learning-rate/learning-rate": "learning_rate",
    "iteration-time/iteration-time": "step_seconds",
    "ntokens/s": "tokens_per_second",
    "train/epoch": "epoch",
    "wps": "tokens_per_second",
    "x/lr0": "learning_rate",
    "lr/pg0": "learning_rate",
}
#: Lightning's constant for its HParams page.
_NOTHING = frozenset({"hp_metric"})
#: The last record of the Hugging Face Trainer: what stands in it belongs to the whole of the training.
_RUNTIME, _LAST = "train/train_runtime", re.compile(r"train/(?:train_|total_flos)")
#: Keras' callback numbers epochs and, where it is told to, batches; both are steps in one file.
_EPOCH, _BATCH = re.compile(r"epoch_(.+)"), re.compile(r"batch_(.+)")
#: ultralytics' loss is the sum of these.
_PART = re.compile(r"train/\w+_loss")

_SPLITS = {
    "dev": "validation",
    "eval": "validation",
    "test": "test",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
}


class _Tag(NamedTuple):
    """What a tag stands for.  An empty ``name`` is nothing."""

    theirs: str
    name: str
    split: str = ""
    is_epoch: bool = False
    #: A value of training, and nothing else is to be thought of.
    is_plain: bool = False


@functools.lru_cache(maxsize=_MAX_TAGS)
def _understand(tag: bytes) -> _Tag:  # noqa: PLR0911  a table with patterns
    theirs = tag[: 4 * _MAX_NAME].decode("utf-8", "replace").strip()[:_MAX_NAME]
    if theirs in _NOTHING or _OTHER_AXIS.search(theirs) or not any(map(str.isalnum, theirs)):
        return _Tag(theirs, "")
    if theirs in _KNOWN:
        return _Tag(theirs, _KNOWN[theirs])
    if found := _MEGATRON_RESULT.fullmatch(theirs):
        name = names.ours(found[1])
        return _Tag(theirs, f"{name}{found[3] or ''}", _SPLITS[found[2]])
    if theirs.startswith("metrics/"):
        return _Tag(theirs, theirs[8:] or theirs, "validation")
    if (result := names.result(theirs)) is not None and not theirs.startswith("evaluation_"):
        return _Tag(theirs, result.name, result.split)
    if found := _EPOCH.fullmatch(theirs):
        return _Tag(theirs, names.ours(found[1]), "", is_epoch=True)
    if found := _BATCH.fullmatch(theirs):
        return _Tag(theirs, names.ours(found[1]))
    name = names.ours(theirs)
    is_special = name == "epoch" or theirs == _RUNTIME or _LAST.match(theirs) or _PART.fullmatch(theirs)
    return _Tag(theirs, name, is_plain=not is_special)


class _Parser:
    """``split``: that of the folder, for the whole file."""

    def __init__(self, crc: Callable[[bytes], int], event: Any, split: str) -> None:
        self._crc, self._event, self._split = crc, event, split
        self._buffer = bytearray()
        #: So many bytes are passed over before the next record.
        self._skip = 0
        #: The next record is whole with so many bytes.
        self._need = 0
        self._lost = False
        self._series = Series()
        self._marks: dict[int, int] = {}
        self._others: set[bytes] = set()
        self._ended: int | None = None
        self._has_begun = self._has_batches = False
        self._parts: dict[str, float] = {}
        self._parts_step: int | None = None

    def feed(self, data: bytes) -> Iterable[Item]:
        """Return the scalars of the records that became whole.  Raises ValueError behind them, if some were damaged."""
        self._buffer += data
        if len(self._buffer) < self._need:
            return ()
        items: list[Item] = []
        bad = 0
        for record in self._records():
            try:
                event = self._event.FromString(record)
            except Exception:
                bad += 1  # DecodeError or TypeError, or what else the library says to garbage.
                continue
            values = event.summary.value
            if len(values) == 1 and not self._parts:
                # The usual case without detours: there may be millions.
                (value,) = values
                tag = _understand(value.tag)
                if tag.is_plain and not self._split and value.HasField("simple_value"):
                    step, moment = event.step, event.wall_time
                    place = self._series.place(tag.theirs, step)
                    if not self._has_begun:
                        items.extend(self._begin(place, moment))
                    items.append(Row(place, {tag.name: value.simple_value}, moment if 1e9 < moment < 1e11 else None))
                    continue
            if values:
                items.extend(self._items(event))
        return items if not bad else _and_complain(items, bad)

    def _records(self) -> list[bytes | None]:
        """Return the data of whole records, None for a damaged one."""
        buffer, at, size = self._buffer, 0, len(self._buffer)
        records: list[bytes | None] = []
        crc, marks = self._crc, self._marks
        while True:
            if self._skip:
                passed = min(self._skip, size - at)
                at, self._skip = at + passed, self._skip - passed
            self._need = 12
            if size - at < 12:
                break
            length, mark = _LENGTH.unpack_from(buffer, at)
            if mark != (marks.get(length) or self._mark(length)) or length > _LONGEST:
                if not self._lost:
                    self._lost = True
                    records.append(None)
                at = self._search(at + 1)
                continue
            self._lost = False
            if length > _LARGEST:
                at, self._skip = at + 12, length + 4
                continue
            end = at + 16 + length
            if end > size:
                self._need = end - at
                break
            data = bytes(buffer[at + 12 : end - 4])
            (mark,) = _MARK.unpack_from(buffer, end - 4)
            records.append(data if _masked(crc(data)) == mark else None)
            at = end
        del buffer[:at]
        return records

    def _mark(self, length: int) -> int:
        """Return the checksum of a length, and remember it: there are few of them."""
        if len(self._marks) > _MAX_TAGS:
            self._marks.clear()
        mark = self._marks[length] = _masked(self._crc(length.to_bytes(8, "little")))
        return mark

    def _search(self, at: int) -> int:
        """Return where the next record may begin: its length has zeros in its upper half."""
        found = _BEGIN.search(self._buffer, at)
        # A length may be cut.
        return found.start() if found else max(at, len(self._buffer) - 7)

    def _items(self, event: Any) -> Iterator[Item]:
        step, moment = event.step, event.wall_time
        values: dict[tuple[str, int | None], dict[str, float]] = {}
        for value in event.summary.value:
            number = self._number(value)
            tag = _understand(value.tag) if number is not None else None
            if number is None or tag is None or not tag.name:
                continue
            if tag.theirs == _RUNTIME:
                self._ended = step
                yield Facts(finished=_time(moment) or 0.0)
            if self._ended == step and _LAST.match(tag.theirs):
                continue
            yield from self._sum(tag, step, number, moment)
            split = tag.split or self._split
            if tag.is_epoch and self._has_batches:
                split = split or "train"
            self._has_batches = self._has_batches or tag.theirs.startswith("batch_")
            if split:
                place = step if step >= 0 else None
            else:
                # An epoch stands beside results, too, and is no step.
                place = self._series.place(tag.theirs, step) if tag.name != "epoch" else None
            values.setdefault((split, place), {})[tag.name] = number
        for (split, place), found in values.items():
            if not split and not self._has_begun:
                yield from self._begin(place, moment)
            yield Row(place, found, _time(moment), split=split)

    def _begin(self, place: int | None, moment: float) -> tuple[Facts, ...]:
        """Say that a training began: another attempt, where its steps do not go on behind those before."""
        if place is None:
            return ()
        self._has_begun = True
        return (Facts(started=_time(moment) or 0.0),)

    def _sum(self, tag: _Tag, step: int, number: float, moment: float) -> Iterator[Row]:
        """Yield the loss of ultralytics when its parts are whole: another tag of the step follows."""
        if _PART.fullmatch(tag.theirs):
            if step != self._parts_step:
                self._parts, self._parts_step = {}, step
            if len(self._parts) < 16:
                self._parts[tag.theirs] = number
        elif self._parts:
            if step == self._parts_step and "train/box_loss" in self._parts and step >= 0:
                yield Row(step, {"loss": math.fsum(self._parts.values())}, _time(moment))
            self._parts = {}

    def _number(self, value: Any) -> float | None:
        if value.HasField("simple_value"):
            return float(value.simple_value)
        if not value.HasField("tensor"):
            return None
        tag = value.tag
        if value.HasField("metadata") and value.metadata.plugin.name not in {b"", b"scalars"}:
            # The plug-in stands in the first record of a tag only.
            if len(self._others) < _MAX_TAGS:
                self._others.add(tag)
            return None
        return None if tag in self._others else _of_tensor(value.tensor)


def _and_complain(items: list[Item], bad: int) -> Iterator[Item]:
    yield from items
    raise ValueError(f"{bad} damaged records")


def _of_tensor(tensor: Any) -> float | None:
    """Return the number that a tensor of one is."""
    layout, field = _DTYPES.get(tensor.dtype, ("", ""))
    content = tensor.content
    if not content and field == "half_val" and len(tensor.half_val) == 1:
        content = (tensor.half_val[0] & 0xFFFF).to_bytes(2, "little")
    elif not content and field and len(numbers := getattr(tensor, field)) == 1:
        return float(numbers[0])
    if tensor.dtype == _BFLOAT16:
        content = b"\0\0" + content  # The upper half of a float.
    if not layout or len(content) != struct.calcsize(layout):
        return None
    (number,) = struct.unpack(layout, content)
    return float(number)


def _masked(crc: int) -> int:
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _time(moment: float) -> float | None:
    return moment if 1e9 < moment < 1e11 else None


class TensorBoard(BlockFormat):
    """See the module."""

    name = "tensorboard"
    extra = "logs"
    in_parts = True

    def sniff(self, head: bytes, path: str) -> int:  # noqa: ARG002
        """Return how sure it is; see :class:`Format`.

        The first record tells the version, "brain.Event:2": a time (field 1) and the version (field 3).
        """
        return SURE if len(head) >= 12 and head[4:8] == b"\0\0\0\0" and b"brain.Event:" in head[12:64] else NO

    def parser(self, path: str = "") -> BlockParser:
        """Return a parser for one file.

        Keras and fairseq write a folder for each split: what is in "valid" are results.  fairseq's "train" has the
        means of epochs, when the steps are in "train_inner" beside it.
        """
        from google_crc32c import value  # noqa: PLC0415  an extra

        folder = os.path.dirname(path)
        name = os.path.basename(folder)
        split = _SPLITS.get(name, "")
        if name == "train" and os.path.isdir(os.path.join(os.path.dirname(folder), "train_inner")):
            split = "train"
        return _Parser(value, _event_type(), split)


@functools.lru_cache(maxsize=1)
def _event_type() -> Any:
    return message_types("tensorboard", _MESSAGES)["Event"]
