"""DeepSpeed: what ``DeepSpeedEngine`` does, below a program's own loop, Accelerate, Lightning or the Trainer.

Read at DeepSpeed 0.19.8, ``deepspeed/runtime/engine.py`` and ``runtime/pipe/engine.py``; tested on a fake of it.

ZeRO calls the inner optimizer once per group of parameters, so its calls are no steps; ``global_steps`` is the number.
``get_global_grad_norm`` says that it may be a collective call: the attribute behind it is read instead.
"""

from __future__ import annotations

import contextlib
import weakref
from types import ModuleType
from typing import Any

from trainvitals import probe
from trainvitals.frameworks.capture import Source, capture
from trainvitals.frameworks.guard import Switch, around, within

__all__ = ["install"]


class _Engine:
    """What is known of the step that one engine is in."""

    def __init__(self) -> None:
        self.steps = self.skipped = 0
        self.learning_rate: Any = None
        self.forward_loss: Any = None
        self._loss: Any = None
        self._parts = 0
        self._divided = False

    def add_loss(self, loss: Any, *, divided: bool = False) -> None:
        """Add the loss of one micro-batch, on its device, unread; ``divided`` is one that the program has scaled."""
        loss = loss.detach() if hasattr(loss, "detach") else loss
        self._loss = loss if self._loss is None else self._loss + loss
        self._parts += 1
        self._divided = divided

    def take_loss(self) -> Any:
        """Return the mean of the micro-batches since the last step, or None."""
        if self.forward_loss is not None:
            self.add_loss(self.forward_loss)
        loss, parts = self._loss, 1 if self._divided else self._parts
        self.forward_loss = self._loss = None
        self._parts, self._divided = 0, False
        return loss if loss is None or parts == 1 else loss / parts


_engines: weakref.WeakKeyDictionary[Any, _Engine] = weakref.WeakKeyDictionary()
#: The engine whose steps are those of the run: the first that makes one.
_first: weakref.ref[Any] | None = None


def install(module: ModuleType) -> None:
    """Hang into the engine of ``deepspeed.runtime.engine`` and that of ``deepspeed.runtime.pipe.engine``.

    Raises AttributeError for an engine without these methods, before anything is hung into it.
    """
    switch = Switch()
    engine = module.DeepSpeedEngine
    for name in ("forward", "backward", "step", "save_checkpoint", "load_checkpoint", "get_lr", "train_batch_size"):
        getattr(engine, name)
    around(engine, "forward", after=switch(_forward))
    around(engine, "backward", before=switch(_backward))
    around(engine, "step", before=switch(_before_step), after=switch(_after_step))
    within(engine, "save_checkpoint", switch(_saving))
    within(engine, "load_checkpoint", switch(_loading))
    if hasattr(module, "PipelineEngine"):
        around(
            module.PipelineEngine, "train_batch", before=switch(_before_step), after=switch(_after_batch_of_a_pipeline)
        )


def _saving(engine: Any, save_dir: Any, tag: Any = None, *_: Any, **__: Any) -> contextlib.AbstractContextManager[None]:
    return probe.checkpoint(engine.global_steps, f"{save_dir}/{tag or f'global_step{engine.global_steps}'}")


def _loading(engine: Any, load_dir: Any, *_: Any, **__: Any) -> contextlib.AbstractContextManager[None]:
    return probe.checkpoint(engine.global_steps, str(load_dir), "load")


# DeepSpeed's decorator hides the signature of ``forward`` and ``backward`` (``utils/nvtx.py``): the names of the
# parameters are written here.


def _backward(engine: Any, loss: Any, *_: Any, scale_wrt_gas: bool = True, **__: Any) -> None:
    """Add the loss of a micro-batch before it is divided by their number."""
    state = _state(engine)
    state.forward_loss = None
    state.add_loss(loss, divided=not scale_wrt_gas)


def _state(engine: Any) -> _Engine:
    return _engines.setdefault(engine, _Engine())


def _forward(result: Any, engine: Any, *_: Any, **__: Any) -> None:
    """Keep a loss that the model returns; ``backward`` tells of it too, but ``loss.backward()`` does not."""
    loss = getattr(result, "loss", result)
    if engine.training and getattr(loss, "shape", None) == ():
        state = _state(engine)
        if state.forward_loss is not None:
            state.add_loss(state.forward_loss)
        state.forward_loss = loss.detach()


def _before_step(engine: Any, *_: Any, **__: Any) -> None:
    """Note where the engine is, and that its inner optimizer's calls are no steps."""
    capture.claim(Source.ENGINE)
    state = _state(engine)
    state.steps, state.skipped = engine.global_steps, engine.skipped_steps
    rates = engine.get_lr()
    state.learning_rate = rates[0] if rates else None


def _after_step(_: Any, engine: Any, *__: Any, **___: Any) -> None:
    """Report a step, unless gradients are only being accumulated."""
    state = _state(engine)
    if engine.global_steps == state.steps:
        return
    skipped = engine.skipped_steps > state.skipped
    values = {"loss": state.take_loss(), "learning_rate": state.learning_rate, "grad_norm": _norm(engine)}
    # A share of the global batch, so that all ranks together have it once, whatever is parallel.
    values["samples"] = engine.train_batch_size() / max(1, engine.world_size)
    if skipped:
        values["skipped"] = True
    if capture.is_muted(Source.ENGINE):
        if skipped:
            # Whoever counts the steps does not see it.
            probe.log({"skipped": True})
    elif _is_first(engine) and capture.begin(framework="deepspeed"):
        known = {name: value for name, value in values.items() if value is not None}
        capture.step(Source.ENGINE, engine.global_steps, known)


def _after_batch_of_a_pipeline(loss: Any, engine: Any, *_: Any, **__: Any) -> None:
    """Report the step of a pipeline, which is one call and returns the loss."""
    if loss is not None:
        _state(engine).add_loss(loss)
    _after_step(loss, engine)


def _norm(engine: Any) -> Any:
    """Return the norm that the optimizer has left, None where it left none; -1 stands for an overflow."""
    norm = vars(engine).get("_global_grad_norm")
    return None if isinstance(norm, (int, float)) and norm < 0 else norm


def _is_first(engine: Any) -> bool:
    """Whether this engine's steps are those of the run: others (a critic, say) are trained beside it."""
    global _first
    if _first is None or _first() is None:
        _first = weakref.ref(engine)
    return _first() is engine
