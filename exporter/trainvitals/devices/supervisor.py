"""Keeps a process that reads one vendor's devices, and replaces it when it hangs.

A call into a wedged driver may never return and may not even be killed.  So nobody waits for it: one thread takes the
lines of the child and gives up on it after a silence, and :meth:`Supervisor.latest` only looks at what that thread
left.
"""

from __future__ import annotations

import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from trainvitals.devices.base import Reading
from trainvitals.devices.wire import ABSENT, Lines, Message, decode
from trainvitals.telemetry import DeviceSample

log = logging.getLogger(__name__)

#: Connecting to a driver for the first time may initialise every device (persistence mode off), seconds for each.
STARTUP_FACTOR = 3
#: Seconds between restarts: the first pause and the longest.
BACKOFF = (1.0, 60.0)
#: Seconds until a machine without the vendor's library is asked again.
RETRY_ABSENT = 300.0
#: Seconds that a killed child gets to disappear.
_GRACE = 1.0
#: Seconds that stop() waits: more than ending a child can take.
_JOIN = 5.0
#: Reasons beyond this share one entry, so that a broken child cannot grow the exporter.
_MOST_REASONS = 64

Child = subprocess.Popen[bytes]


def spawn(vendor: str, interval: float, environ: Mapping[str, str] | None = None) -> Child:
    """Start the reading process of a vendor.  Raises OSError."""
    environment = dict(os.environ if environ is None else environ)
    if environment.get("PYTHONPATH"):
        environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, environment["PYTHONPATH"].split(os.pathsep)))
    return subprocess.Popen(
        [sys.executable, "-m", "trainvitals.devices.worker", vendor, "--interval", str(interval)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        # `-m` imports from the working directory first; and a Ctrl-C is for the exporter, which then ends its child.
        cwd="/",
        start_new_session=True,
    )


@dataclass(frozen=True)
class _State:
    """What :meth:`Supervisor.latest` sees; replaced as a whole, never changed."""

    present: bool = False
    up: bool = False
    devices: tuple[DeviceSample, ...] = ()
    read_at: float | None = None
    restarts: int = 0
    failed: Mapping[str, int] | None = None


class Supervisor:
    """The source of one vendor's devices.

    A child that is silent for ``interval + hung_after`` seconds is killed.  Restarts are ``backoff`` seconds apart,
    doubled from the first to the longest; after a child that worked for ``hung_after`` seconds they begin anew.
    A killed child that does not go away, which is how a hung driver looks, is the last one until it does.
    """

    def __init__(
        self,
        vendor: str,
        *,
        interval: float = 2.0,
        hung_after: float = 20.0,
        backoff: tuple[float, float] = BACKOFF,
        retry_absent: float = RETRY_ABSENT,
        start_child: Callable[[], Child] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.vendor = vendor
        self._silence = interval + hung_after
        self._hung_after = hung_after
        self._first, self._longest = backoff
        self._retry_absent = retry_absent
        self._start_child = start_child or (lambda: spawn(vendor, interval))
        self._clock = clock
        self._state = _State()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._wake = (-1, -1)
        self._stuck: Child | None = None
        self._complaint = ""

    def start(self) -> None:
        """Start the thread, which starts the child."""
        self._stopping = False
        self._wake = os.pipe()
        # The kernel ends the child when the thread that forked it ends, so it is always this one.
        self._thread = threading.Thread(target=self._supervise, name=f"devices-{self.vendor}", daemon=True)
        self._thread.start()

    def latest(self) -> Reading | None:
        """Return what is known, at once.  None until the child's first word, and where there is no such vendor."""
        state = self._state
        if not state.present:
            return None
        age = None if state.read_at is None else self._clock() - state.read_at
        # The thread itself may be late: it starts a program, and the disk can hang as well.
        up = state.up and age is not None and age <= self._silence
        return Reading(
            vendor=self.vendor,
            up=up,
            devices=state.devices if up else _down(state.devices, "driver"),
            age=age,
            restarts=state.restarts,
            failed=state.failed or {},
        )

    def stop(self) -> None:
        """Kill the child and end the thread.  A child that the kernel does not let go of is left to it."""
        if self._thread is None:
            return
        self._stopping = True
        os.write(self._wake[1], b"x")
        self._thread.join(_JOIN)
        if self._thread.is_alive():
            log.error("devices of %s: the thread does not end", self.vendor)
            return
        self._thread = None
        for descriptor in self._wake:
            os.close(descriptor)
        self._update(up=False, devices=_down(self._state.devices, "driver"))

    def _supervise(self) -> None:
        pause = self._first
        restarting = False
        while not self._stopping:
            if self._still_stuck():
                self._sleep(self._first)
                continue
            if restarting:
                self._update(restarts=self._state.restarts + 1)
            began = self._clock()
            restarting = self._one_child()
            if restarting:
                if (self._state.read_at or 0.0) - began >= self._hung_after:
                    pause = self._first
                self._sleep(pause)
                pause = min(2 * pause, self._longest)
            else:
                self._sleep(self._retry_absent)

    def _one_child(self) -> bool:
        """Follow one child to its end.  False when it found nothing of this vendor on a machine that never had it."""
        try:
            child = self._start_child()
        except OSError as error:
            self._down("not_started", f"cannot be started: {error.strerror}")
            return True
        try:
            trouble = self._follow(child)
            if trouble:
                # Before the child is ended, which may take its time.
                self._down(trouble, f"the reading process is replaced: {trouble.replace('_', ' ')}")
            if trouble or self._stopping:
                child.kill()
        finally:
            status = self._end(child)
        if self._stopping or trouble:
            return True
        if status == ABSENT and not self._state.devices:
            self._update(present=False, up=False)
            return False
        self._down("ended", f"the reading process ended with status {status}")
        return True

    def _follow(self, child: Child) -> str:
        """Take a child's lines until it ends, is silent for too long or writes nonsense; return the trouble, if any."""
        assert child.stdout is not None  # noqa: S101  # Popen was told to make a pipe.
        output = child.stdout.fileno()
        poll = select.poll()
        poll.register(output, select.POLLIN)
        poll.register(self._wake[0], select.POLLIN)
        deadline = self._clock() + self._silence + (STARTUP_FACTOR - 1) * self._hung_after
        lines = Lines()
        while not self._stopping:
            remaining = deadline - self._clock()
            if remaining <= 0:
                return "hung"
            ready = {descriptor for descriptor, _ in poll.poll(remaining * 1000)}
            if output not in ready:
                continue
            chunk = os.read(output, 1 << 16)
            if not chunk:
                return ""
            try:
                for line in lines.feed(chunk):
                    self._take(decode(line, self.vendor))
                    deadline = self._clock() + self._silence
            except ValueError as error:
                log.warning("devices of %s: the reading process wrote an invalid line: %s", self.vendor, error)
                return "invalid_line"
        return ""

    def _take(self, message: Message) -> None:
        if message.absent:
            self._complain(f"nothing to read: {message.absent}", logging.INFO)
        elif message.down:
            self._down(message.down, f"the driver does not answer: {message.down}")
        elif message.at is None:
            self._complaint = ""
            failed = dict(self._state.failed or {})
            for sample in message.devices:
                for reason, count in sample.failed.items():
                    _count(failed, reason, count)
            devices = _recognise(message.devices, self._state.devices)
            self._update(present=True, up=True, devices=devices, read_at=self._clock(), failed=failed)

    def _down(self, reason: str, text: str) -> None:
        """Show the devices that are known without values, and say why, once."""
        failed = dict(self._state.failed or {})
        _count(failed, reason, 1)
        self._update(present=True, up=False, devices=_down(self._state.devices, "driver"), failed=failed)
        self._complain(text, logging.WARNING)

    def _complain(self, text: str, level: int) -> None:
        if text != self._complaint:
            self._complaint = text
            log.log(level, "devices of %s: %s", self.vendor, text)

    def _update(self, **changes: object) -> None:
        self._state = replace(self._state, **changes)  # type: ignore[arg-type]

    def _end(self, child: Child) -> int | None:
        """Let go of a child and return its exit status; None when even SIGKILL does not end it."""
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()
        for _ in range(2):
            try:
                return child.wait(_GRACE)
            except subprocess.TimeoutExpired:
                child.kill()
        self._stuck = child
        log.error("devices of %s: process %d cannot be killed: its driver hangs", self.vendor, child.pid)
        return None

    def _still_stuck(self) -> bool:
        if self._stuck is not None and self._stuck.poll() is not None:
            self._stuck = None
        return self._stuck is not None

    def _sleep(self, seconds: float) -> None:
        """Wait, but not longer than until stop()."""
        poll = select.poll()
        poll.register(self._wake[0], select.POLLIN)
        poll.poll(seconds * 1000)


def _count(failed: dict[str, int], reason: str, count: int) -> None:
    if reason not in failed and len(failed) >= _MOST_REASONS:
        reason = "other"
    failed[reason] = failed.get(reason, 0) + count


def _down(devices: Iterable[DeviceSample], reason: str) -> tuple[DeviceSample, ...]:
    return tuple(device.down(reason) for device in devices)


def _recognise(devices: list[DeviceSample], before: Iterable[DeviceSample]) -> tuple[DeviceSample, ...]:
    """Give a device that is down and does not tell its identity the one that its index had before.

    A new process cannot ask a lost device who it is; its series must stay the same all the same.
    """
    known = {device.index: device for device in before}
    present = {device.uuid for device in devices}
    return tuple(
        known[device.index].down(device.reason)
        if not device.up and not device.uuid and device.index in known and known[device.index].uuid not in present
        else device
        for device in devices
    )
