"""A folder that :mod:`trainvitals.probe.checkpoints` made: it lists its own files."""

from __future__ import annotations

import os

from trainvitals.probe import manifest
from trainvitals.supervise.checkpoints.base import DamagedError


class Policy:
    """``step-500/`` with a ``trainvitals.json``."""

    name = "trainvitals"

    def claims(self, path: str) -> bool:
        """Whether it has the list."""
        return os.path.isfile(os.path.join(path, manifest.NAME))

    def verify(self, path: str) -> None:
        """Raise DamagedError where a file is not what the list says."""
        try:
            manifest.verify(path)
        except manifest.NotWholeError as error:
            raise DamagedError(str(error)) from None

    def step(self, path: str) -> int | None:
        """Return the step in the list."""
        try:
            return manifest.read(path).step
        except manifest.NotWholeError:
            return None
