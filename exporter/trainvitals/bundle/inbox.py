"""Prints what Alertmanager posts: for the demo in docker compose, where nobody is told of anything otherwise.

``python -m trainvitals.bundle.inbox [HOST:PORT]``; it delivers nothing to anybody.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from queue import SimpleQueue

from trainvitals.bundle.sinks import Message, WebhookSink

#: The notifier's: the shipped settings of Alertmanager post there.
LISTEN = "127.0.0.1:20911"


def main(arguments: Sequence[str]) -> None:
    """Print messages until SIGTERM or Ctrl-C."""
    host, _, port = (arguments[0] if arguments else LISTEN).rpartition(":")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))
    queue: SimpleQueue[Message] = SimpleQueue()
    sink = WebhookSink(queue, host, int(port))
    print(f"listening on {sink.url}", flush=True)
    try:
        while True:
            message = queue.get()
            print("\n".join([f"{message.status.upper()} {message.subject}", *message.lines, ""]), flush=True)
    finally:
        sink.close()


if __name__ == "__main__":
    main(sys.argv[1:])
