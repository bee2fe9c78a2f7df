"""The lives of a run: its attempts by when their processes lived, and what ended each, recorded or not.

A number of an attempt may come again (a script that is started by hand counts none), so times tell the lives apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from trainvitals.journal import Attempt, Incident

_BAD = ("died", "failed")
#: Seconds after the end of a life in which its interruption is recorded.
_LATE = 600.0
#: Seconds within which the supervisors of all nodes notice an interruption.
_TOGETHER = 120.0


@dataclass(frozen=True)
class Life:
    """The processes of a run that lived at one time."""

    processes: tuple[Attempt, ...]

    @property
    def began(self) -> float:
        """When the first of them started."""
        return min(one.began for one in self.processes)

    @property
    def ended(self) -> float:
        """When the last of them ended, or was seen last."""
        return max(one.began if _end(one) is None else _end(one) or 0.0 for one in self.processes)

    @property
    def attempt(self) -> int:
        """Its number."""
        return max(one.attempt for one in self.processes)

    @property
    def first_step(self) -> int | None:
        """The first step of it."""
        return min((one.first_step for one in self.processes if one.first_step is not None), default=None)

    @property
    def last_step(self) -> int | None:
        """The last step of it."""
        return max((one.last_step for one in self.processes if one.last_step is not None), default=None)

    @property
    def broken(self) -> Attempt | None:
        """The process that ended badly, the first of them."""
        bad = [one for one in self.processes if one.state in _BAD]
        return min(bad, key=lambda one: (_end(one) or one.seen, one.rank), default=None)

    def mean(self, *phases: str) -> float:
        """Return the seconds that its processes spent in these phases, on average."""
        return sum(one.phases.get(name, 0.0) for one in self.processes for name in phases) / len(self.processes)


def lives(attempts: Iterable[Attempt]) -> list[Life]:
    """Return the lives in their order: one begins when nothing of the one before is left."""
    found: list[list[Attempt]] = []
    until = float("-inf")
    for one in sorted(attempts, key=lambda one: one.began):
        number = found[-1][0].attempt if found else None
        if not found or one.began >= until or (one.attempt != number and _all_over(found[-1], one.began)):
            found.append([])
        found[-1].append(one)
        until = max(until, _end(one) or one.seen)
    return [Life(tuple(group)) for group in found]


def _all_over(processes: Sequence[Attempt], moment: float) -> bool:
    """Whether another attempt begins while the one before is torn down: its ranks end within some seconds."""
    return all(one.ended is not None and one.ended - moment < 60.0 for one in processes)


def _end(one: Attempt) -> float | None:
    return one.seen if one.ended is None else one.ended


def interruptions(found: Sequence[Life], recorded: Sequence[Incident]) -> list[Incident]:
    """Return what was recorded, and an incident for each life that ended badly and of which nothing is recorded.

    Where the next life began at another step than was planned, that step is believed.
    """
    left = once(recorded)
    incidents: list[Incident] = []
    for place, life in enumerate(found):
        after = found[place + 1] if place + 1 < len(found) else None
        until = life.ended + _LATE if after is None else max(after.began, life.ended)
        within = [one for one in left if life.began <= one.detected <= until]
        told = within or [one for one in left if one.attempt == life.attempt]
        left = [one for one in left if one not in told]
        incidents += [*told[:-1], *(_resumed(one, life, after) for one in told[-1:])]
        if life.broken is not None and not told:
            incidents.append(_derived(life, life.broken, after))
    return sorted([*incidents, *left], key=lambda one: one.detected)


def is_wanted(incident: Incident) -> bool:
    """Whether people wanted an interruption: they ordered it, or pressed Ctrl-C.  It is no failure."""
    return incident.cause == "interrupted" or incident.cause.startswith("ordered_")


def once(recorded: Iterable[Incident]) -> list[Incident]:
    """Return incidents in order; what the supervisors of several nodes recorded of one interruption is one.

    The first to know its rank counts, else the first.
    """
    found: list[Incident] = []
    for one in sorted(recorded, key=lambda one: one.detected):
        same = next((place for place, other in enumerate(found) if _is_same(one, other)), None)
        if same is None:
            found.append(one)
        elif found[same].rank is None and one.rank is not None:
            found[same] = one
    return found


def _is_same(one: Incident, other: Incident) -> bool:
    if one.id == other.id:
        return True
    is_near = abs(one.detected - other.detected) <= _TOGETHER
    return one.node != other.node and one.attempt == other.attempt and is_near


def _derived(life: Life, broken: Attempt, after: Life | None) -> Incident:
    moment = _end(broken) or life.ended
    found = Incident(
        id=0,
        run=broken.run,
        attempt=life.attempt,
        cause=broken.state,
        node=broken.node,
        rank=broken.rank,
        detected=moment,
        last_step=life.last_step,
        text="seen by the exporter; nobody supervised the run",
        details={"derived": True},
    )
    return _resumed(found, life, after)


def _resumed(incident: Incident, life: Life, after: Life | None) -> Incident:
    """Return an incident with what the next life shows of the step at which the run went on."""
    last = life.last_step if incident.last_step is None else incident.last_step
    if after is None or after.first_step is None or last is None or after.first_step == incident.resume_step:
        return incident
    lost = max(0, last - after.first_step + 1)
    seconds = seconds_of_step(life)
    if incident.seconds_lost is not None and incident.steps_lost:
        seconds = incident.seconds_lost / incident.steps_lost
    return replace(
        incident,
        resume_step=after.first_step,
        steps_lost=lost,
        seconds_lost=incident.seconds_lost if seconds is None else lost * seconds,
    )


def seconds_of_step(life: Life) -> float | None:
    """Return how long a step took on average; None where that is not known."""
    if life.first_step is None or life.last_step is None or life.last_step <= life.first_step:
        return None
    return (life.ended - life.began - life.mean("init")) / (life.last_step - life.first_step + 1)
