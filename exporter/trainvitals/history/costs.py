"""What interruptions cost: of some runs together, and by cause, place and hour."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from trainvitals.history.books import Story
from trainvitals.history.lives import interruptions, is_wanted, lives
from trainvitals.history.reckon import BUCKETS, Advice, Mttf, advice, buckets, is_save, mttf
from trainvitals.journal import Incident


def _hour(incident: Incident) -> str:
    return time.strftime("%H:00", time.localtime(incident.detected))


#: What incidents are put together by; what is unknown has a row of its own.
BY: dict[str, Callable[[Incident], str]] = {
    "cause": lambda one: one.cause,
    "node": lambda one: one.node,
    "device": lambda one: f"{one.node} {one.device}".strip() if one.device else "",
    "hour": _hour,
}


@dataclass(frozen=True)
class Account:
    """The interruptions of some runs, where their time went, and what follows from it.

    ``by_run`` are the advices; ``wall`` is the wall time of all, in seconds, and ``spent`` its parts.
    """

    runs: tuple[str, ...]
    incidents: tuple[Incident, ...]
    wall: float
    spent: dict[str, float]
    mttf: Mttf
    by_run: dict[str, Advice]


@dataclass(frozen=True)
class Group:
    """Interruptions of one kind; what nobody knows the cost of is not in the sums."""

    name: str
    count: int
    steps_lost: float | None
    seconds_lost: float | None
    seconds_to_recover: float | None
    last: float


def account(stories: Sequence[Story]) -> Account:
    """Return the account of some runs."""
    found: list[Incident] = []
    spent = dict.fromkeys(BUCKETS, 0.0)
    better: dict[str, Advice] = {}
    worked = 0.0
    for story in stories:
        lived = lives(story.attempts)
        incidents = interruptions(lived, story.incidents)
        found += incidents
        parts = buckets(lived, incidents)
        at_work = math.fsum(parts.values()) - parts["down"]
        worked += at_work
        for name, seconds in parts.items():
            spent[name] += seconds
        saves = [entry for entry in story.entries if is_save(entry)]
        if (advised := advice(mttf(_failures(incidents), at_work), saves)) is not None:
            better[story.run] = advised
    found.sort(key=lambda one: one.detected)
    names = tuple(story.run for story in stories)
    return Account(names, tuple(found), math.fsum(spent.values()), spent, mttf(_failures(found), worked), better)


def _failures(incidents: Iterable[Incident]) -> int:
    return sum(not is_wanted(one) for one in incidents)


def groups(incidents: Iterable[Incident], by: str) -> list[Group]:
    """Return incidents put together, those that cost most first."""
    members: dict[str, list[Incident]] = {}
    for incident in incidents:
        members.setdefault(BY[by](incident) or "unknown", []).append(incident)
    found = [
        Group(
            name,
            len(ones),
            _sum(one.steps_lost for one in ones),
            _sum(one.seconds_lost for one in ones),
            _sum(one.seconds_to_recover for one in ones),
            max(one.detected for one in ones),
        )
        for name, ones in members.items()
    ]
    if by == "hour":
        return sorted(found, key=lambda one: one.name)
    return sorted(found, key=lambda one: (-one.count, one.name))


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
