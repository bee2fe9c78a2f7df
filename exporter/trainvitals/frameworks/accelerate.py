"""Accelerate: loops of one's own around an ``Accelerator``.

What is taken from where (accelerate 0.34 to 1.15):

===============================  =====================================================================================
``Accelerator.backward``         the loss of a micro-batch; the loss of a step is their mean
``Accelerator.clip_grad_norm_``  returns the norm of the gradients
``AcceleratedOptimizer.step``    an optimizer step where ``gradient_state.sync_gradients`` says so, else nothing; then
                                 ``step_was_skipped`` tells whether the scaler of half precision left it out
``Accelerator.log``              what the user tells the trackers
data loaders                     those that ``prepare`` makes; the next batch also moves to its device in there
===============================  =====================================================================================

Where a framework owns the steps (the Hugging Face Trainer is built upon Accelerate) or the program calls
``trainvitals.step`` itself, all of it is silent.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

from trainvitals import names, probe
from trainvitals.frameworks.capture import Source, capture
from trainvitals.frameworks.guard import Switches, around, safe, within
from trainvitals.frameworks.settings import stable
from trainvitals.frameworks.values import Losses, batch_size, is_sharded, numbers, plain_learning_rate

__all__ = ["install", "tracker"]

_NAME = "trainvitals"
_LOADERS = ("DataLoaderDispatcher", "DataLoaderShard", "SkipDataLoader")


class Watch:
    """What is known of the loop of this process; Accelerate, too, has one state per process."""

    def __init__(self) -> None:
        self.switches = Switches()
        self.number = 0
        self.losses = Losses()
        self._grad_norm: Any = None
        self._samples = 0
        self._batch = 0
        #: Optimizers that have stepped since the last step was counted.
        self._stepped: set[int] = set()
        #: Names that the last step had.
        self._given: set[str] = set()
        #: Whether an optimizer was prepared: a program that only evaluates is no training.
        self.training = False
        #: What the training is made of, told with its first step, when all is prepared; then None.
        self._lineage: _Lineage | None = _Lineage()

    def is_silent(self) -> bool:
        """Whether there is no loop of the program's own."""
        return not self.training or capture.is_muted(Source.LIBRARY)

    @property
    def is_below(self) -> bool:
        """Whether a framework or the program itself owns the steps, and there is no loop of its own here."""
        try:
            return not self.training and capture.is_muted(Source.LIBRARY)
        except Exception:  # Asked by a loader of the program's; the next hook counts it.
            return False

    def prepare(self, accelerator: Any, *_: Any, **__: Any) -> None:
        """An optimizer is prepared: the first sign of a training."""
        if capture.is_muted(Source.LIBRARY):
            return
        self.training = True
        # A new optimizer after others is another training, or will step in the same round: its first step counts.
        self._stepped = set()
        ranks = {"rank": accelerator.process_index, "local_rank": accelerator.local_process_index}
        capture.begin(framework="accelerate", world_size=accelerator.num_processes, **ranks)
        # The optimizer below ends its step before ours does.
        capture.claim(Source.LIBRARY)

    def prepare_all(self, _: Any, *objects: Any, **__: Any) -> None:
        """Objects are prepared: note what they are before a model is spread over ranks."""
        if self._lineage is not None and not capture.is_muted(Source.LIBRARY):
            self._lineage.prepare(objects)

    def configure(self, _: Any, __: Any = None, config: Any = None, *___: Any, **____: Any) -> None:
        """Note the settings that ``init_trackers`` is given."""
        if self._lineage is not None and config is not None:
            self._lineage.settings = stable(config if isinstance(config, Mapping) else vars(config))

    def take_batch(self, batch: Any) -> None:
        """Note the size of a batch; it counts when something is learnt from it."""
        self._batch = batch_size(batch)

    def take_loss(self, _: Any, __: Any, loss: Any = None, **___: Any) -> None:
        """Take the loss of a micro-batch."""
        if not self.is_silent():
            self.losses.add(loss)
            self._samples, self._batch = self._samples + self._batch, 0

    def keep_grad_norm(self, norm: Any, *_: Any, **__: Any) -> None:
        """Keep the norm of the gradients, also for the Trainer, whose releases before 5 hand it to nobody."""
        self._grad_norm = None if is_sharded(norm) else norm

    def take_grad_norm(self) -> Any:
        """Return the norm of the gradients since the last call, or None."""
        norm, self._grad_norm = self._grad_norm, None
        return norm

    def step(self, _: Any, optimizer: Any, *__: Any, **___: Any) -> None:
        """Count an optimizer step: of several optimizers (GANs), when one of them steps again."""
        if self.is_silent() or not optimizer.gradient_state.sync_gradients:
            return
        values = {
            "loss": self.losses.take_mean(),
            "grad_norm": self.take_grad_norm(),
            "learning_rate": plain_learning_rate(optimizer),
            "samples": self._samples or None,
            "skipped": optimizer.step_was_skipped or None,
        }
        if self._stepped and id(optimizer) not in self._stepped:
            self._stepped.add(id(optimizer))
            return
        self._stepped = {id(optimizer)}
        self._samples = 0
        self.number += 1
        known = {name: value for name, value in values.items() if value is not None}
        self._given = set(known)
        if capture.step(Source.LIBRARY, self.number, known) and self._lineage is not None:
            lineage, self._lineage = self._lineage, None
            lineage.offer(optimizer)

    def log(self, values: Any) -> None:
        """Add what the user logs, except what the step knows already: a mean over steps, say."""
        if self.is_silent() or not isinstance(values, Mapping):
            return
        news: dict[str, Any] = {}
        results: dict[str, dict[str, Any]] = {}
        for name, value in numbers(values).items():
            if result := names.result(name):
                results.setdefault(result.split, {})[result.name] = value
            elif name not in self._given and names.ours(name) != "step":
                ours = names.ours(name)
                news[name if ours in self._given else ours] = value
        if news:
            capture.log(news)
        for split, measured in results.items():
            probe.evaluate(self.number, measured, name=split)


