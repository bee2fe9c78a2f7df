"""PyTorch itself: plain loops, ``torchrun``, DDP and FSDP, with no line changed.

What is taken from where (PyTorch 2.0 to 2.13):

=====================================  ==============================================================================
the global optimizer hook              a step, and the learning rate where it is a number
``GradScaler.step``                    the steps that it leaves out: then the optimizer's hook is silent
``clip_grad_norm_``                    the norm, a tensor that goes on unread; FSDP's own method too
``_BaseDataLoaderIter.__next__``       the wait for data; below ``no_grad``, the time of an evaluation
``torch.save``, DCP's ``save``         how long they take, and whether they fail
``DDP._get_ddp_logging_data``          exposed communication, as DDP itself measures it on one step in a hundred
=====================================  ==============================================================================

The loss is not taken: only ``Tensor.backward`` sees it, and what is hung in there is in the way of every compiler.
It comes from what the program logs, or from ``trainvitals.log(loss=...)``.
Collectives are not timed either, so the communication of FSDP is part of "device" (or of "train" without one).
"""

from __future__ import annotations

import functools
import os
from _thread import get_ident  # Not threading: a trainer that has none needs none.
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

from trainvitals import probe
from trainvitals.frameworks import guard
from trainvitals.frameworks.capture import Source, capture
from trainvitals.frameworks.cycle import Cycle
from trainvitals.frameworks.ddp import Communication
from trainvitals.frameworks.guard import around, safe, within
from trainvitals.frameworks.imports import when_imported
from trainvitals.frameworks.values import is_sharded
from trainvitals.probe import split
from trainvitals.rankfile import PHASES

__all__ = ["install"]

_MARK = "__trainvitals__"
#: Bytes below which a file is no checkpoint: states of schedulers and of random numbers.
SMALLEST_CHECKPOINT = 64 * 1024
#: A program that trains on a device has found it by so many steps.
_LOOKS = 10


