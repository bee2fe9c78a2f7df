"""What a configuration, a data set or a model says of itself, as a flat table of short texts.

Bounded whatever it is given, and it never reads data, waits for a device or tells a secret: names that sound like one
(token, key, password, ...) and texts that look like one are left out.  May raise: callers are made safe.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

#: Rows of a table, characters of a name and of a text, bytes of a table as JSON, and how deep and far it is looked.
MAX_ROWS, LONGEST_NAME, LONGEST_TEXT, LARGEST = 200, 96, 128, 12_000
_DEEPEST, _FURTHEST = 8, 4000
#: A list of so many numbers and texts is shown whole; of a longer one only its size is told.
_LONGEST_LIST = 16
#: Parameters that are counted; a model with more tensors is not worth the time.
_MOST_PARAMETERS = 200_000

_PLAIN = (str, int, float, bool, type(None))
_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
#: The last letters of a word of a name that hides what it names, whatever that is, and where it is no number.
_SECRET = ("password", "passwd", "passphrase", "pwd", "secret", "secrets", "credential", "credentials", "cookie")
_SECRET_TEXT = ("key", "keys", "token", "tokens", "auth", "authorization", "dsn", "webhook", "private", "signature")
#: Texts with a secret inside: ``token=...``, the beginnings of well-known tokens, and what is encrypted.
_LEAK = re.compile(
    r"(?:token|key|secret|passw\w*|auth\w*)['\"]?\s*[=:]\s*\S|\bbearer\s+\S{8}|-----BEGIN"
    r"|\b(?:hf_|sk-|gh[opsu]_|github_pat_|glpat-|xox[abp]-|AKIA|eyJ)[\w-]{8}",
    re.IGNORECASE,
)
_LOGIN = re.compile(r"(?<=://)[^/@\s]+@")
#: Attributes of data sets of Hugging Face and of others that say which one it is.
_DATASET = ("_fingerprint", "builder_name", "config_name", "dataset_name", "split", "version", "name", "path", "root")
#: Types whose members have a name.
_ATOMS = frozenset({("torch", "dtype"), ("torch", "device")})
#: What stands around a model; its own class is more to say.
_WRAPPERS = ("DataParallel", "DistributedDataParallel", "OptimizedModule", "DeepSpeedEngine")

Rows = dict[str, str]


def is_secret(name: str, value: object = "") -> bool:
    """Whether a value must not be told because of its name; numbers may be (``max_tokens``), but for passwords."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if any(word.endswith(_SECRET) for word in words):
        return True
    return not isinstance(value, (int, float, type(None))) and any(word.endswith(_SECRET_TEXT) for word in words)


def of_config(config: object) -> Rows:
    """Return the rows of a mapping, a dataclass, a namespace or an object with ``to_dict``; nested names have dots."""
    return _bounded(_flat("", config, 0))


def of_dataset(dataset: object) -> Rows:
    """Return what a data set is: its name, or its class with fingerprint, version and path; never what is in it."""
    return _bounded(_dataset("", dataset, 0))


def of_model(model: Any) -> Rows:
    """Return class, number of parameters, their types, and a hash of the configuration that the model may have.

    Several parts (of a pipeline) may be given as a list.
    """
    if isinstance(model, Mapping):
        return of_config(model)
    parts = list(model)[:64] if isinstance(model, (list, tuple)) else [model]
    if len(parts) == 1 and isinstance(parts[0], str):
        return {"name": parts[0][:LONGEST_TEXT]}
    inner = parts[0]
    for _ in range(4):  # DDP and the like.
        if type(inner).__name__ in _WRAPPERS:
            inner = getattr(inner, "module", None) or getattr(inner, "_orig_mod", inner)
    rows = {"class": type(inner).__qualname__[:LONGEST_TEXT]}
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
        text = _LOGIN.sub("", str(os.fspath(value)))
        return None if _LEAK.search(text) else text[:LONGEST_TEXT]
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
    is_table = hasattr(kind, "__len__") or hasattr(kind, "__array__") or hasattr(kind, "__dlpack__")
    for name in ("to_dict", "model_dump"):
        method = None if is_table or isinstance(value, type) else getattr(value, name, None)
        if callable(method):
            found = method()
            return found if isinstance(found, Mapping) else None
    return None


def _flat(
    prefix: str, value: object, depth: int, leaf: Callable[[str, object, int], Iterator[tuple[str, str]]] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield the rows below a value; an empty name stands for one that was looked at and is not told."""
    fields = None
    if depth < _DEEPEST:
        fields = _fields(value) if leaf is None else value if isinstance(value, Mapping) else None
    if fields is None and isinstance(value, (list, tuple, set, frozenset)) and len(value) <= _LONGEST_LIST:
        if all(isinstance(item, _PLAIN) for item in value):
            items = [
                text_of(item) for item in (sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value)
            ]
            if None not in items:
                yield prefix or "value", ", ".join(map(str, items))[:LONGEST_TEXT]
            return
        fields = dict(enumerate(value)) if depth < _DEEPEST else None
    if fields is None:
        text = text_of(value)
        if leaf is not None:
            yield from leaf(prefix, value, depth)
        elif text is not None:
            yield prefix or "value", text
        return
    for key, item in fields.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if is_secret(str(key), item) or len(name) > LONGEST_NAME or str(key).startswith("__"):
            yield "", ""
        else:
            yield from _flat(name, item, depth + 1, leaf)


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
    yield f"{start}class", type(dataset).__qualname__[:LONGEST_TEXT]
    for name in _DATASET:
        value = getattr(dataset, name, None)
        if isinstance(value, (str, int, float, os.PathLike)) or type(value).__name__ in ("NamedSplit", "Version"):
            text = text_of(value if isinstance(value, (*_PLAIN, os.PathLike)) else str(value))
            if text is not None:
                yield f"{start}{name.lstrip('_')}", text
    inner = getattr(dataset, "dataset", None)  # A loader, a subset.
    if inner is not None and inner is not dataset and depth < _DEEPEST:
        yield from _dataset(f"{start}dataset", inner, depth + 1)


def _bounded(rows: Iterator[tuple[str, str]]) -> Rows:
    """Return the first rows, and in the row "..." that there were more."""
    kept: Rows = {}
    size = 0
    for looked, (name, text) in enumerate(rows):
        size += len(json.dumps((name, text)))
        if len(kept) >= MAX_ROWS or size > LARGEST or looked >= _FURTHEST:
            kept["..."] = "more"
            break
        if name:
            kept[name] = text
    return kept
