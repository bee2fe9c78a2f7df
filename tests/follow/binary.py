"""Writers of binary logs, of our own: they make the fixtures in tests/fixtures/logs and what tests damage.

    python -m tests.follow.binary     # from the repository: makes the fixtures again

They know nothing of the readers, which they are to test; only the messages are written with protobuf's own rules.
"""

from __future__ import annotations

import sqlite3
import struct
import zlib
from pathlib import Path

import google_crc32c

LOGS = Path(__file__).parents[1] / "fixtures" / "logs"
START = 1772000000.25


def varint(number: int) -> bytes:
    """Return a number as protobuf writes it; negative ones with ten bytes."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, value: bytes | str | float, *, single: bool = False) -> bytes:
    """Return one field of a message: bytes, a whole number, a double (or a float, with ``single``)."""
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | (5 if single else 1)) + struct.pack("<f" if single else "<d", value)


# TensorBoard ---------------------------------------------------------------------------------------------------------


def masked(data: bytes) -> bytes:
    """Return TensorFlow's masked checksum."""
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def framed(data: bytes) -> bytes:
    """Return a record of an event file."""
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def version(time: float = START) -> bytes:
    """Return the first record of an event file."""
    return framed(field(1, time) + field(3, "brain.Event:2"))


def scalar(step: int, tag: str | bytes, value: float, time: float = START) -> bytes:
    """Return a scalar as PyTorch and tensorboardX write it."""
    return event(step, field(1, tag) + field(2, value, single=True), time=time)


def tensor(step: int, tag: str, body: bytes, *, plugin: str = "scalars", time: float = START) -> bytes:
    """Return a value as TensorFlow 2 writes it; ``body`` is the TensorProto."""
    metadata = field(9, field(1, field(1, plugin))) if plugin else b""
    return event(step, field(1, tag) + metadata + field(8, body), time=time)


def event(step: int, *values: bytes, time: float = START) -> bytes:
    """Return a record with these values."""
    number = field(2, step) if step else b""
    return framed(field(1, time) + number + field(5, b"".join(field(1, value) for value in values)))


# W&B and SwanLab -----------------------------------------------------------------------------------------------------

BLOCK = 32768


def blocks(header: bytes, *records: bytes) -> bytes:
    """Return records in blocks as LevelDB's log has them, behind a header of seven bytes."""
    out = bytearray(header)
    for rest in records:
        record, is_first = rest, True
        while True:
            room = BLOCK - len(out) % BLOCK
            if room < 7:
                out += b"\0" * room
                continue
            piece, record = record[: room - 7], record[room - 7 :]
            kind = (1 if is_first else 4) if not record else (2 if is_first else 3)
            out += struct.pack("<IHB", zlib.crc32(piece, zlib.crc32(bytes([kind]))), len(piece), kind) + piece
            is_first = False
            if not record:
                break
    return bytes(out)


WANDB = b":W&B\xe1\xbe\0"
SWANLAB = b":SWL\xd6\xe1\2"
OLD_SWANLAB = b":SWL\xd6\xe1\1"


def history(**values: str) -> bytes:
    """Return a history of W&B; values are JSON, a double underscore stands for a nested key."""
    items = b""
    for key, value in values.items():
        parts = key.split("__") if "__" in key[1:] else [key]
        name = field(1, key) if len(parts) == 1 else b"".join(field(2, part) for part in parts)
        items += field(1, name + field(16, value))
    return field(2, items)


def stamp(time: float) -> bytes:
    """Return a Timestamp."""
    return field(1, int(time)) + field(2, round(time % 1 * 1e9))


def swan(step: int, key: str, value: float, time: float = START) -> bytes:
    """Return a scalar of SwanLab."""
    body = field(1, key) + (field(2, step) if step else b"") + field(4, stamp(time)) + field(5, field(1, value))
    return field(13, body)


# The fixtures --------------------------------------------------------------------------------------------------------


def tensorboard_file() -> bytes:
    """Return an event file with both ways to write a scalar, and what is none."""
    records = [version()]
    for step in range(1, 6):
        time = START + 2.5 * step
        records += [
            scalar(step * 10, "train/loss", 4.0 - step / 4, time),
            scalar(step * 10, "train/learning_rate", step / 1024, time),
            scalar(step * 640, "lm loss vs samples", 4.0, time),
        ]
    records += [
        tensor(50, "grad/norm", field(1, 1) + field(4, struct.pack("<f", 1.25))),
        tensor(50, "loss_scale", field(1, 2) + field(6, struct.pack("<d", 1024.5))),
        tensor(0, "text", field(1, 7) + field(8, b"words"), plugin="text"),
        event(50, field(1, "eval/loss") + field(2, 3.5, single=True), time=START + 13),
    ]
    return b"".join(records)


