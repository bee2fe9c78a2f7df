"""Programs that write logs while they are followed, one for each format; they know nothing of the readers.

    python -m tests.follow.writers VARIANT PATH STEPS SEED

Each writes steps 1, 2, ... with the lines and records of the fixtures, as fast as the machine does.  Meanwhile lines
and records are cut, and the log is rotated in both ways, or written again, as its program does.  Who follows the log
writes a byte to standard input for each poll: nobody rotates a log twice within the pause between two polls.
"""

from __future__ import annotations

import csv
import io
import json
import os
import random
import select
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.follow import binary

#: Steps between two rotations.
CHUNK = 60


def loss_of(step: int) -> float:
    """Return the loss that is written with a step: exact with four digits, another for each."""
    return (step * 7919 % 4096) / 16 + 0.25


def record(**values: object) -> str:
    """Return a line of JSON."""
    return json.dumps(values) + "\n"


def bars(step: int) -> str:
    """Return what the Hugging Face Trainer prints to a terminal."""
    bar = f"{step * 100 // 100000:3}%|#         | {step}/100000 [00:05<09:55,  2.00it/s]"
    return f"\r{bar}{' ' * 20}\r{{'loss': {loss_of(step)}, 'grad_norm': 1.25, 'epoch': {step / 1000}}}\n\r{bar}"


