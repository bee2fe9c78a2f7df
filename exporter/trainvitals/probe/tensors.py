"""Scalars that live on a device: copied to the host without a synchronisation, read when they have arrived.

``float(tensor)`` waits until the device has caught up; in a training loop that costs what asynchrony gains.
So a value is copied with ``non_blocking=True`` into one of a few pinned rows that exist from the first use on, an
event is recorded behind the copy, and a later call on the same thread asks the event whether the row is there.

Nothing here imports a framework: without ``torch`` in ``sys.modules`` there are no tensors.
Everything runs on the training thread at step boundaries: an event query from another thread breaks a CUDA graph
capture (pytorch#104487).  While a capture is going on, values are dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

ROWS = 8
ROW_VALUES = 64

#: Receives {name: value} once the values have arrived.
Sink = Callable[[dict[str, float]], None]


class TensorReader:
    """Splits values into what is known now and what arrives later.

    ``torch`` is the module, handed in so that a stand-in can take its place.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._rows: Any = None
        self._next_row = 0
        self._pending: deque[tuple[Any, int, list[str], Sink]] = deque()
        self.dropped = 0

    def is_tensor(self, value: object) -> bool:
        """Whether this is a tensor of the framework."""
        return isinstance(value, self._torch.Tensor)

    def take(self, tensors: dict[str, Any], sink: Sink) -> dict[str, float]:
        """Return the values that the host already has; the others reach ``sink`` in a later :meth:`poll`.

        Anything but a plain tensor of one element is dropped and counted: reading a sharded tensor would be a
        collective, and a collective of ours could hang a training.
        """
        known: dict[str, float] = {}
        distant: dict[str, Any] = {}
        for name, tensor in tensors.items():
            if type(tensor).__name__ == "DTensor" or tensor.numel() != 1 or tensor.is_complex():
                self.dropped += 1
            elif tensor.device.type == "cpu":
                known[name] = float(tensor.detach())
            elif tensor.device.type == "meta":
                self.dropped += 1
            else:
                distant[name] = tensor
        if distant:
            self._copy(distant, sink)
        return known

    def _copy(self, tensors: dict[str, Any], sink: Sink) -> None:
        device = self._torch.get_device_module(next(iter(tensors.values())).device)
        capturing = getattr(device, "is_current_stream_capturing", None)
        if len(self._pending) >= ROWS or len(tensors) > ROW_VALUES or (capturing is not None and capturing()):
            self.dropped += len(tensors)
            return
        if self._rows is None:
            # Pinning memory is slow and may synchronise: once, at the first tensor, never again.
            self._rows = self._torch.empty((ROWS, ROW_VALUES), dtype=self._torch.float32, pin_memory=True)
        row = self._next_row
        self._next_row = (row + 1) % ROWS
        with self._torch.no_grad():
            for position, tensor in enumerate(tensors.values()):
                self._rows[row, position].copy_(tensor.detach().reshape(()), non_blocking=True)
        event = device.Event()
        event.record()
        self._pending.append((event, row, list(tensors), sink))

    def poll(self) -> None:
        """Hand over every row whose copy has finished, oldest first; never waits."""
        while self._pending and self._pending[0][0].query():
            _, row, names, sink = self._pending.popleft()
            sink({name: float(self._rows[row, position]) for position, name in enumerate(names)})

    def discard(self) -> None:
        """Count what is still on its way as dropped; the end of a run waits for nothing."""
        self.dropped += sum(len(names) for _, _, names, _ in self._pending)
        self._pending.clear()
