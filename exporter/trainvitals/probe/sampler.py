"""What a loader tells beside its batches: its data set, and which samples a PyTorch DataLoader has drawn.

These are seen as its sampler hands them to it.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from types import GeneratorType
from typing import Any

from trainvitals import probe
from trainvitals.probe.proxy import Proxy, own_part, stand_in

#: Index batches that may be ahead of the batch that is handed out: more than any number of workers fetches.
_AHEAD = 65536


def swap_for(loader: Any) -> _Swap | None:
    """Return what shows the indices of a loader over a data set with indices, None for any other."""
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


class _Tee(Proxy):
    """Stands in for the sampler of a PyTorch DataLoader while an iterator is made, and sees the indices go by.

    They are drawn in the order in which the batches are handed out, however many workers there are.
    """

    __slots__ = ()

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


def is_generator(iterator: Any) -> bool:
    """Whether an iterator begins with its first request, and ends with its first error.

    It may be behind a stand-in that forwards what it is asked, as the one of the watch of Accelerate is.
    """
    try:
        return isinstance(iterator, GeneratorType) or hasattr(iterator, "gi_frame")
    except Exception:  # What an iterator says of an attribute that it lacks is its own affair.
        return False


def dataset_of(loader: Any) -> Callable[[], Any]:
    """Return a weak reference to the data set of a loader: the last batches must not keep it alive."""
    try:
        return weakref.ref(loader.dataset)
    except Exception:  # It has none, or one of another kind.
        return _nothing


def _nothing() -> None:
    return None


def is_guarded(dataset: Any) -> bool:
    """Whether the data set counts its errors itself, see :mod:`trainvitals.probe.guarded`."""
    module = sys.modules.get("trainvitals.probe.guarded")
    return module is not None and own_part(dataset, module.Guarded) is not None