class _Lineage:
    """What a loop is made of, as far as Accelerate is told."""

    def __init__(self) -> None:
        #: What ``init_trackers`` was given.
        self.settings: dict[str, Any] = {}
        self._models: list[dict[str, str]] = []
        self._batch_sizes: list[int] = []

    def prepare(self, objects: Sequence[Any]) -> None:
        """Note models and loaders."""
        from trainvitals.probe import digest  # noqa: PLC0415  Not in every step, and not in every program.

        module: Any = sys.modules["torch"].nn.Module
        for each in objects[:64]:
            if isinstance(each, module):
                self._models.append(digest.of_model(each))
            elif hasattr(each, "batch_sampler") and isinstance(size := getattr(each, "batch_size", None), int):
                self._batch_sizes.append(size)

    def offer(self, optimizer: Any) -> None:
        """Tell of it."""
        state = importlib.import_module("accelerate.state").AcceleratorState()
        own = {
            "mixed_precision": state.mixed_precision,
            "distributed_type": state.distributed_type,
            "gradient_accumulation_steps": optimizer.gradient_state.num_steps,
            "batch_sizes": self._batch_sizes,
            "optimizer": type(optimizer.optimizer).__name__,
        }
        model: Any = self._models[0] if len(self._models) == 1 else dict(enumerate(self._models)) or None
        probe.offer_lineage(config={**self.settings, "accelerate": own}, model=model)


#: That of this process.
watch = Watch()


def install(module: ModuleType) -> None:
    """Hang our hooks into ``accelerate``."""
    accelerator = module.Accelerator
    around(accelerator, "prepare_optimizer", before=_hook("prepare"))
    around(accelerator, "prepare", before=_hook("prepare_all"))
    around(accelerator, "init_trackers", before=_hook("configure"))
    around(accelerator, "backward", after=_hook("take_loss"))
    around(accelerator, "clip_grad_norm_", after=_hook("keep_grad_norm"))
    within(accelerator, "log", _logging)
    within(accelerator, "save_state", _saving)
    within(accelerator, "load_state", _loading)
    within(accelerator, "save_model", lambda *_, **__: None if watch.is_silent() else probe.phase("checkpoint"))
    optimizer = importlib.import_module("accelerate.optimizer").AcceleratedOptimizer
    around(optimizer, "step", after=_hook("step"))
    loaders = importlib.import_module("accelerate.data_loader")
    for name in _LOADERS:
        if hasattr(loaders, name):
            _watch_loader(getattr(loaders, name))


#: Hooks of every batch that are for nothing without a loop of the program's own, as below the Trainer.
_OF_A_LOOP = frozenset({"take_batch", "take_loss", "step"})


