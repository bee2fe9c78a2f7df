"""Where on a machine what lasts is kept."""

from __future__ import annotations

import os
from collections.abc import Mapping


def state_folder(configured: str, environ: Mapping[str, str]) -> str:
    """Return the folder of what is remembered over a restart: as configured, the service manager's, or the user's."""
    return configured or managed_folder(environ) or os.path.join(_home(environ), "trainvitals")


def managed_folder(environ: Mapping[str, str]) -> str:
    """Return the folder that a service manager gave this process; empty where it gave none."""
    # It may name several, parted by colons.
    return environ.get("STATE_DIRECTORY", "").split(":")[0]


def _home(environ: Mapping[str, str]) -> str:
    return environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
