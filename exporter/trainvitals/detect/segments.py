"""Where another segment of a run begins: a change by plan, after which the values of before are no baseline any more.

One mechanism for all detectors.  A detector that has a baseline says which kinds of change end it (``segments``) and
what it does then (``begin_segment``); the panel tells it.

A setting counts as changed when it had been the same in 16 reports in a row and its new value comes twice in a row:
the last batch of an epoch is smaller, once, and numbers that differ from step to step are no setting.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from trainvitals.telemetry import Event, Step, Steps

Kind = Literal["batch_size", "sequence_length", "world_size", "precision", "data"]

#: Values of steps that are settings, by the names that frameworks give them (Megatron-LM logs the first, NeMo and
#: torchtitan the second kind).
SETTINGS: dict[str, Kind] = {
    "global_batch_size": "batch_size",
    "batch_size": "batch_size",
    "seq_len": "sequence_length",
    "seq_length": "sequence_length",
    "seqlen": "sequence_length",
    "sequence_length": "sequence_length",
    "world_size": "world_size",
}
STOOD = 16
_WORDS = {"batch_size": "batch size", "sequence_length": "sequence length", "world_size": "number of ranks"}
#: Changes that a program reports, and rows of its configuration, by their names.
_DATA = re.compile(r"data|mixture|corpus|blend|curriculum|stage", re.IGNORECASE)
_PRECISION = re.compile(r"precision|dtype|\bfp?16|bf16|fp8|tf32", re.IGNORECASE)
_MOST_ROWS, _LONGEST = 256, 64


class Segment(NamedTuple):
    """What ended the one before, in words."""

    kind: Kind
    why: str


class SegmentDetector(Protocol):
    """A detector with a baseline that does not outlive some changes."""

    segments: frozenset[Kind]

    def begin_segment(self, segment: Segment) -> None:
        """Begin a new baseline before the next step, and say so in what its verdicts left out (``gated``)."""


class Cut(NamedTuple):
    """A segment that begins with the step of this count."""

    at: int
    segment: Segment


@dataclass
class _Setting:
    """A value, in how many reports in a row it stood, and one that may take its place."""

    value: float
    stood: int = 0
    other: float | None = None


@dataclass
class Segments:
    """Takes steps and events, and says where another segment begins."""

    _settings: dict[str, _Setting] = field(default_factory=dict)
    _tables: dict[str, dict[str, str]] = field(default_factory=dict)
    _hashes: dict[str, str] = field(default_factory=dict)

    def observe(self, step: Step) -> list[Segment]:
        """Take the next step; return the segments that begin with it: most often none."""
        found = []
        for name in step.values.keys() & SETTINGS.keys():
            segment = self._take(name, step.values[name], step.step)
            if segment is not None:
                found.append(segment)
        return found

    def look_at(self, steps: Sequence[Step]) -> list[Cut]:
        """Take the next steps; return where segments begin, in order."""
        if not isinstance(steps, Steps):
            return [Cut(step.count, segment) for step in steps for segment in self.observe(step)]
        names = steps.columns.keys() & SETTINGS.keys()
        return sorted(cut for name in names for cut in self._column(name, steps)) if names else []

    def _column(self, name: str, steps: Steps) -> Iterator[Cut]:
        known = self._settings.get(name)
        column = steps.columns[name]
        # As nearly always, and at a third of the cost of the column's extent.
        if known is not None and column.count(known.value) == len(column):
            known.stood, known.other = known.stood + len(column), None
            return
        for place, value in enumerate(column):
            segment = self._take(name, value, steps.numbers[place])
            if segment is not None:
                yield Cut(steps.first + place, segment)

    def _take(self, name: str, value: float, step: int) -> Segment | None:
        known = self._settings.get(name)
        if known is None:
            self._settings[name] = _Setting(value, 1)
            return None
        if value == known.value:
            known.stood, known.other = known.stood + 1, None
            return None
        if known.stood >= STOOD and value != known.other:
            known.other = value
            return None
        before, has_stood = known.value, known.stood >= STOOD
        known.value, known.other, known.stood = value, None, 2 if has_stood else 1
        if not (has_stood and 0.0 < value < 1e15):
            return None
        kind = SETTINGS[name]
        return Segment(kind, f"the {_WORDS[kind]} changed from {before:.6g} to {value:.6g} at step {step}")

    def observe_event(self, event: Event) -> list[Segment]:
        """Take the next event; return the segments that begin with the step behind it."""
        fields = event.fields
        at = f" at step {event.step}" if event.step >= 0 else ""
        if event.kind == "change":
            name = str(fields.get("name") or fields.get("message") or "")[:_LONGEST]
            if _PRECISION.search(name):
                return [Segment("precision", f"the precision changed ({name}){at}")]
            return [Segment("data", f"the data changed ({name}){at}")] if _DATA.search(name) else []
        if event.kind == "lineage":
            return self._lineage(str(fields.get("subject", "")), fields.get("hash"), fields.get("values"), at)
        return []

    def _lineage(self, subject: str, hashed: object, values: object, at: str) -> list[Segment]:
        """Compare a table with that of the attempt before."""
        if subject not in {"dataset", "model", "config"} or not isinstance(hashed, str):
            return []
        before, self._hashes[subject] = self._hashes.get(subject), hashed[:_LONGEST]
        known, rows = self._tables.get(subject), _precisions(values)
        self._tables[subject] = rows
        if before is None or before == hashed[:_LONGEST]:
            return []
        if subject == "dataset":
            return [Segment("data", f"the data set changed{at}")]
        found = []
        for name in sorted((known or {}).keys() & rows.keys()):
            old = (known or {})[name]
            if old != rows[name]:
                found.append(Segment("precision", f"the precision changed ({name} {old} -> {rows[name]}){at}"))
        return found[:1]


def _precisions(values: object) -> dict[str, str]:
    if not isinstance(values, dict):
        return {}
    rows = [(str(name)[:_LONGEST], value) for name, value in list(values.items())[:_MOST_ROWS]]
    return {name: value[:_LONGEST] for name, value in rows if isinstance(value, str) and _PRECISION.search(name)}
