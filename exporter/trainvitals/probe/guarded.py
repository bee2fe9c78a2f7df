"""Keeps one bad sample from ending a training: ``trainvitals.guarded(dataset)``.

The data set works in the worker processes of a loader, where nothing of the recorder is.  An error there is told as a
line in the events file of the training process and counted in its data file, by system calls that wait for nobody.
"""

from __future__ import annotations

import contextlib
import operator
import sys
from collections.abc import Callable
from typing import Any, Literal, TypeVar, cast

from trainvitals import probe, rankfile
from trainvitals.probe import batches, events, watch
from trainvitals.probe.proxy import Proxy, own_part, stand_in
from trainvitals.rankfile import ledger

Dataset = TypeVar("Dataset")
OnError = Literal["raise", "skip"]

#: So many samples are tried in place of one.
NEIGHBOURS = 16


class BadSampleError(ValueError):
    """A sample that ``check`` complained of."""


def guarded(dataset: Dataset, *, on_error: OnError = "skip", check: Callable[[Any], object] | None = None) -> Dataset:
    """Return a stand-in for a data set with indices, in which a sample that cannot be read is told and counted.

    ``on_error`` says what then becomes of it: "skip" puts the next sample that can be read in its place, "raise" lets
    the exception through.
    ``check(sample)`` returns a text where something is wrong with a sample, else nothing; it is treated like an error.
    Data sets without indices (streams) come back as they are.
    """
    if own_part(dataset, Guarded) is not None:
        return dataset
    if _is_stream(dataset):
        probe.tell_once("guarded", "this data set is not guarded", TypeError("it has no indices or no length"))
        return dataset
    # The base class of PyTorch's data sets has no __getitems__; a fetcher that finds one asks for whole batches.
    kind = GuardedBatches if hasattr(type(dataset), "__getitems__") else Guarded
    return cast("Dataset", stand_in(kind, _Guard(dataset, on_error, check, None)))


class Guarded(Proxy):
    """The stand-in for a data set."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        own = self._trainvitals
        try:
            return own.get(index)
        except Exception as error:
            if not own.is_sample(index, error):
                raise
            found = own.replacement(index, error)
            if found is None:
                raise
            return found[0]


class GuardedBatches(Guarded):
    """The same for one that can be asked for several samples at once."""

    __slots__ = ()

    def __getitems__(self, indices: Any) -> Any:
        own = self._trainvitals
        if own.check is None:
            with contextlib.suppress(Exception):
                return own.target.__getitems__(indices)
        return [self[index] for index in indices]


class _Guard:
    """Our part of it.  ``base`` is the rank file to tell of errors, known from a pickle in a spawned worker."""

    def __init__(self, target: Any, on_error: str, check: Callable[[Any], object] | None, base: str | None) -> None:
        self.target = target
        self.check = check
        self._on_error = on_error
        self._base = base
        self._errors = 0

    def reduced(self) -> tuple[Any, ...]:
        return _rebuilt, (self.target, self._on_error, self.check, probe.rank_file() or self._base)

    def get(self, index: Any) -> Any:
        sample = self.target[index]
        complaint = None if self.check is None else self.check(sample)
        if complaint:
            raise BadSampleError(complaint)
        return sample

    def is_sample(self, index: Any, error: Exception) -> bool:
        """Whether this is an error in one sample, and not the end, a wrong index or a lack of memory."""
        if isinstance(error, (StopIteration, MemoryError)):
            return False
        try:
            number = operator.index(index)
            return -len(self.target) <= number < len(self.target)
        except Exception:
            return False

    def replacement(self, index: Any, error: Exception) -> tuple[Any] | None:
        """Tell of an error; return the next sample that can be read, or None where there is none or none is wanted."""
        self._tell(index, error)
        if self._on_error != "skip":
            return None
        number = operator.index(index)
        for ahead in range(1, min(NEIGHBOURS + 1, len(self.target))):
            other = (number + ahead) % len(self.target)
            try:
                return (self.get(other),)
            except Exception as second:
                self._tell(other, second)
        return None

    def _tell(self, index: Any, error: Exception) -> None:
        try:
            fields = {**batches.describe(error), "index": operator.index(index), "policy": self._on_error}
            file = batches.file_of(self.target, fields["index"])
            if "file" not in fields and file != fields["index"]:
                fields["file"] = file
            current = watch.current()
            if current is not None:
                current.error(fields, counted=False)
                return
            base = probe.rank_file() or self._base
            if base is not None:
                self._errors += 1
                ledger.count_worker_error(ledger.path_of_data(base))
                if watch.is_told(self._errors):
                    path = base.removesuffix(rankfile.RANK_SUFFIX) + rankfile.EVENTS_SUFFIX
                    events.append_from_worker(path, "data_error", {**fields, **_worker(), "number": self._errors})
        except Exception as own:
            probe.count_error(own)


def _rebuilt(target: Any, on_error: str, check: Callable[[Any], object] | None, base: str | None) -> Any:
    kind = GuardedBatches if hasattr(type(target), "__getitems__") else Guarded
    return stand_in(kind, _Guard(target, on_error, check, base))


def _is_stream(dataset: object) -> bool:
    kind = type(dataset)
    if not hasattr(kind, "__getitem__") or not hasattr(kind, "__len__"):
        return True
    module = sys.modules.get("torch.utils.data")
    return module is not None and isinstance(dataset, module.IterableDataset)


def _worker() -> dict[str, Any]:
    module = sys.modules.get("torch.utils.data")
    info = None if module is None else module.get_worker_info()
    return {} if info is None else {"worker": info.id}
