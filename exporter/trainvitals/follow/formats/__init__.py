"""The table of formats: each is one file beside this one and one row.

A format is imported when it may be needed: to import all takes as long as to read many a log.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple, cast, overload

from trainvitals.follow import text
from trainvitals.follow.base import GUESS, NO, SURE, FileFormat, Format, LineFormat

__all__ = ["FORMATS", "Formats", "choose", "describe", "why_unknown"]

log = logging.getLogger(__name__)

_DATABASE, _BRACE = (b"SQLite format 3",), (b"{",)


class Known(NamedTuple):
    """A format: its name, its module and class, and what is known of it before it is imported.

    ``marks``: a piece of a file that holds none of these bytes is none of its (where there are no marks, any piece may
    be).  ``folder`` and ``surest`` are as in :class:`trainvitals.follow.base.FileFormat` and its base.
    """

    name: str
    module: str
    kind: str
    marks: tuple[bytes, ...] = ()
    folder: bool = False
    surest: int = SURE

    def may_be(self, head: bytes, clean: bytes) -> bool:
        """Whether a piece of a file, as it is and as clean text, holds one of the marks."""
        return not self.marks or any(mark in head or mark in clean for mark in self.marks)


class Formats(Sequence[Format]):
    """All formats, of which those are imported that somebody looks at."""

    def __init__(self, rows: Sequence[Known]) -> None:
        self.rows = rows
        self._made: dict[str, Format] = {}

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, place: int) -> Format: ...

    @overload
    def __getitem__(self, place: slice) -> list[Format]: ...

    def __getitem__(self, place: int | slice) -> Format | list[Format]:
        if isinstance(place, slice):
            return [self.make(row) for row in self.rows[place]]
        return self.make(self.rows[place])

    @classmethod
    def of(cls, formats: Sequence[Format]) -> Formats:
        """Return some formats that are there already in this form."""
        if isinstance(formats, cls):
            return formats
        table = cls([Known(known.name, "", "", (), _is_folder(known), known.surest) for known in formats])
        table._made = {known.name: known for known in formats}
        return table

    def make(self, row: Known) -> Format:
        """Return the format of a row."""
        found = self._made.get(row.name)
        if found is None:
            module = import_module(f"{__name__}.{row.module}")
            found = self._made[row.name] = cast("Format", getattr(module, row.kind)())
        return found

    def named(self, name: str) -> Format | None:
        """Return the format of this name."""
        return next((self.make(row) for row in self.rows if row.name == name), None)

    def of_folders(self) -> list[Format]:
        """Return those that are folders."""
        return [self.make(row) for row in self.rows if row.folder]


#: In alphabetical order of their files within each group; of formats that are equally sure, the first one wins.
FORMATS = Formats(
    (
        # Text of one program.
        Known("deepspeed", "deepspeed", "DeepSpeed", (b"logging.py:", b"timer.py:", b"iter time (s): ")),
        Known("fairseq", "fairseq", "Fairseq", (b'": "', b"loss=", b"fairseq_cli")),
        Known("keras", "keras", "Keras", (b"loss: ",)),
        Known("llm.c", "llmc", "LlmC", (b"tel:", b"trl:", b"eval:", b"| norm ", b"(took ")),
        Known("megatron", "megatron", "Megatron", (b"iteration",)),
        Known("mindformers", "mindformers", "MindFormers", (b"poch",)),
        Known("modded-nanogpt", "modded_nanogpt", "ModdedNanoGPT", (b"step:",)),
        Known("nanogpt", "nanogpt", "NanoGPT", (b": loss ", b"| loss", b"val ", b"train ")),
        Known("openmmlab", "openmmlab", "OpenMMLabText", (b"Epoch", b"Iter")),
        Known("paddlenlp", "paddlenlp", "PaddleNLP", (b"INFO]",)),
        Known("torchtitan", "torchtitan", "TorchTitan", (b"step:",)),
        Known("transformers", "transformers", "Transformers", (b"{'",)),
        Known("ultralytics", "ultralytics", "Ultralytics", (b"Epoch",)),
        Known("verl", "verl", "Verl", (b"step:",)),
        # Structured.
        Known("llamafactory", "json_lines", "LlamaFactory", _BRACE),
        Known("mlflow", "mlflow", "MLflow", _DATABASE),
        Known("mlflow-files", "mlflow", "MLflowFolder", folder=True),
        Known("ms-swift", "json_lines", "MsSwift", _BRACE),
        Known("openmmlab-json", "json_lines", "OpenMMLab", _BRACE),
        Known("series-json", "series_json", "SeriesJson", _BRACE),
        Known("swanlab", "swanlab", "SwanLab", (b":SWL",)),
        Known("tensorboard", "tensorboard", "TensorBoard", (b"brain.Event:",)),
        Known("torchtitan-events", "torchtitan", "TorchTitanEvents", (b"log_type_name",)),
        Known("trackio", "trackio", "Trackio", _DATABASE),
        Known("trainer-state", "trainer_state", "TrainerState", _BRACE),
        Known("wandb", "wandb", "Wandb", (b":W&B",)),
        Known("table", "tables", "Table"),
        Known("jsonl", "json_lines", "JsonLines", _BRACE),
        # Careful guesses, last.
        Known("pairs", "plain", "Pairs", surest=GUESS),
        Known("plain", "plain", "Plain", surest=GUESS),
    )
)


def choose(head: bytes, path: str, formats: Sequence[Format] = FORMATS, above: int = NO) -> tuple[Format | None, int]:
    """Return the format that is surest of a piece of a file, and how sure; None where nobody knows it.

    Only those are asked that may be surer than ``above``.  A piece in whose middle a line is cut is seen up to there
    by formats of lines.
    """
    chosen: Format | None = None
    best = above
    table = Formats.of(formats)
    clean = b"" if _is_binary(head) else text.clean(head)
    bare = text.bare(clean)
    for row in table.rows:
        if row.folder or row.surest <= best or not row.may_be(head, clean):
            continue
        candidate = table.make(row)
        if isinstance(candidate, LineFormat):
            if candidate.needles and not any(needle in bare for needle in candidate.needles):
                continue
            piece = bare if candidate.prefixed else clean
        else:
            piece = head
        try:
            sure = candidate.sniff(piece, path) if piece else NO
        except Exception:
            log.warning("format %r fails on %r", candidate.name, path, exc_info=True)
            continue
        if sure > best:
            chosen, best = candidate, sure
        if best >= SURE:
            break
    return chosen, best


def why_unknown(name: str) -> str:
    """Return what is wrong with the name of a format, in one line; empty where there is one of this name."""
    known = [row.name for row in FORMATS.rows]
    if name in known:
        return ""
    import difflib  # noqa: PLC0415  Rarely needed.

    near = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"unknown format {name!r}{meant} (all: trainvitals follow --formats)"


def describe() -> str:
    """Return the names of all formats, one a line, with the framework where a format tells and the extra it needs."""
    lines = []
    for known in FORMATS:
        extra = f"needs trainvitals[{known.extra}]" if known.extra else ""
        beside = "; ".join(part for part in (known.framework, extra) if part and part != known.name)
        lines.append(f"{known.name:<18}{beside}".rstrip())
    return "\n".join(lines)


def _is_folder(known: Format) -> bool:
    return isinstance(known, FileFormat) and known.folder


def _is_binary(head: bytes) -> bool:
    """Whether this is no text.  NULs alone are a hole in a log (see :func:`trainvitals.follow.text.clean`)."""
    sample = head.lstrip(b"\0")[:4096]
    nuls = sample.count(b"\0")
    if nuls <= len(sample) // 64:
        return False
    # In UTF-16, nearly every other byte of a log is one, and none between.
    places = (sample[::2].count(b"\0"), sample[1::2].count(b"\0"))
    return min(places) > len(sample) // 64 or max(places) < len(sample) // 3
