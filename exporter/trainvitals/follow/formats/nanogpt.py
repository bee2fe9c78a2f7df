"""nanoGPT and its kin: llama2.c and nanochat.

Sources: train.py of karpathy/nanoGPT ("iter 10: loss 3.2205, time 893.76ms, mfu 16.61%"; without mfu before 2023;
mfu is -100 % until it is known; "step 250: train loss 1.5443, val loss 1.7223" is an evaluation; "saving checkpoint to
DIR"), train.py of karpathy/llama2.c ("490 | loss 5.7546 | lr 4.900000e-05 | 8060.78ms | mfu 0.24%") and base_train.py
of karpathy/nanochat ("step 00010/05000 (0.20%) | loss: 9.12 | lrm: 1.00 | dt: 712.34ms | tok/sec: 73,502 | mfu: 41.2"),
train_gpt2.py of karpathy/build-nanogpt ("step     0 | loss: 10.95 | lr 8.39e-07 | norm: 15.36 | dt: 27592.14ms |
tok/sec: 19001.10", "validation loss: 10.95", "HellaSwag accuracy: 2463/10042=0.2453") and its log.txt ("0 val 10.95",
"0 hella 0.2453", "0 train 10.955").  People put a time before each, and more words between loss and time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from trainvitals.follow.base import NO, SURE, Facts, Item, LineFormat, LineParser, Row, Rows
from trainvitals.follow.text import timestamp
from trainvitals.telemetry import Event

_NUMBER = r"(nan|-?inf|-?\d[\d.]*(?:e[+-]?\d+)?)"
#: Something may stand before: the time that somebody added.  A pattern that begins with letters is found fastest.
_ITER = re.compile(
    rf"iter (\d+): loss {_NUMBER},(( [A-Za-z_ ]{{1,30}}:? [^\s,]{{1,30}},){{0,8}}) time:? {_NUMBER}ms"
    rf"(?:, mfu {_NUMBER}%)?"
)
_BETWEEN = re.compile(rf" ([A-Za-z_ ]{{1,30}}):? {_NUMBER},")
#: Lines of nothing but that, which long logs are made of.
_ITER_LINES = re.compile(
    rf"^([^i\n]{{0,80}})iter (\d+): loss {_NUMBER}, time {_NUMBER}ms(?:, mfu {_NUMBER}%)?$", re.MULTILINE
)
_EVALUATION = re.compile(rf"step (\d+): train loss {_NUMBER}, val loss {_NUMBER}")
_LLAMA2 = re.compile(rf"(?:^|[\s\]:>])(\d+) \| loss {_NUMBER} \| lr {_NUMBER} \| {_NUMBER}ms(?: \| mfu {_NUMBER}%)?")
_NANOCHAT = re.compile(r"(?:^|[\s\]:>])step (\d+)/(\d+)(?: \([\d.]+%\))? \| (loss: .*)")
_BUILD = re.compile(r"(?:^|[\s\]:>])step +(\d+) \| (loss: .*)")
_BUILD_RESULT = re.compile(rf"(?:^|\s)(?:(validation) loss: |(HellaSwag) accuracy: \d+/\d+=){_NUMBER}")
_BUILD_FILE = re.compile(rf"(?:^|\s)(\d+) (train|val|hella) {_NUMBER}\s*$")
_NANOCHAT_EVALUATION = re.compile(rf"(?:^|\s)Step (\d+) \| Validation bpb: {_NUMBER}")
_SAVING = re.compile(r"saving checkpoint to (.+)")

_SNIFF = re.compile(
    rb"(?:^|[\s\]:>])(?:iter \d+: loss [\dni.-]+,[^\n]{0,240} time:? [\d.]+ms"
    rb"|step \d+: train loss [\dni.-]+, val loss [\dni.-]+"
    rb"|\d+ \| loss [\dni.-]+ \| lr [\d.e+-]+ \| [\d.]+ms"
    rb"|step \d+/\d+(?: \([\d.]+%\))? \| loss: [\dni.-]+ \| [^\n]{0,40}lrm: "
    rb"|step +\d+ \| loss: [\dni.-]+ \| [^\n]{0,60}dt: [\d.]+ms"
    rb"|\d+ (?:val|train) \d+\.\d{3,6}\n\d+ (?:val|hella|train) \d+\.\d{3,6}\n)",
    re.MULTILINE,
)

#: nanochat's words: ours, and what one of theirs is in our unit.  Others are kept as they are.
_WORDS = {
    "loss": ("loss", 1.0),
    "lrm": ("learning_rate_multiplier", 1.0),
    "dt": ("step_seconds", 1e-3),
    "tok/sec": ("tokens_per_second", 1.0),
    "mfu": ("mfu", 1e-2),
    "grad norm": ("grad_norm", 1.0),
    "grad_norm": ("grad_norm", 1.0),
    "norm": ("grad_norm", 1.0),
    "lr": ("learning_rate", 1.0),
    "bf16_mfu": ("mfu", 1e-2),
}
_ITER_NAMES = ("loss", "step_seconds", "mfu")
_FIRST_NUMBER = re.compile(r"nan|-?inf|-?[\d,]+(?:\.\d+)?(?:e[+-]?\d+)?")


class _Parser:
    def feed(self, line: str) -> Iterable[Item]:
        for pattern, read in _READERS:
            if found := pattern.search(line):
                moment = timestamp(line, 0, found.start(1)) if found.start(1) > 10 else None
                return read(found, moment)
        return ()

    def batch(self, lines: list[str]) -> Sequence[Rows] | None:
        """Return the rows of lines of which each is an iteration, all of them with or without mfu."""
        found = _ITER_LINES.findall("\n".join(lines))
        if len(found) != len(lines):
            return None
        before, steps, losses, milliseconds, shares = zip(*found, strict=True)
        columns = [list(map(float, losses)), [float(text) / 1e3 for text in milliseconds]]
        if any(shares):
            columns.append([float(text) / 1e2 for text in shares])
            if any(text[0] == "-" for text in shares):
                return None
        moments = list(map(_moment, before))
        times = moments if moments.count(None) < len(moments) else None
        return (Rows(list(map(int, steps)), dict(zip(_ITER_NAMES, columns, strict=False)), times),)


def _moment(before: str) -> float | None:
    return timestamp(before, 0, len(before)) if len(before) > 5 else None


def _iter(found: re.Match[str], moment: float | None) -> tuple[Item, ...]:
    step, loss, between, _, milliseconds, mfu = found.groups()
    values = {"loss": float(loss), "step_seconds": float(milliseconds) / 1e3}
    for word, text in _BETWEEN.findall(between) if between else ():
        name, factor = _WORDS.get(word, ("", 1.0))
        if name:
            values[name] = float(text) * factor
    _add_mfu(values, mfu)
    return (Row(int(step), values, moment),)


def _build(found: re.Match[str], moment: float | None) -> tuple[Item, ...]:
    values = _words(found[2])
    return (Row(int(found[1]), values, moment),) if values else ()


def _build_result(found: re.Match[str], moment: float | None) -> tuple[Item, ...]:
    if found[2]:
        return (Row(None, {"accuracy": float(found[3])}, moment, split="hellaswag"),)
    return (Row(None, {"loss": float(found[3])}, moment, split="validation"),)


def _build_file(found: re.Match[str], moment: float | None) -> tuple[Item, ...]:
    step, value = int(found[1]), float(found[3])
    if found[2] == "train":
        return (Row(step, {"loss": value}, moment),)
    if found[2] == "hella":
        return (Row(step, {"accuracy": value}, moment, split="hellaswag"),)
    return (Row(step, {"loss": value}, moment, split="validation"),)


def _evaluation(found: re.Match[str], moment: float | None) -> tuple[Item, ...]:
    # Both are means over batches of their own, and the training's loss has its own line.
    values = {"loss": float(found[3]), "train_loss": float(found[2])}
    return (Row(int(found[1]), values, moment, split="validation"),)


def _llama2(found: re.Match[str], moment: float | None) -> tuple[Item, ...]:
    step, loss, rate, milliseconds, mfu = found.groups()
    values = {"loss": float(loss), "learning_rate": float(rate), "step_seconds": float(milliseconds) / 1e3}
    _add_mfu(values, mfu)
    return (Row(int(step), values, moment),)


def _nanochat(found: re.Match[str], moment: float | None) -> tuple[Item, ...]:
    values = _words(found[3])
    return (Facts(target_steps=int(found[2])), Row(int(found[1]), values, moment)) if values else ()


def _nanochat_evaluation(found: re.Match[str], moment: float | None) -> tuple[Item, ...]:
    return (Row(int(found[1]), {"bpb": float(found[2])}, moment, split="validation"),)


def _saving(found: re.Match[str], moment: float | None) -> tuple[Item, ...]:
    return (Event(moment or 0.0, "checkpoint", -1, {"action": "save", "ok": True, "path": found[1].strip()}),)


def _add_mfu(values: dict[str, float], mfu: str | None) -> None:
    if mfu is not None and not mfu.startswith("-"):
        values["mfu"] = float(mfu) / 1e2


def _words(text: str) -> dict[str, float]:
    values = {}
    for part in text.split("|"):
        word, sign, rest = part.partition(":")
        if not sign:
            word, _, rest = part.strip().partition(" ")
        number = _FIRST_NUMBER.match(rest.strip())
        name, factor = _WORDS.get(word.strip(), ("", 1.0))
        if name and number is not None:
            values[name] = float(number[0].replace(",", "")) * factor
    return values


#: The most frequent first.
_READERS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], float | None], tuple[Item, ...]]], ...] = (
    (_ITER, _iter),
    (_LLAMA2, _llama2),
    (_NANOCHAT, _nanochat),
    (_EVALUATION, _evaluation),
    (_NANOCHAT_EVALUATION, _nanochat_evaluation),
    (_SAVING, _saving),
    (_BUILD, _build),
    (_BUILD_RESULT, _build_result),
    (_BUILD_FILE, _build_file),
)


class NanoGPT(LineFormat):
    """See the module."""

    name = "nanogpt"
    framework = "nanogpt"
    needles = (
        b": loss ", b"train loss ", b" | loss", b"Validation bpb", b"saving checkpoint", b"validation loss: ",
        b"HellaSwag acc", b" train ", b" val ", b" hella ",
    )  # fmt: skip

    def sniff(self, head: bytes, path: str) -> int:  # noqa: ARG002
        """Return how sure it is; see :class:`Format`."""
        return SURE if _SNIFF.search(head) else NO

    def parser(self) -> LineParser:
        """Return a parser for one file."""
        return _Parser()
