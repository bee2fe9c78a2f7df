"""Watches where the data comes from: ``for batch in trainvitals.data(loader)``.

The loader may be any iterable.  What comes back behaves like it; the batches are the same objects in the same order.
Waiting for a batch counts as the phase "data".  Which samples or files were in the last batches is kept in a small
file beside the rank file (:mod:`trainvitals.rankfile.ledger`), so that the exporter can name them with a finding.

Nothing of it is done for a process that is not recorded, but for ``on_error`` and ``check``: these are the program's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, TypeVar, cast

from trainvitals.probe.choices import Choices
from trainvitals.probe.flow import Flow, Stream
from trainvitals.probe.proxy import Proxy, own_part, stand_in

Loader = TypeVar("Loader")
OnError = Literal["raise", "skip"]


def data(
    loader: Loader,
    *,
    ids: str | Callable[[Any], Iterable[Any]] | None = None,
    batch_size: int | Callable[[Any], int] | None = None,
    check: Callable[[Any], object] | None = None,
    on_error: OnError = "raise",
) -> Loader:
    """Return a stand-in for ``loader`` that is watched.

    ``ids`` names the samples or files of a batch: a key of it, or a function that returns texts or whole numbers.
    Without it they come from a key like "path" or "id", or from the sampler of a PyTorch DataLoader.
    ``batch_size`` is the number of samples of a batch where that cannot be seen from its first dimension.
    ``check(batch)`` returns a text where something is wrong with a batch, else nothing.
    ``on_error`` says what becomes of a batch that cannot be read: "raise" lets the exception through as before, "skip"
    goes on with the next; with "skip", a batch that ``check`` complains of is left out, too.
    """
    if loader is None or own_part(loader, Watched) is not None or own_part(loader, Stream) is not None:
        return loader
    options = {"ids": ids, "batch_size": batch_size, "check": check, "on_error": on_error}
    kind = _WatchedIterator if hasattr(type(loader), "__next__") else Watched
    return cast("Loader", stand_in(kind, _Own(loader, options)))


class Watched(Proxy):
    """The stand-in for a loader."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        own = self._trainvitals
        return stand_in(Stream, Flow(own.target, own.choices))


class _WatchedIterator(Watched):
    """The stand-in for an iterator: it can be asked for its next batch itself."""

    __slots__ = ()

    def __next__(self) -> Any:
        own = self._trainvitals
        if own.flow is None:
            own.flow = stand_in(Stream, Flow(own.target, own.choices))
        return next(own.flow)


class _Own:
    """Our part of the stand-in for a loader."""

    def __init__(self, target: Any, options: dict[str, Any]) -> None:
        self.target = target
        self.choices = Choices(options)
        self.flow: Any = None

    def reduced(self) -> tuple[Any, ...]:
        return _rebuilt, (self.target, self.choices.options)


def _rebuilt(target: Any, options: dict[str, Any]) -> Any:
    return data(target, **options)
