"""Small trees of files that stand for parts of /proc and /sys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def plant(root: Path, files: Mapping[str, str | bytes]) -> str:
    """Write files below a folder and return its path."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(root)


def failing(number: int, *, only: str = ""):
    """Return an opener that fails with an error number; with ``only``, just for paths that end so."""

    def opener(path: str) -> bytes:
        if path.endswith(only):
            raise OSError(number, "injected", path)
        return Path(path).read_bytes()

    return opener
