"""What the ranks of an attempt told in their rank files.

How far they are, in what phase, whether their losses are numbers, which of them died first, whether any goes on.
A hang is when every live rank on this node is silent for longer than its phase may take: a rank that waits for others
is as silent as the one that they wait for.  The limits are those of :mod:`trainvitals.detect.stall`.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trainvitals import rankfile
from trainvitals.detect.stall import Stall
from trainvitals.spooled import events
from trainvitals.spooled.identity import identity_of
from trainvitals.telemetry import Event, Identity, Step

#: A node has no more ranks than this; a spool that somebody fills costs no more.
MOST_RANKS = 512
#: So many steps in a row whose loss is no number end an attempt: one can be an odd batch, behind which all goes on.
NONFINITE_STEPS = 3
#: Phases whose length says nothing about a hang of the steps.
_SLOW = ("init", "checkpoint", "evaluation")
#: Seconds between two looks after which this machine was asleep, or we were.
_LONG_PAUSE = 10.0


@dataclass(frozen=True)
class Silence:
    """A hang: for how many seconds no rank has made a step, in what phase the named rank is, and which it is."""

    seconds: float
    phase: str
    rank: Rank | None
    why: str


class Rank:
    """One process that reports."""

    def __init__(self, path: str, reader: rankfile.Reader, identity: Identity, pid: int | None = None) -> None:
        self.path, self.identity = path, identity
        self._reader = reader
        self._shift = reader.header.started_wall - reader.header.started_monotonic
        self._stall = Stall()
        self._after = self._offset = 0
        self._last_values: dict[int, bool] = {}
        self.started = reader.header.started_wall
        #: As its own file says, until its lock tells: in a container the two may differ.
        self.pid = pid
        self.step: int | None = None
        self.last_time = self.started
        self.phase = "init"
        self.flags = 0
        #: When it was first seen to be dead or ended, by our clock.
        self.gone: float | None = None
        self.events: list[Event] = []
        #: Steps in a row whose loss is no number, and the first of them.
        self.nonfinite = 0
        self.onset: int | None = None
        #: Wall times of the last steps, by their number.
        self.times: dict[int, float] = {}

    @property
    def number(self) -> int:
        """Its rank in the whole run."""
        return self.identity.rank

    @property
    def status(self) -> str:
        """How it is: "running", "finished", "failed" or "died"."""
        if self.flags & rankfile.FLAG_FAILED:
            return "failed"
        if self.flags & rankfile.FLAG_FINISHED:
            return "finished"
        return "running" if self.gone is None else "died"

    def poll(self, now: float) -> None:
        """Read what is new.  Raises RankFileError."""
        # The lock first: what was written before the writer ended is then surely read after.
        writer = self._reader.writer()
        self.pid = writer or self.pid
        state = self._reader.read_state()
        if state is not None:
            self.flags = state.flags
            self.phase = rankfile.PHASES[state.phase] if state.phase < len(rankfile.PHASES) else "other"
        records, _ = self._reader.read_records(self._after)
        names = self._reader.read_text()[1] if records else []
        for record in records:
            self._after = record.sequence
            self._take(record, names)
        self._read_events()
        if writer is None and self.gone is None:
            self.gone = now

    def _take(self, record: rankfile.Record, names: list[str]) -> None:
        values = {names[index]: value for index, value in record.values.items() if index < len(names)}
        step = Step(record.step, record.count, record.time + self._shift, values)
        self._stall.observe(step)
        if self.step is None or step.time >= self.last_time:
            self.step, self.last_time = step.step, step.time
        self.times[step.step] = step.time
        while len(self.times) > rankfile.RING_RECORDS:
            del self.times[next(iter(self.times))]
        if "loss" in values and not values.get("skipped"):
            if math.isfinite(values["loss"]):
                self.nonfinite, self.onset = 0, None
            else:
                self.onset = step.step if self.onset is None else self.onset
                self.nonfinite += 1

    def _read_events(self) -> None:
        with contextlib.suppress(OSError):
            lines, self._offset = events.read_lines(events.path_of(self.path), self._offset, self._reader.owner)
            for line in lines:
                event = events.parse(line)
                if event is not None:
                    self._stall.observe_event(event)
                    self.events.append(event)
            del self.events[:-256]

    def age(self, now: float, awake: float) -> float:
        """Return the seconds since its last step, or since its start; what we slept does not count."""
        return now - max(self.last_time, awake)

    def limit(self, hang_after: float | None) -> float:
        """Return how many seconds without a step are a hang in its phase."""
        if self.phase == "paused":  # As somebody wants it.
            return math.inf
        phase = "init" if self.step is None and self.phase not in _SLOW else self.phase
        if hang_after is not None and phase not in _SLOW:
            return hang_after
        return self._stall.limits(phase).critical

    def close(self) -> None:
        """Close its file."""
        self._reader.close()


class Ranks:
    """The ranks of one attempt of a run on this node, as far as they report into ``spool``."""

    def __init__(
        self, spool: str, run: str, attempt: int, *, since: float = 0.0, clock: Callable[[], float] = time.time
    ) -> None:
        self._spool, self._run, self._attempt, self._since, self._clock = spool, run, attempt, since, clock
        self._ranks: dict[str, Rank] = {}
        self._foreign: set[str] = set()
        self._awake = self._looked = clock()

    def __iter__(self) -> Iterator[Rank]:
        return iter(sorted(self._ranks.values(), key=lambda rank: (rank.number, rank.started)))

    def poll(self) -> None:
        """Read what is new; a file that cannot be read costs its own rank."""
        now = self._clock()
        if now - self._looked > _LONG_PAUSE:
            self._awake = now
        self._looked = now
        self._find()
        for rank in self._ranks.values():
            if rank.gone is None:
                with contextlib.suppress(rankfile.RankFileError, OSError):
                    rank.poll(now)

    def _find(self) -> None:
        try:
            names = os.listdir(self._spool)
        except OSError:
            return
        for name in names:
            path = os.path.join(self._spool, name)
            if not name.endswith(rankfile.RANK_SUFFIX) or path in self._ranks or path in self._foreign:
                continue
            if len(self._ranks) < MOST_RANKS:
                self._look_at(path)

    def _look_at(self, path: str) -> None:
        try:
            reader = rankfile.Reader(path, owners=frozenset({os.getuid()}))
        except rankfile.RankFileError:
            return
        try:
            fields = reader.read_text()[0]
        except rankfile.RankFileError:
            reader.close()
            return
        identity, pid = identity_of(fields), fields.get("pid")
        is_ours = identity.run == self._run and identity.attempt == self._attempt
        if is_ours and reader.header.started_wall >= self._since:
            self._ranks[path] = Rank(path, reader, identity, pid if isinstance(pid, int) else None)
        else:
            self._foreign.add(path)
            reader.close()

    # What the supervisor asks ----------------------------------------------------------------------------------------

    def live(self) -> list[Rank]:
        """Return the ranks that have not ended."""
        return [rank for rank in self if rank.status == "running"]

    def step(self) -> int | None:
        """Return the last step that any rank has made."""
        return max((rank.step for rank in self if rank.step is not None), default=None)

    def last_time(self) -> float | None:
        """Return when the last step was made."""
        return max((rank.last_time for rank in self if rank.step is not None), default=None)

    def time_of(self, step: int) -> float | None:
        """Return when a step was made, as far back as rank files go."""
        return max((rank.times[step] for rank in self if step in rank.times), default=None)

    def onset(self) -> int | None:
        """Return the first of the steps whose losses are no numbers and that lead up to the last one."""
        return min((rank.onset for rank in self if rank.onset is not None), default=None)

    def nonfinite(self) -> Rank | None:
        """Return the rank whose losses stopped to be numbers first, once they stay so."""
        found = [rank for rank in self if rank.nonfinite >= NONFINITE_STEPS]
        return min(found, key=lambda rank: rank.onset or 0, default=None)

    def first_gone(self) -> Rank | None:
        """Return the rank that died first without a word; None where none did, or several at once."""
        died = [rank for rank in self if rank.status == "died"]
        times = sorted(rank.gone or 0.0 for rank in died)
        if not died or (len(died) > 1 and times[0] == times[1]):
            return None
        return min(died, key=lambda rank: rank.gone or 0.0)

    def saved(self) -> dict[str, int]:
        """Return the steps of the checkpoints that the ranks say they saved, by their real paths."""
        found = {}
        for rank in self:
            for event in rank.events:
                path = event.fields.get("path")
                if event.kind == "checkpoint" and event.fields.get("ok") and isinstance(path, str) and event.step >= 0:
                    found[os.path.realpath(path)] = event.step
        return found

    def failed_save(self) -> Rank | None:
        """Return the rank whose last checkpoint failed, if any."""
        for rank in self:
            saves = [
                event for event in rank.events if event.kind == "checkpoint" and event.fields.get("action") == "save"
            ]
            if saves and saves[-1].fields.get("ok") is False:
                return rank
        return None

    def silence(self, hang_after: float | None, state_of: Callable[[int], str]) -> Silence | None:
        """Return a hang, if there is one.  ``state_of`` tells the state of a process by its letter."""
        live = self.live()
        # Helpers that never make a step say nothing, unless nobody has made one yet.
        stepping = [rank for rank in live if rank.step is not None] or live
        now = self._clock()
        if not stepping or any(rank.age(now, self._awake) < rank.limit(hang_after) for rank in stepping):
            return None
        rank, why = suspect(stepping, state_of)
        seconds = min(one.age(now, self._awake) for one in stepping)
        return Silence(seconds, (rank or stepping[0]).phase, rank, why)

    def close(self) -> None:
        """Close all files."""
        for rank in self._ranks.values():
            rank.close()


def suspect(ranks: list[Rank], state_of: Callable[[int], str]) -> tuple[Rank | None, str]:
    """Return the rank that the others wait for, as far as can be seen from outside, and why it.

    One that is stopped or waits in the kernel; else the one that is steps behind; else the one in another phase than
    all others.  In a collective all look alike: then None.
    """
    words = {"T": "is stopped", "t": "is stopped by a debugger", "D": "waits in the kernel"}
    for rank in ranks:
        word = words.get(state_of(rank.pid)) if rank.pid else None
        if word is not None:
            return rank, word
    if len(ranks) == 1:
        return ranks[0], "is the only one"
    steps = sorted({rank.step if rank.step is not None else -1 for rank in ranks})
    behind = [rank for rank in ranks if (rank.step if rank.step is not None else -1) == steps[0]]
    if len(steps) > 1 and len(behind) == 1:
        return behind[0], f"is behind the others (step {steps[0]}, they {steps[-1]})"
    for phase in {rank.phase for rank in ranks}:
        alone = [rank for rank in ranks if rank.phase == phase]
        if len(alone) == 1 and len({rank.phase for rank in ranks}) == 2 and len(ranks) > 2:
            return alone[0], f"is in phase {phase}, the others are not"
    return None, ""
