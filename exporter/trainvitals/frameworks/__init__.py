"""What people already run: each framework is one file and one row.

An adapter is a module with ``install(module)``, which gets the framework's module right after its import and hangs our
hooks into it with :func:`trainvitals.frameworks.guard.around`.  Nothing here imports a framework, raises into the
program or changes what it computes.  Standard library only.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any, NamedTuple

from trainvitals import probe
from trainvitals.frameworks.imports import when_imported

__all__ = ["ADAPTERS", "Adapter", "auto"]


class Adapter(NamedTuple):
    """A framework's module whose import we wait for, and the module of ours that knows what to do with it."""

    watched: str
    adapter: str


#: In alphabetical order of the adapters.  Several modules may lead to one adapter.
ADAPTERS: tuple[Adapter, ...] = (
    Adapter("accelerate", "accelerate"),
    Adapter("deepspeed.runtime.engine", "deepspeed"),
    Adapter("deepspeed.runtime.pipe.engine", "deepspeed"),
    Adapter("lightning.pytorch.trainer.trainer", "lightning"),
    Adapter("pytorch_lightning.trainer.trainer", "lightning"),
    Adapter("mlflow", "loggers"),
    Adapter("swanlab", "loggers"),
    Adapter("tensorboardX.writer", "loggers"),
    Adapter("torch.utils.tensorboard.writer", "loggers"),
    Adapter("wandb.sdk.wandb_run", "loggers"),
    Adapter("megatron.training.training", "megatron"),
    Adapter("torch", "pytorch"),
    Adapter("torchtitan.components.checkpointer.base", "torchtitan"),
    Adapter("torchtitan.components.metrics", "torchtitan"),
    Adapter("torchtitan.trainer", "torchtitan"),
    Adapter("transformers.trainer", "transformers"),
)

_installed = False


def auto(**identity: Any) -> None:
    """Watch the frameworks that this process imports; recording starts with the first sign of a training.

    ``identity`` is that of :func:`trainvitals.init`; with any of it, recording starts at once.
    """
    global _installed
    if identity:
        probe.init(**identity)
    if _installed:
        return
    _installed = True
    for row in ADAPTERS:
        when_imported(row.watched, _installer(row.adapter))


def _installer(adapter: str) -> Any:
    def install(module: ModuleType) -> None:
        importlib.import_module(f"trainvitals.frameworks.{adapter}").install(module)

    return install
