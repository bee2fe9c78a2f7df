"""Lightning 2.x, as ``lightning.pytorch`` and as ``pytorch_lightning``.

Three doors lead here, and a Trainer is watched once whichever are used: the entry points
``lightning.pytorch.callbacks_factory`` and ``pytorch_lightning.callbacks_factory``, which Lightning asks for callbacks
(``trainer/connectors/callback_connector.py``), ``trainvitals.auto()`` and ``callbacks=[callback()]``.

Beside the hooks of a callback, four calls are wrapped: ``LightningModule.log`` (what the user logs, as it is),
``Trainer.save_checkpoint``, and ``__iter__`` and ``__next__`` of the data fetcher.
The metrics that a Trainer keeps are not asked during training: that would read those of the progress bar.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import weakref
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from trainvitals import names, probe
from trainvitals.frameworks import steering
from trainvitals.frameworks.capture import Source, capture
from trainvitals.frameworks.guard import Switch, around, safe, within
from trainvitals.frameworks.settings import sized, stable
from trainvitals.frameworks.values import batch_size

__all__ = ["callback", "install", "new_package", "old_package"]

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")
_MARK = "_trainvitals_watch"

#: The watch of the training or evaluation that runs now; what is wrapped for all Trainers asks it.
_running: Watch | None = None


class Watch:
    """What is known of one training.  The methods are hooks of a callback: (trainer, module, ...)."""

    def __init__(self) -> None:
        #: Whether this watch is the one that works, of several in one Trainer.
        self.active = False
        self._step = 0
        self._inside_batch = False
        self._logged: dict[str, Any] = {}
        self._loss: Any = None
        self._parts = 0
        self._samples = 0
        self._learning_rate: Any = None
        self._evaluation: contextlib.AbstractContextManager[Any] | None = None
        self._evaluated: set[str] = set()
        self._around: Watch | None = None

    # Training -------------------------------------------------------------------------------------------------------

    def setup(self, trainer: Any, module: Any, stage: str) -> None:
        """Begin to record: ranks are known, data is not loaded yet."""
        if stage == "fit":
            _wrap(trainer)
            ranks = {"rank": trainer.global_rank, "local_rank": trainer.local_rank, "world_size": trainer.world_size}
            capture.begin(framework="lightning", **ranks)
            # Before a strategy spreads the model over ranks.
            _offer_model(module)

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Take over; the loader is there, and so is the number of steps."""
        global _running
        _running = self
        self._step = trainer.global_step
        target = _target_steps(trainer)
        capture.claim(Source.FRAMEWORK)
        capture.begin(framework="lightning", **({} if target is None else {"target_steps": target}))
        _offer_settings(trainer, module)
        _offer_orders(trainer)

    def on_train_batch_start(self, *_: Any) -> None:
        """Whatever is logged from here on belongs to the step to come."""
        self._inside_batch = True

    def on_before_optimizer_step(self, trainer: Any, _: Any, optimizer: Any) -> None:
        """Take the learning rate of the first optimizer before a scheduler changes it."""
        if optimizer is trainer.optimizers[0]:
            self._learning_rate = optimizer.param_groups[0]["lr"]

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, _: int) -> None:
        """Report a step where the number of optimizer steps has changed; several in one batch are one."""
        self._inside_batch = False
        self._samples += batch_size(batch)
        self._add_loss(outputs if isinstance(outputs, Mapping) else {"loss": outputs}, module)
        number = trainer.global_step
        if number == self._step:
            return
        self._step = number
        values = self._values(trainer, module)
        self._logged, self._loss, self._parts, self._samples = {}, None, 0, 0
        capture.step(Source.FRAMEWORK, number, values)
        trainer.should_stop = trainer.should_stop or steering.must_stop()

    def _add_loss(self, outputs: Mapping[str, Any], module: Any) -> None:
        """Add up the parts of an accumulated loss, each divided by their planned number; on its device, unread."""
        loss = outputs.get("loss")
        if loss is None:
            return
        self._parts += 1
        self._loss = loss if self._loss is None or not module.automatic_optimization else self._loss + loss

    def _values(self, trainer: Any, module: Any) -> dict[str, Any]:
        values = dict(self._logged)
        if self._loss is not None:
            planned = trainer.accumulate_grad_batches if module.automatic_optimization else self._parts
            # The last batches of an epoch may be fewer than planned.
            values["loss"] = self._loss if planned == self._parts else self._loss * (planned / self._parts)
        if self._learning_rate is not None:
            values["learning_rate"] = self._learning_rate
        if self._samples:
            values["samples"] = self._samples
        return values

    def logged(self, name: str, value: Any) -> None:
        """Take what the user logs: with the step to come, or for an evaluation its name alone."""
        if self._evaluation is not None:
            self._evaluated.add(name)
        elif (number := _number(value)) is not None:
            ours = names.ours(name)
            # A loss that is logged beside the one that is returned keeps its name.
            name = name if ours in {"loss", "step"} else ours
            if self._inside_batch:
                self._logged[name] = number
            else:
                capture.log({name: number})

    def is_loading(self) -> bool:
        """Whether a batch that is fetched now is one of the training."""
        return self._evaluation is None

    def on_train_end(self, *_: Any) -> None:
        """Let go."""
        global _running
        self._leave_evaluation(None)
        if _running is self:
            _running = None

    def on_exception(self, trainer: Any, module: Any, error: BaseException) -> None:
        """Close what is open, and tell of the exception: Lightning turns Ctrl-C into an exit."""
        self._leave_evaluation(error)
        self.on_train_end(trainer, module)
        probe.record_exception(error, failed=not isinstance(error, KeyboardInterrupt))

    # Evaluation -----------------------------------------------------------------------------------------------------

    def on_validation_start(self, trainer: Any, *_: Any) -> None:
        """Count the time of an evaluation, but not that of the check before a training."""
        global _running
        if not trainer.sanity_checking:
            self._leave_evaluation(None)
            # An evaluation need not lie within a training.
            self._around, _running = _running, self
            self._evaluated = set()
            self._evaluation = probe.phase("evaluation")
            self._evaluation.__enter__()

    def on_validation_end(self, trainer: Any, _: Any, split: str = "validation") -> None:
        """Report what the evaluation has logged; Lightning has computed it before this hook, for itself."""
        if self._evaluation is None:
            return
        self._leave_evaluation(None)
        metrics = getattr(trainer._logger_connector, "_callback_metrics", None)  # noqa: SLF001  the public one reads
        values = {}
        for name, value in (trainer.callback_metrics if metrics is None else metrics).items():
            if name.split("/dataloader_idx_")[0] in self._evaluated:
                known = names.result(name)
                values[name if known is None else known.name] = value
        if values:
            probe.evaluate(trainer.global_step, values, name=split)

    on_test_start = on_validation_start

    def on_test_end(self, trainer: Any, module: Any) -> None:
        """As after a validation."""
        self.on_validation_end(trainer, module, "test")

    def _leave_evaluation(self, error: BaseException | None) -> None:
        global _running
        phase, self._evaluation = self._evaluation, None
        if phase is not None:
            _running = self._around
            phase.__exit__(None if error is None else type(error), error, None)


