"""The command lines of the children; addresses are host and port."""

from __future__ import annotations

import sys
from pathlib import Path

_OURS = [sys.executable, "-m", "trainvitals"]


def exporter(address: str, *, simulate_devices: int = 0, spool: Path | None = None) -> list[str]:
    """Return the exporter's; with a ``spool``, it reads the rank files there and no others."""
    command = [*_OURS, "exporter", f"--web.listen-address={address}", "--collect.interval=1s", "--log.level=warning"]
    if simulate_devices:
        command.append(f"--simulate-devices={simulate_devices}")
    return [*command, *([f"--spool.folders={spool}"] if spool else [])]


def prometheus(program: str, address: str, folder: Path) -> list[str]:
    """Return that of Prometheus, which finds prometheus.yml in ``folder`` and leaves its data there."""
    files = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    return [program, *files, *_web(address)]


def alertmanager(program: str, address: str, folder: Path) -> list[str]:
    """Return that of Alertmanager, which finds alertmanager.yml in ``folder`` and leaves its data there."""
    files = [f"--config.file={folder}/alertmanager.yml", f"--storage.path={folder}/data"]
    # The empty address switches off the gossip, which would listen on every interface.
    return [program, *files, *_web(address), "--cluster.listen-address="]


def notifier(address: str, file: str) -> list[str]:
    """Return the notifier's, with its settings in ``file``."""
    return [*_OURS, "notify", f"--config.file={file}", f"--web.listen-address={address}"]


def training(folder: Path) -> list[str]:
    """Return that of the demo's training, which leaves its checkpoints in ``folder``."""
    return [sys.executable, "-m", "trainvitals.bundle.demo.train", f"--folder={folder}"]


def _web(address: str) -> list[str]:
    return [f"--web.listen-address={address}", f"--web.external-url=http://{address}/", "--log.level=warn"]
