"""Megatron-LM and what was made of it: Megatron-DeepSpeed, MindSpeed-LLM, ModelLink, GPT-NeoX.

Sources: megatron/training/training.py: " [2024-04-06 02:59:36.123456] iteration       43/     103 | consumed samples:
5507 | elapsed time per iteration (ms): 5444.9 | learning rate: 8.600000E-06 | lm loss: 1.825991E+00 | ... |", written
by the last rank; older ones have no time, forks seconds instead of milliseconds, underscores and ``=`` instead of
words and colons.  " validation loss at iteration 200 | lm loss value: 7.48E+00 | lm loss PPL: 1.78E+03 | ", with "on
test set" or a name; timers ("time (ms) | forward: 193.70 | ..." and "    forward ....: (1376.42, 1377.03)");
checkpoints; and the report on stragglers ("MnRtt/Rnk: 3453.08ms/8 | ...").

GPT-NeoX has its speed before the iteration and "validation results at iteration 200 | lm_loss value: ...", NeMo
"iteration 9/99 | lr: 1.5e-06 | reduced_train_loss: 11.03 | train_step_timing in s: 6.1".

A loss that is NaN is left out of the line (the test is ``avg > 0``, and so is a loss that was never computed, because
all iterations since the last line were skipped for their overflows).  So a whole line of which not all iterations were
skipped, and without a loss, is one of a NaN.  Where no loss is that of a language model, the first one that balances
no experts is the loss.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

from trainvitals.follow.base import NO, SURE, Facts, Item, LineFormat, LineParser, Piece, Row, Rows
from trainvitals.follow.record import number
from trainvitals.follow.templates import MOST, Template, Word
from trainvitals.follow.text import timestamp, timestamps
from trainvitals.telemetry import Event

_LINE = re.compile(r"(?:^|[\s\]:>|,-])iteration[ =] *(\d{1,12})/ *(\d{1,12}) \|(.{1,8000})")
#: Where another line begins within a line: two ranks wrote at once.
_NEXT = re.compile(r"\siteration[ =] *\d{1,12}/ *\d{1,12} \|")
_BEFORE = re.compile(r"samples/sec: ([\d.]{1,20}) \|\s*$")
_FLOPS = re.compile(r"approx flops per GPU: ([\d.]{1,20})([KMGTPE]?)FLOPS")
_PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
#: Losses that are none of what is learned: parts, or of the experts' balance.
_BESIDE = re.compile(r"balanc|aux|z[ _]loss|mtp|scale|router|sop|indexer")
_WORD = re.compile(r"\s*([A-Za-z\[][^:=|]{0,80}?)\s?[:=]\s*([^\s|]{1,64})")
_VALIDATION = re.compile(
    r"(valid(?:ation)?|test)(-[\w.-]{1,64})? (?:loss|results) at (?:iteration )?(\d{1,12})(?: on (\w{1,20}) set)? \|"
    r"(.{1,4000})"
)
_RESULT = re.compile(r"([A-Za-z][\w -]{0,60}?)((?:_ppl)? value| PPL): ([^\s|]{1,40})")
_SAVED = re.compile(r"successfully saved checkpoint (?:from|at) iteration +(\d{1,12}) to (\S{1,1000})")
_LOADED = re.compile(r"successfully loaded checkpoint from (\S{1,1000}).{0,60}? at iteration (\d{1,12})")
_STARTED, _FINISHED = "[before the start of training step] datetime:", "[after training is done] datetime:"
_WORLD = re.compile(r"using world size: (\d{1,9})")
_TIMERS = re.compile(r"(?:^|\s|\|)time \(ms\) \|(.{1,4000})")
_TIMER = re.compile(r"^\s{1,8}([a-z][a-z0-9-]{1,60}) \.{2,80}: \((\d[\d.]{0,20}), (\d[\d.]{0,20})\)")
_EXTREME = re.compile(r"(Mn|Mx)(\w{1,12})/Rnk: (\d[\d.]{0,20})(ms|W|C|%|MHz|TF)/(\d{1,9})")
_SNIFF = re.compile(
    rb"(?:^|[\s\]:>|,-])iteration[ =] *\d+/ *\d+ \| |valid(?:ation)?(?:-[\w.-]+)? loss at iteration \d+"
)

#: Words without regard to underscores and hyphens: ours, and what one of theirs is in our unit.
_NAMES = {
    "lm loss": ("loss", 1.0),
    "reduced train loss": ("loss", 1.0),
    "lr": ("learning_rate", 1.0),
    "global step": ("", 1.0),
    "train step timing in s": ("step_seconds", 1.0),
    "learning rate": ("learning_rate", 1.0),
    "grad norm": ("grad_norm", 1.0),
    "loss scale": ("loss_scale", 1.0),
    "consumed samples": ("total_samples", 1.0),
    "consumed tokens": ("total_tokens", 1.0),
    "global batch size": ("global_batch_size", 1.0),
    "gloabl batch size": ("global_batch_size", 1.0),
    "elapsed time per iteration (ms)": ("step_seconds", 1e3),
    "elapsed time per iteration ms": ("step_seconds", 1e3),
    "elapsed time per iteration (s)": ("step_seconds", 1.0),
    "throughput per gpu (tflop/s/gpu)": ("flops_per_device", 1e-12),
    "tflops": ("flops_per_device", 1e-12),
    "samples per second": ("samples_per_second", 1.0),
    "samples/sec": ("samples_per_second", 1.0),
    "tokens per gpu per second (tgs)": ("tokens_per_second_per_device", 1.0),
    "tokens per gpu per second tgs": ("tokens_per_second_per_device", 1.0),
    "tokens per second per gpu": ("tokens_per_second_per_device", 1.0),
    "tokens/s/p": ("tokens_per_second_per_device", 1.0),
    "tokens per second": ("tokens_per_second", 1.0),
    "number of skipped iterations": ("skipped", 1.0),
    "number of nan iterations": ("nan_iterations", 1.0),
    "num zeros": ("num_zeros", 1.0),
    "params norm": ("params_norm", 1.0),
    "max memory allocated(gb)": ("max_memory_allocated_bytes", 2.0**-30),
    "max memory reserved(gb)": ("max_memory_reserved_bytes", 2.0**-30),
}
_EXTREMES = {"ms": ("seconds", 1e3), "W": ("watts", 1.0), "C": ("celsius", 1.0), "%": ("ratio", 1e2)}
_MAX_TIMERS = 24
#: Among lines that are read at once, so many may be of another kind.
_MOST_OTHERS = 8
_LONGEST_USUAL = 2000
#: Lines of one length are looked at by themselves, where there are so many of it in a row.
_LONG_RUN = 32


class _Parser:
    def __init__(self) -> None:
        self._step = 0
        #: What is called the loss in this log; empty as long as no line had one.
        self._loss = ""
        #: What reads lines like the last one whose words were looked at, and how many of these were made.
        self._template: Template | None = None
        self._templates = 0

    def feed(self, line: str) -> Iterable[Item]:
        if items := self._step_of(line):
            return items
        if found := _VALIDATION.search(line):
            return _validation(found, timestamp(line))
        if found := _TIMERS.search(line):
            pairs = _WORD.findall(found[1].replace("|", " |"))[:_MAX_TIMERS]
            values = {f"timer/{name.strip()}_seconds": value / 1e3 for name, text in pairs if (value := number(text))}
            return (Row(None, values),) if values else ()
        if found := _TIMER.match(line):
            return (Row(None, {f"timer/{found[1]}_seconds": float(found[3]) / 1e3}),)
        if "/Rnk: " in line:
            return _stragglers(line)
        return _life(line)

    def _step_of(self, line: str) -> Iterable[Item]:
        if self._template is not None and (usual := self._template.read(line)):
            before, self._step, target, values = usual
            return (Facts(target_steps=target), Row(self._step, values, timestamp(before)))
        found = _LINE.search(line)
        if found is None:
            return ()
        items = self._iteration(line, found)
        if self._templates < MOST and len(found[3]) < _LONGEST_USUAL:
            self._templates += 1
            self._template = self._make_template(found[3])
        return items

    def batch(self, lines: list[str]) -> Sequence[Piece] | None:
        """Return what lines say of which nearly each is an iteration of the usual kind."""
        template = self._template
        if template is None:
            return None
        # Lines that are alike are as long as each other.
        runs = [list(run) for _, run in groupby(lines, len)]
        if len(runs) > 2 + len(lines) // _LONG_RUN:
            runs = [lines]
        before = self._step, self._loss, self._template, self._templates
        pieces: list[Piece] = []
        others = 0
        try:
            for run in runs:
                if alike := template.read_alike(run):
                    pieces += self._rows(*alike)
                    continue
                found = template.match(run)
                others += found.count(None)
                if others > _MOST_OTHERS:
                    self._step, self._loss, self._template, self._templates = before
                    return None
                pieces += self._mixed(template, run, found)
        except Exception:
            self._step, self._loss, self._template, self._templates = before
            raise
        return pieces

    def _mixed(
        self, template: Template, lines: Sequence[str], found: Sequence[re.Match[str] | None]
    ) -> Iterable[Piece]:
        """Yield what lines say of which the template reads those that match."""
        for line, group in groupby(zip(lines, found, strict=True), _other):
            if line:
                # The same line again is the same group.
                for _ in group:
                    yield from self.feed(line)
            else:
                yield from self._rows(*template.read_all([match for _, match in group if match is not None]))

    def _rows(
        self, begins: Sequence[str], steps: list[int], targets: set[str], columns: dict[str, list[float]]
    ) -> tuple[Piece, ...]:
        (target,) = targets
        # They have 30 characters at most before the word, which is none of a time.
        moments = timestamps(begins)
        times = moments if moments.count(None) < len(moments) else None
        self._step = steps[-1]
        return (Facts(target_steps=int(target)), Rows(steps, columns, times))

    def _iteration(self, line: str, found: re.Match[str]) -> Iterable[Item]:
        step, target = int(found[1]), int(found[2])
        values: dict[str, float] = {}
        text = found[3]
        if following := _NEXT.search(text):
            # What stands last may be cut.
            text = text[: following.start()].rpartition("|")[0]
        losses = []
        for part in text.split("|"):
            if word := _WORD.match(part):
                plain = re.sub(r"[_-]", " ", word[1]).lower()
                ours, factor = _NAMES.get(plain, (word[1], 1.0))
                value = number(word[2])
                if value is not None and ours and not ours.startswith("["):
                    values[ours] = value / factor
                    if "loss" in ours and not _BESIDE.search(plain):
                        losses.append(ours)
        self._add_speed(line[: found.start(1)], text, values)
        skipped = values.get("skipped", 0.0)
        if losses and not self._loss:
            self._loss = "loss" if "loss" in losses else losses[0]
        if self._loss in values and self._loss != "loss":
            values["loss"] = values.pop(self._loss)
        if "loss" not in values and "nan_iterations" in values and skipped < step - min(self._step, step - 1):
            values["loss"] = float("nan")
        if not skipped:
            values.pop("skipped", None)
        self._step = step
        row = Row(step, values, timestamp(line, 0, found.start(1)))
        # An interrupted line has a whole one behind it.
        behind = self.feed(line[found.start(3) + following.start() :]) if following else ()
        return (Facts(target_steps=target), *((row,) if values else ()), *behind)

    def _make_template(self, text: str) -> Template | None:
        """Return what reads lines with these words; None where they are not of the usual kind, with a loss."""
        words = []
        for part in text.rstrip(" |").split("|"):
            word = _WORD.match(part)
            if word is None or part[word.end() :].strip() or "flops per GPU" in part:
                return None
            ours, factor = _NAMES.get(re.sub(r"[_-]", " ", word[1]).lower(), (word[1], 1.0))
            if ours.startswith("["):
                return None
            # What was skipped, and what is no number, needs thought.
            only = "0" if ours in {"skipped", "nan_iterations"} else ""
            if only and word[2] != only:
                return None
            ours = "loss" if ours == self._loss else "" if ours == "skipped" else ours
            words.append(Word(part[: word.start(2)].strip(), ours, factor, only))
        names = [word.name for word in words if word.name]
        if names.count("loss") != 1 or len(set(names)) < len(names):
            return None
        return Template(r"(?: ?\[[\d :.-]{19,30}\])? iteration[ =] *", r" [|]", words)

    @staticmethod
    def _add_speed(before: str, text: str, values: dict[str, float]) -> None:
        """Add what GPT-NeoX says of the speed."""
        if speed := _BEFORE.search(before.rstrip().removesuffix("iteration")):
            values["samples_per_second"] = float(speed[1])
        if flops := _FLOPS.search(text):
            values["flops_per_device"] = float(flops[1]) * _PREFIXES[flops[2]]


def _other(pair: tuple[str, re.Match[str] | None]) -> str:
    """Return a line that is none of the usual ones, else nothing."""
    return "" if pair[1] is not None else pair[0]


def _validation(found: re.Match[str], moment: float | None) -> Iterable[Item]:
    word, name, step, which, text = found.groups()
    split = ("test" if "test" in {which, word} else "validation") + (name or "")
    values = {}
    for loss, kind, result in _RESULT.findall(text):
        value = number(result)
        if value is not None:
            ours = "loss" if loss.lower().replace("-", " ").replace("_", " ") in {"lm loss", "loss"} else loss
            values[ours if kind == " value" else ("ppl" if ours == "loss" else f"{ours} ppl")] = value
    return (Row(int(step), values, moment, split=split),) if values else ()


def _stragglers(line: str) -> Iterable[Item]:
    values = {}
    for extreme, what, text, unit, rank in _EXTREME.findall(line):
        name, factor = _EXTREMES.get(unit, (unit.lower(), 1.0))
        prefix = f"straggler/{'least' if extreme == 'Mn' else 'most'}_{what.lower()}"
        values[f"{prefix}_{name}"] = float(text) / factor
        values[f"{prefix}_rank"] = float(rank)
    return (Row(None, values),) if values else ()


def _life(line: str) -> Iterable[Item]:
    """Return what a line says of checkpoints, begin and end."""
    moment = timestamp(line)
    if found := _SAVED.search(line):
        return (Event(moment or 0.0, "checkpoint", int(found[1]), {"action": "save", "ok": True, "path": found[2]}),)
    if found := _LOADED.search(line):
        return (Event(moment or 0.0, "checkpoint", int(found[2]), {"action": "load", "ok": True, "path": found[1]}),)
    if found := _WORLD.search(line):
        return (Facts(world_size=int(found[1])),)
    if _STARTED in line:
        return (Facts(started=moment or 0.0),)
    return (Facts(finished=moment or 0.0),) if _FINISHED in line else ()


class Megatron(LineFormat):
    """See the module."""

    name = "megatron"
    framework = "megatron"
    needles = (
        b"iteration ", b"iteration=", b"] datetime: ", b"time (ms) |", b"..: (", b"/Rnk: ", b"using world size",
    )  # fmt: skip

    def sniff(self, head: bytes, path: str) -> int:  # noqa: ARG002
        """Return how sure it is; see :class:`Format`."""
        return SURE if _SNIFF.search(head) else NO

    def parser(self) -> LineParser:
        """Return a parser for one file."""
        return _Parser()
