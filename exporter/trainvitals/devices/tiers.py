"""How often a value is read: what changes fast often, what is costly or hardly changes seldom."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Tier(Enum):
    """Kinds of values by how often they are read."""

    FAST = "every round"
    MEDIUM = "counters and temperatures"
    SLOW = "health, links, what is set"


#: Seconds between two reads of a tier.
SECONDS: Mapping[Tier, float] = {Tier.FAST: 0.0, Tier.MEDIUM: 15.0, Tier.SLOW: 60.0}


class Schedule:
    """Says which tiers of one device are due.  ``seconds`` are the pauses between two reads of each."""

    def __init__(self, seconds: Mapping[Tier, float] = SECONDS) -> None:
        self._seconds = seconds
        self._next = dict.fromkeys(seconds, float("-inf"))

    def due(self, now: float) -> list[Tier]:
        """Return the tiers to read at ``now`` and count them as read."""
        tiers = [tier for tier, due in self._next.items() if now >= due]
        for tier in tiers:
            self._next[tier] = now + self._seconds[tier]
        return tiers
