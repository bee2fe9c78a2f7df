"""The Trainer of Hugging Face's transformers, and of libraries that inherit from it (TRL, ms-swift).

The loop calls methods of the trainer and its callbacks; what is taken from where (transformers 4.46 to 5.24):

======================  ==============================================================================================
``training_step``       returns the loss of a micro-batch, scaled so that those of one optimizer step add up to its
                        loss: by ``num_items_in_batch`` or by the number of micro-batches, depending on model and
                        release.  The Trainer adds them up itself, but leaves out what is not finite
                        (``logging_nan_inf_filter``).
``get_batch_samples``   fetches the micro-batches of an optimizer step
``on_step_end``         ``global_step`` has been counted, nothing has been logged yet
``on_log``              on every rank, with numbers; also the results of evaluations, before ``on_evaluate``
======================  ==============================================================================================

The norm of the gradients is what ``Accelerator.clip_grad_norm_`` returns in each step.

Methods are wrapped in the class that defines them for a trainer's own class: a subclass that calls its base is one
call.  The callback is added after ``Trainer.__init__`` and not through ``DEFAULT_CALLBACKS``, which ms-swift replaces.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

from trainvitals import probe
from trainvitals.frameworks import accelerate, steering
from trainvitals.frameworks.capture import Source, capture
from trainvitals.frameworks.guard import Switches, around, safe, within
from trainvitals.frameworks.settings import sized, stable
from trainvitals.frameworks.values import Losses, batch_size, numbers, plain_learning_rate

__all__ = ["callback", "install"]

_MARK = "__trainvitals__"
#: Says how fast it went: the steps and phases tell that.
_SPEED = ("runtime", "_per_second", "model_preparation_time", "jit_compilation_time")
#: In the log, but known from elsewhere or of the whole training.
_NO_VALUES = {"epoch", "step", "total_flos", "train_loss", "num_input_tokens_seen"}


def install(module: ModuleType) -> None:
    """Hang our hooks into ``transformers.trainer``."""
    if "accelerate" in sys.modules:
        accelerate.install(sys.modules["accelerate"])
    trainer = module.Trainer
    around(trainer, "__init__", after=lambda _, self, *__, **___: _attend(self))
    _hang(trainer)


def callback() -> Any:
    """Return the callback for ``Trainer(callbacks=[...])``, for programs without :func:`trainvitals.auto`."""
    install(importlib.import_module("transformers.trainer"))
    return _callback_class()()


@functools.cache
def _callback_class() -> Any:
    base = importlib.import_module("transformers.trainer_callback").TrainerCallback
    return type("TrainvitalsCallback", (Watch, base), {})


def _hook(method: Callable[..., None]) -> Callable[..., None]:
    """Return a method of a callback as one that never raises, and is silent once it has: steps are many."""

    @functools.wraps(method)
    def hook(self: Watch, *args: Any, **kwargs: Any) -> None:
        if self.trainer() is not None:
            self.switches.call(method.__name__, method, self, *args, **kwargs)

    return safe(hook)


class Watch:
    """What is known of one trainer.  It becomes a ``TrainerCallback`` in the class that :func:`callback` makes."""

    def __init__(self) -> None:
        #: Not a reference that would keep the trainer and its model alive.
        self.trainer: Callable[[], Any] = _nobody
        self.switches = Switches()
        self.losses = Losses()
        self._learning_rate: float | None = None
        #: What the model calls its main input.
        self.main_input = "input_ids"
        self._tokens = self._samples = 0
        self._tokens_seen = 0
        #: That somebody has ordered a checkpoint.
        self._wish = steering.Wish()
        #: Names that the steps have since the last log.
        self._given: set[str] = set()
        #: Names that the log of the last evaluation held, by its split.
        self._logged: dict[str, set[str]] = {}

    def __reduce__(self) -> Any:
        # A copy (of a trainer that is sent to another process) begins anew.
        return callback, ()

    def forget(self) -> None:
        """Drop what belongs to a step that was not finished."""
        self.losses = Losses()
        self._tokens = self._samples = 0

    def count(self, inputs: Any) -> None:
        """Count samples and tokens of a micro-batch by its shapes, which the host knows."""
        if isinstance(inputs, (list, tuple)):
            self._samples += len(inputs)
            return
        main = inputs.get(self.main_input)
        self._samples += batch_size(inputs if main is None else main)
        if main is not None and self.main_input == "input_ids":
            self._tokens += main.numel()

    # Called by the Trainer ------------------------------------------------------------------------------------------

    @_hook
    def on_train_begin(self, _: Any, state: Any, *__: Any, **known: Any) -> None:
        """Begin, for the first time or again (``auto_find_batch_size``)."""
        self.forget()
        self._tokens_seen = state.num_input_tokens_seen
        capture.begin(target_steps=state.max_steps if state.max_steps > 0 else None)
        steering.offer(self._wish.save, known.get("optimizer"), [known.get("lr_scheduler")])
        if state.is_hyper_param_search:
            _offer_lineage(self.trainer())  # The trial has set its arguments and made its model since ``train``.

    @_hook
    def on_pre_optimizer_step(self, *_: Any, optimizer: Any = None, **__: Any) -> None:
        """Note the learning rate that this step is made with; the scheduler changes it before the step is over."""
        self._learning_rate = plain_learning_rate(optimizer)

    @_hook
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Report an optimizer step, and hand on what was ordered behind it."""
        known = {
            "loss": self.losses.take_sum(),
            "grad_norm": accelerate.watch.take_grad_norm(),
            "learning_rate": self._learning_rate,
            "epoch": state.epoch,
            "tokens": self._new_tokens(args, state),
            "samples": self._samples,
        }
        self._tokens = self._samples = 0
        values = {name: value for name, value in known.items() if value is not None}
        # Asked for by the Trainer itself in each step; the scaler has answered.
        if getattr(self.trainer().accelerator, "optimizer_step_was_skipped", False):
            values["skipped"] = True
        if capture.step(Source.FRAMEWORK, state.global_step, values):
            self._given.update(values)
        control.should_save = control.should_save or self._wish.take()
        control.should_training_stop = control.should_training_stop or steering.must_stop()

    def _new_tokens(self, args: Any, state: Any) -> float:
        """Return the tokens of this rank since the last step."""
        if getattr(args, "include_num_input_tokens_seen", "no") in ("no", False):
            return self._tokens
        seen, self._tokens_seen = self._tokens_seen, state.num_input_tokens_seen
        # The Trainer counts those of all ranks; each reports its share, so that all add up to its count.
        return float(self._tokens_seen - seen) / float(max(args.world_size, 1))

    @_hook
    def on_log(self, _: Any, state: Any, __: Any, logs: Mapping[str, Any] | None = None, **___: Any) -> None:
        """Add what is logged beside: grad norm, the values of a library or of the user."""
        if not logs:
            return
        split = _split(logs)
        if split is not None and split != "train":
            self._report_evaluation(state, split, logs)
            return
        values = {name: value for name, value in numbers(logs).items() if _is_value(name) and name not in self._given}
        self._given.clear()
        if values:
            capture.log(values)

    @_hook
    def on_evaluate(self, _: Any, state: Any, __: Any, metrics: Mapping[str, Any], **___: Any) -> None:
        """Report the results of an evaluation, as far as they were not logged."""
        self._report_evaluation(state, _split(metrics) or "eval", metrics, told=True)

    @_hook
    def on_predict(self, _: Any, state: Any, __: Any, metrics: Mapping[str, Any], **___: Any) -> None:
        """Report the results of a prediction on a labelled set."""
        self._report_evaluation(state, _split(metrics) or "test", metrics, told=True)

    def _report_evaluation(self, state: Any, split: str, metrics: Mapping[str, Any], told: bool = False) -> None:
        """Report under the split's own name: "eval" is "validation", "eval_books" is "books", "test" is "test".

        The log of an evaluation comes first and may hold more (TRL adds its own); ``told`` asks for the rest only.
        """
        name = "validation" if split == "eval" else split.removeprefix("eval_")
        known = self._logged.get(name, set()) if told else set()
        values = {}
        for full_name, value in numbers(metrics).items():
            key = full_name.removeprefix(f"{split}_").removeprefix("eval_")
            if _is_value(key) and key not in known:
                values[key] = value
        self._logged = {} if told else {name: set(values)}
        if values:
            probe.evaluate(state.global_step, values, name=name)


