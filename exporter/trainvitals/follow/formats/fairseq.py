"""fairseq and metaseq.

Sources: fairseq/logging/progress_bar.py: "2025-11-11 14:05:27 | INFO | train_inner | {"epoch": 1, "loss": "15.871"}"
and "[2022-03-28 18:55:33,734][valid][INFO] - {...}", with all numbers as strings; without a logger the object alone;
"| epoch 013  2003 / 8226 loss=1.20 (1.53), wps=965, gnorm=2.142", and bars ("epoch 001:  10%|#| 110/1102 [00:12<01:40,
9.8it/s, loss=12.5, num_updates=100]").  The step is num_updates, where it stands there.  ``ups`` are steps
a second, ``wps`` words, ``wall`` seconds since the start; losses have the base 2.  A summary of an epoch ("train")
repeats what was told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from trainvitals import names
from trainvitals.follow.base import NO, SURE, Item, LineFormat, LineParser, Row
from trainvitals.follow.record import Records, load, number
from trainvitals.follow.text import timestamp

_OBJECT = re.compile(
    r"(?:\| (?:INFO )?\| ?|\[)?(train_inner|train|valid\w{0,40}|test)?(?:\]\[INFO\] - | \| |^)"
    r"(\{\"epoch\": .{1,8000}\})\s*$"
)
_SIMPLE = re.compile(r"\| epoch (\d{1,6})[: ]\s*(\d{1,12}) / (\d{1,12}) (.{1,2000})")
_TQDM = re.compile(
    r"(?:^|[\s|])epoch (\d{1,6}): +\d{1,3}%\|[^|\n]{0,400}\| (\d{1,12})/(\d{1,12}) \[[^,\n]{1,40}, (.{1,2000})"
)
_WORD = re.compile(r"([a-z_]{2,40})=([\d.na+-]{1,30}(?:e[+-]?\d{1,3})?)")
_VALID = re.compile(r"\| epoch (\d{1,6}) \| valid on '(\w{1,40})' subset (.{1,2000})")
_VALUE = re.compile(r"\| (?:valid )?([a-z_]{2,40}) ([\d.na+-]{1,30})")
_SNIFF = re.compile(
    rb"\{\"epoch\": \d+, [^\n]{0,8000}\"(?:valid_)?(?:num_updates|loss)\": \""
    rb"|\| epoch \d+[: ]\s*\d+ / \d+ [^\n]{0,40}loss=|fairseq_cli\.train"
    rb"|epoch \d+: +\d+%\|[^|\n]{0,400}\| \d+/\d+ \[[^\n]{0,80}loss=[^\n]{0,400}num_updates="
)
_UNITS = {
    "gnorm": ("grad_norm", 1.0),
    "wall": ("elapsed_seconds", 1.0),
    "wps": ("tokens_per_second", 1.0),
    "ups": ("steps_per_second", 1.0),
    "cuda_gb_allocated": ("memory_allocated_bytes", 2.0**30),
    "cuda_gb_reserved": ("memory_reserved_bytes", 2.0**30),
    "cuda_gb_free": ("memory_free_bytes", 2.0**30),
    "update": ("", 1.0),
}


class _Parser:
    def __init__(self) -> None:
        self._records = Records(_UNITS, steps=("num_updates", "valid_num_updates"))
        self._step = self._length = 0

    def feed(self, line: str) -> Iterable[Item]:
        if found := _OBJECT.search(line):
            return self._object(line, found)
        if found := _SIMPLE.search(line) or _TQDM.search(line):
            epoch, batch, length, text = found.groups()
            values = {"epoch": float(epoch)}
            for name, read in _WORD.findall(text):
                ours, factor = _UNITS.get(name) or (names.ours(name), 1.0)
                value = number(read)
                if ours and value is not None:
                    values[ours] = value * factor
            step = values.pop("num_updates", (int(epoch) - 1) * int(length) + int(batch))
            return (Row(int(step), values, timestamp(line)),) if "loss" in values else ()
        if found := _VALID.search(line):
            read_values = ((name, number(text)) for name, text in _VALUE.findall(found[3]))
            results = {name: value for name, value in read_values if value is not None}
            place = int(results.pop("num_updates")) if "num_updates" in results else None
            return (Row(place, results, timestamp(line), split=_split(found[2])),) if results else ()
        return ()

    def _object(self, line: str, found: re.Match[str]) -> Iterable[Item]:
        kind, record = found[1] or "train_inner", load(found[2])
        if record is None or kind == "train":
            return ()
        moment = timestamp(line)
        if kind == "train_inner":
            items = self._records.rows(record)
            return tuple(item._replace(time=moment) if isinstance(item, Row) else item for item in items)
        plain = {name.removeprefix(f"{kind}_"): value for name, value in record.items()}
        step = number(plain.pop("num_updates", None))
        plain.pop("epoch", None)
        values = {
            _UNITS.get(name, (name, 1.0))[0]: value for name in plain if (value := number(plain[name])) is not None
        }
        values.pop("", None)
        return (Row(None if step is None else int(step), values, moment, split=_split(kind)),) if values else ()


def _split(name: str) -> str:
    return "validation" if name == "valid" else name


class Fairseq(LineFormat):
    """See the module."""

    name = "fairseq"
    framework = "fairseq"
    needles = (b'{"epoch": ', b"epoch ", b"num_updates=")

    def sniff(self, head: bytes, path: str) -> int:  # noqa: ARG002
        """Return how sure it is; see :class:`Format`."""
        return SURE if _SNIFF.search(head) else NO

    def parser(self) -> LineParser:
        """Return a parser for one file."""
        return _Parser()
