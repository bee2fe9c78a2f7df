"""What a configuration, a data set or a model says of itself, as a flat table of short texts.

Bounded whatever it is given, and it never reads data, waits for a device or tells a secret: names that sound like one
(token, key, password, ...) and texts that look like one are left out.  May raise: callers are made safe.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from trainvitals.probe import private, steady

#: Rows of a table, characters of a name and of a text, bytes of a table as JSON, and how deep and far it is looked.
MAX_ROWS, LONGEST_NAME, LONGEST_TEXT, LARGEST = 200, 96, 128, 12_000
_DEEPEST, _FURTHEST = 8, 4000
#: A list of so many numbers and texts is shown whole; of a longer one only its size is told.
_LONGEST_LIST = 16
#: Parameters that are counted; a model with more tensors is not worth the time.
_MOST_PARAMETERS = 200_000

_PLAIN = (str, int, float, bool, type(None))
#: Attributes of data sets of Hugging Face and of others that say which one it is.
_DATASET = ("_fingerprint", "builder_name", "config_name", "dataset_name", "split", "version", "name", "path", "root")
#: Types whose members have a name.
_ATOMS = frozenset({("torch", "dtype"), ("torch", "device")})
#: What stands around a model; its own class is more to say.
_WRAPPERS = ("DataParallel", "DistributedDataParallel", "OptimizedModule", "DeepSpeedEngine")

Rows = dict[str, str]


def of_config(config: object) -> Rows:
    """Return the rows of a mapping, a dataclass, a namespace or an object with ``to_dict``; nested names have dots."""
    return _bounded(_flat("", config, 0))


def of_dataset(dataset: object) -> Rows:
    """Return what a data set is: its name, or its class with fingerprint, version and path; never what is in it."""
    return _bounded(_dataset("", dataset, 0), "dataset.")


def of_model(model: Any) -> Rows:
    """Return class, number of parameters, their types, and a hash of the configuration that the model may have.

    Several parts (of a pipeline) may be given as a list.
    """
    if isinstance(model, Mapping):
        return of_config(model)
    parts = list(model)[:64] if isinstance(model, (list, tuple)) else [model]
    if len(parts) == 1 and isinstance(parts[0], str):
        name = text_of(parts[0])
        return {} if name is None else {"name": name}
    inner = parts[0]
    for _ in range(4):  # DDP and the like.
        if type(inner).__name__ in _WRAPPERS:
            inner = getattr(inner, "module", None) or getattr(inner, "_orig_mod", inner)
    rows = {"class": inner.__class__.__qualname__[:LONGEST_TEXT]}
    total = trainable = seen = 0
    kinds: dict[str, None] = {}
    for part in parts:
        parameters = getattr(part, "parameters", None)
        for parameter in parameters() if callable(parameters) else ():
            seen += 1
            if seen > _MOST_PARAMETERS:
                return rows
            size = int(parameter.numel())
            total, trainable = total + size, trainable + size * bool(parameter.requires_grad)
            kinds[str(parameter.dtype)] = None
    if seen:
        rows.update(parameters=str(total), trainable=str(trainable), precision=", ".join(sorted(kinds))[:LONGEST_TEXT])
    config = getattr(inner, "config", None)
    if config is not None and not callable(config):
        rows["config"] = fingerprint(of_config(config))
    return rows


def fingerprint(rows: Mapping[str, str]) -> str:
    """Return a hash of 12 hexadecimal digits."""
    import hashlib  # noqa: PLC0415  Not every training needs it.

    text = "\0".join(f"{name}\0{rows[name]}" for name in sorted(rows))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()[:12]


def text_of(value: object) -> str | None:
    """Return a short text of a value that says the same in every process; None where it looks like a secret."""
    kind = type(value)
    value = _plain(value)
    if isinstance(value, (str, os.PathLike)):
        text = private.told(str(os.fspath(value))[: private.LOOKED_AT])
        return None if text is None else text[:LONGEST_TEXT]
    is_atom = value is None or isinstance(value, (bool, float)) or (kind.__module__, kind.__name__) in _ATOMS
    if is_atom or (isinstance(value, int) and value.bit_length() <= 256):
        return str(value)[:LONGEST_TEXT]
    return _described(value)


def _described(value: Any) -> str:
    """Return the type of a value and its size."""
    kind = type(value)
    if isinstance(value, type) or callable(value):
        return f"<{getattr(value, '__qualname__', kind.__qualname__)}>"[:LONGEST_TEXT]
    if isinstance(value, (list, tuple, set, frozenset, bytes, bytearray, Mapping)):
        return f"<{kind.__name__} of {len(value)}>"
    shape = getattr(value, "shape", None) if hasattr(kind, "__dlpack__") or hasattr(kind, "__array__") else None
    size = f" {tuple(shape)}" if isinstance(shape, tuple) else ""
    return f"<{kind.__name__}{size}>"[:LONGEST_TEXT]


def _plain(value: Any) -> Any:
    """Return what stands behind a member of an enumeration and a number of NumPy."""
    enum, numpy = sys.modules.get("enum"), sys.modules.get("numpy")
    if enum is not None and isinstance(value, enum.Enum):
        return value.value if isinstance(value.value, _PLAIN) else value.name
    return value.item() if numpy is not None and isinstance(value, (numpy.number, numpy.bool_)) else value


def _fields(value: Any) -> Mapping[Any, Any] | None:
    """Return the named parts of a value; None where it has none, or where asking might read data."""
    kind = type(value)
    if isinstance(value, Mapping):
        return value
    if dataclasses.is_dataclass(kind):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(kind)}
    if kind.__name__ in ("Namespace", "SimpleNamespace"):
        return dict(vars(value))
    is_array = hasattr(kind, "__array__") or hasattr(kind, "__dlpack__")
    # A dictionary with attributes that is no Mapping (of ml_collections) has a length; so have tables of data.
    is_table = is_array or (hasattr(kind, "__len__") and not (hasattr(kind, "keys") and hasattr(kind, "items")))
    for name in ("to_dict", "model_dump"):
        method = None if is_table or isinstance(value, type) else getattr(value, name, None)
        if callable(method):
            found = method()
            return found if isinstance(found, Mapping) else None
    return None


def _safe_fields(prefix: str, value: Any) -> Mapping[Any, Any] | None:
    """Do the same; an error of the value's own is one only where it is all that there is to tell."""
    try:
        return _fields(value)
    except Exception:
        if not prefix:
            raise
        return None