def _nobody() -> None:
    return None


def _is_value(name: str) -> bool:
    return name not in _NO_VALUES and not name.endswith(_SPEED)


def _split(logs: Mapping[str, Any]) -> str | None:
    """Return the prefix of what an evaluation logs, "eval" or "eval_books": it always tells its run time."""
    times = sorted((name for name in logs if name.endswith("_runtime")), key=len)
    return times[0].removesuffix("_runtime") if times else None


# Around the methods of a trainer ------------------------------------------------------------------------------------


def _attend(trainer: Any) -> Watch | None:
    """Return the watch of a trainer, given to it unless it has one or its program took ours away."""
    _hang(type(trainer))
    handler = trainer.callback_handler
    watch = next((each for each in handler.callbacks if isinstance(each, Watch)), None)
    if watch is None:
        if hasattr(handler, _MARK):
            return None
        watch = _callback_class()()
        handler.add_callback(watch)
    setattr(handler, _MARK, watch)
    if watch.trainer() is not trainer:
        watch.trainer = weakref.ref(trainer)
        watch.main_input = getattr(trainer.model, "main_input_name", "input_ids")
    return watch


def _watch_of(trainer: Any) -> Watch | None:
    handler: Any = getattr(trainer, "callback_handler", None)
    watch = getattr(handler, _MARK, None)
    return watch if watch is not None and watch in handler.callbacks else None


def _hang(kind: type) -> None:
    """Wrap the methods that trainers of this class use."""
    for name in (*_CONTEXTS, *_AFTER):
        owner = _owner(kind, name)
        if owner is not None:
            _wrap(owner, name)