def _hook(name: str) -> Callable[..., None]:
    """Return a method of the watch, silent once it has raised: steps are many."""
    needs_loop = name in _OF_A_LOOP

    def hook(*args: Any, **kwargs: Any) -> None:
        if watch.training or not needs_loop:
            watch.switches.call(name, getattr(watch, name), *args, **kwargs)

    return hook


def tracker() -> Any:
    """Return a tracker for ``Accelerator(log_with=[...])``, for programs without :func:`trainvitals.auto`."""
    install(importlib.import_module("accelerate"))
    return _tracker_class()()


@functools.cache
def _tracker_class() -> Any:
    base = importlib.import_module("accelerate.tracking").GeneralTracker
    # Every rank tells its own values.
    settings = {"name": _NAME, "requires_logging_directory": False, "main_process_only": False}
    return type("TrainvitalsTracker", (_Tracker, base), settings)


class _Tracker:
    """Passes on what ``Accelerator.log`` is told.  It becomes a ``GeneralTracker`` in the class made above."""

    @property
    def tracker(self) -> Any:
        """Return what the tracker is about: nothing else than itself."""
        return self

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Take the settings that ``init_trackers`` was given: they were heard already."""

    @safe
    def log(self, values: dict[str, Any], *_: Any, **__: Any) -> None:
        """Add values to the last step; whatever step the program calls it, it is the one that was counted."""
        watch.log(values)


def _logging(accelerator: Any, values: Any = None, *_: Any, **__: Any) -> AbstractContextManager[None] | None:
    if watch.is_silent():
        return None
    if not any(each.name == _NAME for each in accelerator.trackers):
        _hook("log")(values)
    # Trackers (W&B, TensorBoard) are told the same.
    return capture.quoting()


# Checkpoints --------------------------------------------------------------------------------------------------------


def _saving(accelerator: Any, output_dir: Any = None, *_: Any, **__: Any) -> AbstractContextManager[None] | None:
    if watch.is_silent():
        return None
    settings = accelerator.project_configuration
    if settings.automatic_checkpoint_naming:
        output_dir = os.path.join(accelerator.project_dir, "checkpoints", f"checkpoint_{accelerator.save_iteration}")
    return probe.checkpoint(watch.number, output_dir)


def _loading(accelerator: Any, input_dir: Any = None, *_: Any, **__: Any) -> AbstractContextManager[None] | None:
    return None if watch.is_silent() else _Load(accelerator, input_dir)


class _Load(AbstractContextManager[None]):
    """The loading of a checkpoint, after which steps are counted from there."""

    def __init__(self, accelerator: Any, path: Any) -> None:
        self._accelerator = accelerator
        self._checkpoint = probe.checkpoint(watch.number, path, "load")

    def __enter__(self) -> None:
        self._checkpoint.__enter__()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._checkpoint.__exit__(kind, None, None)
        done = None if kind is not None else _steps_done(self._accelerator._optimizers)  # noqa: SLF001  no public one
        watch.number = watch.number if done is None else done


def _steps_done(optimizers: Any) -> int | None:
    """Return how many steps an optimizer has made, as Adam and its kin count them; on a device it is left unread."""
    for optimizer in optimizers:
        for state in optimizer.state.values():
            step: Any = state.get("step") if isinstance(state, Mapping) else None
            if isinstance(step, (int, float)) or getattr(getattr(step, "device", None), "type", None) == "cpu":
                return int(step)
    return None


# Data ---------------------------------------------------------------------------------------------------------------


def _watch_loader(kind: Any) -> None:
    """Let a loader's batches be waited for in the phase "data"."""
    original = vars(kind).get("__iter__")
    if original is None or hasattr(original, "__trainvitals__"):
        return

    @functools.wraps(original)
    def iterate(self: Any) -> Any:
        batches = original(self)
        # The framework above tells of waits itself.
        return batches if watch.is_below else _Batches(batches)

    iterate.__trainvitals__ = True  # type: ignore[attr-defined]
    kind.__iter__ = iterate


class _Batches:
    """The iterator of a loader: itself, but for the time that it takes."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> Any:
        batch = next(self._batches)
        _take_batch(batch)
        return batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)


_take_batch = safe(_hook("take_batch"))


def _waiting(_: _Batches) -> AbstractContextManager[None] | None:
    """Return the phase of a wait for a batch; nobody learns from one that is fetched below ``no_grad``."""
    torch = sys.modules.get("torch")
    learning = torch is not None and torch.is_grad_enabled()
    return probe.phase("data") if learning and not watch.is_silent() else None


within(_Batches, "__next__", _waiting)
