"""The ranks of a run on this node, as they are now: their step, their pace, and what they say of orders."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from trainvitals import rankfile
from trainvitals.spooled import events, recording
from trainvitals.spooled.identity import identity_of

#: What a rank said last of an order.
SAID = frozenset({"seen", "refused", "late", "left", "done", "failed"})


@dataclass
class Answer:
    """What a rank said of an order: a word of :data:`SAID`, behind which step, and more in words."""

    state: str
    step: int
    text: str = ""


@dataclass
class Rank:
    """One live rank: its file, and how far its events were read."""

    path: str
    run: str
    rank: int
    owner: int
    world_size: int
    offset: int = 0
    answers: dict[int, Answer] = field(default_factory=dict)

    @property
    def step(self) -> int:
        """The last step that ended.  Raises RankFileError and OSError for a file that is gone or damaged."""
        with contextlib.closing(rankfile.Reader(self.path)) as reader:
            state = _state(reader)
            # The state is written ten times a second, a record in each step.
            records, _ = reader.read_records(state.records)
        return max((record.step for record in records if record.count > state.count), default=state.step)

    @property
    def phase(self) -> str:
        """What it does.  Raises as :attr:`step` does."""
        with contextlib.closing(rankfile.Reader(self.path)) as reader:
            phase = _state(reader).phase
        return rankfile.PHASES[phase] if phase < len(rankfile.PHASES) else "other"

    @property
    def is_alive(self) -> bool:
        """Whether its process lives and has not ended by itself."""
        try:
            with contextlib.closing(rankfile.Reader(self.path)) as reader:
                state = reader.read_state()
                return reader.alive() and state is not None and not state.flags & rankfile.FLAG_FINISHED
        except (OSError, rankfile.RankFileError):
            return False

    def seconds_per_step(self) -> float:
        """Return the longest of the last steps, in seconds; 0.0 where fewer than two are known."""
        with contextlib.closing(rankfile.Reader(self.path)) as reader:
            records, _ = reader.read_records(max(0, _state(reader).records - 32))
        times = sorted({record.count: record.time for record in records}.values())
        return max((after - before for before, after in pairwise(times)), default=0.0)

    def listen(self) -> None:
        """Read what it has said since, and keep what is said of orders."""
        with contextlib.suppress(OSError):
            lines, self.offset = events.read_lines(events.path_of(self.path), self.offset, self.owner)
            for line in lines:
                event = events.parse(line)
                if event is not None and event.kind == "order":
                    self._note(event.fields, event.step)

    def _note(self, fields: dict[str, Any], step: int) -> None:
        number, state, text = fields.get("order"), fields.get("state"), fields.get("text", "")
        if isinstance(number, int) and state in SAID and isinstance(text, str):
            self.answers[number] = Answer(state, step, text)

    def skip(self) -> None:
        """Forget what it said so far."""
        self.listen()
        self.answers.clear()


def _state(reader: rankfile.Reader) -> rankfile.State:
    state = reader.read_state()
    if state is None:
        raise rankfile.RankFileError("state", "checksum")
    return state


def live(folder: str, run: str | None = None) -> list[Rank]:
    """Return the live ranks of a run below a spool, of all runs by default, by run and rank."""
    return sorted(_live(folder, run), key=lambda one: (one.run, one.rank))


def _live(folder: str, run: str | None) -> Iterator[Rank]:
    for path in recording.find(folder):
        try:
            with contextlib.closing(rankfile.Reader(path)) as reader:
                fields, _ = reader.read_text()
                owner = reader.owner
        except (OSError, rankfile.RankFileError, json.JSONDecodeError):
            continue
        who = identity_of(fields)
        rank = Rank(path, who.run, who.rank, owner, who.world_size)
        if run in {None, who.run} and rank.is_alive:
            yield rank