@functools.cache  # Once: somebody who puts a method of theirs around ours must not get another of ours around it.
def _wrap(owner: type, name: str) -> None:
    if name in _CONTEXTS:
        within(owner, name, functools.partial(_enter, owner, name))
    else:
        around(owner, name, after=functools.partial(_after, owner, name))


@functools.cache
def _owner(kind: type, name: str) -> type | None:
    """Return the class whose method a class uses."""
    return next((each for each in kind.__mro__ if name in vars(each)), None)


def _is_used(trainer: Any, owner: type, name: str) -> bool:
    kind: Any = type(trainer)
    return _owner(kind, name) is owner


def _enter(owner: type, name: str, trainer: Any, *args: Any, **kwargs: Any) -> AbstractContextManager[Any] | None:
    if name == "train":
        # Also where its program took our callback away: Accelerate below it would not know what a step is.
        capture.claim(Source.FRAMEWORK)
    watch = _attend(trainer) if name in _ENTRIES else _watch_of(trainer)
    if watch is None or not _is_used(trainer, owner, name):
        return None
    context: AbstractContextManager[Any] | None
    context = watch.switches.call(name, _CONTEXTS[name], watch, trainer, *args, **kwargs)
    return context


def _after(owner: type, name: str, result: Any, trainer: Any, *args: Any, **kwargs: Any) -> None:
    watch = _watch_of(trainer)
    if watch is not None and _is_used(trainer, owner, name):
        watch.switches.call(name, _AFTER[name], watch, result, trainer, *args, **kwargs)


def _begin(trainer: Any) -> None:
    args = trainer.args
    ranks = {"rank": args.process_index, "local_rank": args.local_process_index, "world_size": args.world_size}
    capture.begin(framework="transformers", **ranks)


@safe
def _offer_lineage(trainer: Any) -> None:
    """Tell of arguments, model and data before the Trainer wraps the model, which may spread it over ranks."""
    given: dict[str, Any] = {"model": trainer.model, "dataset": sized(trainer.train_dataset)}
    # The program's own ``to_dict`` may fail, and so may the length of its data: no errors of ours.
    with contextlib.suppress(Exception):
        given["config"] = stable(trainer.args.to_dict())
    probe.offer_lineage(**given)


class _Training(AbstractContextManager[None]):
    """The call of ``train``: what comes before its first step is the start, what comes after it is no training."""

    #: What follows the last training of this process: one phase, that ends where the next training begins.
    _rest: AbstractContextManager[None] | None = None

    def __init__(self, watch: Watch, trainer: Any, *_: Any, **__: Any) -> None:
        self._watch, self._trainer = watch, trainer

    def __enter__(self) -> None:
        _begin(self._trainer)
        _offer_lineage(self._trainer)
        rest, _Training._rest = _Training._rest, None
        if rest is not None:
            rest.__exit__(None, None, None)
        self._phase = probe.phase("train" if probe.steps_recorded() else "init")
        self._phase.__enter__()

    def __exit__(self, *_: object) -> None:
        self._watch.forget()
        self._phase.__exit__()
        _Training._rest = probe.phase("other")
        _Training._rest.__enter__()


def _evaluating(_: Watch, trainer: Any, *__: Any, **___: Any) -> AbstractContextManager[None]:
    _begin(trainer)
    return probe.phase("evaluation")


def _saving(_: Watch, trainer: Any, __: Any = None, trial: Any = None, *___: Any, **____: Any) -> Any:
    step = trainer.state.global_step
    folder = trainer._get_output_dir(trial=trial)  # noqa: SLF001  no public one
    return probe.checkpoint(step, os.path.join(folder, f"checkpoint-{step}"))


def _loading(_: Watch, trainer: Any, resume_from_checkpoint: Any, *__: Any, **___: Any) -> Any:
    return probe.checkpoint(trainer.state.global_step, resume_from_checkpoint, "load")


def _phase(name: str) -> Callable[..., Any]:
    return lambda *_, **__: probe.phase(name)


def _take_loss(watch: Watch, loss: Any, _: Any, *args: Any, **kwargs: Any) -> None:
    watch.losses.add(loss)
    watch.count(args[1] if len(args) > 1 else kwargs["inputs"])


#: Where a program enters a trainer.
_ENTRIES = ("train", "evaluate", "predict")

_CONTEXTS: dict[str, Callable[..., Any]] = {
    "train": _Training,
    "evaluate": _evaluating,
    "predict": _evaluating,
    "get_batch_samples": _phase("data"),
    # It tells TensorBoard and others what ``on_log`` tells us.
    "log": lambda *_, **__: capture.quoting(),
    "_save_checkpoint": _saving,
    "_load_from_checkpoint": _loading,
    "_load_optimizer_and_scheduler": _phase("checkpoint"),
    "_load_best_model": _phase("checkpoint"),
    # The model alone: of a checkpoint a part, and else nothing to go on from.
    "save_model": _phase("checkpoint"),
}
_AFTER: dict[str, Callable[..., None]] = {"training_step": _take_loss}
