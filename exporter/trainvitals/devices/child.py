"""One reading process, from its start until the kernel lets go of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from trainvitals.devices.wire import DRIVER, Lines, Message, decode

#: Connecting to a driver for the first time may load its firmware.
STARTUP_FACTOR = 3
#: Seconds that a process gets to end when it was asked to, and again when it was killed.
GRACE = 1.0

Process = subprocess.Popen[bytes]


def spawn(
    vendor: str,
    interval: float,
    environ: Mapping[str, str] | None = None,
    *,
    avoid: Collection[int] = (),
    only: int | None = None,
) -> Process:
    """Start the reading process of a vendor.  Raises OSError."""
    environment = dict(os.environ if environ is None else environ)
    if environment.get("PYTHONPATH"):
        environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, environment["PYTHONPATH"].split(os.pathsep)))
    command = [sys.executable, "-m", "trainvitals.devices.worker", vendor, "--interval", str(interval)]
    if avoid:
        command += ["--avoid", *map(str, sorted(avoid))]
    if only is not None:
        command += ["--only", str(only)]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        # `-m` imports from the working directory first; and a Ctrl-C is for the exporter, which then ends its child.
        cwd="/",
        start_new_session=True,
    )


@dataclass(frozen=True)
class Patience:
    """How long a process may be silent, in seconds: between two readings and while a device is asked."""

    interval: float
    hung_after: float

    @property
    def silence(self) -> float:
        """Between two readings."""
        return self.interval + self.hung_after


class Child:
    """A process that reads all devices but those in ``avoid``, or ``only`` one.

    ``heard`` is when its last line came, ``at`` what it was about to ask then (DRIVER for the driver as a whole),
    ``rounds`` how many readings it wrote, ``down`` the last reason that it gave instead of one.
    """

    def __init__(
        self,
        process: Process,
        vendor: str,
        patience: Patience,
        clock: Callable[[], float],
        *,
        avoid: frozenset[int] = frozenset(),
        only: int | None = None,
    ) -> None:
        self.avoid = avoid
        self.only = only
        self.began = self.heard = clock()
        self.at = DRIVER
        self.rounds = 0
        self.down = ""
        self.absent = ""
        self.stuck = False
        assert process.stdout is not None  # noqa: S101  # Popen was told to make a pipe.
        self.output = process.stdout.fileno()
        self._process = process
        self._vendor = vendor
        self._patience = patience
        self._clock = clock
        self._lines = Lines()
        self._idle = False
        self._kill_at = float("inf")
        self._given_up_at = float("inf")

    def take(self) -> list[Message] | None:
        """Return what it wrote; None when that was all.  Raises ValueError for nonsense.  To be called when ready."""
        chunk = os.read(self.output, 1 << 16)
        if not chunk:
            return None
        messages = [decode(line, self._vendor) for line in self._lines.feed(chunk)]
        for message in messages:
            self._note(message)
        return messages

    def _note(self, message: Message) -> None:
        self.heard = self._clock()
        self._idle = message.at is None
        if message.at is not None:
            self.at = message.at
        elif message.down:
            self.down = message.down
        elif message.absent:
            self.absent = message.absent
        else:
            self.at = DRIVER
            self.rounds += 1
            self.down = ""

    @property
    def deadline(self) -> float:
        """When it has been silent for too long."""
        if self._idle:
            return self.heard + self._patience.silence
        if self.rounds or self.at != DRIVER:
            return self.heard + self._patience.hung_after
        return self.heard + self._patience.interval + STARTUP_FACTOR * self._patience.hung_after

    def let_go(self) -> None:
        """Ask it to end, which it does between two calls of the driver; it is killed when it does not."""
        self._close()
        self._kill_at = self._clock() + GRACE

    def kill(self) -> None:
        """End it at once; one that is stuck in the driver goes away when the driver lets it."""
        self._close()
        self._process.kill()
        self._kill_at = float("inf")
        self._given_up_at = min(self._given_up_at, self._clock() + GRACE)

    def gone(self) -> bool:
        """Whether it has ended; kills it in time, and calls it stuck when that had no effect."""
        if self._process.poll() is not None:
            return True
        if self._clock() >= self._kill_at:
            self.kill()
        self.stuck = self._clock() >= self._given_up_at
        return False

    def status(self) -> int | None:
        """Return the exit status of one that wrote all it had to say; None when it does not end."""
        try:
            return self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            return None

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
