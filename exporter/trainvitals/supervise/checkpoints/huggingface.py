"""Hugging Face Trainer: a folder ``checkpoint-N`` with ``trainer_state.json``, weights, optimizer and scheduler."""

from __future__ import annotations

import json
import os

from trainvitals.supervise.checkpoints.base import DamagedError, step_of_name
from trainvitals.supervise.checkpoints.safetensors import Safetensors
from trainvitals.supervise.checkpoints.torch_zip import TorchZip

_STATE = "trainer_state.json"
_INDEX = ".index.json"
_LARGEST_JSON = 64 << 20
_WEIGHTS = (".safetensors", ".bin")


class HuggingFace:
    """Folders of the Trainer; the state is written last, but for the numbers of random generators."""

    name = "Hugging Face Trainer"

    def claims(self, path: str) -> bool:
        """Whether it has a state, or is called like a checkpoint of the Trainer and has weights of one."""
        if not os.path.isdir(path):
            return False
        names = os.listdir(path)
        called = os.path.basename(path).startswith("checkpoint-") and step_of_name(path) is not None
        return _STATE in names or (called and any(name.endswith(_WEIGHTS) for name in names))

    def verify(self, path: str) -> None:
        """Check the state, every file of weights that is there or in the index, and the optimizer."""
        _read(os.path.join(path, _STATE))
        names = sorted(os.listdir(path))
        for name in names:
            if name.endswith(_INDEX):
                index = _read(os.path.join(path, name)).get("weight_map")
                shards = set(index.values()) if isinstance(index, dict) else set()
                missing = sorted(str(shard) for shard in shards if shard not in names)
                if missing:
                    raise DamagedError(f"{missing[0]} is missing")
        folders = any(os.path.isdir(os.path.join(path, name)) for name in names)
        if not any(name.endswith(_WEIGHTS) for name in names) and not folders:
            raise DamagedError("it has no weights")
        for name in names:
            _verify_file(os.path.join(path, name))

    def step(self, path: str) -> int | None:
        """Return the state's ``global_step``."""
        try:
            step = _read(os.path.join(path, _STATE)).get("global_step")
        except DamagedError:
            return None
        return step if isinstance(step, int) and step >= 0 else None


def _verify_file(path: str) -> None:
    for kind in (Safetensors(), TorchZip()):
        # The numbers of random generators hold NumPy's: older versions wrote them without an archive.
        if kind.claims(path) and not os.path.basename(path).startswith(("rng_state", "training_args")):
            try:
                kind.verify(path)
            except DamagedError as error:
                raise DamagedError(f"{os.path.basename(path)}: {error}") from None


def _read(path: str) -> dict[str, object]:
    name = os.path.basename(path)
    try:
        if os.path.getsize(path) > _LARGEST_JSON:
            raise DamagedError(f"{name} is too large to be one")
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except FileNotFoundError:
        raise DamagedError(f"it has no {name}: the save did not end") from None
    except (ValueError, RecursionError):
        raise DamagedError(f"{name} is cut short or no JSON") from None
    if not isinstance(document, dict):
        raise DamagedError(f"{name} is no state")
    return document
