"""The process that reads one vendor: ``python -m trainvitals.devices.worker nvidia --interval 2``.

It writes a line (:mod:`~trainvitals.devices.wire`) per interval to standard output and ends with the process that
started it.  Without the vendor's library it says so and ends with the status ABSENT.  It runs beside every training of
the node, so it imports the standard library, this package and the vendor's library, and nothing else.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Collection

from trainvitals.devices.backoff import Backoff
from trainvitals.devices.base import NoLibraryError, SourceDownError, Vendor
from trainvitals.devices.vendors import VENDORS, create
from trainvitals.devices.wire import ABSENT, DRIVER, STALE, Message, encode
from trainvitals.telemetry import DeviceSample

#: Seconds between attempts to reach a driver that does not answer: the first and the longest.
BACKOFF = (1.0, 30.0)
#: From <linux/prctl.h>.
_PR_SET_PDEATHSIG = 1


class Poller:
    """Turns a vendor into messages, one per call, and reconnects to a driver that went away.

    Connecting is costly for everybody when a driver is half dead, so attempts are ``backoff`` seconds apart.
    Devices in ``avoid`` are left alone; with ``only``, all others are.  ``announce`` is told of each device before it
    is asked, and of DRIVER before the driver as a whole is: whatever does not return has a name.
    """

    def __init__(
        self,
        vendor: Vendor,
        backoff: tuple[float, float] = BACKOFF,
        clock: Callable[[], float] = time.monotonic,
        *,
        avoid: Collection[int] = (),
        only: Collection[int] | None = None,
        announce: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._vendor = vendor
        self._avoid = frozenset(avoid)
        self._only = None if only is None else frozenset(only)
        self._announce = announce
        self._pauses = Backoff(*backoff)
        self._clock = clock
        self._connected = False
        self._due = float("-inf")
        self._reason = ""

    def poll(self) -> Message:
        """Return a reading, or why there is none.  Raises NoLibraryError, and SourceDownError when it is stale."""
        try:
            if not self._connected:
                if self._clock() < self._due:
                    return Message(down=self._reason)
                self._announce(DRIVER)
                self._vendor.open()
                self._connected = True
            message = self._read()
        except SourceDownError as error:
            self._announce(DRIVER)
            self.close()
            if error.stale:
                raise
            self._reason = error.reason
            self._due = self._clock() + self._pauses.next()
            return Message(down=error.reason)
        self._pauses.reset()
        return message

    def _read(self) -> Message:
        self._announce(DRIVER)
        indices = self._vendor.devices()
        devices: list[DeviceSample] = []
        for index in indices:
            if index not in self._avoid and (self._only is None or index in self._only):
                self._announce(index)
                devices.append(self._vendor.read(index))
        self._announce(DRIVER)
        return Message(devices=devices, count=len(indices), faults=list(self._vendor.faults()))

    def close(self) -> None:
        """Disconnect."""
        self._connected = False
        self._vendor.close()


def run(poller: Poller, interval: float, write: Callable[[bytes], None], wait: Callable[[float], bool]) -> int:
    """Write a line per ``interval`` seconds until ``wait`` says that nobody reads them; return the exit status."""
    try:
        while True:
            begun = time.monotonic()
            write(encode(poller.poll()))
            # A driver that is slow to answer must not be asked without a pause.
            if wait(max(interval / 4, interval - (time.monotonic() - begun))):
                return os.EX_OK
    except SourceDownError as error:
        write(encode(Message(down=error.reason)))
        return STALE
    except NoLibraryError as error:
        write(encode(Message(absent=str(error))))
        return ABSENT
    except BrokenPipeError:
        return os.EX_OK
    finally:
        poller.close()


def main() -> int:
    """Run until the process that started this one is gone."""
    parser = argparse.ArgumentParser(prog="trainvitals.devices.worker", description=__doc__)
    parser.add_argument("vendor", choices=VENDORS)
    parser.add_argument("--interval", type=float, default=2.0, help="seconds between readings")
    parser.add_argument("--avoid", type=int, nargs="*", default=(), help="devices to leave alone")
    parser.add_argument("--only", type=int, nargs="*", help="the only devices to read")
    arguments = parser.parse_args()
    _end_with_parent()
    # A library that prints must not break the protocol.
    output = os.dup(1)
    os.dup2(2, 1)

    def write(line: bytes) -> None:
        _write_all(output, line)

    try:
        vendor = create(arguments.vendor)
    except NoLibraryError as error:
        write(encode(Message(absent=str(error))))
        return ABSENT
    poller = Poller(
        vendor,
        avoid=arguments.avoid,
        only=arguments.only,
        announce=lambda index: write(encode(Message(at=index))),
    )
    return run(poller, arguments.interval, write, _parent_gone)


def _end_with_parent() -> None:
    # Standard input tells it as well, but not to a process that hangs in a driver.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _parent_gone(seconds: float) -> bool:
    """Sleep; True as soon as the other end of standard input is closed."""
    readable, _, _ = select.select([0], [], [], seconds)
    return bool(readable)


if __name__ == "__main__":
    sys.exit(main())
