"""MLflow's two stores on disk: a SQLite database (``mlflow.db``), and folders (``mlruns/EXPERIMENT/RUN``).

Sources: mlflow.store.tracking.dbmodels (tables runs, experiments, params, metrics(key, value, timestamp, run_uuid,
step, is_nan); infinity is kept as the largest double, times are milliseconds) and mlflow.store.tracking.file_store
(metrics/KEY with lines "timestamp value step", where a slash in the key is a folder; params/KEY; meta.yaml with
run_name, start_time, end_time and status 1 running, 2 scheduled, 3 finished, 4 failed, 5 killed).
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import yaml

from trainvitals.follow.base import NO, SURE, Facts, FileFormat, Item, Row
from trainvitals.follow.record import Records, number
from trainvitals.follow.series import Series
from trainvitals.follow.sqlite import Database, DatabaseFormat, has_columns, reading

_COLUMNS = {"key", "value", "timestamp", "run_uuid", "step", "is_nan"}
_TARGETS = ("max_steps", "total_steps", "num_steps", "train_iters")
_ENDED = {"FINISHED", "FAILED", "KILLED"}
_ENDED_NUMBERS = {3, 4, 5}
#: What MLflow keeps in place of infinity.
_INFINITE = 1.7976931348623157e308
#: What MLflow reads of the machine; it has steps of its own.
_SYSTEM = "system/"
#: Values of one step that were logged so many milliseconds apart are two rows, each with its time.
_APART = 100
_HASH = re.compile(r"[0-9a-f]{32}")
_MAX_RUNS = 4096
_MAX_METRICS, _LARGEST = 512, 1 << 28


class _Steps:
    """Gathers the values of one step of one run, which stand one by one; what is whole is put to ``items``."""

    def __init__(self, items: list[Item]) -> None:
        self._items = items
        self._rows = Records(steps=("step",), times=()).rows
        self._place = Series().place
        self._values: dict[str, Any] = {}
        self._step: int | None = None
        self._time = 0

    def add(self, key: str, value: float, step: int, moment: int) -> None:
        """Take a value; the step before it is whole, if it is another one."""
        if key.startswith(_SYSTEM):
            return
        place = self._place(key, step)
        if place != self._step or key in self._values or moment - self._time > _APART:
            self.flush()
        self._step, self._time = place, moment
        self._values[key] = value

    def flush(self) -> None:
        """Put to the items what was gathered."""
        values = self._values
        if not values:
            return
        self._values = {}
        if self._step is not None:
            values["step"] = self._step
        moment = self._time / 1000.0
        time = moment if 1e9 < moment < 1e11 else None
        for item in self._rows(values):
            self._items.append(Row(item.step, item.values, time, None, item.split) if isinstance(item, Row) else item)


class MLflow(DatabaseFormat):
    """The database."""

    name = "mlflow"

    def sniff(self, head: bytes, path: str) -> int:
        """Return how sure it is; see :class:`Format`."""
        return SURE if has_columns(head, path, "metrics", _COLUMNS, (b"run_uuid", b"is_nan", b"experiments")) else NO

    def read(self, path: str) -> Iterable[Item]:
        """Return the steps of all runs.  Raises ValueError and OSError for what cannot be read."""
        with reading(path) as database:
            if not database.columns("metrics") >= _COLUMNS:
                raise ValueError("no table of metrics")
            yield from _Database(database).items()


class _Run(NamedTuple):
    name: str
    started: float
    ended: float | None


class _Database:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._runs = self._read_runs()
        self._items: list[Item] = []
        self._steps: dict[str, _Steps] = {}
        self._current = ""

    def items(self) -> Iterator[Item]:
        columns = ("substr(run_uuid, 1, 64)", "substr(key, 1, 256)", "value", "timestamp", "step", "is_nan")
        for rows in self._database.rows("metrics", columns):
            # Runs that go on at once are told one after the other, a piece of each: their own order stays.
            by_run: dict[str, list[tuple[Any, ...]]] = {}
            for row in rows:
                by_run.setdefault(row[1], []).append(row)
            for identity, found in by_run.items():
                if identity in self._runs:
                    self._take(identity, found)
            yield from self._items
            self._items.clear()
        self._end()
        yield from self._items

    def _take(self, identity: str, rows: list[tuple[Any, ...]]) -> None:
        self._switch(identity)
        add = self._steps[identity].add
        for _, _, key, value, moment, step, is_nan in rows:
            # A column of SQLite may hold anything.
            if value.__class__ is float and step.__class__ is int and moment.__class__ is int and key.__class__ is str:
                if is_nan:
                    value = math.nan  # noqa: PLW2901
                elif abs(value) >= _INFINITE:
                    value = math.copysign(math.inf, value)  # noqa: PLW2901
                add(key, value, step, moment)

    def _switch(self, identity: str) -> None:
        run = self._runs[identity]
        if identity not in self._steps:
            self._steps[identity] = _Steps(self._items)
            self._items.append(Facts(run=run.name, started=run.started))
        elif identity != self._current:
            self._items.append(Facts(run=run.name))
        self._current = identity

    def _end(self) -> None:
        names = ", ".join("?" * len(_TARGETS))
        question = f"SELECT run_uuid, substr(value, 1, 64) FROM params WHERE key IN ({names}) LIMIT {_MAX_RUNS}"  # noqa: S608
        targets = dict(self._database.ask(question, _TARGETS))
        for identity, steps in self._steps.items():
            run = self._runs[identity]
            target = number(targets.get(identity))
            self._switch(identity)
            steps.flush()
            if target is not None and 0.0 < target < 2.0**53:
                self._items.append(Facts(target_steps=int(target)))
            if run.ended is not None:
                self._items.append(Facts(finished=run.ended))

    def _read_runs(self) -> dict[str, _Run]:
        runs: dict[str, _Run] = {}
        names: set[str] = set()
        found = self._database.ask(
            "SELECT substr(run_uuid, 1, 64), substr(runs.name, 1, 200), substr(experiments.name, 1, 200), status, "
            "start_time, end_time FROM runs LEFT JOIN experiments USING (experiment_id) "
            "WHERE runs.lifecycle_stage IS NOT 'deleted' ORDER BY runs.rowid DESC LIMIT ?",
            (_MAX_RUNS,),
        )
        for identity, name, experiment, status, started, ended in reversed(found):
            called = str(name or identity)
            if experiment not in {None, "", "Default"}:
                called = f"{experiment}/{called}"
            if called in names:
                called = f"{called}-{str(identity)[:8]}"
            names.add(called)
            is_over = status in _ENDED
            runs[identity] = _Run(called, _seconds(started), _seconds(ended) if is_over else None)
        return runs


def _seconds(moment: object) -> float:
    found = number(moment)
    return found / 1000.0 if found is not None and 1e12 < found < 1e14 else 0.0


class MLflowFolder(FileFormat):
    """A run in the file store."""

    name = "mlflow-files"
    folder = True

    def sniff(self, head: bytes, path: str) -> int:  # noqa: ARG002
        """Return how sure it is; see :class:`Format`."""
        if not _HASH.fullmatch(os.path.basename(path)):
            return NO
        return SURE if os.path.isfile(os.path.join(path, "meta.yaml")) and os.path.isdir(_metrics(path)) else NO

    def signature(self, path: str) -> object:
        """Return what is another when a metric grew."""
        found = [(name, os.stat(name)) for name in _all_files(path)]
        return tuple((name, status.st_size, status.st_mtime_ns) for name, status in found)

    def changed(self, path: str) -> float:
        """Return when a metric grew."""
        return max(os.stat(name).st_mtime for name in _all_files(path))

    def read(self, path: str) -> Iterable[Item]:
        """Return its steps.  Raises ValueError and OSError for what cannot be read."""
        meta = _meta(path)
        yield Facts(started=_seconds(meta.get("start_time")))
        points: list[tuple[int, int, str, float]] = []
        left = _LARGEST
        for key, name in _files(path):
            if not key.startswith(_SYSTEM):
                with open(name, "rb") as file:
                    text = file.read(left)
                left -= len(text)
                points.extend((step, moment, key, value) for moment, value, step in _lines(text))
        # By the time of their step's first value: of a run that was resumed, steps come again.
        yield from _in_order(points)
        for target in (_parameter(path, name) for name in _TARGETS):
            if target is not None and 0.0 < target < 2.0**53:
                yield Facts(target_steps=int(target))
        if meta.get("status") in _ENDED_NUMBERS:
            yield Facts(finished=_seconds(meta.get("end_time")))


def _in_order(points: list[tuple[int, int, str, float]]) -> list[Item]:
    points.sort(key=lambda point: (point[1], point[0]))
    items: list[Item] = []
    steps = _Steps(items)
    for step, moment, key, value in points:
        steps.add(key, value, step, moment)
    steps.flush()
    return items


def _metrics(path: str) -> str:
    return os.path.join(path, "metrics")


def _files(path: str) -> list[tuple[str, str]]:
    """Return keys and paths of the metrics."""
    root = _metrics(path)
    found = []
    for folder, folders, files in os.walk(root):
        folders.sort()
        for name in sorted(files):
            whole = os.path.join(folder, name)
            found.append((os.path.relpath(whole, root), whole))
            if len(found) >= _MAX_METRICS:
                return found
    return found


def _all_files(path: str) -> list[str]:
    return [os.path.join(path, "meta.yaml"), *(name for _, name in _files(path))]


def _lines(text: bytes) -> Iterator[tuple[int, float, int]]:
    """Yield time in ms, value and step of each whole line."""
    for line in text[: text.rfind(b"\n") + 1].split(b"\n"):
        cells = line.split()
        if len(cells) not in {2, 3}:
            continue
        try:
            yield int(cells[0]), float(cells[1]), int(cells[2]) if len(cells) > 2 else 0
        except ValueError:
            continue


def _meta(path: str) -> dict[str, Any]:
    with open(os.path.join(path, "meta.yaml"), "rb") as file:
        text = file.read(1 << 16)
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"meta.yaml: {error}") from None
    if not isinstance(found, dict):
        raise ValueError("meta.yaml: not a mapping")  # noqa: TRY004  its contract
    return found


def _parameter(path: str, name: str) -> float | None:
    try:
        with open(os.path.join(path, "params", name), encoding="utf-8", errors="replace") as file:
            return number(file.read(64))
    except OSError:
        return None
