"""A folder for each step with files of ``torch.save`` or safetensors in it, as many training loops write them."""

from __future__ import annotations

import os

from trainvitals.supervise.checkpoints.base import DamagedError, step_of_name
from trainvitals.supervise.checkpoints.safetensors import Safetensors
from trainvitals.supervise.checkpoints.torch_zip import TorchZip


class Shards:
    """Folders whose name tells a step.  That a file is missing is not seen: nothing says how many there must be."""

    name = "folder of files"

    def claims(self, path: str) -> bool:
        """Whether its name tells a step and any file in it is one of weights."""
        return os.path.isdir(path) and step_of_name(path) is not None and bool(_parts(path))

    def verify(self, path: str) -> None:
        """Check each file."""
        for part, kind in _parts(path):
            try:
                kind.verify(part)
            except DamagedError as error:
                raise DamagedError(f"{os.path.basename(part)}: {error}") from None

    def step(self, path: str) -> int | None:
        """Return None: the name tells it."""
        del path
        return None


def _parts(path: str) -> list[tuple[str, Safetensors | TorchZip]]:
    kinds: tuple[Safetensors | TorchZip, ...] = (Safetensors(), TorchZip())
    paths = [os.path.join(path, name) for name in sorted(os.listdir(path))]
    return [(part, kind) for part in paths for kind in kinds if kind.claims(part)]
