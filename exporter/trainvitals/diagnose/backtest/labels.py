"""Labels: what somebody knows of runs of the past, so that delays and misses can be told.

A table with tabs: path, label, step.  A first line with names may say another order, among other columns.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from trainvitals.detect.rules import known

#: Names of the columns, in their order where no line names them.
_PATH, _LABEL, _STEP = ("path", "file", "run"), ("label", "signal"), ("step", "event_step")
#: A file is a table of so many bytes at most.
_LARGEST = 1 << 24
#: Nothing was wrong with such a run: every alarm is a false one.
HEALTHY = frozenset({"healthy", "none", "ok"})
#: Words that people use, and the signals any of which is the right answer.
WORDS: Mapping[str, tuple[str, ...]] = {
    "nan": ("loss_nonfinite", "gradient_anomaly", "evaluation_mismatch"),
    "spike": ("loss_spike", "loss_diverged"),
    "divergence": ("loss_diverged", "loss_drift", "loss_spike", "loss_nonfinite"),
    "drift": ("loss_drift", "loss_diverged"),
    "collapse": ("loss_collapsed",),
    "collapse_to_zero": ("loss_collapsed", "loss_nonfinite"),
    "overfit": ("overfitting",),
    "overfit_onset": ("overfitting",),
    "plateau": ("plateau", "loss_not_falling", "stop_loss"),
    "hardly_falls": ("loss_not_falling", "plateau"),
    "metric_not_improving": ("metric_decoupled",),
    "leakage": ("leakage_suspected", "evaluation_mismatch"),
    "slow": ("slowdown",),
}


class LabelError(Exception):
    """Labels that cannot be used; the message is one line."""


@dataclass(frozen=True)
class Expected:
    """What should have been said: any of ``signals``, at ``step`` (None: nobody knows when)."""

    label: str
    signals: tuple[str, ...]
    step: int | None


@dataclass
class Label:
    """What is known of one path.  ``other`` are labels of which no signal speaks: such a run is not scored."""

    healthy: bool = False
    expected: list[Expected] = field(default_factory=list)
    other: list[str] = field(default_factory=list)

    @property
    def scored(self) -> bool:
        """Whether right and wrong can be told."""
        return bool(self.expected) or (self.healthy and not self.other)


class Labels:
    """The labels of a file.  Paths in it are relative to its folder, or to the present one."""

    def __init__(self, by_path: Mapping[str, Label] | None = None, odd: Sequence[str] = ()) -> None:
        self._by_path = dict(by_path or {})
        #: Steps that are no numbers: they count as not known.
        self.odd = tuple(odd)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._by_path)

    def of(self, paths: Iterable[str]) -> Label | None:
        """Return what is known of a run with these logs: of one of them, or of a folder that it is in."""
        for path in paths:
            place = os.path.realpath(path)
            while True:
                if (label := self._by_path.get(place)) is not None:
                    return label
                above = os.path.dirname(place)
                if above == place:
                    break
                place = above
        return None


def read(path: str) -> Labels:
    """Read a file of labels.  Raises LabelError."""
    try:
        if os.path.getsize(path) > _LARGEST:
            raise LabelError(f"{path}: larger than {_LARGEST >> 20} MiB")
        with open(path, encoding="utf-8", errors="replace", newline="") as file:
            rows = [row for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if _is_row(row)]
    except OSError as error:
        raise LabelError(f"{path}: {error.strerror}") from None
    except csv.Error as error:
        raise LabelError(f"{path}: {error}") from None
    places, has_names = _places(rows[0]) if rows else ((0, 1, 2), False)
    labels: dict[str, Label] = {}
    odd: list[str] = []
    signals = frozenset(known())
    folder = os.path.dirname(os.path.abspath(path))
    for row in rows[has_names:]:
        cells = [row[place].strip() if place is not None and place < len(row) else "" for place in places]
        if not cells[0] or not cells[1]:
            raise LabelError(f"{path}: expected path, label and step, parted by tabs, found {row[:4]!r}"[:300])
        _take(labels.setdefault(_place(folder, cells[0]), Label()), cells[1], _step(cells[2], odd), signals)
    return Labels(labels, odd)


def _place(folder: str, path: str) -> str:
    """Return where a labelled path is: seen from the folder of the labels, or from here if only that is there."""
    path = os.path.expanduser(path)
    place = os.path.realpath(os.path.join(folder, path))
    return os.path.realpath(path) if not os.path.lexists(place) and os.path.lexists(path) else place


def _is_row(row: Sequence[str]) -> bool:
    return bool(row) and any(cell.strip() for cell in row) and not row[0].startswith("#")


def _places(first: Sequence[str]) -> tuple[tuple[int | None, int | None, int | None], bool]:
    """Return where path, label and step are, and whether the first line names them."""
    names = [cell.strip().lower() for cell in first]

    def place(words: Sequence[str]) -> int | None:
        return next((names.index(word) for word in words if word in names), None)

    path, label = place(_PATH), place(_LABEL)
    if path is None or label is None:
        return (0, 1, 2), False
    return (path, label, place(_STEP)), True


def _step(text: str, odd: list[str]) -> int | None:
    """Return the number of a step, of "100-120" the first one; None where none is told."""
    if text in {"", "-"}:
        return None
    try:
        return int(text.replace(",", "").partition("-")[0])
    except ValueError:
        odd.append(text[:40])
        return None


def _take(label: Label, text: str, step: int | None, signals: frozenset[str]) -> None:
    for word in text.replace("|", "+").replace(",", "+").split("+"):
        name = word.strip()
        if name.lower() in HEALTHY:
            label.healthy = True
        elif name.lower() in WORDS:
            label.expected.append(Expected(name, WORDS[name.lower()], step))
        elif name in signals:
            label.expected.append(Expected(name, (name,), step))
        elif name:
            label.other.append(name)
