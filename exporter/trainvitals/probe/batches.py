"""What can be seen of a batch without touching a device: how many samples it holds, how many bytes, and their names."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any

from trainvitals.probe.events import text
from trainvitals.probe.private import masked
from trainvitals.rankfile.ledger import MAX_NAMES, Name

#: Keys under which data sets keep the file of a sample, and those for its number or name; the first that is there.
FILE_KEYS = ("path", "paths", "file", "files", "filename", "filenames", "file_name", "image_path", "audio_path")
SAMPLE_KEYS = ("__key__", "id", "ids", "sample_id", "idx", "index")
#: WebDataset: the shard of a sample.
SHARD_KEY = "__url__"

#: Where data sets with indices keep the files of their samples.
_LISTS = ("samples", "imgs", "files", "paths", "filenames", "file_names", "image_paths")
_PLAIN = (int, str)
#: So many members of a batch are asked for their size.
_LOOKED_AT = 64
_QUOTED = re.compile(r"""(['"])([^'"\n]*[./][^'"\n]*)\1""")


def size_of(batch: Any) -> tuple[int | None, int]:
    """Return how many samples a batch holds, None where that cannot be seen, and the bytes of its arrays.

    The number is the first dimension of the first array; of a list of samples, its length.
    """
    values: Iterable[Any]
    is_list = False
    if isinstance(batch, (list, tuple)):
        values, is_list = batch, isinstance(batch, list)
    elif isinstance(batch, dict):
        values = batch.values()
    elif _shape(batch) is not None:
        values = (batch,)
    elif is_mapping(batch):
        values = batch.values()
    else:
        return None, 0
    samples: int | None = None
    size = 0
    for value in itertools.islice(values, _LOOKED_AT):
        if value.__class__ is list or isinstance(value, (list, tuple)):
            if samples is None and not is_list:
                samples = len(value)  # A column of texts, or of images that differ in size.
            continue
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple):
            nbytes = getattr(value, "nbytes", 0)
            size += nbytes if nbytes.__class__ is int else 0
            if samples is None and shape:
                samples = shape[0]
    if samples is None and is_list:
        samples = len(batch)
    return (samples if isinstance(samples, int) else None), size


def _shape(value: Any) -> tuple[int, ...] | None:
    shape = getattr(value, "shape", None)
    return shape if isinstance(shape, tuple) else None


def is_mapping(batch: Any) -> bool:
    """Whether a batch has columns by name: a dict, or what Hugging Face makes of one."""
    return isinstance(batch, dict) or (hasattr(batch, "keys") and hasattr(batch, "values") and _shape(batch) is None)


def keys_of(batch: Any) -> tuple[tuple[str, ...], bool]:
    """Return the keys of a batch that name its samples, best first, and whether they name files."""
    row = batch[0] if isinstance(batch, (list, tuple)) and batch else batch
    if not is_mapping(row):
        return (), False
    for key in FILE_KEYS:
        if key in row:
            return (key,), True
    shard = (SHARD_KEY,) if SHARD_KEY in row else ()
    samples = [key for key in SAMPLE_KEYS if key in row][:1]
    return (*shard, *samples), bool(shard)


def names_under(keys: tuple[str, ...], batch: Any) -> Sequence[Name]:
    """Return the names of the samples of a batch; of a shard's only one for all samples in it."""
    names: list[Name] = []
    if len(keys) == 1 and not isinstance(batch, (list, tuple)):
        return listed(batch[keys[0]])
    for key in keys:
        rows = isinstance(batch, (list, tuple))
        found = [row[key] for row in batch[:MAX_NAMES]] if rows else batch[key]
        values = listed(found)
        names += dict.fromkeys(values) if key == SHARD_KEY else values
    return names[:MAX_NAMES]


def listed(value: Any, *, owned: bool = False) -> Sequence[Name]:
    """Return names as texts and whole numbers; nothing for what would have to be fetched from a device.

    An iterator is the program's to use up, unless it was made for us: ``owned``.
    """
    kind = type(value)
    if kind is list or kind is tuple:
        value = value[:MAX_NAMES]
    elif isinstance(value, (str, bytes, int)) or hasattr(kind, "__fspath__"):
        return [name_of(value)]
    elif kind.__module__ == "torch" and kind.__name__ == "Tensor":
        # Exactly a tensor, in the memory of the host: any other might wait, or be sharded.
        if value.device.type != "cpu" or value.is_floating_point():
            return []
        value = value.reshape(-1)[:MAX_NAMES].tolist()
    elif kind.__module__ == "numpy" and hasattr(value, "dtype"):
        if value.dtype.kind not in "iuSU":
            return []
        value = value.reshape(-1)[:MAX_NAMES].tolist()
    elif _shape(value) is not None or (hasattr(kind, "__next__") and not owned):
        return []
    else:
        value = list(itertools.islice(value, MAX_NAMES))
    # An address may hold a login.
    if not value or (type(value[0]) in _PLAIN and type(value[-1]) is type(value[0]) and not _is_address(value[0])):
        return value  # type: ignore[no-any-return]
    return [name_of(name) for name in value]


def _is_address(name: Name) -> bool:
    return name.__class__ is str and "://" in name


def name_of(value: Any) -> Name:
    """Return a name as a text or a whole number; of a tensor only its type, for its text waits for a device."""
    if isinstance(value, int):
        return int(value)
    found = text(value.decode("utf-8", "replace") if isinstance(value, bytes) else value)
    return masked(found) if "://" in found else found


def file_of(dataset: Any, name: Name) -> Name:
    """Return the file of a sample where its data set has a list of them, as torchvision's folders do; else its name."""
    if dataset is not None and isinstance(name, int):
        for attribute in _LISTS:
            rows = getattr(dataset, attribute, None)
            if isinstance(rows, (list, tuple)) and -len(rows) <= name < len(rows):
                row = rows[name]
                found = row[0] if isinstance(row, (list, tuple)) and row else row
                if isinstance(found, (str, bytes)) or hasattr(found, "__fspath__"):
                    return name_of(found)
    return name


def describe(error: BaseException) -> dict[str, Any]:
    """Return type, message and, where it can be found, the file of an error.  Never raises, whatever the error does."""
    lines = [line.strip() for line in _message_of(error)[-2000:].splitlines() if line.strip()]
    message = masked(lines[-1]) if lines else ""
    fields: dict[str, Any] = {"type": type(error).__name__, "message": message[:300]}
    cause: BaseException | None = error
    for _ in range(4):
        if cause is None:
            break
        found = _file_in(cause)
        if found is not None:
            return {**fields, "file": found}
        cause = cause.__cause__ or cause.__context__
    # From a worker comes only the text of the error.
    quoted = _QUOTED.search(message)
    return fields if quoted is None else {**fields, "file": quoted[2][:256]}


def _message_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""


def _file_in(error: BaseException) -> Name | None:
    for name in ("filename", "file", "path"):
        try:
            found = getattr(error, name, None)
            if isinstance(found, (str, bytes)) or hasattr(found, "__fspath__"):
                return name_of(found)
        except Exception:  # noqa: S112  A property of the program's that raises: it tells nothing.
            continue
    return None