STAMP = "2025-03-11 02:06:58,250"
#: Of each format of text: what stands at the begin of each file, and what is written for a step.
TEXTS: dict[str, tuple[str, Callable[[int], str]]] = {
    "deepspeed": (
        "",
        lambda step: (
            f"[{STAMP}] [INFO] [logging.py:128:log_dist] [Rank 0] step={step}, skipped=0, lr=[5e-05]\n"
            f"chosen: -31.5, rejected: -33.5, loss: {loss_of(step)}\n"
        ),
    ),
    "fairseq": (
        "",
        lambda step: (
            f"[{STAMP}][train_inner][INFO] - "
            f'{{"epoch": 1, "update": 0.25, "loss": "{loss_of(step)}", "num_updates": "{step}", "lr": "3.125e-06"}}\n'
        ),
    ),
    "keras": (
        "",
        lambda step: (
            f"Epoch {step}/9000\n\r1/1 [=====] - ETA: 3s - loss: {loss_of(step):.4f}"
            f"\r1/1 [=====] - 5s 62ms/step - loss: {loss_of(step):.4f} - accuracy: 0.9375\n"
        ),
    ),
    "llm.c": (
        "",
        lambda step: (
            f"step {step:4}/9000 | loss {loss_of(step):.6f} (+nanz)| norm 15.2500 (+nanz)| lr 6.75e-07 | "
            "1451.50 ms | -100.0% bf16 MFU | 361000 tok/s\n"
        ),
    ),
    "llm.c main.log": ("", lambda step: f"s:{step} trl:{loss_of(step):.4f} lr:0.000004 norm:15.25\n"),
    "megatron": (
        "",
        lambda step: (
            f" iteration {step:8}/    9000 | consumed samples: {8 * step:12} | elapsed time per iteration (ms): "
            f"356.5 | learning rate: 8.500E-06 | lm loss: {loss_of(step):.8E} | loss scale: 1.0 | grad norm: 1.375 |\n"
            "time (ms) | forward-compute: 193.50 | backward-compute: 73.25\n"
        ),
    ),
    "mindformers": (
        "",
        lambda step: (
            f"2027-01-02 03:04:05,250 - [mindformers/core/callback/callback.py:522] - INFO - {{ Epoch:[  1/  2], "
            f"step:[{step:5}/ 9000], loss: {loss_of(step)}, per_step_time: 1750ms, lr: 1e-05, overflow cond: False, "
            "loss_scale: 1.0, global_norm: [1.508837]}\n"
        ),
    ),
    "modded-nanogpt": (
        "",
        lambda step: f"step:{step}/9000 train_loss:{loss_of(step):.4f} train_time:74500ms step_avg:216.25ms\n",
    ),
    "nanogpt": ("", lambda step: f"iter {step}: loss {loss_of(step):.4f}, time 481.25ms, mfu 31.40%\n"),
    "openmmlab": (
        "",
        lambda step: (
            f"{STAMP} - mmseg - INFO - Iter [{step}/80000]\tlr: 9.995e-03, eta: 6:12:01, time: 0.280, "
            f"data_time: 0.008, memory: 5500, decode.loss_ce: 1.7500, loss: {loss_of(step):.4f}\n"
        ),
    ),
    "paddlenlp": (
        "",
        lambda step: (
            f"[{STAMP}] [    INFO] - loss: {loss_of(step)}, learning_rate: 2e-06, global_step: {step}, "
            "interval_runtime: 1.25, interval_samples_per_second: 0.875, progress_or_epoch: 0.125\n"
        ),
    ),
    "torchtitan": (
        "",
        lambda step: (
            f"\x1b[33m[rank0]:\x1b[0m[titan] {STAMP} - root - INFO - \x1b[31mstep: {step:2}  "
            f"\x1b[32mloss: {loss_of(step):8.5f}  \x1b[38;2;180;60;0mgrad_norm:  0.8750  tps: 7,337\x1b[39m\n"
        ),
    ),
    "transformers": ("", bars),
    "transformers swift": (
        "",
        lambda step: (
            f"{{'loss': {loss_of(step)}, 'token_acc': 0.5, 'epoch': 0.04, "
            f"'global_step/max_steps': '{step}/9000', 'percentage': '10.00%'}}\n"
        ),
    ),
    "ultralytics": (
        "",
        lambda step: (
            "\n      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size\n"
            f"  {step:7}/9000      3.31G  {loss_of(step):.4f}   0.0   0.0    27   640:  50%|##   | 4/8 "
            f"[00:02<00:00]\r  {step:7}/9000      3.31G  {loss_of(step):.4f}   0.0   0.0    27   640: "
            "100%|#####| 8/8 [00:02<00:00, 3.6it/s]\n"
        ),
    ),
    "verl": (
        "",
        lambda step: (
            f"(TaskRunner pid=7123) step:{step} - actor/entropy:0.25 - actor/pg_loss:{loss_of(step)} - "
            f"actor/grad_norm:0.125 - actor/lr:1e-06 - timing_s/step:74.5 - training/global_step:{step}\n"
        ),
    ),
    "llamafactory": (
        "",
        lambda step: record(current_steps=step, total_steps=9000, loss=loss_of(step), lr=5e-06, epoch=0.04),
    ),
    "ms-swift": (
        "",
        lambda step: record(**{"loss": loss_of(step), "epoch": 0.03, "global_step/max_steps": f"{step}/9000"}),
    ),
    "openmmlab-json": (
        "",
        lambda step: record(lr=0.004, data_time=0.008, loss=loss_of(step), time=0.25, epoch=1, step=step, memory=300),
    ),
    "torchtitan-events": (
        "",
        lambda step: record(
            rank=0,
            source="training",
            step=step,
            time_us=1709500001250000 + step,
            log_type_name="metric_value",
            event_name="loss_metrics/global_avg_loss",
            value=loss_of(step),
        ),
    ),
    "table": ("epoch,step,train_loss,lr\n", lambda step: f"0,{step},{loss_of(step)},0.5\n"),
    "jsonl": ("", lambda step: record(step=step, loss=loss_of(step), lr=0.001)),
    "pairs": ("", lambda step: f"{step} {loss_of(step):.4f}\n"),
    "plain": ("", lambda step: f"iter {step} step {step}: loss {loss_of(step):.4f}, iter time: 198.50ms\n"),
}


class Blocks:
    """Records in blocks as W&B and SwanLab write them, behind a header."""

    def __init__(self, header: bytes, first: bytes, of_step: Callable[[int], list[bytes]]) -> None:
        self.header, self.first, self.of_step = header, first, of_step

    def begin(self) -> bytes:
        """Return the begin of a file."""
        self._all = binary.blocks(self.header, self.first)
        return self._all

    def add(self, step: int) -> bytes:
        """Return what is added for a step; it depends on where in the file it is."""
        before = len(self._all)
        self._all = binary.blocks(self._all, *self.of_step(step))
        return self._all[before:]


class Events:
    """Records of TensorBoard."""

    def begin(self) -> bytes:
        """Return the begin of a file."""
        return binary.version()

    def add(self, step: int) -> bytes:
        """Return what is added for a step."""
        at = binary.START + step
        return binary.scalar(step, "train/loss", loss_of(step), at) + binary.scalar(step, "lr", 0.5, at)