_HOOKS = (
    "setup",
    "on_exception",
    "on_before_optimizer_step",
    "on_test_end",
    "on_test_start",
    "on_train_batch_end",
    "on_train_batch_start",
    "on_train_end",
    "on_train_start",
    "on_validation_end",
    "on_validation_start",
)

#: Called in every batch: these do not look for other callbacks of ours.
_FREQUENT = ("on_before_optimizer_step", "on_train_batch_end", "on_train_batch_start")


def _target_steps(trainer: Any) -> int | None:
    """Return the planned number of steps; asks for no loader that is not there yet."""
    limit = trainer.max_steps if trainer.max_steps > 0 else None
    # How many steps a module makes in a batch that optimizes by itself is not known.
    if trainer.train_dataloader is None or not trainer.lightning_module.automatic_optimization:
        return limit
    planned = trainer.estimated_stepping_batches
    return int(planned) if 0 < planned < float("inf") else limit


@safe
def _offer_model(module: Any) -> None:
    probe.offer_lineage(model=module)


#: Settings of a Trainer, as it names them.
_SETTINGS = (
    "precision",
    "accumulate_grad_batches",
    "gradient_clip_val",
    "gradient_clip_algorithm",
    "max_epochs",
    "max_steps",
    "limit_train_batches",
    "num_devices",
    "num_nodes",
)


@safe
def _offer_orders(trainer: Any) -> None:
    """Let people save the run, and change the learning rate of its first optimizer."""
    known = weakref.ref(trainer)

    def save(step: int) -> str:
        saved: Any = known()
        path = os.path.join(saved.default_root_dir, f"ordered-step={step}.ckpt")
        # By all ranks, as Lightning wants it; the first of them writes.
        saved.save_checkpoint(path)
        return path

    schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
    steering.offer(save, next(iter(trainer.optimizers), None), schedulers)


