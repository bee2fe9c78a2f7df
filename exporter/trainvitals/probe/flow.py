"""One iterator over a watched loader: waits, takes each batch and each error, and hands both on as they are."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

from trainvitals import probe
from trainvitals.probe import batches, watch
from trainvitals.probe.choices import Choices
from trainvitals.probe.proxy import Proxy
from trainvitals.probe.sampler import dataset_of, is_generator, is_guarded, swap_for
from trainvitals.rankfile.ledger import MAX_NAMES, Name

#: So many errors in a row are skipped; the next is raised.  Of so many complaints, the next batch is handed out.
MAX_IN_A_ROW = 16
#: These end the loader; there is nothing behind them.
_FATAL = ("DataLoader worker (pid", "DataLoader timed out")


class Stream(Proxy):
    """The stand-in for an iterator over a loader."""

    __slots__ = ()

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Any:
        return self._trainvitals.advance()


class Flow:
    """Our part of it."""

    def __init__(self, loader: Any, choices: Choices) -> None:
        self._loader = loader
        self._choices = choices
        self._check, self._ids, self._own_size = choices.check, choices.ids, choices.batch_size
        self._skips = choices.policy == "skip"
        self._row = self._taken = 0
        #: The last error, until it is known whether the loader goes on behind it.
        self._pending: Exception | None = None
        self._keys: tuple[str, ...] | None = None
        self._are_files = False
        self._dataset = dataset_of(loader)
        self._indices: deque[Any] | None = None
        begun = self._begin()
        try:
            self._swap = swap_for(loader)
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
            if self._indices is None and is_generator(result):
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
            begun = None
            try:  # As _begin does it, without the call: this is every batch.
                current = watch.current()
                if current is not None and current.begin():
                    begun = current
            except Exception as error:
                probe.count_error(error)
            try:
                batch = self.next() if self._swap is None else self._under_tee(self.next)
            except StopIteration:
                self._end(begun)
                if not self._is_cut_short():
                    raise
                break
            except Exception as error:
                self._end(begun)
                if not self._failed(error):
                    raise
            except BaseException:
                self._end(begun)
                raise
            else:
                self._end(begun)
                if self._is_kept(batch):
                    return batch
        pending, self._pending = self._pending, None
        try:
            raise cast("Exception", pending)
        finally:
            del pending  # Its traceback leads here.

    def _is_kept(self, batch: Any) -> bool:
        """Take a batch; False where the program's own check says that it is to be left out."""
        if self._check is None:
            self._row = 0
            self._took(batch)
            return True
        complaint = self._check(batch)
        is_left_out = bool(complaint) and self._skips and self._row < MAX_IN_A_ROW
        self._took(batch, complaint, "skip" if is_left_out else "raise")
        self._row = self._row + is_left_out if complaint else 0
        return not is_left_out

    def _took(self, batch: Any, complaint: object = None, policy: str = "") -> None:
        """Count a batch and remember what is in it."""
        self._pending = None
        position, self._taken = self._taken, self._taken + 1
        try:
            indices = self._indices.popleft() if self._indices else None
            current = watch.current()
            if current is None:
                return
            names: Sequence[Name] = ()
            total = samples = size = 0
            try:
                if self._keys != () or indices is not None or self._ids is not None:
                    names, total = self._names(batch, indices)
                samples, size = self._size(batch, indices)
            except Exception:  # A batch that raises when it is looked at: the program's, and none of our errors.
                current.recorder.writer.state.dropped += 1
            current.take(names, total, samples, size, self._dataset)
            if complaint:
                fields = {"type": "check", "message": complaint, "position": position, "ids": names[:16]}
                current.error({**fields, "policy": policy}, counted=False)
        except Exception as error:
            probe.count_error(error)

    def _size(self, batch: Any, indices: Any) -> tuple[int, int]:
        samples, size = batches.size_of(batch)
        own = self._own_size
        if own is not None:
            samples = own if isinstance(own, int) else own(batch)
        elif indices.__class__ is list:
            samples = len(indices)
        return (samples if isinstance(samples, int) else 0), size

    def _names(self, batch: Any, indices: Any) -> tuple[Sequence[Name], int]:
        """Return the names of the samples of a batch, cut, and how many there were."""
        if self._ids is not None:
            names = self._ids(batch) or []
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
            return (), 0
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
                if "file" not in fields and indices is not None and not is_generator(self.target):
                    names = batches.listed(indices)[:16]
                    fields["ids"] = [batches.file_of(self._dataset(), name) for name in names]
                policy = "skip" if goes_on else "raise"
                counted = is_guarded(self._dataset())
                current.error({**fields, "position": position, "policy": policy}, counted=counted)
        except Exception as own:
            probe.count_error(own)
        return goes_on

    def _goes_on(self, error: Exception) -> bool:
        """Whether there may be more behind an error."""
        try:
            if is_generator(self.target):
                return self.target.gi_frame is not None  # One that raised is finished.
            kind = getattr(self.target, "_dataset_kind", None)
            if kind is None:
                self._pending = error  # If the end comes right after, nobody knows what was missed.
                return True
            # A PyTorch DataLoader: over a stream, an error ends the rest of it, and silently so in a worker.
            return bool(kind == 0 and not str(error).startswith(_FATAL))
        except Exception:  # An iterator or an error that raises when it is asked: the error is raised as before.
            return False

    def _is_cut_short(self) -> bool:
        """Whether it ended by an error behind which it seemed to go on, and not at its length."""
        if self._pending is None:
            return False
        try:
            return bool(self._taken < len(self._loader))
        except Exception:  # Without a length, the error is the better guess.
            return True