class Watch:
    """What is known of the loop of this process."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._cycle = Cycle()
        self._stepped = False
        self._thread = 0
        self._evaluation: AbstractContextManager[None] | None = None
        self._device: Any = None
        self._looks = 0
        self._waiting: Any = None
        #: Whether nothing has happened since the last step that the next one must look at.
        self._is_usual = False
        self._is_learning: Callable[[], bool] = torch.is_grad_enabled
        self._tensor = torch.Tensor

    # Steps ----------------------------------------------------------------------------------------------------------

    def step(self, optimizer: Any) -> None:
        """Take the step of an optimizer."""
        self._stepped = True
        if self._device is not None and self._device_is_capturing():
            return
        # Fused optimizers look at this themselves, on the device.
        skipped = getattr(optimizer, "found_inf", None)
        if skipped is None and self._is_usual and self._repeat(optimizer):
            return
        if self._looks < _LOOKS:
            self._looks += 1
            self._device = self._device or split.device_module(self._torch)
            if self._device is not None and self._device_is_capturing():
                return
        self._count(optimizer, None if skipped is None else {"skipped": skipped})
        self._is_usual = self._looks >= _LOOKS

    def _repeat(self, optimizer: Any) -> bool:
        """Take a step like the one before; False where this one needs a closer look."""
        group = optimizer.param_groups[0]
        rate, cycle = group["lr"], self._cycle
        if rate.__class__ is float and (id(optimizer), id(group["params"][0])) == cycle.alone and capture.repeat(rate):
            cycle.row += 1
            return True
        return False

    def _device_is_capturing(self) -> bool:
        """Whether this is no step but the recording of one: nothing may happen on the device meanwhile."""
        return bool(getattr(self._device, "is_current_stream_capturing", bool)())

    def _count(self, optimizer: Any, known: dict[str, Any] | None) -> None:
        self._thread = get_ident()
        if self._evaluation is not None:
            self.end_evaluation()
        group = optimizer.param_groups[0]
        parameters = group["params"]
        # The parameters tell the parts of an optimizer that is stepped once for each of them.
        part = (id(optimizer), id(parameters[0]) if parameters else 0)
        if self._cycle.begins(part):
            rate = group.get("lr")
            values = {"learning_rate": rate} if isinstance(rate, (int, float)) else {}  # In a tensor, it is not read.
            if capture.step(Source.OPTIMIZER, None, {**values, **known} if known else values):
                return
        if known:
            capture.hold(known)

    def begin_scaled(self, *_: Any, **__: Any) -> None:
        """The scaler of half precision is asked for a step."""
        self._stepped = False

    def end_scaled(self, _: Any, scaler: Any, optimizer: Any, *__: Any, **___: Any) -> None:
        """Take a step that the scaler has left out, after it has looked at the gradients itself."""
        if not self._stepped and scaler.is_enabled() and isinstance(optimizer, self._torch.optim.Optimizer):
            self._count(optimizer, {"skipped": True})

    def take_norm(self, norm: Any) -> None:
        """Keep the norm of the gradients for the step to come; reading one that is in parts would be a collective."""
        if norm.__class__ is self._tensor and norm.is_cpu:
            capture.held["grad_norm"] = norm.item()
        elif not is_sharded(norm):
            capture.hold({"grad_norm": norm})
        elif all(placement.is_replicate() for placement in norm.placements):
            capture.hold({"grad_norm": norm.to_local()})

    # Time -----------------------------------------------------------------------------------------------------------

    def _is_training_thread(self) -> bool:
        return get_ident() == self._thread and probe.is_recording()

    def begin_loading(self) -> bool:
        """Begin the phase of a wait for a batch, if it is one; nobody learns from a batch below ``no_grad``."""
        recorder = probe._recorder  # noqa: SLF001  A call would cost a microsecond in each step.
        if recorder is None:
            return False
        if get_ident() != self._thread:
            self._is_usual = False  # The training may have moved.
            return False
        if self._is_learning():
            if self._evaluation is not None:
                self.end_evaluation()
            # Not by probe.phase: this is in every step, and an error is counted by who calls.
            if recorder.state.phase in _KEPT or not recorder.phases.begin_wait():
                return False
            self._waiting = recorder
            return True
        if self._evaluation is None and probe.current_phase() == "train":
            self._is_usual = False
            self._evaluation = probe.phase("evaluation")
            self._evaluation.__enter__()
        return False

    def end_loading(self, is_waiting: bool, *, is_over: bool = False) -> None:
        """End the wait that :meth:`begin_loading` has begun; an evaluation is over with its loader."""
        if is_waiting:
            recorder = probe._recorder  # noqa: SLF001  As above.
            if recorder is not None and recorder is self._waiting:
                recorder.phases.end_wait()
        elif is_over and not self._is_learning():
            self.end_evaluation()

    def end_evaluation(self) -> None:
        """End the evaluation that began with a batch, if there is one."""
        evaluation, self._evaluation = self._evaluation, None
        if evaluation is not None and probe.current_phase() == "evaluation":
            evaluation.__exit__(None, None, None)

    def saving(self, _: Any = None, file: Any = None, *__: Any, **given: Any) -> AbstractContextManager[None] | None:
        """Return the checkpoint that ``torch.save(state, file)`` is, unless it is within one that somebody times."""
        file = given.get("f", file)
        is_path = isinstance(file, (str, os.PathLike))
        return _Saving(os.fspath(file)) if is_path and self._is_outermost() else None

    def saving_parts(self, *_: Any, **given: Any) -> AbstractContextManager[None] | None:
        """Return the checkpoint that DCP's ``save`` is."""
        where = given.get("checkpoint_id") or getattr(given.get("storage_writer"), "path", None)
        return probe.checkpoint(path=None if where is None else str(where)) if self._is_outermost() else None

    def handing_over(self, *_: Any, **__: Any) -> AbstractContextManager[None] | None:
        """Return the phase of DCP's ``async_save``: its end is in another thread."""
        return probe.phase("checkpoint") if self._is_outermost() else None

    def _is_outermost(self) -> bool:
        return self._is_training_thread() and probe.current_phase() != "checkpoint"


#: Phases that stay what they are while a batch is fetched.
_KEPT = frozenset(PHASES.index(name) for name in ("checkpoint", "data", "evaluation"))