def _offer_settings(trainer: Any, module: Any) -> None:
    """Tell of hyperparameters and of the Trainer's own settings; the loader is there."""
    own = {name: getattr(trainer, name, None) for name in _SETTINGS}
    own["strategy"] = type(trainer.strategy).__name__
    loader = trainer.train_dataloader
    size = getattr(loader, "batch_size", None)
    if isinstance(size, int):
        own["batch_size"] = size
    own["optimizers"] = [type(each).__name__ for each in trainer.optimizers]
    config: dict[str, Any] = {}
    for source in (getattr(trainer, "datamodule", None), module):
        hyperparameters = getattr(source, "hparams", None)
        if isinstance(hyperparameters, Mapping):
            config.update(stable(hyperparameters))
    probe.offer_lineage(config={**config, "trainer": own}, dataset=sized(getattr(loader, "dataset", None)))


def _number(value: Any) -> Any:
    """Return a number, or a tensor without what would keep its graph alive; None for a metric that is an object."""
    if isinstance(value, (int, float)):
        return value
    return value.detach() if hasattr(value, "detach") and hasattr(value, "numel") else None


# Doors --------------------------------------------------------------------------------------------------------------


def callback(package: str | None = None) -> Any:
    """Return a callback for ``Trainer(callbacks=[...])``.

    ``package`` is "lightning.pytorch" or "pytorch_lightning"; by default the one that the program has imported.
    Raises ModuleNotFoundError where there is no Lightning.
    """
    package = package or next((name for name in _PACKAGES if name in sys.modules), _PACKAGES[0])
    base = importlib.import_module(package).Callback

    def reduce(_: object) -> tuple[Any, ...]:
        # A class that is made in a function has no name by which a spawned process could find it.
        return callback, (package,)

    # A hook that fails once is silent from then on; the others go on.
    members: dict[str, Any] = {name: safe(Switch()(_hook(name))) for name in _HOOKS}
    members.update({"__reduce__": reduce, "__module__": __name__, "__doc__": "Tells the probe of a training."})
    made = type("Trainvitals", (base,), members)()
    setattr(made, _MARK, Watch())
    return made


def _hook(name: str) -> Any:
    method, is_frequent = getattr(Watch, name), name in _FREQUENT

    def hook(self: Any, trainer: Any, *args: Any, **kwargs: Any) -> None:
        watch = getattr(self, _MARK)
        if not is_frequent:
            watch.active = _ours(trainer)[:1] == [self]
        if watch.active:
            method(watch, trainer, *args, **kwargs)

    hook.__name__ = name
    return hook


def _ours(trainer: Any) -> list[Any]:
    """Return the callbacks of ours; the first of them works."""
    return [each for each in trainer.callbacks if hasattr(each, _MARK)]


def new_package() -> list[Any]:
    """Return the callbacks for a Trainer of ``lightning.pytorch``: its entry point.  Never raises."""
    return _callbacks(_PACKAGES[0])


def old_package() -> list[Any]:
    """Return the callbacks for a Trainer of ``pytorch_lightning``: its entry point.  Never raises."""
    return _callbacks(_PACKAGES[1])


def _callbacks(package: str) -> list[Any]:
    try:
        return [] if os.environ.get("TRAINVITALS_DISABLE", "") not in {"", "0"} else [callback(package)]
    except Exception as error:
        probe.count_error(error)
        return []


def install(module: ModuleType) -> None:
    """Watch every Trainer of the module that defines them (``lightning.pytorch.trainer.trainer``)."""
    package = module.__name__.removesuffix(".trainer.trainer")

    def add(_: Any, trainer: Any, *__: Any, **___: Any) -> None:
        if not _ours(trainer):
            # Not behind the callbacks that save: those must be the last.
            trainer.callbacks[:0] = _callbacks(package)

    around(module.Trainer, "__init__", after=add)


# What is wrapped for all Trainers of a package ----------------------------------------------------------------------


def _wrap(trainer: Any) -> None:
    """Hang into the classes of the package that this Trainer is from; it may be of a class derived from Lightning's."""
    modules = {f"{package}.trainer.trainer": package for package in _PACKAGES}
    kind = next(kind for kind in type(trainer).__mro__ if kind.__module__ in modules)
    package = modules[kind.__module__]
    within(kind, "save_checkpoint", _saving)
    around(importlib.import_module(package).LightningModule, "log", after=_logging)
    fetcher = sys.modules[f"{package}.loops.fetchers"]._DataFetcher  # noqa: SLF001  no public one
    for name in ("__iter__", "__next__"):
        within(fetcher, name, _loading)


@Switch()
def _saving(trainer: Any, path: Any = None, *_: Any, **given: Any) -> contextlib.AbstractContextManager[None]:
    return probe.checkpoint(trainer.global_step, str(given.get("filepath", path)))


@Switch()
def _logging(_: Any, __: Any, name: Any = None, value: Any = None, *___: Any, **____: Any) -> None:
    if _running is not None:
        _running.logged(str(name), value)


@Switch()
def _loading(*_: Any) -> contextlib.AbstractContextManager[None] | None:
    return probe.phase("data") if _running is not None and _running.is_loading() else None
