"""Standard output of the commands: one that takes no more ends a command with one line, and no trace."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any, NoReturn, TextIO, cast

#: What a shell says of a program that a closed pipe ended (128 and SIGPIPE), and the status where a disk is full.
CLOSED, FAILED = 141, 2


def printable(text: str) -> str:
    """Return a text with a blank for what would steer a terminal: it comes from logs, labels and names of others."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


class OutputError(Exception):
    """Standard output takes no more.  It is no OSError, so that no library takes it for one of its own."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.strerror or str(error))
        #: Whether whoever read it went away, as ``head`` does, and wants to hear no more.
        self.is_closed = error.errno == errno.EPIPE


class Output:
    """A text stream whose :meth:`write` and :meth:`flush` raise OutputError instead of OSError."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text."""
        try:
            return self._stream.write(text)
        except OSError as error:
            raise OutputError(error) from error

    def flush(self) -> None:
        """Write what is held back."""
        try:
            self._stream.flush()
        except OSError as error:
            raise OutputError(error) from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def guard() -> None:
    """Put one in the place of standard output; what is closed from the start takes all and keeps nothing."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  It is open to the end.
    stream = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  As above.
    sys.stdout = cast("TextIO", Output(stream))


def give_up(error: OutputError) -> NoReturn:
    """End the command: quietly where nobody listens, else with one line."""
    # What is held back would fail once more when the interpreter ends.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
    if error.is_closed:
        sys.exit(CLOSED)
    print(f"trainvitals: standard output: {error}", file=sys.stderr)
    sys.exit(FAILED)
