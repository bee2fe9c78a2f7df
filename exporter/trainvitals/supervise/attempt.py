"""One attempt: watched from its start, or from where a supervisor before this one had got to, until it is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from trainvitals.supervise import cause, processes
from trainvitals.supervise.cause import Failure
from trainvitals.supervise.console import Console
from trainvitals.supervise.devices import Roster
from trainvitals.supervise.kernel import Kernel
from trainvitals.supervise.launch import KILLED, Child
from trainvitals.supervise.settings import Settings
from trainvitals.supervise.signals import Signals
from trainvitals.supervise.watch import Ranks

#: Seconds between two looks: at the child and its output, at rank files, at the kernel's log.
_LOOK, _RANKS, _KERNEL = 0.05, 0.2, 1.0
#: A training that has lost a device mostly ends by itself; so long it may take.
_AFTER_LOST_DEVICE = 30.0
#: A signal to a whole job reaches the ranks and the supervisor in any order.
_SAME_MOMENT = 1.0
_TOLD_FROM_OUTSIDE = frozenset(
    {"terminated", "interrupted", "job_cancelled", "preempted", "time_limit", "process_killed"}
)
#: Causes that speak of a device, or of nothing.
_OF_DEVICES = frozenset(
    {"device_lost", "xid_hardware", "device_memory_error", "nvswitch_error", "cuda_error", "no_such_device", "unknown"}
)


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended: well (no failure), by a failure, or because the supervisor was told to end it."""

    code: int
    failure: Failure | None = None
    told: int = 0


class Attempt:
    """Watches one attempt.

    ``error_file`` is where torchelastic writes, ``on_look`` is called at each look at the ranks, ``before_kill`` with
    a failure while the processes still live.
    """

    def __init__(
        self,
        child: Child,
        console: Console,
        ranks: Ranks,
        kernel: Kernel,
        *,
        settings: Settings,
        roster: Roster,
        error_file: str,
        on_look: Callable[[], None],
        before_kill: Callable[[Failure], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.child, self.console, self.ranks, self.kernel = child, console, ranks, kernel
        self._settings, self._roster, self._error_file = settings, roster, error_file
        self._on_look, self._before_kill, self._clock = on_look, before_kill, clock
        self._due = {"ranks": 0.0, "kernel": 0.0}
        self._present = {gpu.uuid for gpu in roster.present() if gpu.uuid}

    def watch(self, signals: Signals) -> Outcome:
        """Watch to the end, and leave no process of it behind."""
        while True:
            self._look()
            code = self.child.poll()
            if code is not None:
                return self._ended(code, signals)
            for number in signals.to_forward():
                self.child.send(number)
            if signals.told:
                return self._end_as_told(signals)
            failure = self._verdict()
            if failure is not None:
                self._before_kill(failure)
                self.child.end(0.0)
                self._look(at_once=True)
                return Outcome(KILLED, self._at(failure))
            time.sleep(_LOOK)

    def _look(self, *, at_once: bool = False) -> None:
        self.console.pump()
        now = time.monotonic()
        if at_once or now >= self._due["ranks"]:
            self.ranks.poll()
            self._on_look()
            self._due["ranks"] = now + _RANKS
        if at_once or now >= self._due["kernel"]:
            self.kernel.poll()
            self._due["kernel"] = now + _KERNEL

    def _verdict(self) -> Failure | None:
        """Return why the attempt must be ended, if it must."""
        silence = self.ranks.silence(self._settings.hang_after, processes.state)
        if silence is not None:
            lost = self._lost_device()
            return lost or cause.of_hang(silence, self.ranks)
        rank = self.ranks.nonfinite()
        if rank is not None:
            return cause.of_nonfinite(rank, self.ranks)
        if self.kernel.faults and self._clock() - self.kernel.faults[0].time > _AFTER_LOST_DEVICE:
            return self._lost_device()
        return None

    def _ended(self, code: int, signals: Signals) -> Outcome:
        self._look(at_once=True)
        self.child.end(0.0)
        self._look(at_once=True)
        if code == 0:
            return Outcome(0, told=signals.told)
        found = self._find(code)
        if found.cause in _TOLD_FROM_OUTSIDE:
            signals.sleep(_SAME_MOMENT)
        lost = self._lost_device(found.cause in _OF_DEVICES)
        return Outcome(code, None if signals.told else self._at(lost or found), signals.told)

    def _find(self, code: int) -> Failure:
        output = list(self.console.events)
        was_killed = code == KILLED or any(event.fields.get("cause") == "process_killed" for event in output)
        pids = [rank.pid for rank in self.ranks if rank.pid]
        kernel = self.kernel.events([*pids, self.child.pid], was_killed=was_killed)
        return cause.find(code, self.ranks, output=output, kernel=kernel, error_file=self._error_file)

    def _end_as_told(self, signals: Signals) -> Outcome:
        """Pass the signal on and wait for the training to save; a second signal ends the wait."""
        self.child.send(signals.told)
        deadline = time.monotonic() + self._settings.grace
        while self.child.poll() is None and signals.times < 2 and time.monotonic() < deadline:
            self._look()
            time.sleep(_LOOK)
        self.child.end(0.0)
        self._look(at_once=True)
        return Outcome(self.child.poll() or 0, told=signals.told)

    def _at(self, failure: Failure) -> Failure:
        """Return a failure with the time of now."""
        return cause.detected(failure, self._clock())

    def _lost_device(self, is_likely: bool = False) -> Failure | None:
        """Return the failure that a lost device of this run is, if there is one.

        Where no rank has told its device, a lost one is this run's only if the failure itself speaks of devices: a
        node has other devices, and other jobs on them.
        """
        present = {gpu.uuid for gpu in self._roster.present()}
        gone = dict.fromkeys(self._present - present, "the driver lists it no more")
        for fault in self.kernel.faults:
            gone.setdefault(self._uuid(fault.address) or fault.address, fault.text)
        ranks = [rank for rank in self.ranks if rank.identity.device_uuid]
        for rank in ranks:
            uuid = rank.identity.device_uuid
            if uuid in gone:
                return cause.of_device(rank, uuid, gone[uuid], self.ranks)
        if ranks or not gone or not is_likely:
            return None
        return cause.of_device(None, *next(iter(gone.items())), self.ranks)

    def _uuid(self, address: str) -> str:
        for rank in self.ranks:
            told = rank.identity.pci_bus_id
            if told and told.partition(".")[0] == address.partition(".")[0]:
                return rank.identity.device_uuid
        return self._roster.uuid_of(address)
