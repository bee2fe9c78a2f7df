"""What is known of one vendor's devices at this moment: written by one thread, read by any."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from trainvitals.devices import roster
from trainvitals.devices.base import Reading
from trainvitals.devices.pci import Found
from trainvitals.telemetry import DeviceSample, Fault

log = logging.getLogger(__name__)

PAUSED = "paused"
#: What a driver that does not answer means for its devices; other reasons are roster.DRIVER_DOWN.
_DEVICE_REASONS = {
    PAUSED: PAUSED,
    "unknown": "unknown",
    "no_permission": "blocked",
    "blocked_by_operating_system": "blocked",
}
#: Reasons beyond this share one entry, so that a broken child cannot grow the exporter.
_MOST_REASONS = 64
#: Faults that wait to be taken.
_MOST_FAULTS = 1024
#: Seconds by which the time of day may drift before the times that are shown follow: else they would never stay.
_DRIFT = 1.0


@dataclass(frozen=True)
class _State:
    """What :meth:`Board.latest` sees; replaced as a whole, never changed."""

    present: bool = False
    absent: bool = False
    up: bool = False
    reason: str = ""
    devices: roster.Devices = ()
    count: int = 0
    found: Found | None = None
    read_at: float | None = None
    readings: int = 0
    restarts: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)


class Board:
    """Keeps the devices of ``vendor`` and says what they are.

    Values older than ``fresh`` seconds are not shown.  ``expected`` is the number of devices that should be here, if
    not as many as on the bus.  ``clock`` is monotonic, ``wall`` is the time of day.
    """

    def __init__(
        self,
        vendor: str,
        *,
        fresh: float,
        expected: int | None,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._vendor = vendor
        self._fresh = fresh
        self._expected = expected
        self._clock = clock
        self._wall = wall
        #: The time of day when ``clock`` was 0.
        self._epoch = wall() - clock()
        self._state = _State()
        self._complaint = ""
        self._faults: deque[Fault] = deque(maxlen=_MOST_FAULTS)
        self._faults_lost = 0
        self._faults_lock = threading.Lock()

    # What others ask ----------------------------------------------------------------------------------------------

    def latest(self) -> Reading | None:
        """Return what is known, at once.  None until a first word, and where there is no such vendor."""
        state = self._state
        wanted = self._expected or (state.found is not None and state.found.here)
        if not state.present and not (state.absent and wanted):
            return None
        age = None if state.read_at is None else self._clock() - state.read_at
        # The thread itself may be late: it starts a program, and the disk can hang as well.
        late = state.up and (age is None or age > self._fresh)
        up = state.up and not late
        devices = state.devices
        if late:
            devices = roster.take_down(devices, roster.DRIVER_DOWN, self.read_at)
        stock = roster.inventory(devices, state.found, count=state.count, expected=self._expected, listed=up)
        return Reading(
            vendor=self._vendor,
            up=up if state.present else None,
            reason="late" if late else state.reason,
            devices=tuple(map(self._dated, devices)),
            age=age,
            readings=state.readings,
            restarts=state.restarts,
            failed=state.failed,
            expected=stock.expected,
            missing=stock.missing,
            faults_lost=self._faults_lost,
        )

    def faults(self) -> list[Fault]:
        """Return the faults that came since the last call."""
        with self._faults_lock:
            faults = list(self._faults)
            self._faults.clear()
        return faults

    @property
    def devices(self) -> roster.Devices:
        """The devices, with those that were seen and are not here any more."""
        return self._state.devices

    @property
    def count(self) -> int:
        """How many devices the driver had in the last reading."""
        return self._state.count

    @property
    def read_at(self) -> float:
        """When the devices were last read, by ``clock``."""
        return float("-inf") if self._state.read_at is None else self._state.read_at

    @property
    def on_bus(self) -> bool:
        """Whether a device of the vendor is known to be on the bus."""
        return self._state.found is not None and bool(self._state.found.here)

    # What the one thread tells ------------------------------------------------------------------------------------

    def found(self, found: Found | None) -> None:
        """Take what is on the bus."""
        devices = self._state.devices if found is None else roster.forget(self._state.devices, found.taken)
        self._update(found=found, devices=devices)

    def moved(self, samples: Iterable[DeviceSample], count: int) -> bool:
        """Whether this reading is of another number of devices, or of another driver, than the one before."""
        versions = {device.driver_version for device in self._state.devices if device.driver_version}
        renewed = versions and any(sample.driver_version not in {"", *versions} for sample in samples)
        return bool(renewed) or (self._state.readings > 0 and count != self._state.count)

    def read(self, samples: Iterable[DeviceSample], count: int, avoided: Collection[int]) -> None:
        """Take a reading of all of the driver's ``count`` devices but those in ``avoided``, which hang."""
        samples = list(samples)
        for sample in samples:
            for reason, number in sample.failed.items():
                self.count_failed(reason, number)
        state, when = self._state, self._clock()
        moved = state.readings > 0 and count != state.count
        devices = roster.merge(state.devices, samples, avoided=avoided, moved=moved, when=when)
        self._complaint = ""
        self._update(
            present=True,
            absent=False,
            up=True,
            reason="",
            devices=roster.place(devices, state.found),
            count=count,
            read_at=when,
            readings=state.readings + 1,
        )

    def hangs(self, index: int, heard: float) -> None:
        """One device does not answer since ``heard``, by ``clock``."""
        devices = roster.hang(self._state.devices, index, self._vendor, heard)
        self._update(present=True, reason="" if self._state.up else "hung", devices=devices)

    def down(
        self, reason: str, text: str = "", *, shown: str = "", since: float | None = None, hung: Collection[int] = ()
    ) -> None:
        """Show the devices without values: the driver does not answer, for ``reason``, which is counted.

        ``text`` is for the log, once; ``shown`` is a better reason.  ``since`` is by ``clock``; ``hung`` are to blame.
        """
        self.count_failed(reason)
        self.complain(text or f"the reading process is replaced: {reason.replace('_', ' ')}", logging.WARNING)
        shown = shown or reason
        when = self._clock() if since is None else since
        devices = roster.take_down(
            self._state.devices, _DEVICE_REASONS.get(shown, roster.DRIVER_DOWN), when, hung=frozenset(hung)
        )
        self._update(present=True, absent=False, up=False, reason=shown, devices=devices)

    def check(self, hung: Collection[int]) -> None:
        """Take down values that are too old."""
        if self._state.up and self._clock() - self.read_at > self._fresh:
            self.down("late", "no new values", since=self.read_at, hung=hung)

    def paused(self) -> None:
        """Show the devices as let go of."""
        devices = roster.take_down(self._state.devices, PAUSED, self._clock())
        self._update(present=self._state.present or self.on_bus, up=False, reason=PAUSED, devices=devices)

    def absent(self) -> None:
        """There is no library of this vendor, and there never was."""
        self._update(present=False, absent=True, up=False)

    def ended(self) -> None:
        """Nobody reads any more."""
        self._update(up=False, devices=roster.take_down(self._state.devices, roster.DRIVER_DOWN, self._clock()))

    def restarted(self) -> None:
        """The reading process is another one."""
        self._update(restarts=self._state.restarts + 1)

    def keep(self, faults: Iterable[Fault]) -> None:
        """Take faults."""
        with self._faults_lock:
            for fault in faults:
                self._faults_lost += len(self._faults) == _MOST_FAULTS
                self._faults.append(fault)

    def count_failed(self, reason: str, count: int = 1) -> None:
        """Count failed reads."""
        failed = dict(self._state.failed)
        if reason not in failed and len(failed) >= _MOST_REASONS:
            reason = "other"
        failed[reason] = failed.get(reason, 0) + count
        self._update(failed=failed)

    def complain(self, text: str, level: int) -> None:
        """Write a line to the log, unless it was the last one."""
        if text != self._complaint:
            self._complaint = text
            log.log(level, "devices of %s: %s", self._vendor, text)

    def _dated(self, device: DeviceSample) -> DeviceSample:
        """Return a device with ``down_since`` in the time of day, by which it is kept when that is set anew."""
        if device.down_since is None:
            return device
        epoch = self._wall() - self._clock()
        if abs(epoch - self._epoch) > _DRIFT:
            self._epoch = epoch
        return replace(device, down_since=round(self._epoch + device.down_since, 3))

    def _update(self, **changes: object) -> None:
        self._state = replace(self._state, **changes)  # type: ignore[arg-type]
