"""What a framework was told to do, as far as it is the same when the same training is started again.

Folders, names of runs, ranks, ports and whatever holds the time of the start are left out: a change that is shown at
every start hides the one that matters.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["sized", "stable"]

#: Names, without regard to case and with ``_`` for ``-``, of what belongs to a start, a rank or a place.
_OF_A_START = re.compile(
    r"(?:.*_)?(?:out|output|log|logs|logging|save|ckpt|checkpoint|checkpoints|run|work|tensorboard|tb|default_root)_?"
    r"(?:dir|path|folder)"
    r"|(?:run|exp|experiment|job|trial|wandb)_?(?:name|id)|uuid"
    r"|(?:.*_)?resume(?:_.*)?|ckpt_path|overwrite_output_dir|restore_callback_states_from_checkpoint"
    r"|(?:local|global|node|process)_(?:rank|process_index)|process_index|_n_gpu"
    r"|(?:.*_)?(?:port|hostname|pid|timestamp|datetime)|(?:master|main_process)_(?:addr|ip)|device"
)
#: A day with its hour and minute, seconds since 1970 of the years 2020 to 2033, or a folder that Python made up.
#: A day alone may be the version of a data set.
_OF_A_TIME = re.compile(
    r"20\d\d[-_.]?[01]\d[-_.]?[0-3]\d[-_.T ]{0,2}[0-2]\d[-_:h.]?[0-5]\d"
    r"|[A-Z][a-z]{2}[0-3]\d_[0-2]\d-[0-5]\d-[0-5]\d"
    r"|(?<![\d.])1[6-9]\d{8}(?!\d)"
    r"|(?:^|/)tmp[a-z0-9_]{8}(?:/|$)"
)
#: As far and as deep as a table of settings is looked at.
_MOST, _DEEPEST = 2000, 8


def stable(settings: Mapping[Any, Any], depth: int = 0) -> dict[str, Any]:
    """Return the settings that stay the same over starts; tables in tables are looked at, objects are not.

    >>> stable({"lr": 0.1, "output_dir": "out", "data": {"file": "runs/20260131-1207/a.txt", "day": "20260131"}})
    {'lr': 0.1, 'data': {'day': '20260131'}}
    """
    kept: dict[str, Any] = {}
    for key, value in itertools.islice(settings.items(), _MOST):
        name = str(key)
        if _OF_A_START.fullmatch(name.lower().replace("-", "_")):
            continue
        if isinstance(value, str) and _OF_A_TIME.search(value[:_MOST]):
            continue
        kept[name] = stable(value, depth + 1) if isinstance(value, Mapping) and depth < _DEEPEST else value
    return kept


def sized(dataset: Any) -> Any:
    """Return a data set of a training with its length, which its framework asks for, too; else the data set alone."""
    with contextlib.suppress(Exception):  # It may have none, or one that cannot be told.
        # Of a plain list the samples themselves would be told.
        kind = {"class": type(dataset).__name__} if isinstance(dataset, (list, tuple)) else {"train": dataset}
        return {**kind, "length": len(dataset)}
    return dataset
