"""Messages to chat robots: the settings of `trainvitals notify`, where they are found, and whom they name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainvitals.bundle.process import BundleError
from trainvitals.config import ConfigError, read_sections

_NAME = "trainvitals/notify.yml"


@dataclass(frozen=True)
class Robots:
    """The file with the settings, and the receivers in it; the notifier itself checks the rest."""

    file: str
    receivers: tuple[str, ...]

    def urls(self, address: str) -> list[str]:
        """Return where Alertmanager posts to, for a notifier at an address (host and port)."""
        return [f"http://{address}/alertmanager/{name}" for name in self.receivers]


def find(environ: Mapping[str, str], system: Path = Path("/etc")) -> str | None:
    """Return the user's file, else the system's, else None."""
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", ""), ".config")
    places = [folder / _NAME for folder in (Path(home), system) if folder.is_absolute()]
    return next((str(place) for place in places if place.is_file()), None)


def read(file: str) -> Robots:
    """Return whom a file names.  Raises BundleError."""
    try:
        receivers = read_sections(file, "receivers:").get("receivers")
    except ConfigError as error:
        raise BundleError(f"the notifier's settings: {error}") from None
    if not isinstance(receivers, dict) or not receivers:
        raise BundleError(f"the notifier's settings: {file}: expected receivers by name (docs/notify.md)")
    return Robots(str(Path(file).absolute()), tuple(map(str, receivers)))