def wandb_file() -> bytes:
    """Return a run of W&B with one picture that takes more than a block."""
    config = field(4, field(1, field(1, "max_steps") + field(16, '{"value": 40}')))
    return blocks(
        WANDB,
        field(1, 1) + field(17, field(1, "abcd1234") + config + field(17, stamp(START))),
        history(_step="0", _timestamp="1772000001.5", _runtime="1.25", train__loss="2.5", lr="0.001"),
        history(
            _step="1", _timestamp="1772000002.5", _runtime="2.25", train__loss='"NaN"', picture='"' + "x" * 40000 + '"'
        ),
        history(_step="2", _timestamp="1772000003.5", _runtime="3.25", train__loss="2.25", lr='"Infinity"'),
        history(_step="3", _timestamp="1772000004.5", eval__loss="2.75"),
        field(18, field(1, 0) + field(2, 5)),
    )


def swanlab_file() -> bytes:
    """Return a run of SwanLab as it is since 0.8."""
    records = [field(1, 1) + field(10, field(1, "demo") + field(12, stamp(START)))]
    for step in range(4):
        time = START + step
        records += [swan(step, "train/loss", 3.0 - step / 8, time), swan(step, "lr", (step + 1) / 512, time)]
    records += [swan(3, "eval/loss", 3.25, START + 4), swan(0, "__swanlab__.gpu.0.mem", 9.5)]
    return blocks(SWANLAB, *records, field(11, field(1, 1) + field(3, stamp(START + 5))))


def old_swanlab_file() -> bytes:
    """Return a run of SwanLab as it was before."""
    moment = "2026-02-25T06:13:2{}.500000+00:00"
    records = ['{"model_type": "Header", "data": {"create_time": "2026-02-25T06:13:20.250000+00:00"}}']
    for step, value in enumerate(("2.5", '"NaN"', "2.25")):
        records.append(
            f'{{"model_type": "Scalar", "data": {{"metric": {{"index": {step}, "data": {value}, '
            f'"create_time": "{moment.format(step)}"}}, "key": "loss", "step": {step}, "epoch": {step + 1}}}}}'
        )
    records.append(
        '{"model_type": "Footer", "data": {"success": true, "create_time": "2026-02-25T06:13:29.500000+00:00"}}'
    )
    return blocks(OLD_SWANLAB, *(record.encode() for record in records))


MLFLOW_SCHEMA = """
CREATE TABLE experiments (experiment_id INTEGER PRIMARY KEY, name VARCHAR(256) NOT NULL, lifecycle_stage VARCHAR(32));
CREATE TABLE runs (run_uuid VARCHAR(32) PRIMARY KEY, name VARCHAR(250), status VARCHAR(9), start_time BIGINT,
  end_time BIGINT, lifecycle_stage VARCHAR(20), experiment_id INTEGER);
CREATE TABLE metrics (key VARCHAR(250) NOT NULL, value FLOAT NOT NULL, timestamp BIGINT NOT NULL,
  run_uuid VARCHAR(32) NOT NULL, step BIGINT DEFAULT '0' NOT NULL, is_nan BOOLEAN DEFAULT '0' NOT NULL,
  PRIMARY KEY (key, timestamp, step, run_uuid, value, is_nan));
CREATE TABLE params (key VARCHAR(250) NOT NULL, value VARCHAR(8000) NOT NULL, run_uuid VARCHAR(32) NOT NULL,
  PRIMARY KEY (key, run_uuid));
"""


