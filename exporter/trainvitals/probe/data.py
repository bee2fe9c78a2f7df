"""Watches where the data comes from: ``for batch in trainvitals.data(loader)``.

The loader may be any iterable.  What comes back behaves like it; the batches are the same objects in the same order.
Waiting for a batch counts as the phase "data".  Which samples or files were in the last batches is kept in a small
file beside the rank file (:mod:`trainvitals.rankfile.ledger`), so that the exporter can name them with a finding.

Nothing of it is done for a process that is not recorded, but for ``on_error`` and ``check``: these are the program's.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import GeneratorType
from typing import Any, Literal, TypeVar, cast

from trainvitals import probe
from trainvitals.probe import batches, watch
from trainvitals.probe.proxy import Proxy, own_part, stand_in
from trainvitals.rankfile.ledger import MAX_NAMES, Name

Loader = TypeVar("Loader")
OnError = Literal["raise", "skip"]

#: So many errors in a row are skipped; the next is raised.
MAX_IN_A_ROW = 16
#: Index batches that may be ahead of the batch that is handed out: more than any number of workers fetches.
_AHEAD = 65536
#: After so many errors in a function of the user's (ids, check, batch_size) it is asked no more.
_PATIENCE = 3
#: These end the loader; there is nothing behind them.
_FATAL = ("DataLoader worker (pid", "DataLoader timed out")


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
    if own_part(loader, Watched) is not None or own_part(loader, _Stream) is not None:
        return loader
    options = {"ids": ids, "batch_size": batch_size, "check": check, "on_error": on_error}
    return cast("Loader", stand_in(_kind(loader), _Own(loader, options)))


class Watched(Proxy):
    """The stand-in for a loader."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        own = self._trainvitals
        return stand_in(_Stream, _Flow(own.target, own.settings))


class _WatchedIterator(Watched):
    """The stand-in for an iterator: it can be asked for its next batch itself."""

    __slots__ = ()

    def __next__(self) -> Any:
        own = self._trainvitals
        if own.flow is None:
            own.flow = stand_in(_Stream, _Flow(own.target, own.settings))
        return next(own.flow)


def _kind(loader: object) -> type[Watched]:
    return _WatchedIterator if hasattr(type(loader), "__next__") else Watched


class _Own:
    """Our part of the stand-in for a loader."""

    def __init__(self, target: Any, options: dict[str, Any]) -> None:
        self.target = target
        self.settings = _Settings(options)
        self.flow: Any = None

    def reduced(self) -> tuple[Any, ...]:
        return _rebuilt, (self.target, self.settings.options)


def _rebuilt(target: Any, options: dict[str, Any]) -> Any:
    return data(target, **options)


class _Settings:
    """What the user asked for."""

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
    return None if ids is None else _asked(lambda batch: batches.listed(ids(batch)), "ids")


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


