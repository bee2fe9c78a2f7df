"""Asks a tool for all cards of a node at once, and keeps who is who when their numbers move."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from trainvitals.devices.base import NoLibraryError, SourceDownError, Vendor
from trainvitals.devices.pci import PCI_DEVICES
from trainvitals.devices.plausible import IMPLAUSIBLE, NOT_UNDERSTOOD, Values
from trainvitals.devices.question import Question
from trainvitals.devices.told.base import Card, Tool, Wording, states
from trainvitals.devices.tools import FAILED, MISSING, TIMED_OUT, Answer, MakeRun, Run
from trainvitals.devices.vendors import matches
from trainvitals.telemetry import DeviceSample, Fault

#: Seconds between two questions, and the part of one processor that the tool may take.
_EVERY, _REST = 10.0, 10.0
#: Failures in a row after which the driver does not answer; before, the last values stay.
_MOST_FAILURES = 2
#: Why it does not answer: it is the tool of another maker.
OTHER_PROGRAM = "other_program"
#: Of several ways to ask that failed, the reason that tells most: a version may not know an option.
_REASONS = (TIMED_OUT, OTHER_PROGRAM, NOT_UNDERSTOOD, FAILED, MISSING)


def make(tool: Tool, runner: MakeRun) -> Vendor:
    """Return the reader of this machine."""
    bus = os.environ.get("TRAINVITALS_PCI_DEVICES", PCI_DEVICES)
    return Told(tool, runner(tool.folders), bus=bus)


class Told:
    """Reads all cards that a tool knows.

    ``run`` runs it, ``bus`` is the kernel's folder of PCI devices, ``clock`` gives seconds.
    """

    def __init__(
        self, tool: Tool, run: Run, *, bus: str = PCI_DEVICES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = tool.vendor
        self._tool = tool
        self._run = run
        self._bus = bus
        self._clock = clock
        self._failed: Counter[str] = Counter()
        self._reason = ""
        self._begin()

    def _begin(self) -> None:
        self._question: Question[Mapping[int, Card]] = Question(_EVERY, self._clock, rest=_REST, retry=(_EVERY, _EVERY))
        self._wording = 0
        self._now: Mapping[int, Card] = {}

    def open(self) -> None:
        """Ask for the first time.  Raises NoLibraryError without the tool, SourceDownError when it does not answer."""
        self._begin()
        self._ask()
        if self._question.result is not None:
            return
        if self._reason == MISSING:
            raise NoLibraryError(f"{' and '.join(self._tool.names)} not found")
        raise SourceDownError(self._reason)

    def close(self) -> None:
        """Forget the cards."""
        self._begin()

    def devices(self) -> Sequence[int]:
        """Return the numbers of the cards that the tool lists.  Raises SourceDownError when it fails twice in a row."""
        if self._question.is_due():
            self._ask()
            if self._question.failures >= _MOST_FAILURES:
                raise SourceDownError(self._reason)
        return sorted(self._now)

    def _ask(self) -> None:
        found = self._question.ask(self._answer)
        if found is not None and self._now.keys() - found.keys():
            # An answer without a card that was there is asked for again before it is believed.
            found = self._question.ask(self._answer) or found
        if found is not None:
            self._now = found

    def _answer(self) -> Mapping[int, Card] | None:
        """Return the cards of the first wording that is understood, which is remembered."""
        reasons: set[str] = set()
        for place in range(self._wording, len(self._tool.wordings)):
            wording = self._tool.wordings[place]
            answers = self._asked(wording)
            reason = next((answer.reason for answer in answers if answer.reason), "")
            cards = None if reason else wording.parse([answer.text for answer in answers])
            if cards is not None and self._is_ours(cards):
                self._wording = place
                return {card.index: card for card in cards}
            reasons.add(reason or (NOT_UNDERSTOOD if cards is None else OTHER_PROGRAM))
            if reason == TIMED_OUT:
                break
        self._wording = 0
        self._reason = next(reason for reason in _REASONS if reason in reasons)
        self._failed[self._reason] += 1
        return None

    def _asked(self, wording: Wording) -> list[Answer]:
        """Run the commands of a wording, up to the first that fails."""
        answers: list[Answer] = []
        for command in wording.commands:
            answers.append(self._run(command))
            if answers[-1].reason in {MISSING, FAILED, TIMED_OUT}:
                break
        return answers

    def _is_ours(self, cards: Sequence[Card]) -> bool:
        """Whether the tool speaks of cards of this maker: two programs are called xpu-smi."""
        makers = {maker for card in cards if (maker := self._maker(card.address))}
        if makers:
            return matches()[self.name].vendor in makers
        return not self._tool.needs_address

    def _maker(self, address: str) -> int:
        """Return the number of the maker of a device on the bus; 0 when it is not there."""
        if not address:
            return 0
        try:
            with open(f"{self._bus}/{address}/vendor", encoding="ascii") as file:
                return int(file.read(32), 16)
        except (OSError, ValueError):
            return 0

    def read(self, index: int) -> DeviceSample:
        """Return what the tool said last of one card."""
        card = self._now[index]
        sample = DeviceSample(
            index=index,
            uuid=self._identity(card),
            vendor=self.name,
            name=card.model or self._tool.title,
            pci_bus_id=card.address,
            driver_version=card.driver,
        )
        sample.failed = dict(self._failed)
        self._failed.clear()
        values = _measure(card, sample)
        if values.is_dead or not sample.values:
            down = sample.down(IMPLAUSIBLE if values.is_dead else "unknown")
            down.failed = sample.failed
            return down
        return sample

    def _identity(self, card: Card) -> str:
        """Return what names a card for good and no other; empty where nothing does."""
        told = Counter(name for one in self._now.values() for name in set(one.identities))
        return next((name for name in card.identities if told[name] == 1), "")

    def faults(self) -> Sequence[Fault]:
        """Return none: the tool tells no events."""
        return ()


def _measure(card: Card, sample: DeviceSample) -> Values:
    values = Values(sample)
    for fact in card.facts:
        values.put(fact.family, fact.text, *fact.labels, unit=fact.unit)
    used, total = card.memory
    values.memory(used, total, card.memory_unit)
    if card.state:
        for state, holds in states(card.state):
            values.set("health_state", holds, state)
    return values
