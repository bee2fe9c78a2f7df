"""What the user asked for of a watched loader: the arguments of :func:`trainvitals.data`, made safe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainvitals import probe
from trainvitals.probe import batches

#: After so many errors in a function of the user's (ids, check, batch_size) it is asked no more.
_PATIENCE = 3


class Choices:
    """The arguments; functions among them never raise."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.policy = "skip" if options["on_error"] == "skip" else "raise"
        self.ids = _names_by(options["ids"])
        self.check = _asked(options["check"], "check")
        size = options["batch_size"]
        self.batch_size = size if isinstance(size, int) else _asked(size, "batch_size")


def _names_by(ids: Any) -> Callable[[Any], Any] | None:
    if isinstance(ids, str):
        return _asked(lambda batch: batches.names_under((ids,), batch), "ids")
    return None if ids is None else _asked(lambda batch: batches.listed(ids(batch), owned=True), "ids")


def _asked(function: Callable[[Any], Any] | None, what: str) -> Callable[[Any], Any] | None:
    """Return the function of the user's as one that never raises: it is asked no more after three errors."""
    if function is None:
        return None
    errors = 0

    def ask(batch: Any) -> Any:
        nonlocal errors
        if errors >= _PATIENCE:
            return None
        try:
            return function(batch)
        except Exception as error:
            errors += 1
            if errors == _PATIENCE:
                probe.tell_once(what, f"the function given as {what}= is asked no more; the last error was", error)
            return None

    return ask
