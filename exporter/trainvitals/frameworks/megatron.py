"""Megatron-LM and what is built upon its ``megatron.training``: steps from ``training_log``, phases from its marks.

Read at NVIDIA/Megatron-LM 001b00c2 (``megatron/training/training.py``) and 00caa53a (``ft_integration.py``), and, for
older forks, at megatron-core 0.7, whose ``training_log`` has a ``decoupled_learning_rate``; tested on fakes of both.

``training_log`` is called at every iteration on every rank, with a loss on the last stage of a pipeline only.
It is heard before it runs: what it omits later, a loss that is NaN or of a skipped iteration, has been told by then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from trainvitals import probe
from trainvitals.frameworks.capture import Source, capture
from trainvitals.frameworks.guard import Switch, around, within
from trainvitals.frameworks.signatures import Arguments

__all__ = ["install"]

#: The first of these that is there is the loss; others keep their names.
_LOSSES = ("lm loss", "loss")
_MARKS = {"checkpointing": "checkpoint", "eval_step": "evaluation"}


class Watch:
    """What is known of the training of this process, which has one."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._log = Arguments(module.training_log)
        self._samples: int | None = None
        self._evaluation: tuple[int | None, str] = (None, "validation")
        self._sets = 0
        self._marked: dict[str, contextlib.AbstractContextManager[None]] = {}

    def training_log(self, *args: Any, **kwargs: Any) -> None:
        """Report an iteration."""
        given = self._log(args, kwargs)
        settings = self._module.get_args()
        values = _losses(given["loss_dict"])
        for name in ("learning_rate", "grad_norm", "loss_scale", "params_norm"):
            value = given[name] if name in {"learning_rate", "grad_norm"} else given.get(name)
            if value is not None:
                values[name] = value
        values.update(self._amounts(settings))
        if given["skipped_iter"]:
            values["skipped"] = True
        capture.begin(framework="megatron", target_steps=settings.train_iters)
        capture.step(Source.FRAMEWORK, given["iteration"], values)

    def _amounts(self, settings: Any) -> dict[str, float]:
        """Return this rank's share of the samples and tokens since the last call: all ranks together have them once."""
        before, self._samples = self._samples, settings.consumed_train_samples
        samples = settings.global_batch_size if before is None else max(0, self._samples - before)
        share = samples / max(1, settings.world_size)
        return {"samples": share, "tokens": share * settings.seq_length}

    def before_evaluation(self, *args: Any, **kwargs: Any) -> contextlib.AbstractContextManager[None]:
        """Count the time of an evaluation, and keep its iteration and split for its results."""
        given = Arguments(self._module.evaluate_and_print_results)(args, kwargs)
        split = "test" if "test set" in str(given["prefix"]) else "validation"
        self._evaluation, self._sets = (given["iteration"], split), 0
        return probe.phase("evaluation")

    def evaluated(self, result: Any, *_: Any, **__: Any) -> None:
        """Report the results of one set; several have a number behind their split, as Megatron prints them."""
        iteration, split = self._evaluation
        several = bool(getattr(self._module.get_args(), "multiple_validation_sets", False))
        name = f"{split}-{self._sets}" if several else split
        self._sets += 1
        values = _losses(result[0] or {})
        if values:
            probe.evaluate(iteration, values, name=name)

    def saving(self, *args: Any, **kwargs: Any) -> contextlib.AbstractContextManager[None]:
        """Time a checkpoint."""
        given = Arguments(self._module.save_checkpoint_and_time)(args, kwargs)
        return probe.checkpoint(given["iteration"], str(self._module.get_args().save))

    def begin(self, mark: str) -> None:
        """Begin the phase of a mark."""
        self.end(mark)
        phase = probe.phase(_MARKS[mark])
        phase.__enter__()
        self._marked[mark] = phase

    def end(self, mark: str) -> None:
        """End it, if it was begun."""
        phase = self._marked.pop(mark, None)
        if phase is not None:
            phase.__exit__(None, None, None)


def install(module: ModuleType) -> None:
    """Hang into the functions of ``megatron.training.training``, which calls them by their names."""
    switch = Switch()
    watch = Watch(module)
    around(module, "training_log", before=switch(watch.training_log))
    around(module, "evaluate", after=switch(watch.evaluated))
    within(module, "evaluate_and_print_results", switch(watch.before_evaluation))
    within(module, "save_checkpoint_and_time", switch(watch.saving))
    marks = getattr(module, "ft_integration", None)
    for mark in _MARKS if marks is not None else ():
        around(marks, f"on_{mark}_start", before=switch(_named(watch.begin, mark)))
        around(marks, f"on_{mark}_end", after=switch(_named(watch.end, mark)))


def _named(method: Any, mark: str) -> Any:
    return lambda *_, **__: method(mark)


def _losses(losses: Mapping[str, Any]) -> dict[str, Any]:
    """Return losses by our names, as they are: tensors on their device."""
    values = dict(losses)
    for name in _LOSSES:
        if name in values:
            values["loss"] = values.pop(name)
            break
    return values
