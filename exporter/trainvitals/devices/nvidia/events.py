"""XIDs as events of the driver.

NVML has events of other kinds; they are not asked for, since each of them is an XID as well or a level that is read
anyway, and would be counted twice:

=====================================  =================================================================
event (nvml.h, nvmlEventType*)          where it shows
=====================================  =================================================================
DoubleBitEccError                       XID 48, ``device_ecc_errors_total{severity="uncorrected"}``
SingleBitEccErrorStorm                  XID 92, the rate of ``device_ecc_errors_total{severity="corrected"}``
DramRetirementEvent, ...Failure         XIDs 63 and 64, ``device_remapped_rows``, ``device_row_remap_failed``
NonFatalPoisonError, FatalPoisonError   XIDs 94 and 95
GpuUnavailableError                     XID 79, ``device_up``
GpuRecoveryAction                       XID 154, ``device_recovery_needed``
=====================================  =================================================================

NVML tells no time and nothing from before the registration; the kernel's log has both.  One thread waits, and it
alone touches the set of events: a call into a broken driver may not return, and the readings must go on without it.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from trainvitals.devices.backoff import Backoff
from trainvitals.telemetry import Fault

_XID = 0x8
_TIMEOUT = 10
_NOT_SUPPORTED = 3
#: Milliseconds of one wait: as long does it take to end the thread.
_WAIT = 250
#: Seconds that :meth:`Events.close` gives the thread, then leaves it to itself.
_GRACE = 0.5
#: Seconds between attempts after an error: the first and the longest.
_PAUSE = (1.0, 60.0)
#: Events in a row, and the seconds of rest after them: a driver that repeats itself must not cost a core.
_BURST = (200, 0.1)
#: Seconds until a GPU that could not be registered is tried again.
_AGAIN = 60.0
#: No instance of a split GPU.
_NONE = 0xFFFFFFFF
#: Faults that wait to be fetched: of one kind of one GPU, and of all kinds that have been told before.
_MOST_OF_A_KIND = 100
_MOST = 900
#: Kinds at most; together less than a message may carry.
_MOST_KINDS = 100

#: Address of a handle -> handle and PCI address.
_Watched = Mapping[int, tuple[Any, str]]


class Backlog:
    """Faults that wait to be fetched.  A storm of one kind leaves room for the others; what is too much is dropped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._kinds: Counter[tuple[str, int]] = Counter()
        self._dropped = 0

    def add(self, fault: Fault) -> None:
        """Take a fault."""
        kind = (fault.pci_bus_id, fault.code)
        with self._lock:
            known = self._kinds[kind]
            room = known < _MOST_OF_A_KIND and len(self._faults) < _MOST if known else len(self._kinds) <= _MOST_KINDS
            if room:
                self._kinds[kind] += 1
                self._faults.append(fault)
            else:
                self._dropped += 1

    def take(self) -> tuple[list[Fault], int]:
        """Return the faults and how many were dropped, since the last call."""
        with self._lock:
            taken = self._faults, self._dropped
            self._faults, self._dropped = [], 0
            self._kinds.clear()
        return taken


class Events:
    """The faults of all GPUs since the last :meth:`take`.  Never waits for the driver, except in :meth:`close`."""

    def __init__(self, nvml: Any, clock: Callable[[], float] = time.time) -> None:
        self._nvml = nvml
        self._clock = clock
        self._backlog = Backlog()
        self._watcher: _Watcher | None = None
        self._watched: dict[int, tuple[int, Any, str]] = {}

    def watch(self, index: int, handle: Any, pci_bus_id: str) -> None:
        """Ask for the faults of a GPU from now on.  One that is lost goes on to be known by its handle."""
        self._watched[index] = (_address(handle), handle, pci_bus_id)

    def take(self) -> list[Fault]:
        """Return what came since the last call, the oldest first."""
        watched = {address: (handle, pci) for address, handle, pci in self._watched.values()}
        if self._watcher is not None and self._watcher.abandoned and not self._watcher.is_alive():
            self._watcher = None
        if self._watcher is None and watched:
            # After the first round all GPUs are there, so they are registered at once.
            self._watcher = _Watcher(self._nvml, self._backlog, self._clock)
            self._watcher.start()
        if self._watcher is not None and not self._watcher.abandoned:
            self._watcher.watch(watched)
        faults, dropped = self._backlog.take()
        if dropped:
            sys.stderr.write(f"trainvitals: {dropped} XIDs came too fast and are not counted\n")
        return faults

    def close(self) -> None:
        """Forget all GPUs and end the thread.

        One that hangs in the driver is left to itself, and until it returns there are no events.
        """
        self._watched.clear()
        if self._watcher is not None and self._watcher.end():
            self._watcher = None


