"""Which logs there are below paths, folders and patterns, and which of them are one run."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trainvitals.follow.base import Format
from trainvitals.follow.formats import Formats

#: A source may hold so many logs; of more, the newest are followed and the rest is rejected.
MAX_FILES = 1024
#: A walk goes so deep, and looks at so many names.
_DEEPEST = 10
_MAX_ENTRIES = 100_000
#: No logs: what lies beside them.
_OTHER = {
    ".7z",
    ".arrow",
    ".bin",
    ".bmp",
    ".bz2",
    ".c",
    ".cc",
    ".ckpt",
    ".cpp",
    ".cu",
    ".distcp",
    ".gguf",
    ".gif",
    ".h",
    ".h5",
    ".html",
    ".idx",
    ".ini",
    ".ipynb",
    ".jpg",
    ".jpeg",
    ".lock",
    ".md",
    ".mp4",
    ".npy",
    ".npz",
    ".onnx",
    ".parquet",
    ".pdf",
    ".pickle",
    ".pkl",
    ".png",
    ".pt",
    ".pth",
    ".py",
    ".pyc",
    ".safetensors",
    ".sh",
    ".so",
    ".svg",
    ".tar",
    ".tgz",
    ".toml",
    ".wav",
    ".webp",
    ".whl",
    ".xz",
    ".yaml",
    ".yml",
    ".zip",
    ".zst",
}
_SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", "site-packages"})

#: One rank's log: worker_3.log (MindSpore's msrun), workerlog.3 (PaddlePaddle), rank_3/stdout.log, log_rank3.txt.
_RANK = re.compile(
    r"(?:(?<=[^a-z])|^)(?:workerlog|worker|local_rank|rank|proc|process)[_.\-]?(\d{1,6})(?!\d)", re.IGNORECASE
)
#: torchrun --log-dir: RUN/attempt_0/3/stdout.log.
_TORCHRUN = re.compile(r"(.*)/attempt_(\d{1,6})/(\d{1,6})/(stdout|stderr)\.log")
#: Each checkpoint of the Hugging Face Trainer holds the whole history up to it.
_CHECKPOINT = re.compile(r"(.*)/checkpoint-(\d{1,12})/([^/]+)")
#: TensorBoard's files, of which a folder is one run.
_EVENTS = "events.out.tfevents."
_SPLITS = frozenset({"train", "train_inner", "valid", "validation", "val", "eval", "test"})
#: Names of files that say nothing of the run; its folder does.
_ROTATED = re.compile(r"(.+?\.(?:log|out|txt))[.\-_](?:\d{1,14}|\d{4}-\d\d-\d\d.*)(?:\.gz)?")
_ENDINGS = re.compile(r"(?:\.(?:gz|log|out|err|txt|csv|tsv|jsonl?|db|sqlite3?|wandb|swanlab))+$")


class Source(NamedTuple):
    """A path, a folder or a pattern.  ``run``: what to call the run (the begin of the names, if there are several).

    ``format``: the name of the only format that may be found.
    """

    pattern: str
    run: str = ""
    format: str = ""


class Log(NamedTuple):
    """A log that was found.  ``key`` stays the same where ``path`` is only its present state.

    Logs of one ``run`` belong together; ``rank`` is that of the log, where its name says it.  ``named``: somebody
    named this very file.
    """

    key: str
    path: str
    run: str
    rank: int | None
    format: str
    named: bool


@dataclass
class _Found:
    key: str
    path: str
    group: str
    rank: int | None
    order: tuple[int, ...]


class Sources:
    """Finds logs.  ``formats`` are asked about folders that are one log.  Files last changed longer than ``max_age``
    seconds ago are left out, unless they are followed already; None: none is.
    """  # noqa: D205

    def __init__(self, sources: Sequence[Source], formats: Sequence[Format], max_age: float | None = None) -> None:
        self._sources = sources
        self._formats = Formats.of(formats)
        self._max_age = max_age
        self._names: dict[str, str] = {}
        self._known: set[str] = set()
        #: Why something that was named is not followed, in the last search.
        self.rejected: Counter[str] = Counter()

    def find(self, now: float) -> list[Log]:
        """Return the logs there are now, in the order of their names."""
        self.rejected.clear()
        logs: dict[str, Log] = {}
        for source in self._sources:
            pattern = os.path.abspath(os.path.expanduser(source.pattern))
            roots = [pattern] if os.path.lexists(pattern) else sorted(glob.glob(pattern, recursive=True))
            if not roots:
                self.rejected["missing"] += 1
            for root in roots:
                self._search(source, root, now, logs)
        self._known = set(logs)
        return sorted(logs.values())

    def _search(self, source: Source, root: str, now: float, logs: dict[str, Log]) -> None:
        is_file = not os.path.isdir(root) or self._is_log(root)
        paths = [root] if is_file else self._walk(root)
        found: dict[str, _Found] = {}
        for path in paths:
            candidate = _describe(path)
            other = found.get(candidate.key)
            if other is None or other.order < candidate.order:
                found[candidate.key] = candidate
        usable = [(time, log) for log in found.values() if (time := self._usable(log, now)) is not None]
        if len(usable) > MAX_FILES:
            self.rejected["too_many"] += len(usable) - MAX_FILES
            usable = sorted(usable, key=lambda pair: pair[0])[-MAX_FILES:]
        runs = {log.group for _, log in usable}
        for _, log in usable:
            name = self._name(log.group, "" if is_file else root)
            if source.run:
                name = source.run if len(runs) == 1 else f"{source.run}/{name}"
            logs.setdefault(log.key, Log(log.key, log.path, name, log.rank, source.format, is_file))

    def _usable(self, log: _Found, now: float) -> float | None:
        """Return when a log was last changed, or None for one that is too old or no regular file."""
        try:
            status = os.stat(log.path)
        except OSError:
            self.rejected["unreadable"] += 1
            return None
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            self.rejected["no_file"] += 1
            return None
        if self._max_age is not None and log.key not in self._known and now - status.st_mtime > self._max_age:
            self.rejected["old"] += 1
            return None
        return status.st_mtime

    def _walk(self, root: str) -> Iterator[str]:
        left = _MAX_ENTRIES
        folders = [(root, 0)]
        while folders:
            folder, depth = folders.pop()
            try:
                with os.scandir(folder) as entries:
                    names = sorted(
                        (entry.name, entry.is_dir(follow_symlinks=False), entry.is_file()) for entry in entries
                    )
            except OSError:
                self.rejected["unreadable"] += 1
                continue
            files = {name for name, _, is_file in names if is_file}
            for name, is_folder, is_file in names:
                left -= 1
                if left < 0:
                    self.rejected["too_many"] += 1
                    return
                path = os.path.join(folder, name)
                if is_folder and not name.startswith(".") and name not in _SKIPPED_FOLDERS:
                    if self._is_log(path):
                        yield path
                    elif depth < _DEEPEST:
                        folders.append((path, depth + 1))
                elif is_file and _may_be_log(name, files):
                    yield path

    def _is_log(self, folder: str) -> bool:
        for known in self._formats.of_folders():
            try:
                if known.sniff(b"", folder):
                    return True
            except Exception:
                self.rejected["unreadable"] += 1
        return False

    def _name(self, group: str, root: str) -> str:
        """Return what to call a run: by its path below the folder that was named, or by file and folder.

        A name belongs to the run that had it first; a further one says more of its path.
        """
        name = self._names.get(group, "")
        if not name:
            plain = _ENDINGS.sub("", group) or group
            parts = [part for part in plain.split("/") if part]
            below = [part for part in os.path.relpath(plain, root).split("/") if part != "."] if root else parts[-2:]
            count = max(1, len(below) if below[:1] != [".."] else 1)
            taken = set(self._names.values())
            while (name := "/".join(parts[-count:])) in taken and count < len(parts):
                count += 1
            self._names[group] = name
        return name


def _may_be_log(name: str, beside: set[str]) -> bool:
    """Whether a file in a folder is worth a look.  Of a log that was rotated, the present file is followed."""
    if (
        name.startswith(".")
        or os.path.splitext(name)[1].lower() in _OTHER
        or name.endswith(("-wal", "-shm", "-journal"))
    ):
        return False
    rotated = _ROTATED.fullmatch(name)
    return rotated is None or rotated[1] not in beside


def _describe(path: str) -> _Found:
    """Return what a path says: which run, which rank, and what it is the state of."""
    if found := _TORCHRUN.fullmatch(path):
        return _Found(path, path, found[1], int(found[3]), ())
    if found := _CHECKPOINT.fullmatch(path):
        key = f"{found[1]}/{found[3]}"
        return _Found(key, path, key, None, (0, int(found[2])))
    folder, name = os.path.split(path)
    last = os.path.basename(folder)
    for place, text in ((name, name), (last, last)):
        if found := _RANK.search(text):
            bare = text[: found.start()].rstrip("_.-") + text[found.end() :]
            bare = _ENDINGS.sub("", f".{bare}").strip(".")
            if place is name:
                group = os.path.join(folder, bare) if bare else folder
            else:
                group = os.path.join(os.path.dirname(folder), bare) if bare else os.path.dirname(folder)
            return _Found(path, path, group, int(found[1]), ())
    if name.startswith(_EVENTS):
        # A run that was resumed has a file for each time; Keras and fairseq have a folder for each split.
        return _Found(path, path, os.path.dirname(folder) if last in _SPLITS else folder, None, (1,))
    return _Found(path, path, path, None, (1,))