class _Flow:
    """Our part of one iterator over a loader."""

    def __init__(self, loader: Any, settings: _Settings) -> None:
        self._loader = loader
        self._settings = settings
        self._skips = settings.policy == "skip"
        self._row = self._taken = 0
        #: The last error, until it is known whether the loader goes on behind it.
        self._pending: Exception | None = None
        self._keys: tuple[str, ...] | None = None
        self._are_files = False
        self._dataset = _dataset_of(loader)
        self._indices: deque[Any] | None = None
        begun = self._begin()
        try:
            self._swap = _Tee.over(loader)
            self.target: Any = self._under_tee(lambda: iter(loader))
        finally:
            self._end(begun)
        self.next: Callable[[], Any] = self.target.__next__

    def _under_tee(self, call: Callable[[], Any]) -> Any:
        """Make a call that may begin to draw indices; where it is a generator that begins, the next one does."""
        swap, self._swap = self._swap, None
        if swap is None:
            return call()
        result = None
        try:
            with swap:
                result = call()
        finally:
            self._indices = swap.queue
            if self._indices is None and _is_generator(result):
                self._swap = swap
        return result

    def reduced(self) -> Any:
        """What iterators are pickled as: a position that cannot be kept is an error here, too."""
        return self.target.__reduce_ex__(2)

    # Each of these is ours, and costs the program nothing when it fails.

    def _begin(self) -> watch.Watch | None:
        try:
            current = watch.current()
            return current if current is not None and current.begin() else None
        except Exception as error:
            probe.count_error(error)
            return None

    def _end(self, begun: watch.Watch | None) -> None:
        if begun is not None and begun.recorder is probe.recorder():
            try:
                begun.end()
            except Exception as error:
                probe.count_error(error)

    def advance(self) -> Any:
        """Return the next batch, or raise what the loader raises."""
        while True:
            begun = self._begin()
            try:
                batch = self.next() if self._swap is None else self._under_tee(self.next)
            except StopIteration:
                self._end(begun)
                if not self._is_cut_short():
                    raise
            except Exception as error:
                self._end(begun)
                if not self._failed(error):
                    raise
                continue
            except BaseException:
                self._end(begun)
                raise
            else:
                self._end(begun)
                if self._took(batch):
                    return batch
                continue
            pending, self._pending = self._pending, None
            try:
                raise cast("Exception", pending)
            finally:
                del pending  # Its traceback leads here.

    def _took(self, batch: Any) -> bool:
        """Take a batch; False where it is to be left out."""
        self._row, self._pending = 0, None
        position, self._taken = self._taken, self._taken + 1
        settings = self._settings
        complaint = None if settings.check is None else settings.check(batch)
        try:
            indices = self._indices.popleft() if self._indices else None
            current = watch.current()
            if current is not None:
                names, total = self._names(batch, indices)
                samples, size = batches.size_of(batch)
                own = settings.batch_size
                if own is not None:
                    samples = own if isinstance(own, int) else own(batch)
                elif indices.__class__ is list:
                    samples = len(indices)
                current.take(names, total, samples if isinstance(samples, int) else 0, size, self._dataset)
                if complaint:
                    fields = {"type": "check", "message": complaint, "position": position, "ids": names[:16]}
                    current.error({**fields, "policy": settings.policy}, counted=False)
        except Exception as error:
            probe.count_error(error)
        return not (complaint and self._skips)

    def _names(self, batch: Any, indices: Any) -> tuple[Sequence[Name], int]:
        """Return the names of the samples of a batch, cut, and how many there were."""
        if self._settings.ids is not None:
            names = self._settings.ids(batch) or []
            return names[:MAX_NAMES], len(names)
        if self._keys is None:
            self._keys, self._are_files = batches.keys_of(batch)
        if self._keys and (self._are_files or indices is None):
            try:
                names = batches.names_under(self._keys, batch)
            except (KeyError, IndexError, TypeError):
                names, self._keys = [], None  # The next batch may have other keys.
            if names:
                return names, len(names)
        if indices is None:
            return [], 0
        if indices.__class__ is not list:
            return batches.listed(indices), 1
        return batches.listed(indices[:MAX_NAMES]), len(indices)

    def _failed(self, error: Exception) -> bool:
        """Take an error of the loader; return whether to go on with the next batch."""
        self._row += 1
        position, self._taken = self._taken, self._taken + 1
        goes_on = self._skips and self._row <= MAX_IN_A_ROW and self._goes_on(error)
        try:
            indices = self._indices.popleft() if self._indices else None
            current = watch.current()
            if current is not None:
                fields = batches.describe(error)
                # A generator around a loader (Accelerate's) may be a batch ahead of what it hands out.
                if "file" not in fields and indices is not None and not _is_generator(self.target):
                    names = batches.listed(indices)[:16]
                    fields["ids"] = [batches.file_of(self._dataset(), name) for name in names]
                policy = "skip" if goes_on else "raise"
                counted = _is_guarded(self._dataset())
                current.error({**fields, "position": position, "policy": policy}, counted=counted)
        except Exception as own:
            probe.count_error(own)
        return goes_on

    def _goes_on(self, error: Exception) -> bool:
        """Whether there may be more behind an error."""
        if _is_generator(self.target):
            return self.target.gi_frame is not None  # One that raised is finished.
        kind = getattr(self.target, "_dataset_kind", None)
        if kind is None:
            self._pending = error  # If the end comes right after, nobody knows what was missed.
            return True
        # A PyTorch DataLoader: over a stream, an error ends the rest of it, and silently so in a worker.
        return kind == 0 and not str(error).startswith(_FATAL)

    def _is_cut_short(self) -> bool:
        """Whether it ended by an error behind which it seemed to go on, and not at its length."""
        if self._pending is None:
            return False
        try:
            return bool(self._taken < len(self._loader))
        except Exception:  # Without a length, the error is the better guess.
            return True


class _Stream(Proxy):
    """The stand-in for an iterator over a loader."""

    __slots__ = ()

    def __iter__(self) -> _Stream:
        return self

    def __next__(self) -> Any:
        return self._trainvitals.advance()


