"""Loss curves out of a folder of real logs, for benchmarks/detectors.py and for the test over healthy curves.

Throw-away readers: one pattern per text format, a few lines for JSON, CSV and TensorBoard files.
They read training loss and learning rate, nothing else, and believe what they match.
A folder without MANIFEST.tsv is read as well; its curves then have no label.
"""

from __future__ import annotations

import csv
import json
import math
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainvitals.telemetry import Step

_NUMBER = r"([-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf(?:inity)?))"
_LR = re.compile(rf"(?:learning rate|'learning_rate'|\blr): '?{_NUMBER}", re.IGNORECASE)
_GRAD_NORM = re.compile(rf"\bgrad[ _]norm'?: '?{_NUMBER}", re.IGNORECASE)
#: Step (or None: the lines are counted) and loss.  The pattern that matches most lines of a file reads it.
_PATTERNS = tuple(
    re.compile(pattern.replace("NUMBER", _NUMBER), re.IGNORECASE)
    for pattern in (
        r"^(?:.*progress . )?step:(\d+)(?:/\d+)?,? (?:[^|]*?, )?(?:avg_)?(?:train_)?loss:\s*NUMBER",  # modded-nanogpt
        r"^s:(\d+) trl:NUMBER",  # llm.c
        r"^iter (\d+)(?: step \d+)?: loss NUMBER",  # nanoGPT, litgpt
        r" step:\s+(\d+)\s+loss:\s+NUMBER",  # torchtitan
        r"iteration\s+(\d+)/.*?lm[ -]loss: NUMBER",  # Megatron-LM
        r"^Step \[(\d+)/\d+\], Loss: NUMBER",
        r"^epoch:? (\d+) (?:train_)?loss:? NUMBER",
        r"^(\d+) NUMBER$",
        r"()\{'loss': '?NUMBER",  # Hugging Face Trainer
        r"Epoch ()\[\d+\]\[\d+/\d+\].*?\bloss: NUMBER",  # mmcv
        r"\{()\"epoch\":.*?\"loss\": \"?NUMBER",  # fairseq
        r"epoch: \d+\|step: (\d+)\|.*?act_loss: ?NUMBER",  # DeepSpeed-Chat, PPO
        r"Step at (\d+) with Perplexity: NUMBER",
        r"^Train ()Loss: NUMBER",
        r"step: (\d+), outputs are \(Tensor\(shape=\[1\], dtype=Float32, value= \[ NUMBER",  # MindSpore
    )
)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
#: Names of the training loss in tables and events, the best one first.
_LOSS_NAMES = (
    "loss", "train_loss_step", "train_loss", "Loss/Train", "lm-loss-training/lm loss", "lm loss", "train/loss",
    "train_inner/loss", "train/box_loss", "valid/loss",
)  # fmt: skip
_RATE_NAMES = ("lr", "learning_rate", "x/lr0", "learning-rate/learning-rate")

#: Labels that say nothing against the training loss.  An "outlier_batch" is one odd step, which is no spike.
_SOUND = frozenset(
    {
        "healthy", "outlier_batch", "plateau", "overfit", "overfit_onset", "slow", "slow_start", "hiccup", "hang",
        "hardly_falls", "metric_not_improving", "truncated", "slurm_cancelled", "slurm_timelimit",
    }
)  # fmt: skip

#: Step number; loss, and where there are any, learning rate and gradient norm.
Point = tuple[int, dict[str, float]]


@dataclass(frozen=True)
class Curve:
    """The points of one file, in its order, and what the manifest says about it."""

    file: str
    label: str
    event: str
    points: list[Point]

    def steps(self) -> Iterator[Step]:
        """Yield the points as a follower would: one count per line, one second per step."""
        now = 0.0
        before = 0
        for count, (number, values) in enumerate(self.points, 1):
            now += max(1.0, number - before) if before else 1.0
            before = number
            yield Step(number, count, now, values)

    @property
    def healthy(self) -> bool:
        """Whether the training loss neither breaks nor spikes; some of these runs are slow, stuck or overfit."""
        return self.label in _SOUND

    @property
    def dense(self) -> bool:
        """Whether this is a long and sound curve with a loss for every step."""
        steps = [step for step, _ in self.points]
        every_step = len(steps) >= 1500 and steps[-1] - steps[0] < 1.1 * len(steps)
        return self.healthy and every_step and all(math.isfinite(values["loss"]) for _, values in self.points)

    def event_step(self) -> int | None:
        """Return the step of the manifest's event; "record 207" and "log 46" count lines."""
        number = re.search(r"\d+", self.event)
        if number is None:
            return None
        if self.event.startswith(("record", "log")):
            return self.points[min(int(number[0]), len(self.points)) - 1][0]
        return int(number[0])


def read_folder(folder: Path, least: int = 2) -> list[Curve]:
    """Return every curve below ``folder`` with at least ``least`` points, by name of the file."""
    manifest = folder / "MANIFEST.tsv"
    rows: dict[str, dict[str, str]] = {}
    if manifest.exists():
        with manifest.open(encoding="utf-8", newline="") as file:
            rows = {row["file"]: row for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)}
    curves = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".bin"):
        name = str(path.relative_to(folder))
        row = rows.get(name, {})
        points = read_points(path)
        if len(points) >= least:
            curves.append(Curve(name, row.get("label", ""), row.get("event_step", ""), points))
    return curves


