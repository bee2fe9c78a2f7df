"""Trainvitals: the vital signs of a training run.

This is all that a training process imports, and it needs nothing but the standard library.
See :mod:`trainvitals.probe` for what each call does.
"""

from trainvitals._version import __version__
from trainvitals.frameworks import auto
from trainvitals.probe import checkpoint, evaluate, event, finish, init, log, phase, step

__all__ = ["__version__", "auto", "checkpoint", "evaluate", "event", "finish", "init", "log", "phase", "step"]
