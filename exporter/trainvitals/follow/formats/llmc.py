"""llm.c: its ``main.log`` and what it prints.

Sources: karpathy/llm.c, llmc/logger.h ("s:0 tel:11.0095", "s:0 trl:11.0094 lr:0.000004 norm:15.30", "s:503 eval:0.25")
and train_gpt2.cu ("step   81/18868 | loss 7.577054 (+1.23z)| norm 1.1464 (+0.5z)| lr 6.75e-05 | 145.33 ms | 57.1% bf16
MFU | 3608293 tok/s", "val loss 3.272203", "HellaSwag: 2535/10042 = 0.252440"), train_gpt2.c ("step 0: train loss 4.677
(took 1987.546 ms)") and train_gpt2.py ("step 1/50 | train loss 5.356 | norm 12.1 | lr 1.00e-04 | (3456.12 ms | 74.1
tok/s)").  The file counts steps from 0, the
terminal from 1; here both count as they are written.  The first modded-nanogpt wrote the same file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from trainvitals.follow.base import NO, SURE, Facts, Item, LineFormat, LineParser, Row

_NUMBER = r"([+-]?(?:nan|inf|\d[\d.]{0,30}(?:e[+-]?\d{1,3})?))"
_FILE = re.compile(rf"(?:^|[\s\]:>])s:(\d{{1,12}}) (tel|trl|eval):{_NUMBER}(?: lr:{_NUMBER})?(?: norm:{_NUMBER})?")
_PRINTED = re.compile(
    rf"(?:^|[\s\]:>])step +(\d{{1,12}})/(\d{{1,12}}) \| (?:train )?loss {_NUMBER}[^|]{{0,20}}"
    rf"\| norm {_NUMBER}[^|]{{0,20}}\| lr {_NUMBER} \| \(?{_NUMBER} ms"
    rf"(?: \| {_NUMBER}% \w{{1,8}} MFU)?(?: \| {_NUMBER} tok/s)?"
)
_TOOK = re.compile(rf"(?:^|\s)step (\d{{1,12}}): train loss {_NUMBER} \(took {_NUMBER} ms\)")
_VALIDATION = re.compile(rf"(?:^|\s)val loss {_NUMBER}\s*$")
_HELLASWAG = re.compile(rf"(?:^|\s)HellaSwag: \d+/\d+ = {_NUMBER}")
_SNIFF = re.compile(
    rb"(?:^|[\s\]:>])(?:s:\d+ (?:tel|trl|eval):[\dni+-]|step +\d+/\d+ \| (?:train )?loss [\dni+-][^|\n]{0,40}\| norm "
    rb"|step \d+: train loss [\dni+-]\S{0,20} \(took )",
    re.MULTILINE,
)


class _Parser:
    def feed(self, line: str) -> Iterable[Item]:
        if found := _FILE.search(line):
            return (_file(found),)
        if found := _PRINTED.search(line):
            return _printed(found)
        if found := _TOOK.search(line):
            return (Row(int(found[1]), {"loss": float(found[2]), "step_seconds": float(found[3]) / 1e3}),)
        if found := _VALIDATION.search(line):
            return (Row(None, {"loss": float(found[1])}, split="validation"),)
        if found := _HELLASWAG.search(line):
            return (Row(None, {"accuracy": float(found[1])}, split="hellaswag"),)
        return ()


def _file(found: re.Match[str]) -> Row:
    step, kind, number, rate, norm = found.groups()
    if kind == "tel":
        return Row(int(step), {"loss": float(number)}, split="validation")
    if kind == "eval":
        return Row(int(step), {"accuracy": float(number)}, split="hellaswag")
    values = {"loss": number, "learning_rate": rate, "grad_norm": norm}
    return Row(int(step), {name: float(value) for name, value in values.items() if value is not None})


def _printed(found: re.Match[str]) -> Iterable[Item]:
    step, target, loss, norm, rate, milliseconds, mfu, speed = found.groups()
    values = {
        "loss": float(loss),
        "grad_norm": float(norm),
        "learning_rate": float(rate),
        "step_seconds": float(milliseconds) / 1e3,
    }
    if mfu is not None and not mfu.startswith("-"):
        values["mfu"] = float(mfu) / 1e2
    if speed is not None:
        values["tokens_per_second"] = float(speed)
    return (Facts(target_steps=int(target)), Row(int(step), values))


class LlmC(LineFormat):
    """See the module."""

    name = "llm.c"
    framework = "llm.c"
    needles = (b"s:", b"| norm ", b"val loss ", b"HellaSwag: ", b" (took ")

    def sniff(self, head: bytes, path: str) -> int:  # noqa: ARG002
        """Return how sure it is; see :class:`Format`."""
        return SURE if _SNIFF.search(head) else NO

    def parser(self) -> LineParser:
        """Return a parser for one file."""
        return _Parser()
