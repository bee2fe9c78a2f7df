"""The data folder of one ``up``: a temporary one that goes at the end, or one that the user named and keeps."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from trainvitals.bundle.process import BundleError, Guard

#: The demo's rank files, and what libraries leave in the folder for temporary files: of use to nobody afterwards.
_PASSING = ("spool", "tmp")
#: A colon parts the folders of rank files; the others mean something in the patterns of Prometheus and of the exporter.
_FORBIDDEN = ":*?[\\"


class DataFolder:
    """A folder that belongs to one ``up`` at a time; ``path`` is absolute.

    Raises BundleError when it cannot be used or another ``up`` uses it.
    """

    def __init__(self, named: str | None, guard: Guard) -> None:
        self.temporary = named is None
        self._guard = guard
        try:
            self.path = Path(tempfile.mkdtemp(prefix="trainvitals-up-") if named is None else named).resolve()
            if self.temporary:
                guard.tell("folder", self.path)
            if found := set(str(self.path)) & set(_FORBIDDEN):
                raise BundleError(
                    f"the name of the data folder must not contain {' '.join(sorted(found))}: {self.path}"
                )
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise BundleError(f"the data folder cannot be used: {error.strerror}: {error.filename}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise BundleError(f"another `trainvitals up` is using {self.path}") from None
        #: What goes at the end.
        self._passing = [self.path] if self.temporary else [self.path / name for name in _PASSING]
        for folder in self._passing:
            guard.tell("folder", folder)
        for name in ("logs", "checkpoints", *_PASSING):
            (self.path / name).mkdir(exist_ok=True)

    def log(self, name: str) -> Path:
        """Return the path of a child's log, without what an earlier start wrote."""
        path = self.path / "logs" / f"{name}.log"
        path.unlink(missing_ok=True)
        return path

    def close(self) -> None:
        """Remove a temporary folder, and of one that is kept what is of no use to anybody."""
        for folder in self._passing:
            shutil.rmtree(folder, ignore_errors=True)
            self._guard.tell("leave", folder)
        os.close(self._lock)