def _items(fields: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield what may be told; (None, None) for what may not, or cannot be read: a value that is still missing, say."""
    called = fields.get("name")
    hides_value = isinstance(called, str) and private.is_secret(called)
    for key in fields:
        try:
            item = fields[key]
        except Exception:
            item = key = None  # noqa: PLW2901
        name = str(key)
        hidden = private.is_secret(name, item) or name.startswith("__") or (hides_value and name == "value")
        yield (None, None) if key is None or hidden else (key, item)


def _flat(
    prefix: str, value: object, depth: int, leaf: Callable[[str, object, int], Iterator[tuple[str, str]]] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield the rows below a value; an empty name stands for what was looked at and is not told."""
    fields = None
    if depth < _DEEPEST:
        fields = _safe_fields(prefix, value) if leaf is None else value if isinstance(value, Mapping) else None
    if fields is None and _is_short_list(value):
        if all(isinstance(item, _PLAIN) for item in value):
            ordered = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
            items = [text_of(item) for item in ordered]
            joined = None if None in items else private.told(", ".join(map(str, items)))
            if joined is not None:
                yield prefix or "value", joined[:LONGEST_TEXT]
            return
        fields = dict(enumerate(value)) if depth < _DEEPEST else None
    if fields is None:
        text = text_of(value)
        if leaf is not None:
            yield from leaf(prefix, value, depth)
        elif text is not None:
            yield prefix or "value", text
        return
    yield "", ""
    for key, item in _items(fields):
        name = f"{prefix}.{key}" if prefix else str(key)
        if key is None or len(name) > LONGEST_NAME or (leaf is None and steady.is_own(str(key), fields)):
            yield "", ""
        elif leaf is None and type(item) in (int, float) and steady.is_moment(str(key), item):
            yield name, "<time>"
        else:
            yield from _flat(name, item, depth + 1, leaf)


def _is_short_list(value: Any) -> TypeGuard[Collection[Any]]:
    # A list of OmegaConf is none of Python's.
    is_list = isinstance(value, (list, tuple, set, frozenset))
    if not is_list and (not isinstance(value, Sequence) or isinstance(value, (str, bytes, bytearray, memoryview))):
        return False
    return len(value) <= _LONGEST_LIST


def _dataset(prefix: str, dataset: Any, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(dataset, (*_PLAIN, os.PathLike, Mapping, list, tuple)):
        yield from _flat(prefix, dataset, depth, _leaf_of_dataset)
    else:
        yield from _leaf_of_dataset(prefix, dataset, depth)


def _leaf_of_dataset(prefix: str, dataset: Any, depth: int) -> Iterator[tuple[str, str]]:
    start = f"{prefix}." if prefix else ""
    if isinstance(dataset, (*_PLAIN, os.PathLike)):
        text = text_of(dataset)
        if text is not None:
            yield prefix or "name", text
        return
    # What a stand-in, one of ours among them, stands for.
    yield f"{start}class", dataset.__class__.__qualname__[:LONGEST_TEXT]
    for name in _DATASET:
        value = getattr(dataset, name, None)
        if isinstance(value, (str, int, float, os.PathLike)) or type(value).__name__ in ("NamedSplit", "Version"):
            text = text_of(value if isinstance(value, (*_PLAIN, os.PathLike)) else str(value))
            if text is not None:
                yield f"{start}{name.lstrip('_')}", text
    inner = getattr(dataset, "dataset", None)  # A loader, a subset.
    if inner is not None and inner is not dataset and depth < _DEEPEST:
        yield from _dataset(f"{start}dataset", inner, depth + 1)


def _bounded(rows: Iterator[tuple[str, str]], about: str = "") -> Rows:
    """Return the first rows, and in the row "..." that there were more.  ``about`` is said before their names."""
    kept: Rows = {}
    size = 0
    same = steady.Steady.of_this_process()
    for looked, (name, text) in enumerate(rows):
        told = same.text(about + name, text) if name else ""
        size += len(json.dumps((name, told))) if name else 4
        if len(kept) >= MAX_ROWS or size > LARGEST or looked >= _FURTHEST:
            kept["..."] = "more"
            break
        if name:
            kept[name] = told
    return kept