def write_mlflow(path: Path) -> None:
    """Write two runs that went on at once, one of which has ended."""
    first, second = "a" * 32, "b" * 32
    with sqlite3.connect(path) as connection:
        connection.executescript(MLFLOW_SCHEMA)
        connection.execute("INSERT INTO experiments VALUES (7, 'tuning', 'active')")
        ms = int(START * 1000)
        connection.execute("INSERT INTO runs VALUES (?, 'low', 'FINISHED', ?, ?, 'active', 7)", (first, ms, ms + 9000))
        connection.execute("INSERT INTO runs VALUES (?, 'low', 'RUNNING', ?, NULL, 'active', 7)", (second, ms + 500))
        connection.execute("INSERT INTO params VALUES ('max_steps', '300', ?)", (first,))
        insert = "INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)"
        for step in range(3):
            for run, shift in ((first, 0.0), (second, 0.5)):
                at = ms + 1000 * step + 1
                connection.execute(insert, ("train/loss", 2.0 - step / 4 + shift, at, run, step * 100, 0))
                connection.execute(insert, ("lr", (step + 1) / 256 + shift, at, run, step * 100, 0))
        connection.execute(insert, ("grad_norm", 0.0, ms + 2001, first, 200, 1))
        connection.execute(insert, ("big", 1.7976931348623157e308, ms + 2001, first, 200, 0))
        connection.execute(insert, ("system/cpu", 55.5, ms + 2002, first, 4, 0))
        connection.execute(insert, ("eval_loss", 1.75, ms + 2003, first, 200, 0))
        connection.execute(insert, ("best", 0.5, ms + 2004, first, 0, 0))
    connection.close()


def write_mlflow_folder(folder: Path) -> None:
    """Write a run of the file store."""
    for name, text in {
        "meta.yaml": "run_id: c0ffee\nrun_name: high\nstatus: 3\nstart_time: 1772000000250\nend_time: 1772000009500\n",
        "params/max_steps": "200",
        "metrics/lr": "1772000001000 0.5 0\n1772000002000 0.25 100\n",
        "metrics/train/loss": "1772000001000 3.5 0\n1772000002000 nan 100\n1772000003000 inf 200\n",
        "metrics/eval_loss": "1772000003500 3.25 200\n",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def write_trackio(path: Path, *, old: bool = False) -> None:
    """Write a project with two runs of one name; ``old``: as it was before runs had an identity."""
    identity = "" if old else "run_id TEXT NOT NULL, "
    with sqlite3.connect(path) as connection:
        connection.executescript(
            f"CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, {identity}timestamp TEXT NOT NULL, "
            "run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL);"
            f"CREATE TABLE configs (id INTEGER PRIMARY KEY AUTOINCREMENT, {identity}run_name TEXT NOT NULL, "
            "config TEXT NOT NULL, created_at TEXT NOT NULL);"
        )
        moment = "2026-02-25T06:13:2{}.250000+00:00"
        runs = ["first"] if old else ["first", "other678901"]
        for run in runs:
            own = () if old else (run,)
            marks = ", ".join("?" * (4 + len(own)))
            columns = "" if old else "run_id, "
            insert = f"INSERT INTO metrics ({columns}timestamp, run_name, step, metrics) VALUES ({marks})"
            shift = 0.5 if run != "first" else 0.0
            for step, text in enumerate(
                (
                    f'{{"train/loss": {2.5 + shift}, "lr": 0.001}}',
                    '{"train/loss": "NaN", "inner": {"x": 1.5}}',
                    '{"eval/loss": 2.25}',
                )
            ):
                connection.execute(insert, (*own, moment.format(step), "tiny", step, text))
            insert = f"INSERT INTO configs ({columns}run_name, config, created_at) VALUES ({marks[3:]})"
            connection.execute(insert, (*own, "tiny", '{"max_steps": 90}', moment.format(0)))
    connection.close()


def main() -> None:
    """Make the fixtures."""
    for name, data in {
        "tensorboard/events.out.tfevents.1772000000.node.1.0": tensorboard_file(),
        "wandb/run-abcd1234.wandb": wandb_file(),
        "swanlab/run-wxyz.swanlab": swanlab_file(),
        "swanlab/backup.swanlab": old_swanlab_file(),
    }.items():
        (LOGS / name).parent.mkdir(exist_ok=True)
        (LOGS / name).write_bytes(data)
    for name, write in {
        "mlflow/mlflow.db": write_mlflow,
        "trackio/tiny.db": write_trackio,
        "trackio/old.db": lambda path: write_trackio(path, old=True),
    }.items():
        (LOGS / name).parent.mkdir(exist_ok=True)
        (LOGS / name).unlink(missing_ok=True)
        write(LOGS / name)
    write_mlflow_folder(LOGS / "mlflow-files" / "0123456789abcdef0123456789abcdef")


if __name__ == "__main__":
    main()
