"""Rows that are taken many at once come out as those that are taken one by one."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.follow.helpers import singly

from trainvitals.follow.base import Facts, LineFormat, Piece, Row, Rows
from trainvitals.follow.errors import ErrorReader
from trainvitals.follow.formats.json_lines import JsonLines
from trainvitals.follow.formats.megatron import Megatron
from trainvitals.follow.formats.nanogpt import NanoGPT
from trainvitals.follow.formats.tables import Table
from trainvitals.follow.lines import LineReader
from trainvitals.follow.run import FollowedRun
from trainvitals.follow.templates import MOST
from trainvitals.follow.told import Told
from trainvitals.telemetry import Event


class _Slow:
    """A parser that takes lines one by one."""

    def __init__(self, parser):
        self._parser = parser

    def feed(self, line):
        """Return what a line says."""
        return self._parser.feed(line)


def one_by_one(known: type[LineFormat]) -> LineFormat:
    """Return a format without its way to take many lines."""

    class _Format(known):
        def parser(self):
            parser = super().parser()
            if hasattr(parser, "_templates"):
                parser._templates = MOST  # Words only.
            return _Slow(parser)

    return _Format()


def steps_of(chance: random.Random, number: int):
    """Yield numbers of steps: mostly rising, sometimes again, back by some or by many, or none."""
    step = chance.randrange(5)
    for _ in range(number):
        kind = chance.random()
        if kind < 0.996:
            step += chance.choice((1, 1, 1, 10))
        elif kind < 0.998:
            step = max(0, step - chance.randrange(1, 400))
        elif kind < 0.999:
            step = max(0, step - 1)
        yield step


def value(chance: random.Random) -> str:
    """Return a number as logs write them."""
    kind = chance.random()
    if kind < 0.001:
        return chance.choice(("nan", "NaN", "inf", "-inf", "", "oops", "1e400", "٣"))
    return f"{chance.uniform(0, 9):.{chance.randrange(1, 7)}f}" if kind < 0.99 else f"{chance.uniform(0, 9):.3e}"


def csv_log(chance: random.Random) -> list[str]:
    """Return a table with blanks, quotes, short rows and headers that come again."""
    lines = ["step,loss,lr,grad_norm"]
    for step in steps_of(chance, 3000):
        lines.append(",".join((str(step), value(chance), value(chance), value(chance))))
        kind = chance.random()
        if kind < 0.001:
            lines.append(chance.choice((lines[0], "", "1,2", '7,"0.5",0.25,0.125', "9.0,1,2,3", "x" * 300_000)))
    return lines


def json_log(chance: random.Random) -> list[str]:
    """Return objects with whole numbers, results, other names, lists and lines that are cut."""
    lines = []
    for step in steps_of(chance, 3000):
        record = {"step": step, "loss": chance.uniform(0, 9), "lr": chance.choice((0, 1e-4)), "grad_norm": 1.5}
        kind = chance.random()
        if kind < 0.002:
            record["loss"] = chance.choice((float("nan"), None, "0.5", [1], True, {"a": 1.0}))
        elif kind < 0.004:
            record = {"step": step, "eval_loss": 0.5}
        elif kind < 0.006:
            record["step"] = chance.choice((True, "7", 7.0, None, 2**80))
        line = json.dumps(record)
        lines.append(chance.choice(("[]", "{}", "3", line[:-5], line + line)) if kind > 0.998 else line)
    return lines


def text_log(chance: random.Random) -> list[str]:
    """Return a text of several ranks with results, checkpoints, errors and lines of two processes at once."""
    lines = []
    prefix = ""
    for step in steps_of(chance, 3000):
        kind = chance.random()
        if kind < 0.005:
            prefix = chance.choice(("", "", "[rank1]: ", "2: ", "[default0]:"))
        moment = chance.choice(("", "2026-03-02 04:11:07 ", "[2026-03-02 04:11:09,125] "))
        share = ", mfu 41.25%" if kind > 0.005 else chance.choice(("", ", mfu -100.00%"))
        line = f"{moment}iter {step}: loss {value(chance)}, time {value(chance)}ms{share}"
        if kind > 0.995:
            line = chance.choice((
                f"{line} {line}", f"step {step}: train loss 1.5, val loss 1.75", "saving checkpoint to out",
                "torch.OutOfMemoryError: CUDA out of memory.", "RuntimeError: NCCL error", "  ", line + "é\u2028x",
            ))  # fmt: skip
        lines.append(prefix + line)
    return lines


def job_log(chance: random.Random) -> list[str]:
    """Return a log of Megatron-LM with timers, checkpoints, lines without a loss, other words, and lines of others."""
    lines = []
    name = chance.choice(("lm loss", "lm loss", "mlm_loss"))
    for step in steps_of(chance, 3000):
        kind = chance.random()
        loss = f"{name}: {value(chance)} | " if kind > 0.002 else ""
        skipped = 0 if kind < 0.997 else chance.choice((0, 1, 10))
        line = (
            f"{chance.choice(('', ' [2026-04-06 02:59:36.125]'))} iteration {step:8d}/{chance.choice((5000,))} | "
            f"elapsed time per iteration (ms): {value(chance)} | {loss}grad norm: {value(chance)} | "
            f"number of skipped iterations: {skipped:3d} | number of nan iterations:   0 |"
        )
        if kind > 0.998:
            line = chance.choice((
                f"{line} {line}", line[: chance.randrange(len(line))], "time (ms) | forward: 193.70 | backward: 5.5",
                "  successfully saved checkpoint from iteration      20 to /data", line.replace("grad", "param"),
                line.replace("5000", "6000"), f"[rank3]:{line}", line.replace("0 |", "1 |"),
            ))  # fmt: skip
        lines.append(line)
    return lines


def even_log(chance: random.Random) -> list[str]:
    """Return a log of Megatron-LM with lines of one length, of some of which a character is another one."""
    lines = []
    for step in steps_of(chance, 3000):
        line = (
            f" [2026-04-06 {chance.choice(('02', '03'))}:59:{step % 60:02d}.{step * 125 % 1000:03d}] "
            f"iteration {step:8d}/    5000 | consumed samples: {step * 8:12d} | "
            f"elapsed time per iteration (ms): {chance.random():8.3f} | "
            f"lm loss: {chance.random():.6E} | mtp_1 loss: {chance.random():.6E} | grad norm: {chance.random():.3f} | "
            "number of skipped iterations:   0 | number of nan iterations:   0 |"
        )
        if chance.random() > 0.995:
            place = chance.randrange(len(line))
            line = line[:place] + chance.choice(" 0123456789.,+-Ee|:é") + line[place + 1 :]
        lines.append(line)
    return lines


LOGS = {
    "even": (Megatron, even_log),
    "jsonl": (JsonLines, json_log),
    "megatron": (Megatron, job_log),
    "nanogpt": (NanoGPT, text_log),
    "table": (Table, csv_log),
}


def outcome(run: FollowedRun) -> tuple[object, ...]:
    """Return all that a run tells after a poll; NaN as a word, since no NaN is like another."""
    steps = [(s.step, s.count, s.time, sorted((k, repr(v)) for k, v in s.values.items())) for s in run.steps]
    return steps, repr(run.events), run.attempt, run.timed, run.finished, repr(run.values), run.newest, run.state()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", LOGS)
def test_many_lines_at_once_say_what_each_says(name, seed):
    """The same items, bad lines, steps, times, events and attempts, whatever the cuts and whatever goes wrong."""
    known, write = LOGS[name]
    chance = random.Random(seed)
    data = "".join(line + "\n" for line in write(chance)).encode()
    readers = [LineReader(known(), ErrorReader()), LineReader(one_by_one(known), ErrorReader())]
    runs = [FollowedRun("demo"), FollowedRun("demo")]
    told = [Told(7), Told(7)]
    batches = place = 0
    while place < len(data):
        piece = data[place : place + chance.choice((300, 20_000, 100_000))]
        place += len(piece)
        items = []
        for reader, run, marks in zip(readers, runs, told, strict=True):
            pieces = reader.feed(piece)
            batches += sum(isinstance(one, Rows) for one in pieces)
            # What is the same for many rows is said once.
            items.append(repr([item for item in singly(pieces) if not isinstance(item, Facts)]))
            run.begin()
            run.take(marks.new(pieces) if name == "table" else pieces)
            run.settle(1000.0 + place)
        assert items[0] == items[1]
        assert outcome(runs[0]) == outcome(runs[1])
        assert readers[0].bad == readers[1].bad
    assert batches > 5


def random_pieces(chance: random.Random) -> list[Piece]:
    """Return pieces of all kinds."""
    pieces: list[Piece] = []
    for _ in range(120):
        kind = chance.random()
        numbers = list(steps_of(chance, chance.choice((1, 4, 63, 65, 300))))
        start = chance.choice((0, 0, 1000, pieces_end(pieces), pieces_end(pieces), pieces_end(pieces)))
        if kind < 0.8:
            names = chance.choice((("loss",), ("loss", "step_seconds"), ("grad_norm",), ("loss", "elapsed_seconds")))
            values = {name: [float(chance.randrange(50)) for _ in numbers] for name in names}
            times = chance.choice((None, [float(n) if n % 3 else None for n in numbers]))
            pieces.append(Rows([start + n for n in numbers], values, times, chance.choice((None, None, None, 0, 1))))
        elif kind < 0.85:
            pieces.append(Row(None, {"late": 1.0}))
        elif kind < 0.9:
            pieces.append(Row(start, {"loss": 2.5}, split=chance.choice(("", "validation"))))
        elif kind < 0.95:
            pieces.append(Event(0.0, "checkpoint", -1, {"action": "save", "ok": True, "path": str(start)}))
        else:
            pieces.append(chance.choice((Facts(started=0.0), Facts(finished=5.0), Facts(target_steps=99))))
    return pieces


def pieces_end(pieces: list[Piece]) -> int:
    """Return the last step so far."""
    return next((piece.steps[-1] + 1 for piece in reversed(pieces) if isinstance(piece, Rows)), 0)


@pytest.mark.parametrize("seed", range(12))
def test_a_run_takes_many_rows_as_it_takes_each(seed):
    """Attempts, repeated steps, late values, ranks that are heard or not, and times come out the same."""
    chance = random.Random(seed)
    runs = [FollowedRun("demo"), FollowedRun("demo")]
    pieces = random_pieces(chance)
    while pieces:
        some, pieces = pieces[:9], pieces[9:]
        for run, given in zip(runs, (some, singly(some)), strict=True):
            run.begin()
            run.take(given)
            run.settle(2000.0, read=10, unread=len(pieces))
        assert outcome(runs[0]) == outcome(runs[1])
    assert runs[0].state()["count"] > 500


def rows(*steps: int, loss: Callable[[int], float] = float) -> Rows:
    """Return rows of a loss."""
    return Rows(list(steps), {"loss": [loss(step) for step in steps]})


def test_rows_that_were_told_are_not_told_again():
    """Of a file that is written again, what is new is told, and all from the first row that is another."""
    told = Told(2)
    assert singly(told.new([rows(*range(10))])) == [Row(step, {"loss": float(step)}) for step in range(10)]
    told.begin_again()
    assert singly(told.new([rows(*range(12))])) == [Row(10, {"loss": 10.0}), Row(11, {"loss": 11.0})]
    told.begin_again()
    changed = rows(*range(12), loss=lambda step: float(step) if step < 8 else 0.5)
    assert singly(told.new([changed])) == [Row(step, {"loss": 0.5}) for step in range(8, 12)]
    assert told.counts() == {"": 12}


def test_a_step_is_replaced_as_any_dataclass():
    """It is not frozen, for speed, but otherwise what it was."""
    (step,) = _taken(rows(3))
    assert replace(step, count=7).count == 7
    assert step == replace(step)
    with pytest.raises(TypeError):
        hash(step)


def _taken(*pieces: Piece):
    run = FollowedRun("demo")
    run.begin()
    run.take(pieces)
    run.settle(5.0)
    return run.steps