class _Watcher(threading.Thread):
    """Registers GPUs and waits for their events."""

    def __init__(self, nvml: Any, backlog: Backlog, clock: Callable[[], float]) -> None:
        super().__init__(name="nvml-events", daemon=True)
        self.abandoned = False
        self._nvml = nvml
        self._backlog = backlog
        self._clock = clock
        self._ending = threading.Event()
        self._wanted: _Watched = {}
        self._names: dict[int, str] = {}
        #: What the set was made for, and when; None when it must be made anew.
        self._tried: _Watched | None = None
        self._tried_at = 0.0
        self._set: Any = None
        self._complete = False
        self._in_a_row = 0

    def watch(self, wanted: _Watched) -> None:
        # A GPU that is not watched any more keeps its name: an event of it may be under way.
        self._names |= {address: pci for address, (_, pci) in wanted.items()}
        if wanted.keys() != self._wanted.keys():
            self._wanted = wanted

    def end(self) -> bool:
        """Ask the thread to end; whether it did."""
        self._ending.set()
        self.join(_GRACE)
        self.abandoned = self.is_alive()
        return not self.abandoned

    def run(self) -> None:
        pause = 0.0
        pauses = Backoff(*_PAUSE)
        while not self._ending.wait(pause):
            try:
                pause = self._once()
                pauses.reset()
            except Exception:
                # A set with a lost GPU answers so for ever and at once; without that GPU it can be of use.
                self._tried = None
                pause = pauses.next()
        if not self.abandoned:
            self._free()

    def _once(self) -> float:
        """Wait once for an event; return the seconds until the next time.  Raises NVMLError."""
        begun = time.monotonic()
        outdated = not self._complete and begun - self._tried_at >= _AGAIN
        if self._tried is not self._wanted or outdated:
            self._register(self._wanted)
        if self._set is None:
            return _WAIT / 1000
        try:
            self._tell(self._nvml.nvmlEventSetWait_v2(self._set, _WAIT))
        except self._nvml.NVMLError as error:
            if error.value != _TIMEOUT:
                raise
            self._in_a_row = 0
            # A set in which nothing could be registered may not wait at all.
            return max(0.0, _WAIT / 1000 - (time.monotonic() - begun))
        self._in_a_row = (self._in_a_row + 1) % _BURST[0]
        return 0.0 if self._in_a_row else _BURST[1]

    def _register(self, wanted: _Watched) -> None:
        """Make a new set for those GPUs of ``wanted`` that can be registered; none is made when there is none."""
        self._free()
        self._tried, self._tried_at, self._complete = wanted, time.monotonic(), True
        handles = [handle for handle, _ in wanted.values() if self._tells_xids(handle)]
        while handles and not self._ending.is_set():
            bad = self._filled(handles)
            if bad is None:
                return
            self._complete = False
            handles.remove(bad)

    def _tells_xids(self, handle: Any) -> bool:
        try:
            return bool(self._nvml.nvmlDeviceGetSupportedEventTypes(handle) & _XID)
        except self._nvml.NVMLError as error:
            self._complete &= error.value == _NOT_SUPPORTED
            return False

    def _filled(self, handles: list[Any]) -> Any:
        """Make a set of these GPUs; return the one that spoils it, None when it is good or cannot be made."""
        try:
            self._set = self._nvml.nvmlEventSetCreate()
        except self._nvml.NVMLError:
            self._complete = False
            return None
        for handle in handles:
            try:
                self._nvml.nvmlDeviceRegisterEvents(handle, _XID, self._set)
            except self._nvml.NVMLError as error:
                if error.value != _NOT_SUPPORTED:
                    # The set is in no defined state now (nvml.h).
                    self._free()
                    return handle
        return None

    def _free(self) -> None:
        if self._set is not None:
            # It fails when the driver is gone, and the set with it.
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlEventSetFree(self._set)
            self._set = None

    def _tell(self, event: Any) -> None:
        if event.eventType & _XID and not self.abandoned:
            instance = event.gpuInstanceId
            text = "" if instance == _NONE else f"GPU instance {instance}"
            pci = self._names.get(_address(event.device), "")
            code = min(event.eventData, 2**32 - 1)
            self._backlog.add(Fault("driver", pci, code, self._clock(), text))


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