def read_points(path: Path) -> list[Point]:
    """Return the points of one file, none if it is of no known format."""
    reader: Callable[[Path], list[Point]] = _text
    if "tfevents" in path.name:
        reader = _tensorboard
    elif path.suffix == ".csv":
        reader = _table
    elif path.suffix == ".jsonl" or path.name.endswith(".log.json"):
        reader = _json_lines
    elif path.suffix == ".json":
        reader = _document
    try:
        return reader(path)
    except (ValueError, TypeError, KeyError, AttributeError, struct.error):
        return []


def _point(number: int, loss: Any, rate: Any = None, grad_norm: Any = None) -> Point:
    values = {"loss": loss, "learning_rate": rate, "grad_norm": grad_norm}
    return number, {name: float(value) for name, value in values.items() if value is not None}


def _text(path: Path) -> list[Point]:
    lines = _COLOURS.sub("", path.read_text(encoding="utf-8", errors="replace")).splitlines()
    best: list[tuple[str, re.Match[str]]] = []
    for pattern in _PATTERNS:
        found = [(line, match) for line in lines if (match := pattern.search(line))]
        best = max(best, found, key=len)
    points: list[Point] = []
    for line, match in best:
        number = int(match[1]) if match[1] else len(points) + 1
        rate, norm = _LR.search(line), _GRAD_NORM.search(line)
        points.append(_point(number, match[2], rate and rate[1], norm and norm[1]))
    return points


def _table(path: Path) -> list[Point]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = [[cell.strip() for cell in row] for row in csv.reader(file)]
    names = rows[0]
    loss = next((name for name in _LOSS_NAMES if name in names), "")
    points: list[Point] = []
    for row in rows[1:]:
        cells = dict(zip(names, row, strict=False))
        try:
            rate = next((cells[name] for name in _RATE_NAMES if cells.get(name)), None)
            points.append(_point(int(float(cells.get("step") or len(points))), cells[loss], rate))
        except (ValueError, KeyError):
            continue  # A row of the validation, or the mark of a merge conflict.
    return points


def _json_lines(path: Path) -> list[Point]:
    points: list[Point] = []
    interval = 1
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record.get("mode", "train") != "train" or record.get("loss") is None:
            continue
        if not points:
            interval = record.get("iter", 1)
        number = record.get("current_steps", record.get("global_step", (len(points) + 1) * interval))
        rate = record.get("lr", record.get("learning_rate"))
        points.append(_point(number, record["loss"], rate, record.get("grad_norm")))
    return points


def _document(path: Path) -> list[Point]:
    document = json.loads(path.read_text(encoding="utf-8"))
    if "log_history" in document:
        history = [entry for entry in document["log_history"] if "loss" in entry]
        return [
            _point(entry["step"], entry["loss"], entry.get("learning_rate"), entry.get("grad_norm"))
            for entry in history
        ]
    values = document["lm loss"]
    if isinstance(values, list):
        return [_point(number, value) for number, value in enumerate(values, 1)]
    # These files write the text "nan" for steps that were not run.
    return [_point(int(number), value) for number, value in values["values"].items() if isinstance(value, float)]


def _tensorboard(path: Path) -> list[Point]:
    """Read scalars: a record is length (8 bytes), checksum (4), a protobuf of that length, checksum (4)."""
    data = path.read_bytes()
    series: dict[str, dict[int, float]] = {}
    offset = 0
    while offset + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, offset)
        event = dict(_fields(data[offset + 12 : offset + 12 + length]))
        offset += 16 + length
        for key, value in _fields(event.get(5, b"")):
            scalar = _scalar(value) if key == 1 else None
            if scalar is not None:
                series.setdefault(scalar[0], {})[event.get(2, 0)] = scalar[1]
    name = next((name for name in _LOSS_NAMES if name in series), None)
    rates = next((series[name] for name in _RATE_NAMES if name in series), {})
    return [] if name is None else [_point(step, loss, rates.get(step)) for step, loss in series[name].items()]


def _scalar(summary: bytes) -> tuple[str, float] | None:
    """Return tag and value of a Summary.Value: simple_value (2) or a tensor (8) with float_val (5) or content (4)."""
    fields = dict(_fields(summary))
    if 2 in fields:
        return fields[1].decode(), fields[2]
    if 8 in fields:
        tensor = dict(_fields(fields[8]))
        content = tensor.get(5, tensor.get(4))
        if tensor.get(1) == 1 and isinstance(content, bytes) and len(content) == 4:
            return fields[1].decode(), struct.unpack("<f", content)[0]
        if isinstance(content, float):
            return fields[1].decode(), content
    return None


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield field number and value of one protobuf message."""
    offset = 0

    def varint() -> int:
        nonlocal offset
        value = shift = 0
        while True:
            byte = data[offset]
            offset += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while offset < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            yield key >> 3, struct.unpack_from("<d" if kind == 1 else "<f", data, offset)[0]
            offset += size
        else:
            size = varint()
            yield key >> 3, data[offset : offset + size]
            offset += size
