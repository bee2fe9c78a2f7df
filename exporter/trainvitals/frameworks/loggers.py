"""What a program logs anyway: TensorBoard, tensorboardX, Weights & Biases, MLflow, SwanLab.

Calls are heard behind the library, with what the library was given: numbers, and tensors unread.  A loss, a learning
rate or a norm tells of a step, with the number that the program gave it; one of an evaluation is an evaluation.
Nothing is asked of a library: the step of a W&B run, for instance, is a question to another process.
"""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from trainvitals import names, probe
from trainvitals.frameworks.capture import Source, capture
from trainvitals.frameworks.guard import Switch, around, safe

__all__ = ["Loggers", "install"]

#: Values that tell of a step, the best first.  Others may be numbered by epochs or samples.
_CLOCKS = ("loss", "grad_norm", "learning_rate")
#: So many other names are taken; the rest of the rank file's table is for frameworks and the program itself.
MOST_NAMES = 32
#: What frameworks write a second time under another name: the Hugging Face Trainer, Megatron-LM.
_ECHOES = ("train/", "trainer/")
_AGAINST_SAMPLES = " vs samples"


class Loggers:
    """Brings what all loggers of a process tell into one order."""

    def __init__(self) -> None:
        self._clock = len(_CLOCKS)
        self._number: int | None = None
        self._names: set[str] = set()
        self._held: tuple[str, int | None, dict[str, Any]] | None = None
        self._flushes_at_exit = False

    def take(self, values: Mapping[str, Any], number: Any = None, *, whole: bool = True) -> None:
        """Take what one call logs under the number of a step, if it has one.

        ``whole`` says that the rest of an evaluation does not follow in other calls.
        """
        if capture.is_quoted:
            return
        number = int(number) if _is_host_number(number) else None
        training: dict[str, Any] = {}
        results: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            if not isinstance(name, str) or not _is_number(value):
                continue
            result = names.result(name)
            ours = names.ours(name)
            if result is not None:
                results.setdefault(result.split, {})[result.name] = value
            elif ours != "step":
                training[ours] = value
            elif isinstance(value, (int, float)):
                number = int(value)
        # The step first: the first of all begins the recording, and an evaluation without a number is one of this step.
        if training:
            self.flush()
            self._training(number, training)
        for split, found in results.items():
            self._evaluation(split, number, found)
        if results and whole:
            self.flush()

    def _training(self, number: int | None, values: dict[str, Any]) -> None:
        others = {name: value for name, value in values.items() if name not in _CLOCKS and self._has_room(name)}
        known = {name: values[name] for name in _CLOCKS if name in values}
        if self._is_step(number, known) and capture.step(Source.LOGGER, number, {**known, **others}):
            return
        if capture.is_muted(Source.LOGGER):
            # Whoever counts the steps knows the loss; what nobody else tells is added.
            echoes = _ECHOES if _below_a_framework() else ()
            known, others = {}, {name: others[name] for name in others if not name.startswith(echoes)}
        if known or others:
            probe.log({**known, **others})

    def _is_step(self, number: int | None, known: Mapping[str, Any]) -> bool:
        """Whether the best clock so far shows another number."""
        clock = next((place for place, name in enumerate(_CLOCKS) if name in known), len(_CLOCKS))
        if clock == len(_CLOCKS) or clock > self._clock:
            return False
        moved = number is None or number != self._number
        self._clock, self._number = clock, number
        return moved

    def _has_room(self, name: str) -> bool:
        if name.endswith(_AGAINST_SAMPLES) or (name not in self._names and len(self._names) >= MOST_NAMES):
            return False
        self._names.add(name)
        return True

    def _evaluation(self, split: str, number: int | None, values: dict[str, Any]) -> None:
        """Hold results until all of one evaluation are there: each report replaces the one before."""
        if not probe.is_recording() or _below_a_framework():
            return
        if self._held is not None and self._held[:2] == (split, number):
            self._held[2].update(values)
            return
        self.flush()
        self._held = (split, number, dict(values))
        if not self._flushes_at_exit:
            self._flushes_at_exit = True
            # Called before the probe's own end, which was registered earlier.
            atexit.register(safe(self.flush))

    def flush(self) -> None:
        """Report the evaluation that is held."""
        held, self._held = self._held, None
        if held is not None:
            split, number, values = held
            probe.evaluate(number, values, name=split)


def _below_a_framework() -> bool:
    """Whether a framework counts the steps, which tells of evaluations itself and under names of its own."""
    return capture.is_muted(Source.ENGINE) and not capture.is_muted(Source.FRAMEWORK)


def _is_host_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or type(value).__module__ == "numpy"


def _is_number(value: Any) -> bool:
    """Whether this is a number of Python, or an array or tensor of one element; text, pictures and tables are not."""
    if isinstance(value, (int, float)):
        return not isinstance(value, bool)
    size = getattr(value, "numel", None)
    if callable(size):
        return bool(size() == 1)
    return hasattr(value, "dtype") and getattr(value, "size", None) == 1


#: That of this process.
loggers = Loggers()


def install(module: ModuleType) -> None:
    """Listen to the logger whose module this is."""
    kind = module.__name__.split(".")[0]
    switch = Switch()
    if kind in {"torch", "tensorboardX"}:
        writer = module.SummaryWriter
        around(writer, "add_scalar", after=switch(_scalar))
        around(writer, "add_scalars", after=switch(_scalars))
        for name in ("flush", "close"):
            around(writer, name, before=switch(lambda *_, **__: loggers.flush()))
    elif kind == "wandb":
        around(module.Run, "log", after=switch(_method))
    elif kind == "mlflow":
        around(module, "log_metric", after=switch(_metric))
        around(module, "log_metrics", after=switch(_metrics))
    elif kind == "swanlab":
        around(module, "log", after=switch(_function))


def _scalar(_: Any, __: Any, tag: str, scalar_value: Any, global_step: Any = None, *___: Any, **____: Any) -> None:
    loggers.take({tag: scalar_value}, global_step, whole=False)


def _scalars(
    _: Any, __: Any, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: Any = None, *___: Any, **____: Any
) -> None:
    loggers.take({f"{main_tag}/{tag}": value for tag, value in tag_scalar_dict.items()}, global_step, whole=False)


def _method(_: Any, __: Any, data: Mapping[str, Any], step: Any = None, *___: Any, **____: Any) -> None:
    loggers.take(data, step)


def _function(_: Any, data: Mapping[str, Any], step: Any = None, *__: Any, **___: Any) -> None:
    loggers.take(data, step)


def _metric(_: Any, key: str, value: Any, step: Any = None, *__: Any, **___: Any) -> None:
    loggers.take({key: value}, step, whole=False)


def _metrics(_: Any, metrics: Mapping[str, Any], step: Any = None, *__: Any, **___: Any) -> None:
    loggers.take(metrics, step)
