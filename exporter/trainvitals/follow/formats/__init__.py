"""The table of formats: each is one file beside this one and one row."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from trainvitals.follow import text
from trainvitals.follow.base import NO, SURE, Format, LineFormat
from trainvitals.follow.formats.deepspeed import DeepSpeed
from trainvitals.follow.formats.fairseq import Fairseq
from trainvitals.follow.formats.json_lines import JsonLines, LlamaFactory, MsSwift, OpenMMLab
from trainvitals.follow.formats.keras import Keras
from trainvitals.follow.formats.llmc import LlmC
from trainvitals.follow.formats.megatron import Megatron
from trainvitals.follow.formats.mindformers import MindFormers
from trainvitals.follow.formats.mlflow import MLflow, MLflowFolder
from trainvitals.follow.formats.modded_nanogpt import ModdedNanoGPT
from trainvitals.follow.formats.nanogpt import NanoGPT
from trainvitals.follow.formats.openmmlab import OpenMMLabText
from trainvitals.follow.formats.paddlenlp import PaddleNLP
from trainvitals.follow.formats.plain import Pairs, Plain
from trainvitals.follow.formats.series_json import SeriesJson
from trainvitals.follow.formats.swanlab import SwanLab
from trainvitals.follow.formats.tables import Table
from trainvitals.follow.formats.tensorboard import TensorBoard
from trainvitals.follow.formats.torchtitan import TorchTitan, TorchTitanEvents
from trainvitals.follow.formats.trackio import Trackio
from trainvitals.follow.formats.trainer_state import TrainerState
from trainvitals.follow.formats.transformers import Transformers
from trainvitals.follow.formats.ultralytics import Ultralytics
from trainvitals.follow.formats.verl import Verl
from trainvitals.follow.formats.wandb import Wandb

__all__ = ["FORMATS", "choose", "describe", "why_unknown"]

log = logging.getLogger(__name__)

#: In alphabetical order of their files within each group; of formats that are equally sure, the first one wins.
FORMATS: tuple[Format, ...] = (
    # Text of one program.
    DeepSpeed(),
    Fairseq(),
    Keras(),
    LlmC(),
    Megatron(),
    MindFormers(),
    ModdedNanoGPT(),
    NanoGPT(),
    OpenMMLabText(),
    PaddleNLP(),
    TorchTitan(),
    Transformers(),
    Ultralytics(),
    Verl(),
    # Structured.
    LlamaFactory(),
    MLflow(),
    MLflowFolder(),
    MsSwift(),
    OpenMMLab(),
    SeriesJson(),
    SwanLab(),
    TensorBoard(),
    TorchTitanEvents(),
    Trackio(),
    TrainerState(),
    Wandb(),
    Table(),
    JsonLines(),
    # Careful guesses, last.
    Pairs(),
    Plain(),
)


def choose(head: bytes, path: str, formats: Sequence[Format] = FORMATS, above: int = NO) -> tuple[Format | None, int]:
    """Return the format that is surest of a piece of a file, and how sure; None where nobody knows it.

    Only those are asked that may be surer than ``above``.  A piece in whose middle a line is cut is seen up to there
    by formats of lines.
    """
    chosen: Format | None = None
    best = above
    clean: bytes | None = None
    bare = b""
    for candidate in formats:
        if candidate.surest <= above:
            continue
        if isinstance(candidate, LineFormat):
            if clean is None:
                clean = b"" if _is_binary(head) else text.clean(head)
                bare = text.bare(clean)
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
    known = [known.name for known in FORMATS]
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


def _is_binary(head: bytes) -> bool:
    """Whether this is no text.  NULs alone are a hole in a log (see :func:`trainvitals.follow.text.clean`)."""
    sample = head.lstrip(b"\0")[:4096]
    nuls = sample.count(b"\0")
    if nuls <= len(sample) // 64:
        return False
    # In UTF-16, nearly every other byte of a log is one, and none between.
    places = (sample[::2].count(b"\0"), sample[1::2].count(b"\0"))
    return min(places) > len(sample) // 64 or max(places) < len(sample) // 3
