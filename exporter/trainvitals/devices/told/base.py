"""What a tool tells of one card, and how its tables, its sections and its lines of values are taken apart.

Everything is a text until :class:`trainvitals.devices.plausible.Values` makes a value of it.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trainvitals.devices.plausible import is_mark
from trainvitals.telemetry import pci_address

PERCENT, MILLI, MIB, MEGA = 0.01, 1e-3, 2.0**20, 1e6
#: So many cards are taken from one answer; a node has 16 at most.
_MOST_CARDS = 64
#: Words for health that makers use, as ours.
_HEALTH = {"ok": "ok", "true": "ok", "good": "ok", "available": "ok", "healthy": "ok", "normal": "ok"}
_STATES = ("ok", "warning", "critical")


@dataclass(frozen=True)
class Fact:
    """A text for a family, with its labels; ``unit`` turns its number into the family's."""

    family: str
    text: str
    labels: tuple[str, ...] = ()
    unit: float = 1.0


@dataclass
class Card:
    """What a tool tells of one card.  ``names`` are texts that name it for good, the best first; its address is last.

    ``memory`` is used and total, in units of ``memory_unit`` bytes.  ``health`` is a word of the maker.
    """

    index: int
    address: str = ""
    model: str = ""
    driver: str = ""
    names: tuple[str, ...] = ()
    facts: list[Fact] = field(default_factory=list)
    memory: tuple[str | None, str | None] = (None, None)
    memory_unit: float = MIB
    health: str = ""

    @property
    def identities(self) -> tuple[str, ...]:
        """Texts that name it for good."""
        found = (name.strip() for name in (*self.names, self.address))
        return tuple(name for name in found if not is_mark(name) and name.strip("0x-"))

    @property
    def state(self) -> str:
        """Its health in our words: ok, critical, or empty where nothing is told."""
        return "" if is_mark(self.health) else _HEALTH.get(self.health.strip().lower(), "critical")


#: Makes cards of the answers to the commands of a wording; None when these are not the answers of this tool.
Parse = Callable[[Sequence[str]], Sequence[Card] | None]


@dataclass(frozen=True)
class Wording:
    """One way to ask: commands that are run one after the other, and what makes cards of their outputs."""

    commands: tuple[tuple[str, ...], ...]
    parse: Parse


@dataclass(frozen=True)
class Tool:
    """The tool of a vendor: how it is asked, the fullest way first, and where it lies beside the ``PATH``.

    ``needs_address`` is for a name that two makers use: cards must say where they are, and the bus whose they are.
    """

    vendor: str
    title: str
    wordings: tuple[Wording, ...]
    folders: tuple[str, ...] = ()
    needs_address: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The programs that it takes."""
        return tuple(dict.fromkeys(command[0] for wording in self.wordings for command in wording.commands))


def states(word: str) -> Iterator[tuple[str, float]]:
    """Return each state of health with 1 for the one that holds."""
    return ((state, float(state == word)) for state in _STATES)


def kept(cards: Sequence[Card]) -> Sequence[Card] | None:
    """Return cards that can be told apart; None where there is none, or two have one number."""
    numbers = {card.index for card in cards}
    return cards[:_MOST_CARDS] if cards and len(numbers) == len(cards) else None


def lines_of_values(text: str, names: Sequence[str]) -> list[dict[str, str]]:
    """Return the values of each line of a table with commas, by the names that were asked for; no header.

    A line with another number of values is none of the table: tools warn between them.
    """
    found = []
    for row in csv.reader(text.splitlines()[: 4 * _MOST_CARDS], skipinitialspace=True):
        if len(row) == len(names):
            values = dict(zip(names, (cell.strip() for cell in row), strict=True))
            if values.get("index", "0").isdecimal():
                found.append(values)
    return found


def table(text: str, *patterns: re.Pattern[str]) -> list[dict[str, str]]:
    """Return the named groups of cards in a table: each card has a line for each pattern, one below the other."""
    found: list[dict[str, str]] = []
    lines = [line for line in text.splitlines() if line.strip()]
    for place in range(len(lines) - len(patterns) + 1):
        matches = [pattern.match(line) for pattern, line in zip(patterns, lines[place:], strict=False)]
        if all(matches):
            groups: dict[str, str] = {}
            for match in matches:
                groups |= {name: (value or "").strip() for name, value in match.groupdict().items()} if match else {}
            found.append(groups)
    return found


def sections(text: str, begin: re.Pattern[str]) -> list[dict[str, str]]:
    """Return what stands below each line that begins a card: texts by their path, ``power readings/power draw``.

    Paths are in lower case; the first group of ``begin`` is under the key ``""``.
    """
    found: list[dict[str, str]] = []
    path: list[tuple[int, str]] = []
    for line in text.splitlines():
        match = begin.match(line)
        if match:
            found.append({"": match[1]})
            path = []
            continue
        if not found or not line.strip():
            continue
        depth = len(line.expandtabs(4)) - len(line.expandtabs(4).lstrip())
        key, colon, value = line.strip().partition(":")
        while path and path[-1][0] >= depth:
            path.pop()
        name = "/".join([*(part for _, part in path), key.strip().lower()])
        if colon and value.strip():
            found[-1].setdefault(name, value.strip())
        else:
            path.append((depth, key.strip().lower()))
    return found


def facts(values: Mapping[str, str], *wanted: tuple[str, str, tuple[str, ...], float]) -> list[Fact]:
    """Return a fact for each key that is there: ``(key, family, labels, unit)``."""
    return [Fact(family, values[key], labels, unit) for key, family, labels, unit in wanted if key in values]


def address(text: str) -> str:
    """Return an address on the bus; that of a device with one digit (``00:3d:0.0``) too.  Empty for none."""
    return pci_address(re.sub(r":([0-9a-fA-F])\.", r":0\1.", text.strip()))
