"""Asks ``hy-smi`` for all cards at once, and keeps who is who when their numbers move."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from trainvitals.devices.base import NoLibraryError, SourceDownError
from trainvitals.devices.hygon import smi
from trainvitals.devices.pci import PCI_DEVICES
from trainvitals.devices.plausible import IMPLAUSIBLE, NOT_UNDERSTOOD
from trainvitals.devices.question import Question
from trainvitals.devices.tools import FAILED, MISSING, TIMED_OUT, Run
from trainvitals.devices.vendors import matches
from trainvitals.telemetry import DeviceSample, Fault

#: Seconds between two questions: what changes, and what stays the same.
_EVERY, _SELDOM = 10.0, 600.0
#: The tool takes a second: so it may have a tenth of one processor, and not more.
_REST = 10.0
#: Failures in a row after which the driver does not answer; before, the last values stay.
_MOST_FAILURES = 2
#: The older tool has the name of AMD's.
_TOOLS = ("hy-smi", "rocm-smi")
_CHANGES, _STAYS = "changes", "stays"
#: What is asked for; the tool of one version does not know all of it, and then the next one is tried.
_WORDINGS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    _CHANGES: (
        ("--showbus", "--showuse", "--showmeminfo", "vram", "--showtemp", "--showpower"),
        ("--showuse", "--showmeminfo", "vram", "--showtemp", "--showpower"),
        ("--showuse", "--showmemuse", "--showtemp"),
    ),
    _STAYS: (
        (
            *("--showbus", "--showproductname", "--showid", "--showserial", "--showuniqueid"),
            *("--showvbios", "--showmaxpower"),
        ),
        ("--showbus", "--showproductname", "--showid", "--showuniqueid"),
        ("--showuniqueid",),
    ),
}
#: Why it does not answer: it is the tool of another maker.
OTHER_PROGRAM = "other_program"

_Cards = Mapping[int, smi.Card]


class Hygon:
    """Reads all cards that ``hy-smi`` knows.

    ``run`` runs the tool, ``bus`` is the kernel's folder of PCI devices, ``clock`` gives seconds.
    """

    name = "hygon"

    def __init__(self, run: Run, *, bus: str = PCI_DEVICES, clock: Callable[[], float] = time.monotonic) -> None:
        self._run = run
        self._bus = bus
        self._clock = clock
        self._tool = _TOOLS[0]
        self._failed: dict[str, int] = {}
        self._reason = ""
        self._begin()

    def _begin(self) -> None:
        self._changes: Question[_Cards] = Question(_EVERY, self._clock, rest=_REST, retry=(_EVERY, _EVERY))
        self._stays: Question[_Cards] = Question(_SELDOM, self._clock)
        self._wording = dict.fromkeys(_WORDINGS, 0)
        self._now: _Cards = {}
        self._known: _Cards = {}
        self._driver_version = ""

    def open(self) -> None:
        """Find the tool.  Raises NoLibraryError without it, SourceDownError when it does not answer for these cards."""
        for tool in _TOOLS:
            answer = self._run([tool, "--showdriverversion"])
            if answer.reason != MISSING:
                break
        else:
            raise NoLibraryError("hy-smi was not found")
        if answer.reason == TIMED_OUT:
            raise SourceDownError(TIMED_OUT)
        self._begin()
        self._tool = tool
        self._driver_version = smi.driver_version(answer.text)
        self._ask()
        if self._changes.result is None:
            raise SourceDownError(self._reason)

    def close(self) -> None:
        """Forget the cards."""
        self._begin()

    def devices(self) -> Sequence[int]:
        """Return the numbers of the cards that the tool lists.  Raises SourceDownError when it fails again and again.

        Few questions in a round: the tool may take its whole time for each.
        """
        if self._changes.is_due():
            self._ask()
            if self._changes.failures >= _MOST_FAILURES:
                raise SourceDownError(self._reason)
        elif self._stays.is_due():
            self._describe()
        return sorted(self._now)

    def _ask(self) -> None:
        found = self._changes.ask(lambda: self._answer(_CHANGES))
        if found is None:
            return
        if self._now.keys() - found.keys():
            # One answer without a card was seen in the midst of others with it.
            found = self._changes.ask(lambda: self._answer(_CHANGES)) or found
        moved = _addresses(found) != _addresses(self._now)
        self._now = found
        if moved:
            # A number may be that of another card now.
            self._stays = Question(_SELDOM, self._clock)
            self._describe()

    def _describe(self) -> None:
        found = self._stays.ask(lambda: self._answer(_STAYS))
        if found is not None:
            self._known = found

    def _answer(self, which: str) -> _Cards | None:
        """Return what the tool says to the first wording that it understands, which is remembered."""
        wordings = _WORDINGS[which]
        reason = NOT_UNDERSTOOD
        for place in range(self._wording[which], len(wordings)):
            answer = self._run([self._tool, *wordings[place], "--json"])
            found = smi.cards(answer.text)
            if found is not None and self._is_ours(found):
                self._wording[which] = place
                return found
            reason = OTHER_PROGRAM if found is not None else answer.reason or NOT_UNDERSTOOD
            if reason not in {FAILED, NOT_UNDERSTOOD}:
                break
        self._wording[which] = 0
        self._reason = reason
        self._failed[reason] = self._failed.get(reason, 0) + 1
        return None

    def _is_ours(self, found: _Cards) -> bool:
        """Whether the tool speaks of cards of this maker: AMD's ``rocm-smi`` prints nearly the same."""
        verdict = smi.is_hygon(found)
        if verdict is not None:
            return verdict
        makers = {self._maker(address) for address in _addresses(found).values() if address} - {0}
        return matches()[self.name].vendor in makers if makers else self._tool == _TOOLS[0]

    def _maker(self, address: str) -> int:
        """Return the number of the maker of a device on the bus; 0 when it is not there."""
        try:
            with open(f"{self._bus}/{address}/vendor", encoding="ascii") as file:
                return int(file.read(32), 16)
        except (OSError, ValueError):
            return 0

    def read(self, index: int) -> DeviceSample:
        """Return what the tool said last of one card."""
        card = self._now[index]
        known = {**self._same(index, card), **card}
        identity = smi.identity(known)
        others = [smi.identity({**self._same(place, one), **one}) for place, one in self._now.items()]
        sample = DeviceSample(
            index=index,
            # A number that two have names none.
            uuid=identity if others.count(identity) == 1 else smi.address(known),
            vendor=self.name,
            name=smi.name(known),
            pci_bus_id=smi.address(known),
            driver_version=self._driver_version,
        )
        sample.failed, self._failed = self._failed, {}
        values = smi.measure(card, sample)
        if values.is_dead or not sample.values:
            down = sample.down(IMPLAUSIBLE if values.is_dead else "unknown")
            down.failed = sample.failed
            return down
        smi.describe(known, sample)
        return sample

    def _same(self, index: int, card: smi.Card) -> smi.Card:
        """Return what is known of the same card, by its address where it tells one."""
        address = smi.address(card)
        if not address:
            return self._known.get(index, {})
        return next((known for known in self._known.values() if smi.address(known) == address), {})

    def faults(self) -> Sequence[Fault]:
        """Return none: the tool tells no events."""
        return ()


def _addresses(cards: _Cards) -> dict[int, str]:
    return {index: smi.address(card) for index, card in cards.items()}