class _Saving(AbstractContextManager[None]):
    """A checkpoint, unless the file turns out to be a small one."""

    def __init__(self, path: Any) -> None:
        self._path = path
        self._checkpoint = probe.checkpoint(path=path)

    def __enter__(self) -> None:
        self._checkpoint.__enter__()

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None and _size(self._path) < SMALLEST_CHECKPOINT:
            self._checkpoint.cancel()
        else:
            self._checkpoint.__exit__(kind, *rest)


def _size(path: Any) -> float:
    try:
        return os.path.getsize(path)
    except OSError:  # Moved away at once: then it was worth something.
        return SMALLEST_CHECKPOINT


def install(torch: ModuleType) -> None:
    """Hang our hooks into ``torch``."""
    watch, communication = Watch(torch), Communication()
    when_imported("torch.optim.optimizer", lambda module: _watch_optimizers(module, watch))
    when_imported("torch.amp.grad_scaler", lambda module: _watch_scaler(module, watch))
    for name in ("torch.nn.utils.clip_grad", "torch.nn.utils"):
        when_imported(name, lambda module: _watch_norm(torch, module, watch))
    when_imported(
        "torch.distributed.fsdp.fully_sharded_data_parallel",
        lambda module: _watch_norm(torch, module.FullyShardedDataParallel, watch),
    )
    when_imported("torch.utils.data.dataloader", lambda module: _watch_loaders(module, watch))
    for module in (torch, torch.serialization):
        within(module, "save", watch.saving)
    for name in ("torch.distributed.checkpoint.state_dict_saver", "torch.distributed.checkpoint"):
        when_imported(name, lambda module: _watch_parts(module, watch))
    when_imported(
        "torch.nn.parallel.distributed",
        lambda module: around(module.DistributedDataParallel, "__init__", after=communication.watch),
    )


def _watch_optimizers(module: Any, watch: Watch) -> None:
    step = watch.step

    def stepped(optimizer: Any, _: Any, __: Any) -> None:
        try:
            step(optimizer)
        except Exception as error:
            probe.count_error(error)

    # Dynamo leaves it alone where a step is compiled; its graph has a break there anyway.
    stepped._torchdynamo_disable = True  # type: ignore[attr-defined]  # noqa: SLF001
    module.register_optimizer_step_post_hook(stepped)


def _watch_scaler(module: Any, watch: Watch) -> None:
    around(module.GradScaler, "step", before=watch.begin_scaled, after=watch.end_scaled)


def _watch_norm(torch: Any, owner: Any, watch: Watch) -> None:
    """Not by ``around``: a training step that is compiled as a whole must find nothing of ours in there."""
    original, take, name = getattr(owner, "clip_grad_norm_", None), watch.take_norm, "clip_grad_norm_"
    compiling = getattr(getattr(torch, "compiler", None), "is_compiling", bool)
    if original is None or hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def clip_grad_norm_(*args: Any, **kwargs: Any) -> Any:
        norm = original(*args, **kwargs)
        if not compiling():
            try:
                take(norm)
            except Exception as error:
                guard.count(error)
        return norm

    setattr(clip_grad_norm_, _MARK, True)
    setattr(owner, name, clip_grad_norm_)


def _watch_loaders(module: Any, watch: Watch) -> None:
    """Hang into the iterators of all loaders; a proxy around them would hide what programs look for in them."""
    kind = module._BaseDataLoaderIter  # noqa: SLF001  no public one
    original = kind.__next__
    if hasattr(original, _MARK):
        return

    begin, end = watch.begin_loading, watch.end_loading

    # Not by ``within``: it would cost as much again as all the rest.
    @functools.wraps(original)
    def __next__(iterator: Any) -> Any:  # noqa: N807
        is_waiting = False
        try:
            is_waiting = begin()
        except Exception as error:
            probe.count_error(error)
        try:
            batch = original(iterator)
        except BaseException as error:
            safe(end)(is_waiting, is_over=isinstance(error, StopIteration))
            raise
        if is_waiting:
            try:
                end(is_waiting)
            except Exception as error:
                probe.count_error(error)
        return batch

    setattr(__next__, _MARK, True)
    kind.__next__ = __next__


def _watch_parts(module: Any, watch: Watch) -> None:
    within(module, "save", watch.saving_parts)
    within(module, "async_save", watch.handing_over)
