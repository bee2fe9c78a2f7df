"""What a framework lets people do with its runs, where the program has not said it itself: see docs/ctl.md.

The framework stops and saves by itself; we tell it behind the step of the order, on every rank behind the same one.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from trainvitals.probe.knobs import KNOBS


def offer(save: Callable[[int], object], optimizer: Any, schedulers: Iterable[Any] = ()) -> None:
    """Offer what a framework can do: save itself, stop when it is told, and change its learning rate (``lr``)."""
    KNOBS.asks_to_stop = True
    KNOBS.offer_save(save)
    if optimizer is not None:
        found = [getattr(scheduler, "scheduler", scheduler) for scheduler in schedulers if scheduler is not None]
        # No reference that would keep a model alive.
        one, others = weakref.ref(optimizer), [weakref.ref(scheduler) for scheduler in found]
        KNOBS.offer("lr", lambda value: set_rate(_there(one), map(_there, others), value), least=0.0)


def set_rate(optimizer: Any, schedulers: Iterable[Any], rate: float) -> None:
    """Set the learning rate of the first group of parameters, and that of the others in proportion.

    What a scheduler starts from changes in proportion as well, so that it goes on along the same curve.  Where the
    rate is 0, as at the start of a warm-up, there is no proportion.  Raises ValueError then.
    """
    now = float(optimizer.param_groups[0]["lr"])
    factor = rate / now if now > 0.0 else math.nan
    if not math.isfinite(factor):
        raise ValueError("the learning rate is 0 now: what a scheduler makes of it cannot be set in proportion")
    for group in optimizer.param_groups:
        for name in ("lr", "initial_lr"):
            if name in group:
                group[name] = group[name] * factor
    for scheduler in schedulers:
        if hasattr(scheduler, "base_lrs"):
            scheduler.base_lrs = [base * factor for base in scheduler.base_lrs]


def _there(reference: weakref.ref[Any]) -> Any:
    found = reference()
    if found is None:
        raise ReferenceError("that training is over")
    return found


class Wish:
    """That somebody wants a checkpoint, until the framework takes note of it."""

    def __init__(self) -> None:
        self._wanted = False

    def save(self, _: int) -> None:
        """Want one behind this step."""
        self._wanted = True

    def take(self) -> bool:
        """Return whether one is wanted, once."""
        wanted, self._wanted = self._wanted, False
        return wanted


def must_stop() -> bool:
    """Whether the run was told to stop."""
    return KNOBS.stop_ordered
