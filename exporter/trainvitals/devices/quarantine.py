"""Devices that are left alone because a call for them did not return."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class _Held:
    pause: float
    due: float


class Quarantine:
    """Says which devices to leave alone and when to try one again.

    ``first`` and ``longest`` are the pauses between two tries in seconds; they double.  A device that is released and
    hangs again within ``longest`` goes on where it was.
    """

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._held: dict[int, _Held] = {}
        self._released: dict[int, tuple[float, float]] = {}

    @property
    def indices(self) -> frozenset[int]:
        """The devices to leave alone."""
        return frozenset(self._held)

    def put(self, index: int, now: float) -> None:
        """Leave a device alone from now on."""
        pause, released = self._released.pop(index, (0.0, float("-inf")))
        pause = min(2 * pause, self._longest) if now - released < self._longest else self._first
        self._held[index] = _Held(pause, now + pause)

    def oldest(self) -> int | None:
        """The device that was put here first."""
        return next(iter(self._held), None)

    def due(self, now: float) -> int | None:
        """Return the device to be tried now, if any: the one that has waited longest."""
        index = min(self._held, key=lambda index: self._held[index].due, default=None)
        return index if index is not None and self._held[index].due <= now else None

    def next_due(self) -> float:
        """When the next device is to be tried."""
        return min((held.due for held in self._held.values()), default=float("inf"))

    def failed(self, index: int, now: float) -> None:
        """A try did not return either."""
        held = self._held.get(index)
        if held is not None:
            held.pause = min(2 * held.pause, self._longest)
            held.due = now + held.pause

    def release(self, index: int, now: float) -> None:
        """A device answered.  Whatever held it may have held the others too, so these are tried at once."""
        held = self._held.pop(index, None)
        if held is not None:
            self._released[index] = (held.pause, now)
        self.try_all(now)

    def try_all(self, now: float) -> None:
        """Try every device at once: something has changed."""
        for held in self._held.values():
            held.due = now

    def clear(self) -> None:
        """Forget everything: the driver is another one, or the numbers have moved."""
        self._held.clear()
        self._released.clear()
