"""Trainvitals: the vital signs of a training run.

This is all that a training process imports, and it needs nothing but the standard library.
See :mod:`trainvitals.probe` for what each call does.
"""

from typing import TYPE_CHECKING, Any

from trainvitals._version import __version__
from trainvitals.probe import checkpoint, evaluate, event, finish, init, log, phase, step

if TYPE_CHECKING:
    from trainvitals.probe.checkpoints import checkpoints
    from trainvitals.probe.data import data
    from trainvitals.probe.guarded import guarded
    from trainvitals.probe.orders import knob, on_checkpoint, should_stop
    from trainvitals.probe.resume_path import resume_path

__all__ = [
    "__version__",
    "auto",
    "checkpoint",
    "checkpoints",
    "data",
    "evaluate",
    "event",
    "finish",
    "guarded",
    "init",
    "knob",
    "log",
    "on_checkpoint",
    "phase",
    "resume_path",
    "should_stop",
    "step",
]

#: What is imported when a training asks for it, and where it is.
_LATER = {
    "checkpoints": "checkpoints",
    "data": "data",
    "guarded": "guarded",
    "knob": "orders",
    "on_checkpoint": "orders",
    "resume_path": "resume_path",
    "should_stop": "orders",
}


def auto(**identity: Any) -> None:
    """Watch the frameworks that this process imports; recording starts with the first sign of a training.

    ``identity`` is that of :func:`init`; with any of it, recording starts at once.
    """
    from trainvitals.frameworks import auto as watch  # noqa: PLC0415  The exporter's children do not need it.

    watch(**identity)


def __getattr__(name: str) -> Any:
    """Import what not every training asks for."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415  As above.

    found = globals()[name] = getattr(importlib.import_module(f"trainvitals.probe.{_LATER[name]}"), name)
    return found
