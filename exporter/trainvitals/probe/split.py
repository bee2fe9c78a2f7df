"""Where the time of a step goes beyond what the clock of the host tells, and without waiting for anything.

The phases of a rank add up to wall time.  Two facts move seconds between them at the end of each step:

- **device**: the time in which the device had work of a step.  Two events on the device's own clock enclose what lies
  between two waits of the host (for data, in a checkpoint, in an evaluation); they are read at the end of a later
  step, once ``query()`` says that they have passed.  These seconds leave "train" and its parts; what is left there is
  the host's alone.  If they are more than that, the device was still at work while the host waited for data, and the
  rest leaves "data".
- **communication**: the time in which the gradients were on their way and nothing was computed, as the framework
  measures it itself on some of its steps (:data:`exposed_communication`).

Without a device nothing is measured, and the phases stay what the host's clock says.

Events are recorded and asked on the training thread only, at the ends of steps and of waits, never while a graph is
captured (pytorch#104487), and only where the program has made a context on the device.
``elapsed_time`` of two events that have passed waits for nothing.
"""

from __future__ import annotations

from _thread import get_ident  # Not threading: a trainer that has none needs none.
from collections import deque
from collections.abc import Callable
from typing import Any

from trainvitals import rankfile

_INDEX = {name: index for index, name in enumerate(rankfile.PHASES)}
#: Phases in which the host gives the device work, in the order in which they give up seconds.
_WORK = tuple(_INDEX[name] for name in ("train", "backward", "forward", "optimizer"))
#: Gradients are on their way in the backward pass, where somebody marks it.
_BACKWARD = tuple(_INDEX[name] for name in ("device", "backward", "train", "optimizer"))
_DATA, _DEVICE, _COMMUNICATION = (_INDEX[name] for name in ("data", "device", "communication"))
#: Spans that may be on their way; a device that is further behind costs the measurement and nothing else.
MAX_SPANS = 64
#: The framework measures the first ten steps, and then one in a hundred (DDP's own rate): ask then.
_EARLY_STEPS, _STEPS_BETWEEN = 10, 100

#: Set by the adapter of a framework that measures its communication: seconds of a step, or None.
exposed_communication: Callable[[], float | None] | None = None


def device_module(torch: Any) -> Any:
    """Return the module of the device (``torch.cuda``, ``torch.xpu``, ``torch.npu``) that has a context, else None.

    Makes no context, and never raises.
    """
    try:
        accelerator = getattr(torch, "accelerator", None)
        if accelerator is None:  # Before PyTorch 2.6.
            module = torch.cuda
        else:
            device = accelerator.current_accelerator()
            module = None if device is None else torch.get_device_module(device.type)
        return module if module is not None and module.is_initialized() else None
    except Exception:  # A device without this question, a torch that is being imported.
        return None


class Spans:
    """Pairs of events around the work of a device.  ``module`` is what :func:`device_module` returned."""

    def __init__(self, module: Any) -> None:
        self._module: Any = module
        self._capturing: Callable[[], bool] = getattr(module, "is_current_stream_capturing", lambda: False)
        self._pool: list[Any] = []
        self._open: Any = None
        self._pending: deque[tuple[Any, Any]] = deque()
        self._thread = get_ident()

    @property
    def pending(self) -> bool:
        """Whether the device has not come to the end of the last span."""
        return bool(self._pending)

    def begin(self) -> None:
        """Begin a span: from here on the device gets work."""
        if self._open is None:
            self._open = self._mark()

    def end(self) -> None:
        """End the span, if there is one."""
        begun, self._open = self._open, None
        if begun is None:
            return
        ended = self._mark()
        if ended is None or len(self._pending) >= MAX_SPANS:
            self._pool += [event for event in (begun, ended) if event is not None]
        else:
            self._pending.append((begun, ended))

    def _mark(self) -> Any:
        """Return an event that takes its place in the queue of the device, or None where that must not be."""
        if self._module is None or get_ident() != self._thread or self._capturing():
            return None
        try:
            event = self._pool.pop() if self._pool else self._module.Event(enable_timing=True)
            event.record()
        except Exception:
            return self._give_up()
        return event

    def seconds(self) -> float:
        """Return the length of the spans that have passed since the last call; never waits."""
        total = 0.0
        try:
            while self._pending and get_ident() == self._thread and not self._capturing():
                begun, ended = self._pending[0]
                if not ended.query():
                    break
                self._pending.popleft()
                total += begun.elapsed_time(ended) / 1000.0  # milliseconds
                self._pool += (begun, ended)
        except Exception:
            self._give_up()
        return total

    def _give_up(self) -> None:
        """A device without timed events, or a broken one: the clock of the host remains."""
        self._module = self._open = None
        self._pending.clear()


class Split:
    """Moves seconds between the phases of ``state``.  Called by the recorder, on the training thread."""

    def __init__(self, state: rankfile.State, spans: Spans | None) -> None:
        self._seconds = state.phase_seconds
        self._before = list(self._seconds)
        self._spans = spans
        self._steps = 0
        self._has_waited = False
        #: Seconds of the device, and of communication, that could not be moved yet.
        self._device = self._communication = 0.0
        self._exposed: float | None = None

    def enter(self, phase: int) -> None:
        """Note that the host goes on with this phase; the seconds of the one before are in the state."""
        if self._spans is None:
            return
        if phase in _WORK:
            self._spans.begin()
        else:
            self._has_waited = True
            self._spans.end()

    def end_step(self, phase: int) -> None:
        """Move what is known now; the seconds of ``phase``, the current one, are in the state."""
        if self._spans is not None:
            self._spans.end()
            self._move_device_seconds(self._spans)
            if phase in _WORK and not self._has_waited:
                # Else the next span begins when the host has waited for its data.
                self._spans.begin()
            self._has_waited = False
        self._steps += 1
        if exposed_communication is not None and (self._steps <= _EARLY_STEPS or self._steps % _STEPS_BETWEEN == 0):
            try:
                self._exposed = exposed_communication()
            except Exception:  # A framework that measures otherwise: then it is not known.
                self._exposed = None
        if self._exposed:
            self._move_communication(self._exposed)
        self._before = list(self._seconds)

    def _move_device_seconds(self, spans: Spans) -> None:
        self._device += spans.seconds()
        self._device = self._move(self._device, (*_WORK, _DATA), _DEVICE)
        if not spans.pending:
            # All work is done: the rest ran beside a checkpoint or an evaluation, which keep their time.
            self._device = 0.0

    def _move_communication(self, exposed: float) -> None:
        owed = self._communication + exposed
        # A step that was shorter than an estimate shall not burden more than the next one.
        self._communication = min(exposed, self._move(owed, _BACKWARD, _COMMUNICATION))

    def _move(self, seconds: float, sources: tuple[int, ...], target: int) -> float:
        """Move up to ``seconds`` of what came to the sources in this step, so that no phase ever shrinks."""
        for source in sources:
            part = min(seconds, max(0.0, self._seconds[source] - self._before[source]))
            self._seconds[source] -= part
            self._seconds[target] += part
            seconds -= part
        return seconds
