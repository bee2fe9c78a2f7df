"""Trees of /sys, planted from tables: ``path: text`` is a file, ``path -> target`` a link."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from trainvitals.host.files import read_once

TABLES = Path(__file__).parents[1] / "fixtures" / "sys"


def plant(root: Path, table: str, **fill: object) -> Path:
    """Make what a table of tests/fixtures/sys says, with the words in braces filled in; return the root."""
    for line in (TABLES / f"{table}.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        text = line.format(**fill)
        if " -> " in text:
            name, target = text.split(" -> ")
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            os.symlink(target, path)
        else:
            name, value = text.split(": ", 1)
            write(root / name, f"{value}\n")
    return root


def write(path: Path, content: str | bytes) -> None:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def uproot(path: Path) -> None:
    """Remove a folder."""
    shutil.rmtree(path)


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        """Return the time in seconds."""
        return self.now


class Opener:
    """Reads files and remembers which; ``fail`` maps ends of paths to an errno."""

    def __init__(self):
        self.fail = {}
        self.opened = []

    def __call__(self, path):
        """Return what a file holds, or fail as it was told."""
        self.opened.append(path)
        for end, number in self.fail.items():
            if path.endswith(end):
                raise OSError(number, os.strerror(number))
        return read_once(path)