class Text:
    """Lines."""

    def __init__(self, header: str, of_step: Callable[[int], str]) -> None:
        self.header, self.of_step = header, of_step

    def begin(self) -> bytes:
        """Return the begin of a file."""
        return self.header.encode()

    def add(self, step: int) -> bytes:
        """Return what is added for a step."""
        return self.of_step(step).encode()


def wandb_step(step: int) -> list[bytes]:
    """Return the records of a step: every fifth has one that is longer than a block."""
    values = {"_step": str(step), "_timestamp": str(binary.START + step), "train__loss": str(loss_of(step))}
    if step % 25 == 0:
        values["picture"] = '"' + "x" * 40000 + '"'
    return [binary.history(**values)]


APPENDED: dict[str, Callable[[], Text | Events | Blocks]] = {
    **{name: lambda parts=parts: Text(*parts) for name, parts in TEXTS.items()},
    "tensorboard": Events,
    "wandb": lambda: Blocks(binary.WANDB, binary.field(1, 1), wandb_step),
    "swanlab": lambda: Blocks(
        binary.SWANLAB,
        binary.field(1, 1) + binary.field(10, binary.field(1, "demo")),
        lambda step: [binary.swan(step, "train/loss", loss_of(step), binary.START + step)],
    ),
}


def be_seen() -> None:
    """Wait until a poll that began after now has ended."""
    while select.select([0], [], [], 0.0)[0] and os.read(0, 1 << 16):
        pass
    # The first one may have begun before.
    for _ in range(2):
        os.read(0, 1)


def append(make: Callable[[], Text | Events | Blocks], path: Path, steps: int, chance: random.Random) -> None:
    """Append to a log that is rotated in both ways, if it is a text; of other formats, each file is a run."""
    log = make()
    file = path.open("ab", buffering=0)
    file.write(log.begin())
    number = 0
    for step in range(1, steps + 1):
        data = log.add(step)
        cut = chance.randrange(len(data))
        file.write(data[:cut])
        if chance.random() < 0.1:
            time.sleep(0.002)
        file.write(data[cut:])
        if isinstance(log, Text) and step % CHUNK == 0 and step < steps:
            be_seen()
            number += 1
            aside = path.with_name(f"{path.name}.{number}")
            if chance.random() < 0.5:
                path.rename(aside)
                file.close()
                file = path.open("ab", buffering=0)
            else:
                shutil.copy(path, aside)
                file.truncate(0)
            file.write(log.begin())
            time.sleep(chance.choice((0.0, 0.03)))
    file.close()


# What is written as a whole -------------------------------------------------------------------------------------------


def rewrite(of_steps: Callable[[int], str], path: Path, steps: int, chance: random.Random) -> None:
    """Write a file again for each step, half of the time beside it and then in its place."""
    for step in range(1, steps + 1):
        text = of_steps(step)
        if chance.random() < 0.5:
            new = path.with_name(".new")
            new.write_text(text)
            new.replace(path)
        else:
            cut = chance.randrange(len(text))
            with path.open("w") as file:
                file.write(text[:cut])
                file.flush()
                file.write(text[cut:])
        if chance.random() < 0.1:
            time.sleep(0.002)


def trainer_state(steps: int) -> str:
    """Return a trainer_state.json."""
    rows = [{"epoch": step / 100, "loss": loss_of(step), "step": step} for step in range(1, steps + 1)]
    state = {"epoch": 1.0, "global_step": steps, "is_world_process_zero": True, "log_history": rows, "max_steps": 9000}
    return json.dumps(state, indent=2)


def series(steps: int) -> str:
    """Return a file of series as Megatron's tests keep them."""
    values = {str(step): loss_of(step) for step in range(1, steps + 1)}
    return json.dumps({"lm loss": {"start_step": 1, "end_step": steps, "step_interval": 1, "values": values}})


