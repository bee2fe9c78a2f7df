r"""torchtitan: steps and phases from its structured logger, numbers from its ``MetricsProcessor``.

Read at torchtitan 0.3.0 (``components/metrics.py``, ``observability/structured_logger``,
``components/checkpointer/base.py``, ``trainer.py``); tested on a fake of it.

The structured logger tells of each span on each rank as it begins and ends.  Two doors lead to it: with ``auto()`` we
add our handler behind torchtitan's own; without a line of code, :func:`register` is named in the environment::

    TITAN_STRUCT_LOGGER_HANDLERS=torchtitan.observability.structured_logger.jsonl_handler.register_jsonl_handler,\
    trainvitals.frameworks.torchtitan.register

Where that logger is switched off or missing, the steps are those that the ``MetricsProcessor`` logs.
"""

from __future__ import annotations

import contextlib
import logging
import time
from types import ModuleType
from typing import Any

from trainvitals import names, probe
from trainvitals.frameworks.capture import Source, capture
from trainvitals.frameworks.guard import Switch, around, safe
from trainvitals.frameworks.imports import when_imported
from trainvitals.frameworks.signatures import Arguments

__all__ = ["install", "register"]

_PHASES = {"fetching_batch": "data", "eval": "evaluation", "checkpoint_save": "checkpoint"}
#: A step is over when its optimizer is; the span "step" ends too where data ran out and nothing was learnt.
_STEP = "optim_end"
_LOGGER = "torchtitan.structured_logger"
_MODULES = ("torchtitan.components.metrics", "torchtitan.components.checkpointer.base", "torchtitan.trainer")


class Watch:
    """What is known of the training of this process, which has one."""

    def __init__(self) -> None:
        self._step: int | None = None
        self._phases: list[tuple[str, contextlib.AbstractContextManager[None]]] = []
        self._saving_since = 0.0

    def span(self, record: Any) -> None:
        """Take a record of the structured logger: the begin or the end of a span."""
        kind: str = record.log_type_name
        step = getattr(record, "step", None)
        if kind == _STEP and step is not None:
            self._step = step
            capture.begin(framework="torchtitan")
            capture.step(Source.FRAMEWORK, self._step)
            return
        name, _, edge = kind.rpartition("_")
        if name not in _PHASES:
            return
        if edge == "start":
            phase = probe.phase(_PHASES[name])
            phase.__enter__()
            self._phases.append((name, phase))
        elif edge == "end" and self._phases and self._phases[-1][0] == name:
            self._phases.pop()[1].__exit__(None, None, None)

    def log(self, processor: Any, given: dict[str, Any]) -> None:
        """Take the numbers of a step that torchtitan logs, all of them on the host."""
        values = {"loss": given["global_avg_loss"], "max_loss": given["global_max_loss"]}
        values["grad_norm"] = given["grad_norm"]
        # As torchtitan's own rate of tokens: ranks that share a batch have a part of it each.
        values["tokens"] = processor.ntokens_since_last_log / processor.parallel_dims.non_data_parallel_size
        rates = 0
        for name, value in (given.get("extra_metrics") or {}).items():
            rates += name.startswith("lr/")
            values["learning_rate" if name.startswith("lr/") and rates == 1 else names.ours(name)] = value
        if given["step"] == self._step:
            capture.log(values)
        else:
            capture.begin(framework="torchtitan")
            capture.step(Source.FRAMEWORK, given["step"], values)

    def saving(self, *_: Any, **__: Any) -> None:
        """Note when a checkpoint began."""
        self._saving_since = time.monotonic()

    def saved(self, written: Any, _: Any, curr_step: int, *__: Any, **___: Any) -> None:
        """Report a checkpoint; ``save`` is called at each step and returns whether it wrote one."""
        if written is True:
            self._checkpoint(curr_step, ok=True)

    def save_failed(self, error: BaseException, _: Any, curr_step: int, *__: Any, **___: Any) -> None:
        """Report a checkpoint that failed."""
        self._checkpoint(curr_step, ok=False, error=type(error).__name__)

    def _checkpoint(self, step: int, **outcome: Any) -> None:
        seconds = time.monotonic() - self._saving_since
        probe.event("checkpoint", None, step, action="save", seconds=seconds, **outcome)


_watch = Watch()
_switch = Switch()


class _Handler(logging.Handler):
    """Hears the structured logger; logging's own catch-all would print a trace."""

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record; never raises."""
        _hear(record)


@safe
@_switch
def _hear(record: Any) -> None:
    _watch.span(record)


def _listen(logger: logging.Logger) -> None:
    if not any(isinstance(handler, _Handler) for handler in logger.handlers):
        logger.addHandler(_Handler())


def register(*, structured_logger: logging.Logger, **_: Any) -> None:
    """Attach to torchtitan's structured logger, as a factory of ``TITAN_STRUCT_LOGGER_HANDLERS``.  Never raises."""

    def attach() -> None:
        _listen(structured_logger)
        for name in _MODULES:
            when_imported(name, install)

    safe(attach)()


def install(module: ModuleType) -> None:
    """Hang into what the module has of torchtitan: its metrics, its checkpoints, its trainer."""
    _listen(logging.getLogger(_LOGGER))
    # By its name: the trainer has imported what is in the others.
    if module.__name__.endswith(".base"):
        around(
            module.BaseCheckpointManager,
            "save",
            before=_switch(_watch.saving),
            after=_switch(_watch.saved),
            failed=_switch(_watch.save_failed),
        )
    elif module.__name__.endswith(".metrics"):
        processor = module.MetricsProcessor
        log, validation = Arguments(processor.log), Arguments(processor.log_validation)

        def logged(*args: Any, **kwargs: Any) -> None:
            given = log(args, kwargs)
            _watch.log(given["self"], given)

        def validated(*args: Any, **kwargs: Any) -> None:
            given = validation(args, kwargs)
            probe.evaluate(given["step"], {"loss": given["loss"], **(given["extra_metrics"] or {})})

        # Before, because the call begins to count tokens anew.
        around(processor, "log", before=_switch(logged))
        around(processor, "log_validation", before=_switch(validated))
    elif module.__name__.endswith(".trainer"):
        around(module.Trainer, "train", before=_switch(_begin))


def _begin(trainer: Any, *_: Any, **__: Any) -> None:
    capture.claim(Source.FRAMEWORK)
    capture.begin(framework="torchtitan", target_steps=trainer.config.training.steps)
