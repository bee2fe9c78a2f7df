"""What is known of the data of a rank: errors in it, and which files or samples were in the batches of a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainvitals import rankfile
from trainvitals.detect import Verdict
from trainvitals.rankfile import ledger
from trainvitals.rankfile.ledger import Name
from trainvitals.telemetry import Event

SIGNAL = "data_error"
#: Seconds for which errors stay a finding after the last one.
HOLD = 600.0
#: So many errors and steps are remembered by name, and so many names of a step.
_REMEMBERED = 64
_NAMES = 1024
#: A location names so many files or samples, in so many characters; a label has 256.
_SHOWN, _LONGEST, _LONGEST_NAME = 6, 190, 120


@dataclass
class RankData:
    """One rank.  Errors are kept over its attempts; what was in the batches of a step is known of the last one."""

    #: The file to ask, and the user who must own it; empty where no loader is watched.
    path: str = ""
    owner: int = 0
    errors: float | None = None
    _last: float | None = None
    #: Of the finding: how many errors there were before it, the first one, and the names of what they were met in.
    _before: float = 0.0
    _first: Event | None = None
    _names: Counter[Name] = field(default_factory=Counter)
    _told: dict[int, list[Name]] = field(default_factory=dict)
    #: The names of steps that were asked for, and the answers by signal: of this process, and of the one before.
    _found: dict[int, list[Name]] = field(default_factory=dict)
    _shown: dict[str, tuple[tuple[int, ...], tuple[Name, ...]]] = field(default_factory=dict)
    _held: dict[str, tuple[tuple[int, ...], tuple[Name, ...]]] = field(default_factory=dict)

    def update(self, path: str, owner: int, errors: float | None, now: float) -> None:
        """Take over where the data file is, and how many errors there were so far."""
        if path != self.path:
            # Another process: the counts of its steps begin again.  Findings that are held are still those of the last.
            self._told.clear()
            self._found.clear()
            self._held = self._shown.copy()
        self.path, self.owner = path, owner
        before, self.errors = self.errors, errors
        if errors is not None and before is not None and errors > before:
            self._note(now, now, before)
        elif not self._is_held(now):
            self._first = None
            self._names.clear()

    def _is_held(self, now: float) -> bool:
        return self._last is not None and now - self._last <= HOLD

    def _note(self, time: float, now: float, errors: float) -> None:
        """Take an error into the finding, or begin one with it; there were so many errors before."""
        if not self._is_held(now):
            self._before = errors
            self._first = None
            self._names.clear()
        self._last = max(self._last or 0.0, time)

    def take(self, event: Event, now: float) -> None:
        """Take an event: an error in the data, or what was in some batches."""
        if event.kind == SIGNAL and now - event.time <= HOLD:
            self._note(min(event.time, now), now, self.errors or 0.0)
            self._first = self._first or event
            if len(self._names) < _REMEMBERED:
                self._names.update(dict.fromkeys(_names_of(event.fields)).keys())
        elif event.kind == "data":
            batches = event.fields.get("batches")
            for batch in batches[:_REMEMBERED] if isinstance(batches, list) else ():
                if isinstance(batch, dict) and isinstance(batch.get("count"), int):
                    self._tell(batch["count"], batch.get("ids"))

    def _tell(self, count: int, names: object) -> None:
        known = self._told.setdefault(count, [])
        known += [name for name in _plain(names) if name not in known][: _NAMES - len(known)]
        if len(self._told) > _REMEMBERED:
            del self._told[next(iter(self._told))]

    def verdict(self, now: float) -> Verdict | None:
        """Return the verdict on errors in the data; None where nothing watches it.  Any error is a finding."""
        if not self._is_held(now):
            if self.errors is None:
                return None
            return Verdict(ratio=0.0, statistics={"errors": 0.0})
        count = max(1.0, (self.errors or 0.0) - self._before)
        first = self._first
        evidence, since = f"{_about(int(count))} in the data", None
        if first is not None:
            kind, message = (
                " ".join(str(first.fields.get(name, ""))[:_LONGEST].split()) for name in ("type", "message")
            )
            evidence += f"; first: {kind}: {message}" if message else f"; first: {kind}"
            since = first.step if first.step >= 0 else None
        return Verdict(ratio=count, since_step=since, evidence=evidence[:240], statistics={"errors": count})

    def bad(self) -> tuple[Name, ...]:
        """Return the files or samples in which errors were met, those with the most first."""
        return tuple(name for name, _ in self._names.most_common(_REMEMBERED))

    def suspects(self, signal: str, counts: tuple[int, ...]) -> tuple[Name, ...]:
        """Return what was in the batches of the steps with these counts, what was in the most of them first.

        Each is asked for once, when a finding begins: the ring goes on.
        """
        held = self._held.get(signal)
        if held is not None and held[0] == counts:
            return held[1]
        missing = [count for count in counts if count not in self._found]
        if missing:
            self._ask(missing)
        names = rank_names(self._found.get(count, ()) for count in counts)
        self._shown[signal] = (counts, names)
        return names

    def _ask(self, counts: Collection[int]) -> None:
        while len(self._found) > _REMEMBERED:
            del self._found[next(iter(self._found))]
        # What the training told itself is better: it knows the files behind the numbers.
        self._found.update({count: self._told.get(count, []) for count in counts})
        missing = {count for count in counts if not self._found[count]}
        if not missing or not self.path:
            return
        try:
            reader = ledger.LedgerReader(self.path, self.owner)
        except (OSError, rankfile.RankFileError):
            return
        try:
            for batch in reader.batches(missing):
                known = self._found[batch.count]
                self._found[batch.count] = [*known, *batch.names][:_NAMES]
        finally:
            reader.close()


def rank_names(steps: Iterable[Sequence[Name]]) -> tuple[Name, ...]:
    """Return the names in some steps, those first that are in the most steps, else in their order."""
    counts: Counter[Name] = Counter()
    for names in steps:
        counts.update(dict.fromkeys(names).keys())
    return tuple(name for name, _ in counts.most_common(_NAMES))


def in_words(names: Mapping[int, Sequence[Name]]) -> str:
    """Say some names by rank: "files a.tar, b.tar", "sample 17 and 3 more (rank 2)"; empty without any."""
    parts: list[str] = []
    room, several = _LONGEST, len(names) > 1
    shown = max(1, _SHOWN // max(1, len(names)))
    for rank, found in names.items():
        part = _listed(found, shown, room) + (f" (rank {rank})" if several else "")
        if not found or len(part) > room:
            continue
        parts.append(part)
        room -= len(part) + 2
    return "; ".join(parts)


def _listed(names: Sequence[Name], shown: int, room: int) -> str:
    texts: list[str] = []
    for name in names[:shown]:
        text = " ".join(str(name).split())
        # The end of a path says more than its beginning.
        text = text if len(text) <= _LONGEST_NAME else "..." + text[3 - _LONGEST_NAME :]
        if texts and sum(map(len, texts)) + len(text) > room - 40:
            break
        texts.append(text)
    kind = "sample" if all(isinstance(name, int) for name in names) else "file"
    more = f" and {len(names) - len(texts)} more" if len(names) > len(texts) else ""
    return f"{kind}{'s' * (len(names) > 1)} {', '.join(texts)}{more}"


def _names_of(fields: Mapping[str, Any]) -> list[Name]:
    """Return the file of an error, else the samples that it may have been in."""
    for name in ("file", "index", "ids"):
        found = _plain(fields.get(name))
        if found:
            return found
    return []


def _plain(value: object) -> list[Name]:
    values = value if isinstance(value, list) else [value]
    return [item for item in values[:_NAMES] if isinstance(item, (str, int)) and not isinstance(item, bool)]


def _about(errors: int) -> str:
    """Say the number of errors in few different words, because each is a new series."""
    if errors == 1:
        return "1 error"
    return f"{10 ** (len(str(errors)) - 1) if errors >= 10 else 2} or more errors"


def read_counters(rank_file: str, owner: int) -> ledger.DataCounters | None:
    """Return the counters of the data file beside a rank file; None where there is none, or it is being written.

    Raises OSError and RankFileError for what is no data file of ``owner``.
    """
    try:
        reader = ledger.LedgerReader(ledger.path_of_data(rank_file), owner)
    except FileNotFoundError:
        return None
    try:
        return reader.counters()
    finally:
        reader.close()
