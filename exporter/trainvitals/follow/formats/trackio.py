"""Trackio's database: one file for each project, in which each run has its steps as JSON.

Source: the package ``trackio`` (sqlite_storage.py): table metrics(id, timestamp, run_name, step, metrics), since 0.15
or so with run_id; the names of values may be nested, NaN and infinity are the words "NaN", "Infinity", "-Infinity";
table configs(run_name, config).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainvitals.follow.base import NO, SURE, Facts, Item, Row
from trainvitals.follow.record import Records, load, number
from trainvitals.follow.sqlite import Database, DatabaseFormat, has_columns, reading
from trainvitals.follow.text import timestamp

_COLUMNS = {"timestamp", "run_name", "step", "metrics"}
_TARGETS = ("max_steps", "total_steps", "num_steps")
#: Of a step (or settings) whose JSON is longer, nothing is taken.
_LONGEST = 1 << 15
_MAX_RUNS = 4096


class Trackio(DatabaseFormat):
    """See the module."""

    name = "trackio"

    def sniff(self, head: bytes, path: str) -> int:
        """Return how sure it is; see :class:`Format`."""
        return SURE if has_columns(head, path, "metrics", _COLUMNS, (b"run_name TEXT", b"metrics TEXT")) else NO

    def read(self, path: str) -> Iterable[Item]:
        """Return the steps of all runs.  Raises ValueError and OSError for what cannot be read."""
        with reading(path) as database:
            columns = database.columns("metrics")
            if not columns >= _COLUMNS:
                raise ValueError("no table of metrics")
            identity = "run_id" if "run_id" in columns else "run_name"
            yield from _Runs(database, identity).items()


class _Runs:
    def __init__(self, database: Database, identity: str) -> None:
        self._database, self._identity = database, identity
        self._records = Records(steps=("step",), times=())
        self._names: dict[object, str] = {}
        self._current = ""
        self._last: object = None
        self._moment: object = None
        self._time: float | None = None

    def items(self) -> Iterator[Item]:
        columns = (
            f"substr({self._identity}, 1, 200)",
            "substr(run_name, 1, 200)",
            "step",
            "substr(timestamp, 1, 64)",
            f"substr(metrics, 1, {_LONGEST})",
        )
        items: list[Item] = []
        for rows in self._database.rows("metrics", columns):
            items.clear()
            for _, identity, name, step, moment, text in rows:
                if identity != self._last or not self._current:
                    items.extend(self._switch(identity, name))
                if moment != self._moment:
                    # It is the same for all that was sent at once.
                    self._moment, self._time = moment, timestamp(moment) if isinstance(moment, str) else None
                record = load(text) if text.__class__ in {str, bytes} and len(text) < _LONGEST else None
                if record is not None and step.__class__ is int:
                    record["step"] = step if step >= 0 else None
                    for item in self._records.rows(record):
                        if isinstance(item, Row):
                            items.append(Row(item.step, item.values, self._time, None, item.split))
                        else:
                            items.append(item)
            yield from items
        yield from self._targets()

    def _switch(self, identity: object, name: object) -> Iterator[Facts]:
        """Say whose the next items are.  Of runs of one name, the later ones are called after their identity, too."""
        known = self._names.get(identity)
        if known is None:
            known = str(name) or "run"
            if known in self._names.values():
                known = f"{known}-{str(identity)[:8]}"
            self._names[identity] = known
        self._last = identity
        if known != self._current:
            self._current = known
            yield Facts(run=known)

    def _targets(self) -> Iterator[Item]:
        if not self._database.columns("configs") >= {self._identity, "config"}:
            return
        identity = f"substr({self._identity}, 1, 200)"
        question = f"SELECT {identity}, substr(config, 1, {_LONGEST}) FROM configs ORDER BY rowid LIMIT {_MAX_RUNS}"  # noqa: S608
        for whose, text in self._database.ask(question):
            config = load(text) if isinstance(text, (str, bytes)) else None
            target = next((number(config[name]) for name in _TARGETS if name in config), None) if config else None
            if whose in self._names and target is not None and 0.0 < target < 2.0**53:
                yield from self._switch(whose, "")
                yield Facts(target_steps=int(target))
