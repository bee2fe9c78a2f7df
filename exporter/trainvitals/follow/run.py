"""One followed run: from the items of all its files to steps, events and an identity, as the probe would report them.

Logs are written by several ranks at once, go back when a run is resumed, and rarely say when.  Here is decided what
that means.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from operator import attrgetter, lt
from typing import Any, cast

from trainvitals.follow.base import Facts, Format, Item, Piece, Row, Rows
from trainvitals.follow.ranks import NOBODY, Ranks
from trainvitals.follow.repeats import Announced, Losses, same
from trainvitals.follow.state import State
from trainvitals.follow.times import Moment, Taken, spread, with_times
from trainvitals.telemetry import Event, Identity, Step, StepList

#: Of so many names the newest value is kept: a log may call its values anew in each line.
_MAX_VALUES = 4096


@dataclass
class FollowedRun:
    """What is known of a run by its logs.  ``steps``, ``history`` and ``events`` are those of the last poll.

    ``steps`` are new ones.  Their ``count`` rises by one with every step that the log told, over all attempts (a log
    with one line in ten steps counts these lines); a second Step with the count of the last one carries values under
    further names.  Values never change.  Of ranks that say the same, one is heard.

    ``history`` is filled at the first poll after a restart of the exporter: steps that were told before it, so that
    detectors know the level of the curve.  Their counts end before those of ``steps``; they are no news.

    ``events`` hold "evaluation" (fields name and values, as the probe writes them), "checkpoint", errors, and
    "restart" when a new attempt begins (fields attempt, previous_step); each with a time and, where there was a step
    before it, a step, else -1.
    """

    name: str
    #: The files that the run was read from, and the names of their formats; empty where nobody knows the format.
    paths: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    steps: StepList = field(default_factory=StepList)
    history: StepList = field(default_factory=StepList)
    events: list[Event] = field(default_factory=list)
    #: Of each event, how many of ``steps`` came before it: times are often those of whole polls.
    places: list[int] = field(default_factory=list)
    last_step: Step | None = None
    #: The newest value of each name.
    values: dict[str, float] = field(default_factory=dict)
    #: Wall time of the newest datum (a step, result or checkpoint): that which the log says, else that of the last
    #: change of the file that told it.  0.0 as long as there is none.
    newest: float = 0.0
    #: Wall time of the last change of any of its files: a log that still grows, without new data.
    changed: float = 0.0
    #: Whether the times of the steps are the log's own; else they are reckoned from durations and the file's times.
    timed: bool = False
    #: Number of the attempt, from 0, and the times of its first step and of the run's.  0.0: no step yet.
    attempt: int = 0
    attempt_started: float = 0.0
    started: float = 0.0
    #: When the log says that the run ended; None while it does not.
    finished: float | None = None
    #: Bytes of its files that are not read yet: the byte rate is limited, and old logs are long.
    behind: int = 0
    #: Bytes of its files that were read.
    read: int = 0
    #: Lines, records and readings that made no sense.
    bad: int = 0
    #: Whether the last poll was the first.
    is_new: bool = True
    #: How many events it told, over restarts of the exporter; those of the last poll are the last of them.
    told: int = 0
    #: Whether it goes on where it was before a restart, so that counts of steps and events go on as well.
    resumed: bool = False
    _framework: str = ""
    _target: int | None = None
    _world: int | None = None
    _count: int = 0
    _step: int | None = None
    _current: dict[str, float] = field(default_factory=dict)
    _ranks: Ranks = field(default_factory=Ranks)
    _losses: Losses = field(default_factory=Losses)
    _announced: Announced = field(default_factory=Announced)
    #: A row that went back: an attempt, if the next one goes on from there.
    _held: Row | None = None
    _begins_anew: bool = False
    _taken: Taken = field(default_factory=Taken)
    _told: list[tuple[int, Event]] = field(default_factory=list)
    _moment: Moment | None = None
    _polls: int = 0
    _has_events: bool = False
    _is_history: bool = False
    _attempt_count: int = 0

    @property
    def has_news(self) -> bool:
        """Whether anything was ever told of it: a step, a result, an error."""
        return self._count > 0 or self._has_events

    @property
    def step(self) -> int | None:
        """The last step, of those that were taken."""
        return self._step

    @property
    def identity(self) -> Identity:
        """Who this is; the rank is the one that is heard, 0 where the log does not say."""
        return Identity(
            run=self.name,
            rank=max(0, self._ranks.leader or 0),
            world_size=self._world or max(1, self._ranks.count),
            attempt=self.attempt,
            framework=self._framework,
            target_steps=self._target,
        )

    def describe(self, formats: Iterable[Format]) -> None:
        """Take over what the formats of its files are; a log that names its framework itself knows better."""
        for known in formats:
            if known.name not in self.formats:
                self.formats = (*self.formats, known.name)
            self._framework = self._framework or known.framework

    # One poll: begin, take items, settle ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a poll: what was news is none any more."""
        self.steps, self.history, self.events, self.places = StepList(), StepList(), [], []
        for name in list(islice(self.values, _MAX_VALUES, None)):
            del self.values[name]
        self.is_new = self._polls == 0
        self._polls += 1
        self._ranks.heard = False

    def take(self, pieces: Iterable[Piece], rank: int | None = None) -> None:
        """Take the next items of a file; ``rank`` is that of the file, if its name says one."""
        whose = NOBODY if rank is None else rank
        for is_rows, group in groupby(pieces, _is_rows):
            if not is_rows:
                self._take(cast("Iterable[Item]", group), whose)
                continue
            for rows in cast("Iterable[Rows]", group):
                if self._is_usual(rows, whose):
                    self._add_all(rows)
                else:
                    self._take(rows, whose)

    def _take(self, items: Iterable[Item], whose: int) -> None:
        for item in items:
            if isinstance(item, Row):
                step, values, moment, its_rank, split = item
                newest = self._step
                # The usual case first, without detours: there may be millions.
                if (
                    step is not None
                    and newest is not None
                    and step > newest
                    and not split
                    and (whose if its_rank is None else its_rank) == self._ranks.leader
                    and self._held is None
                    and not self._begins_anew
                ):
                    self._add(step, values, moment)
                else:
                    self._take_row(item, whose if its_rank is None else its_rank)
            elif isinstance(item, Facts):
                self._take_facts(item, whose)
            else:
                self._take_event(item, whose)

    def settle(self, changed: float, *, read: int = 0, unread: int = 0, final: bool = False) -> None:
        """End a poll, or the replay of what was told before: give times to what was taken.

        ``changed`` is the time of the last change of the files with news; of them, ``read`` bytes were read now and
        ``unread`` are left.  With ``final`` nothing more will come.
        """
        if final and self._held is not None:
            held, self._held = self._held, None
            self._restart(held)
        self.changed = max(self.changed, changed)
        self.read += read
        self._ranks.settle(self._step, unread)
        taken, self._taken = self._taken, Taken()
        told, self._told = self._told, []
        if not len(taken) and not told:
            return
        share = unread / read if read else 0.0
        moments = spread(taken, self._moment, changed, share)
        found = taken.steps(moments)
        if self._is_history:
            self.history += found
        else:
            self.steps += found
            self.events += with_times(told, moments, changed)
            self.told += len(told)
            # A restart is told with the time of the first step behind it.
            self.places += [min(place, len(found)) - (event.kind == "restart") for place, event in told]
        if found:
            last = found[-1]
            self._moment = Moment(last.time, last.step, last.values.get("elapsed_seconds"))
            self.last_step = last
            self.timed = taken.has_times
            self.started = self.started or found[0].time
            if not self.attempt_started:
                begun = _place_of(self._attempt_count, found)
                self.attempt_started = found[begun].time if begun < len(found) else last.time
        has_data = bool(found) or any(event.kind in {"evaluation", "checkpoint"} for _, event in told)
        if has_data and not self._is_history:
            self.newest = max(self.newest, moments[-1] if found and self.timed else changed)

    # Rows -----------------------------------------------------------------------------------------------------------

    def _take_row(self, row: Row, rank: int) -> None:
        if row.split:
            self._take_evaluation(row, rank)
            return
        if rank != self._ranks.leader and not self._hear(row, rank):
            return
        step, held = row.step, self._held
        if held is not None:
            if step is None or step == held.step:
                self._held = held._replace(values={**row.values, **held.values})
                return
            self._decide(step)
        newest = self._step
        if step is None:
            if newest is None:
                return
            step = newest
        if newest is None or step > newest or self._begins_anew:
            if self._begins_anew:
                self._new_attempt(step)
            self._add(step, row.values, row.time)
        elif step == newest:
            self._add_late(row)
        elif self._losses.is_another_ranks(step, row.values.get("loss")):
            return
        elif self._losses.is_behind(step):
            self._restart(row)
        else:
            self._held = row

    def _hear(self, row: Row, rank: int) -> bool:
        """Return whether the rank of a row speaks for the run from now on."""
        if not self._ranks.takes_over(rank, row.step, has_loss="loss" in row.values):
            return False
        # It tells its own steps, from the first one on: no attempt began.
        self._step, self._held = None, None
        self._losses.clear()
        return True

    def _add(self, step: int, values: dict[str, float], moment: float | None) -> None:
        self._count += 1
        self._step = step
        self._current = values
        self._ranks.heard = True
        self.values.update(values)
        loss = values.get("loss")
        if loss is not None:
            self._ranks.has_loss = True
        self._losses.add(step, loss)
        self.finished = None
        self._taken.add(step, self._count, values, moment)

    def _is_usual(self, rows: Rows, whose: int) -> bool:
        """Whether rows go on right where the run is, without anything to think about."""
        steps = rows.steps
        return (
            self._step is not None
            and self._step < steps[0]
            and (whose if rows.rank is None else rows.rank) == self._ranks.leader
            and self._held is None
            and not self._begins_anew
            and all(map(lt, steps, islice(steps, 1, None)))
        )

    def _add_all(self, rows: Rows) -> None:
        """Do what :meth:`_add` does for each of several rows."""
        steps, first = rows.steps, self._count + 1
        self._count += len(steps)
        self._step = steps[-1]
        self._current = rows.values_at(-1)
        self._ranks.heard = True
        self.values.update(self._current)
        losses = rows.columns.get("loss")
        self._ranks.has_loss = self._ranks.has_loss or losses is not None
        self._losses.add_all(steps, losses)
        self.finished = None
        self._taken.extend(rows, first)

    def _add_late(self, row: Row) -> None:
        """Take values of the newest step under names that it did not have."""
        late = {name: value for name, value in row.values.items() if name not in self._current}
        if "loss" in row.values and not same(self._current.get("loss"), row.values["loss"]):
            self._losses.repeated += "loss" in self._current
        if not late or self._step is None:
            return
        self._current = {**self._current, **late}
        if "loss" in late:
            self._losses.add(self._step, late["loss"])
            self._ranks.has_loss = True
        self.values.update(late)
        self._taken.add(self._step, self._count, late, row.time)

    def _decide(self, step: int) -> None:
        """Decide what a row that went back was, by the one behind it: the run does not jump back and forth."""
        held, self._held = self._held, None
        if held is not None and held.step is not None and self._step is not None and held.step < step <= self._step:
            self._restart(held)

    def _restart(self, row: Row) -> None:
        step = row.step if row.step is not None else 0
        self._new_attempt(step)
        self._add(step, row.values, row.time)

    def _new_attempt(self, step: int) -> None:
        self._begins_anew = False
        if self._step is None:
            return
        self.attempt += 1
        self.attempt_started = 0.0
        self._attempt_count = self._count + 1
        fields = {"attempt": self.attempt, "previous_step": self._step}
        self._told.append((len(self._taken) + 1, Event(0.0, "restart", step, fields)))
        self._losses = Losses()
        self._announced.clear()

    # What is no step ------------------------------------------------------------------------------------------------

    def _take_facts(self, facts: Facts, rank: int) -> None:
        self._framework = self._framework or facts.framework
        if facts.target_steps is not None and facts.target_steps > 0:
            self._target = facts.target_steps
        if facts.world_size is not None and facts.world_size > 0:
            self._world = facts.world_size
        if rank not in {NOBODY, self._ranks.leader}:
            return
        if facts.started is not None:
            self._begins_anew = self._step is not None
        if facts.finished is not None:
            self.finished = facts.finished

    def _take_evaluation(self, row: Row, rank: int) -> None:
        """Make an event of results.  What a rank says again (or another says of the same step) is told once."""
        step = row.step if row.step is not None else self._step
        step = -1 if step is None else step
        if self._announced.has_results(row, step, rank):
            return
        fields = {"name": row.split, "values": row.values}
        self._tell(Event(row.time or 0.0, "evaluation", step, fields))

    def _take_event(self, event: Event, rank: int) -> None:
        if event.step < 0 and self._step is not None:
            event = replace(event, step=self._step)
        if event.kind == "checkpoint":
            if self._announced.has_checkpoint(event):
                return
        elif rank >= 0 and "rank" not in event.fields:
            event = replace(event, fields={**event.fields, "rank": rank})
        self._tell(event)

    def _tell(self, event: Event) -> None:
        self._has_events = True
        self._told.append((len(self._taken), event))

    # Over restarts of the exporter ----------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return what must be remembered, as JSON knows it."""
        state = State(
            step=self._step,
            count=self._count,
            attempt=self.attempt,
            attempt_started=self.attempt_started,
            started=self.started,
            leader=self._ranks.leader,
            newest=self.newest,
            time=0.0 if self._moment is None else self._moment.time,
            target=self._target,
            world=self._world,
            framework=self._framework,
            has_events=self._has_events,
            told=self.told,
        )
        return state._asdict()

    def begin_replay(self) -> None:
        """Begin to take again what was told before a restart of the exporter: it becomes ``history``."""
        self._is_history = True

    def end_replay(self, saved: Mapping[str, Any] | None) -> None:
        """End it, and go on from the state that was saved; one that makes no sense is as good as none."""
        self._is_history, self._held, self._begins_anew = False, None, False
        self.events, self.places, self._told = [], [], []
        state = State.load(saved)
        if state is None:
            return
        shift = state.count - self._count
        self.history = self.history[_place_of(1 - shift, self.history) :].counted(shift)
        self._count, self.attempt, self._ranks.leader = state.count, state.attempt, state.leader
        self.newest, self.started, self.attempt_started = state.newest, state.started, state.attempt_started
        if state.step != self._step:
            self._step, self._current = state.step, {}
            self._losses.clear()
        if self.last_step is not None:
            self.last_step = replace(self.last_step, count=state.count)
        self._target, self._world = state.target or self._target, state.world or self._world
        self._framework = self._framework or state.framework
        self._has_events = state.has_events
        self.told, self.resumed = state.told, True
        if state.step is not None:
            self._moment = Moment(state.time, state.step, None if self._moment is None else self._moment.elapsed)


def _is_rows(piece: Piece) -> bool:
    return piece.__class__ is Rows


def _place_of(count: int, steps: Sequence[Step]) -> int:
    """Return the place of the first step with such a count, or a larger one."""
    return bisect_left(steps, count, key=attrgetter("count"))
