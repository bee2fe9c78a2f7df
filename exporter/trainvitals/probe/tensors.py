"""Scalars that live on a device: copied to the host without a synchronisation, read when they have arrived.

``float(tensor)`` waits until the device has caught up; in a training loop that costs what asynchrony gains.
So a value is copied with ``non_blocking=True`` into one of a few pinned rows that exist from the first use on, an
event is recorded behind the copy, and a later call on the same thread asks the event whether the row is there.

Nothing here imports a framework: without ``torch`` in ``sys.modules`` there are no tensors.
Everything runs on the training thread at step boundaries: an event query from another thread breaks a CUDA graph
capture (pytorch#104487).  While a capture is going on, values are dropped and nothing is asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

ROWS = 8
ROW_VALUES = 64

#: Reading one of these waits for other ranks, or there is nothing to read.
_UNREADABLE = frozenset({"DTensor", "AsyncCollectiveTensor", "FakeTensor", "FunctionalTensor"})

#: Receives {name: value} once the values have arrived.
Sink = Callable[[dict[str, float]], None]


class _Pending(NamedTuple):
    """Values on their way: what tells that they have arrived, where they will be, and who waits for them."""

    event: Any
    capturing: Callable[[], bool]
    row: int
    names: list[str]
    sink: Sink


class TensorReader:
    """Splits values into what is known now and what arrives later.

    ``torch`` is the module, handed in so that a stand-in can take its place.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._rows: Any = None
        self._next_row = 0
        self._pending: deque[_Pending] = deque()
        self.dropped = 0

    @property
    def waiting(self) -> bool:
        """Whether values are on their way."""
        return bool(self._pending)

    def is_tensor(self, value: object) -> bool:
        """Whether this is a tensor of the framework."""
        return isinstance(value, self._torch.Tensor)

    def take(self, tensors: dict[str, Any], sink: Sink) -> dict[str, float]:
        """Return the values that the host already has; the others reach ``sink`` in a later :meth:`poll`.

        Anything but a plain tensor of one element is dropped and counted: reading a sharded tensor would be a
        collective, and a collective of ours could hang a training.
        What a framework or a device cannot do is no error of ours either: it costs the value.
        """
        known: dict[str, float] = {}
        distant: dict[Any, dict[str, Any]] = {}
        for name, tensor in tensors.items():
            try:
                if not self._is_scalar(tensor):
                    self.dropped += 1
                elif tensor.device.type == "cpu":
                    known[name] = float(tensor.detach())
                else:
                    distant.setdefault(tensor.device, {})[name] = tensor
            except Exception:
                self.dropped += 1
        for device, group in distant.items():
            try:
                self._copy(device, group, sink)
            except Exception:
                self.dropped += len(group)
        return known

    def _is_scalar(self, tensor: Any) -> bool:
        kind = type(tensor)
        if kind is not self._torch.Tensor and any(base.__name__ in _UNREADABLE for base in kind.__mro__):
            return False
        return bool(tensor.numel() == 1 and not tensor.is_complex() and tensor.device.type != "meta")

    def _copy(self, device: Any, tensors: dict[str, Any], sink: Sink) -> None:
        """Start the copy of tensors of one device, whose own stream the event must follow."""
        module = getattr(self._torch, device.type)
        capturing = getattr(module, "is_current_stream_capturing", _never)
        if len(self._pending) >= ROWS or len(tensors) > ROW_VALUES or capturing():
            self.dropped += len(tensors)
            return
        if self._rows is None:
            self._rows = self._pinned_rows()
        row = self._next_row
        self._next_row = (row + 1) % ROWS
        with self._torch.no_grad():
            for position, tensor in enumerate(tensors.values()):
                self._rows[row, position].copy_(tensor.detach().reshape(()), non_blocking=True)
        event = module.Event()
        event.record(module.current_stream(device))
        self._pending.append(_Pending(event, capturing, row, list(tensors), sink))

    def _pinned_rows(self) -> Any:
        # Pinning memory is slow and may synchronise: once, at the first tensor, never again.
        # A tensor that is born in inference mode cannot be written outside of it.
        with self._torch.inference_mode(False):
            return self._torch.empty((ROWS, ROW_VALUES), dtype=self._torch.float32, device="cpu", pin_memory=True)

    def poll(self) -> None:
        """Hand over every row whose copy has finished, oldest first; never waits."""
        while self._pending:
            first = self._pending[0]
            if first.capturing() or not first.event.query():
                return
            self._pending.popleft()
            first.sink({name: float(self._rows[first.row, position]) for position, name in enumerate(first.names)})

    def discard(self) -> None:
        """Count what is still on its way as dropped; the end of a run waits for nothing."""
        self.dropped += sum(len(pending.names) for pending in self._pending)
        self._pending.clear()


def _never() -> bool:
    return False