def lightning(path: Path, steps: int, chance: random.Random) -> None:
    """Append to a table as Lightning does: it writes the whole again when there is a new column."""
    columns = ["epoch", "step", "train_loss"]
    rows: list[list[object]] = []

    def whole() -> str:
        out = io.StringIO()
        csv.writer(out).writerows([columns, *(row + [""] * (len(columns) - len(row)) for row in rows)])
        return out.getvalue()

    for step in range(1, steps + 1):
        if step % CHUNK == 0:
            columns.append(f"val_{step}")
        rows.append([0, step, loss_of(step)])
        if step == 1 or step % CHUNK == 0:
            path.write_text(whole())
            continue
        line = ",".join(map(str, rows[-1] + [""] * (len(columns) - 3))) + "\r\n"
        cut = chance.randrange(len(line))
        with path.open("a", newline="") as file:
            file.write(line[:cut])
            file.flush()
            time.sleep(chance.choice((0.0, 0.0, 0.002)))
            file.write(line[cut:])


def database(schema: str, journal: str, of_step: Callable[[int], Iterator[tuple[str, tuple[object, ...]]]]):
    """Return a writer of an SQLite database with this kind of journal."""

    def write(path: Path, steps: int, chance: random.Random) -> None:
        connection = sqlite3.connect(path, timeout=30.0)
        connection.execute(f"PRAGMA journal_mode={journal}")
        connection.execute("PRAGMA synchronous=OFF")
        connection.executescript(schema)
        for step in range(1, steps + 1):
            with connection:
                for statement, values in of_step(step):
                    connection.execute(statement, values)
            if chance.random() < 0.1:
                time.sleep(0.002)
            if step % CHUNK == 0:
                connection.close()
                connection = sqlite3.connect(path, timeout=30.0)
                connection.execute("PRAGMA synchronous=OFF")
        connection.close()

    return write


def mlflow_step(step: int) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Yield what MLflow adds for a step."""
    run, ms = "a" * 32, int(binary.START * 1000)
    if step == 1:
        yield "INSERT INTO experiments VALUES (7, 'tuning', 'active')", ()
        yield "INSERT INTO runs VALUES (?, 'low', 'RUNNING', ?, NULL, 'active', 7)", (run, ms)
    yield "INSERT INTO metrics VALUES ('train/loss', ?, ?, ?, ?, 0)", (loss_of(step), ms + step, run, step)


TRACKIO = """
CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp TEXT NOT NULL,
  run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL);
CREATE TABLE configs (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, run_name TEXT NOT NULL,
  config TEXT NOT NULL, created_at TEXT NOT NULL);
"""


def trackio_step(step: int) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Yield what Trackio adds for a step."""
    values = ("first", "2026-02-25T06:13:20.250000+00:00", "tiny", step, json.dumps({"train/loss": loss_of(step)}))
    insert = "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?, ?)"
    yield insert, values


def file_store(path: Path, steps: int, chance: random.Random) -> None:
    """Append to the files of a run in MLflow's file store."""
    (path / "metrics" / "train").mkdir(parents=True)
    (path / "metrics" / "train" / "loss").touch()
    (path / "meta.yaml").write_text("run_id: c0ffee\nrun_name: high\nstatus: 1\nstart_time: 1772000000250\n")
    with (path / "metrics" / "train" / "loss").open("ab", buffering=0) as file:
        for step in range(1, steps + 1):
            line = f"{1772000000250 + step} {loss_of(step)} {step}\n".encode()
            cut = chance.randrange(len(line))
            file.write(line[:cut])
            time.sleep(chance.choice((0.0, 0.0, 0.002)))
            file.write(line[cut:])


Writer = Callable[[Path, int, random.Random], None]
WRITERS: dict[str, Writer] = {
    **{
        name: lambda path, steps, chance, make=make: append(make, path, steps, chance)
        for name, make in APPENDED.items()
    },
    "trainer-state": lambda path, steps, chance: rewrite(trainer_state, path, steps, chance),
    "series-json": lambda path, steps, chance: rewrite(series, path, steps, chance),
    "table lightning": lightning,
    "mlflow": database(binary.MLFLOW_SCHEMA, "DELETE", mlflow_step),
    "mlflow wal": database(binary.MLFLOW_SCHEMA, "WAL", mlflow_step),
    "trackio": database(TRACKIO, "WAL", trackio_step),
    "trackio delete": database(TRACKIO, "DELETE", trackio_step),
    "mlflow-files": file_store,
}


if __name__ == "__main__":
    WRITERS[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]), random.Random(int(sys.argv[4])))
    os._exit(0)
