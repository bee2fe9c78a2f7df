"""Asks ``amd-smi``, seldom: it is a program of its own, and takes a second or more for all cards together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainvitals.devices.amd.smi import Record, Told, addresses, describe, measure, records
from trainvitals.devices.plausible import NOT_UNDERSTOOD
from trainvitals.devices.question import Question
from trainvitals.devices.tools import MISSING, Run

#: Seconds between two questions: what stays the same, and what changes.
_STATIC, _METRIC = 600.0, 60.0

_Records = Mapping[int, Record]


class Asked:
    """The last that the tool said of each card; between two calls of :meth:`ask` it stays.

    ``run`` runs the tool, ``clock`` gives seconds.
    """

    def __init__(self, run: Run, clock: Callable[[], float]) -> None:
        self._run = run
        self._clock = clock
        self._failed: dict[str, int] = {}
        self._told: dict[str, Told] = {}
        self._begin(frozenset())

    def _begin(self, cards: frozenset[str]) -> None:
        self._cards = cards
        self._static: Question[_Records] = Question(_STATIC, self._clock)
        self._metric: Question[_Records] = Question(_METRIC, self._clock)
        self._told = {}

    def ask(self, cards: frozenset[str]) -> None:
        """Ask the one thing that is due about the cards with these addresses.

        With other cards all that was told is forgotten: the tool's numbers may be those of others now.
        """
        if cards != self._cards:
            self._begin(cards)
        if not cards:
            return
        if self._static.is_due():
            self._static.ask(lambda: self._answer("static"))
        elif self._static.result and self._metric.is_due():
            self._metric.ask(lambda: self._answer("metric"))
        else:
            return
        self._told = self._match(self._static.result or {}, self._metric.result or {})

    def _answer(self, which: str) -> _Records | None:
        answer = self._run(["amd-smi", which, "--json"])
        if answer.reason == MISSING:
            return None
        found = records(answer.text)
        if found is None:
            self._fail(answer.reason or NOT_UNDERSTOOD)
        return found

    def _match(self, static: _Records, metric: _Records) -> dict[str, Told]:
        told = {}
        # One that came or went between the two questions has moved the numbers.
        together = static.keys() == metric.keys()
        for address, number in addresses(static).items():
            told[address] = describe(static[number], self._failed)
            if together:
                told[address].values.update(measure(metric[number], self._failed))
        return told

    def told(self, address: str) -> Told:
        """Return what is known of a card."""
        return self._told.get(address, Told())

    def take_failed(self) -> dict[str, int]:
        """Return what failed since the last call, by reason."""
        failed, self._failed = self._failed, {}
        return failed

    def _fail(self, reason: str) -> None:
        self._failed[reason] = self._failed.get(reason, 0) + 1
