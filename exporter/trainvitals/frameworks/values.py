"""What adapters make of the values that a framework hands around; nothing here reads a tensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Added up by the probe, which a value of somebody's log is not meant for: theirs is often a total.
_AMOUNTS = {"samples", "skipped", "tokens"}
#: A batch within a batch within a batch ...
_DEEPEST_BATCH = 5


class Losses:
    """Adds up losses where they are: on their device, with nothing waited for and no graph kept alive."""

    def __init__(self) -> None:
        self._sum: Any = None
        self._count = 0

    def add(self, loss: Any) -> None:
        """Add the loss of a micro-batch: a number or a tensor."""
        if getattr(loss, "requires_grad", False):
            loss = loss.detach()
        self._count += 1
        if self._sum is None:
            self._sum = loss
        elif self._count == 2 and hasattr(self._sum, "float"):
            # Half precision would lose the small parts of a sum.
            self._sum = self._sum.float() + loss
        else:
            self._sum = self._sum + loss

    def take_sum(self) -> Any:
        """Return the sum, or None where there was no loss, and start anew."""
        total, self._sum, self._count = self._sum, None, 0
        return total

    def take_mean(self) -> Any:
        """Return the mean, or None where there was no loss, and start anew."""
        count = self._count
        total = self.take_sum()
        return total / count if count > 1 else total


def is_sharded(tensor: Any) -> bool:
    """Whether reading this tensor would be a collective (a DTensor of FSDP2, say)."""
    return hasattr(tensor, "full_tensor")


def plain_learning_rate(optimizer: Any) -> float | None:
    """Return the learning rate of the first group, or None where it is a tensor: then only the device knows it."""
    groups = getattr(optimizer, "param_groups", None)
    rate = groups[0].get("lr") if groups else None
    return float(rate) if isinstance(rate, (int, float)) else None


def numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what may be drawn as a curve: numbers, arrays and tensors, under a name that adds nothing up."""
    return {
        f"logged_{name}" if name in _AMOUNTS else name: value
        for name, value in values.items()
        if isinstance(value, (int, float)) or hasattr(value, "dtype")
    }


def batch_size(batch: Any) -> int:
    """Return the first dimension of the first tensor of a batch, 0 where there is none: the host knows shapes."""
    for _ in range(_DEEPEST_BATCH):
        shape = getattr(batch, "shape", None)
        if shape is not None:
            return int(shape[0]) if len(shape) else 0
        if isinstance(batch, Mapping):
            batch = next(iter(batch.values()), None)
        elif isinstance(batch, (list, tuple)) and batch:
            batch = batch[0]
        else:
            break
    return 0
