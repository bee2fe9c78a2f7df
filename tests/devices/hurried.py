"""The reading process with a clock a thousand times as fast: every round reads what is due once a minute."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from trainvitals.devices.wire import Message, decode

_FASTER = 1000
_INTERVAL = 0.05


@contextmanager
def hurried(driver) -> Iterator[Callable[[], Message]]:
    """Give a function that returns the next message of such a process."""
    process = subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=driver.environ, cwd="/"
    )
    try:
        yield lambda: _reading(process)
    finally:
        process.kill()
        process.communicate()


def _reading(process: subprocess.Popen[bytes]) -> Message:
    while True:
        message = decode(process.stdout.readline(), "nvidia")
        if message.at is None:
            return message


def until(line: Callable[[], Message], condition: Callable[[Message], object], most: int = 400) -> Message:
    """Return the first message for which ``condition`` holds; fail after very many."""
    for _ in range(most):
        if condition(message := line()):
            return message
    raise AssertionError("it never came")


def _main() -> int:
    import pynvml

    from trainvitals.devices import worker
    from trainvitals.devices.nvidia.reader import Nvidia

    vendor = Nvidia(pynvml, bus=os.environ["TRAINVITALS_PCI_DEVICES"], clock=lambda: time.monotonic() * _FASTER)
    return worker.run(worker.Poller(vendor), _INTERVAL, lambda line: worker._write_all(1, line), worker._parent_gone)


if __name__ == "__main__":
    sys.exit(_main())
