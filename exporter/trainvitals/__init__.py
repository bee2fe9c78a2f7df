"""Trainvitals: the vital signs of a training run.

This is all that a training process imports, and it needs nothing but the standard library.
See :mod:`trainvitals.probe` for what each call does.
"""

from typing import Any

from trainvitals._version import __version__
from trainvitals.probe import checkpoint, evaluate, event, finish, init, log, phase, step

__all__ = ["__version__", "auto", "checkpoint", "evaluate", "event", "finish", "init", "log", "phase", "step"]


def auto(**identity: Any) -> None:
    """Watch the frameworks that this process imports; recording starts with the first sign of a training.

    ``identity`` is that of :func:`init`; with any of it, recording starts at once.
    """
    from trainvitals.frameworks import auto as watch  # noqa: PLC0415  The exporter's children do not need it.

    watch(**identity)