class _Tee(Proxy):
    """Stands in for the sampler of a PyTorch DataLoader while an iterator is made, and sees the indices go by.

    They are drawn in the order in which the batches are handed out, however many workers there are.
    """

    __slots__ = ()

    @staticmethod
    def over(loader: Any) -> _Swap | None:
        """Return one for a loader over a data set with indices, None for any other."""
        module = sys.modules.get("torch.utils.data.dataloader")
        try:
            kind = getattr(module, "DataLoader", None)
            if kind is None or not isinstance(loader, kind):
                return None
            if type(loader).__name__ == "DataLoaderShard" and not loader.skip_batches:
                loader = loader.base_dataloader  # Of Accelerate; it hands out what this one does, a batch later.
            elif type(loader).__iter__ is not kind.__iter__:
                return None  # Batches may be left out or come in another order.
            usual = type(loader)._get_iterator is kind._get_iterator  # noqa: SLF001  Other iterators, other rules.
            in_order = getattr(loader, "in_order", True) or not loader.num_workers
            name = "sampler" if loader.batch_sampler is None else "batch_sampler"
            if not usual or not in_order or loader._dataset_kind != 0 or name not in loader.__dict__:  # noqa: SLF001
                return None
            return _Swap(loader, name)
        except AttributeError:  # A list, or a PyTorch of another time.
            return None
        except Exception as error:
            probe.count_error(error)
            return None

    def __iter__(self) -> Iterator[Any]:
        own = self._trainvitals
        queue: deque[Any] = deque(maxlen=_AHEAD)
        own.queue = queue
        return stand_in(_TeeStream, _TeeFlow(iter(own.target), queue))


class _TeeOwn:
    """Our part of it; it lives as long as the iterator, and knows nothing of the loader."""

    def __init__(self, target: Any) -> None:
        self.target = target
        self.queue: deque[Any] | None = None

    def reduced(self) -> Any:
        return _same, (self.target,)


class _Swap:
    """Puts it in the place of the sampler, past the loader, which refuses to be changed, and the sampler back."""

    def __init__(self, loader: Any, name: str) -> None:
        self._place: dict[str, Any] = loader.__dict__
        self._name = name
        self._own = _TeeOwn(self._place[name])
        self._tee = stand_in(_Tee, self._own)
        # A loader with persistent workers keeps its iterator, and that keeps the stand-in of the first time.
        kept = getattr(getattr(loader, "_iterator", None), "_index_sampler", None)
        self._used: _TeeOwn = own_part(kept, _Tee) or self._own

    @property
    def queue(self) -> deque[Any] | None:
        """The indices that go by; None as long as nobody has begun to draw any."""
        return self._used.queue

    def __enter__(self) -> None:
        self._place[self._name] = self._tee

    def __exit__(self, *_: object) -> None:
        self._place[self._name] = self._own.target


def _same(target: Any) -> Any:
    return target


def _is_generator(iterator: Any) -> bool:
    """Whether an iterator begins with its first request, and ends with its first error.

    It may be behind a stand-in that forwards what it is asked, as the one of the watch of Accelerate is.
    """
    try:
        return isinstance(iterator, GeneratorType) or hasattr(iterator, "gi_frame")
    except Exception:  # What an iterator says of an attribute that it lacks is its own affair.
        return False


class _TeeFlow:
    def __init__(self, target: Any, queue: deque[Any]) -> None:
        self.target = target
        self.next = target.__next__
        self.append = queue.append

    def reduced(self) -> Any:
        return self.target.__reduce_ex__(2)


class _TeeStream(Proxy):
    __slots__ = ()

    def __iter__(self) -> _TeeStream:
        return self

    def __next__(self) -> Any:
        own = self._trainvitals
        indices = own.next()
        own.append(indices)
        return indices


def _dataset_of(loader: Any) -> Callable[[], Any]:
    """Return a weak reference to the data set of a loader: the last batches must not keep it alive."""
    try:
        return weakref.ref(loader.dataset)
    except Exception:  # It has none, or one of another kind.
        return _nothing


def _nothing() -> None:
    return None


def _is_guarded(dataset: Any) -> bool:
    """Whether the data set counts its errors itself, see :mod:`trainvitals.probe.guarded`."""
    module = sys.modules.get("trainvitals.probe.guarded")
    return module is not None and own_part(dataset, module.Guarded) is not None
