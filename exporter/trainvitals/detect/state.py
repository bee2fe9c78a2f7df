"""What detectors know, as JSON and back, so that an exporter that is restarted goes on where it was.

Nothing is run that a state names: an object is made without its constructor, and only of classes of this package that
are loaded already.  A state of another version of the package, or whose objects have other attributes, is refused;
what cannot be restored costs that detector alone, which starts afresh.

The document is a table of nodes, so that what several detectors share (the last steps, say) is written once and is
shared again afterwards.  A value is an atom (a number, a text, None, a bool) or a list of one element: the index of a
node, or the name of a number that JSON does not know.  A node is a list that begins with its kind::

    ["l", item, ...]    list            ["q", maxlen, item, ...]   deque
    ["t", item, ...]    tuple           ["d", key, value, ...]     dict ("c": Counter)
    ["s", item, ...]    set             ["z", item, ...]           frozenset
    ["b", text]         bytes, in base64
    ["o", class, value, ...]            object, its attributes in the order that the table of classes gives
    ["n", class, value, ...]            named tuple
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from base64 import b64decode, b64encode
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from itertools import chain
from types import BuiltinMethodType, MethodType
from typing import Any, cast

from trainvitals._version import __version__
from trainvitals.telemetry import Event, Step, Steps

#: A state with more nodes is none of ours: the detectors of a rank take some 3,000.
MAX_NODES = 200_000
_PACKAGE = "trainvitals.detect."
#: Types of other modules that detectors keep.
_SHARED: dict[str, type] = {"Event": Event, "Step": Step, "Steps": Steps}
_ATOMS = frozenset({int, str, bool, type(None)})
#: Lists of these need no look at each item.
_PLAIN = _ATOMS | {float}
#: A detector hands out what a part of it does as its own; it is made anew with the part.
_METHODS = (MethodType, BuiltinMethodType)
#: Thresholds are those of the settings of now; a state that was made by others is of no use.
_SETTINGS = "_settings"
_METHOD = ["method"]
_CONSTANTS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class StateError(Exception):
    """A state cannot be made, or is none that fits."""


def save(parts: Mapping[str, object], classes: Iterable[type] = ()) -> tuple[dict[str, Any], list[str]]:
    """Return the state of some objects as JSON knows it, and the names of those that have none.

    ``classes`` are further classes that may be found in them.
    """
    writer = _Writer(classes)
    saved: dict[str, Any] = {}
    failed = []
    for name, part in parts.items():
        mark = writer.mark()
        try:
            saved[name] = writer.value(part)
        except (StateError, RecursionError):
            writer.back_to(mark)
            failed.append(name)
    document = {"version": __version__, "classes": writer.classes, "nodes": writer.nodes, "parts": saved}
    return document, failed


def restore(document: object, parts: Mapping[str, object], classes: Iterable[type] = ()) -> list[str]:
    """Fill fresh objects with a state; return the names of those that could not be, whose contents are undefined.

    ``parts`` are as their constructors made them.
    """
    try:
        reader = _Reader(document, classes)
    except (StateError, LookupError, TypeError, ValueError):
        return list(parts)
    failed = []
    for name, part in parts.items():
        try:
            reader.fill(name, part)
        except (StateError, LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
            failed.append(name)
    return failed


class _Writer:
    def __init__(self, classes: Iterable[type]) -> None:
        self._extra = frozenset(classes)
        self.classes: list[list[Any]] = []
        self.nodes: list[list[Any]] = []
        self._indexes: dict[type, int] = {}
        #: By identity, each object with its node; it is kept alive, or its identity could come again.
        self._known: dict[int, tuple[object, int]] = {}

    def mark(self) -> int:
        return len(self.nodes)

    def back_to(self, mark: int) -> None:
        del self.nodes[mark:]
        self._known = {key: known for key, known in self._known.items() if known[1] < mark}

    def value(self, value: object) -> Any:
        kind = type(value)
        if kind in _ATOMS:
            return value
        if kind is float:
            number = cast("float", value)
            return number if math.isfinite(number) else [repr(number)]
        known = self._known.get(id(value))
        if known is not None:
            return [known[1]]
        index = len(self.nodes)
        if index >= MAX_NODES:
            raise StateError("too large")
        node: list[Any] = []
        self.nodes.append(node)
        self._known[id(value)] = (value, index)
        self._fill(node, value, kind)
        return [index]

    def _fill(self, node: list[Any], value: Any, kind: type) -> None:
        if kind is list:
            node += ("l", *self._items(value))
        elif kind is tuple:
            node += ("t", *self._items(value))
        elif kind is deque:
            node += ("q", value.maxlen, *self._items(value))
        elif kind is dict or kind is Counter:
            node += ("d" if kind is dict else "c", *self._items(list(chain.from_iterable(value.items()))))
        elif kind is bytes:
            node += ("b", b64encode(value).decode())
        elif kind is set or kind is frozenset:
            node += ("s" if kind is set else "z", *self._items(value))
        elif not _is_ours(kind, self._extra):
            raise StateError(f"no state of a {kind.__name__}")
        elif issubclass(kind, tuple):
            node += ("n", self._class(kind, cast("Any", kind)._fields), *self._items(value))
        else:
            attributes = _attributes(value)
            values = [_METHOD if isinstance(item, _METHODS) else self.value(item) for item in attributes.values()]
            node += ("o", self._class(kind, tuple(attributes)), *values)

    def _items(self, items: Any) -> Any:
        kinds = set(map(type, items))
        if kinds <= _PLAIN and (float not in kinds or _are_finite(items)):
            return items
        return [self.value(item) for item in items]

    def _class(self, kind: type, names: tuple[str, ...]) -> int:
        index = self._indexes.get(kind)
        if index is None or self.classes[index][1] != list(names):
            index = self._indexes[kind] = len(self.classes)
            self.classes.append([_name(kind), list(names)])
        return index


class _Reader:
    def __init__(self, document: object, classes: Iterable[type]) -> None:
        if not isinstance(document, dict) or document.get("version") != __version__:
            raise StateError("of another version")
        self._nodes, self._parts = document["nodes"], document["parts"]
        if not isinstance(self._nodes, list) or not isinstance(self._parts, dict) or len(self._nodes) > MAX_NODES:
            raise StateError("no state")
        self._extra = {_name(kind): kind for kind in classes}
        self._classes = [(name, [str(attribute) for attribute in names]) for name, names in document["classes"]]
        self._made: dict[int, object] = {}
        #: The objects of the fresh parts that were filled: none is filled twice.
        self._filled: set[int] = set()
        #: The methods that parts keep as their own.
        self._methods: list[Any] = []

    def fill(self, name: str, part: object) -> None:
        """Fill a fresh part.  Raises StateError and what else may come of a state that does not fit."""
        self._methods.clear()
        if self.value(self._parts[name], part) is not part:
            raise StateError("of another class")
        if any(id(method.__self__) not in self._filled for method in self._methods):
            raise StateError("methods of what is no part any more")

    def value(self, value: Any, fresh: object = None) -> Any:
        """Return what a value stands for; ``fresh`` is what the constructor put in its place."""
        if type(value) is not list:
            return value
        (index,) = value
        if type(index) is str:
            return _CONSTANTS[index]
        if index in self._made:
            return self._made[index]
        node = self._nodes[index]
        if type(index) is not int or index < 0 or type(node) is not list:
            raise StateError("no node")
        kind, rest = node[0], node[1:]
        if kind == "o":
            return self._object(index, rest, fresh)
        if kind in {"l", "q", "d", "c", "s"}:
            return self._container(index, kind, rest, fresh)
        made = self._made[index] = self._fixed(kind, rest)
        return made

    def _fixed(self, kind: object, rest: list[Any]) -> object:
        """Return what cannot be changed once it is made."""
        if kind == "b":
            return b64decode(rest[0], validate=True)
        items = [self.value(item) for item in rest[kind == "n" :]]
        if kind == "n":
            return self._named_tuple(rest[0], items)
        if kind not in {"t", "z"}:
            raise StateError("no kind of node")
        return tuple(items) if kind == "t" else frozenset(items)

    def _container(self, index: int, kind: str, rest: list[Any], fresh: object) -> object:
        """Make a container, or fill the fresh one: somebody may hold on to it."""
        maxlen = rest.pop(0) if kind == "q" else None
        made: Any = {"l": list, "d": dict, "c": Counter, "s": set, "q": deque}[kind]()
        if kind == "q":
            made = deque(maxlen=maxlen)
        if type(fresh) is type(made) and self._takes(fresh):
            if kind == "q" and cast("deque[Any]", fresh).maxlen != maxlen:
                raise StateError("of another size")
            made = fresh
            made.clear()
        self._made[index] = made
        items = [self.value(item) for item in rest]
        if kind in {"d", "c"}:
            for key, value in zip(items[::2], items[1::2], strict=True):
                made[key] = value
        elif kind == "s":
            made.update(items)
        else:
            made.extend(items)
        return cast("object", made)

    def _takes(self, fresh: object) -> bool:
        if id(fresh) in self._filled:
            return False
        self._filled.add(id(fresh))
        return True

    def _object(self, index: int, rest: list[Any], fresh: object) -> object:
        kind, names = self._class(rest[0])
        if len(names) != len(rest) - 1 or issubclass(kind, tuple):
            raise StateError("other attributes")
        in_place = type(fresh) is kind and not _is_frozen(kind) and self._takes(fresh)
        made: Any = fresh if in_place else kind.__new__(kind)
        known = dict(_attributes(fresh)) if type(fresh) is kind else {}
        if known and list(known) != names and set(known) != set(names):
            raise StateError("other attributes")
        if dataclasses.is_dataclass(kind) and {one.name for one in dataclasses.fields(kind)} != set(names):
            raise StateError("other attributes")
        self._made[index] = made
        for name, value in zip(names, rest[1:], strict=True):
            if value == _METHOD:
                if not in_place or not isinstance(known.get(name), _METHODS):
                    raise StateError("nobody makes its methods")
                self._methods.append(known[name])
                continue
            found = self.value(value, known.get(name))
            if name == _SETTINGS and known and found != known.get(name):
                raise StateError("other thresholds")
            object.__setattr__(made, name, found)
        return cast("object", made)

    def _named_tuple(self, place: int, items: list[Any]) -> object:
        kind, names = self._class(place)
        if not issubclass(kind, tuple) or list(cast("Any", kind)._fields) != names or len(items) != len(names):
            raise StateError("other fields")
        return tuple.__new__(kind, items)

    def _class(self, place: int) -> tuple[type, list[str]]:
        name, names = self._classes[place]
        found = _SHARED.get(name) or self._extra.get(name)
        if found is None:
            module, _, short = name.rpartition(".")
            found = vars(sys.modules.get(_PACKAGE + module) or sys.modules[__name__]).get(short)
        if not isinstance(found, type) or not (_is_ours(found) or found in self._extra.values()):
            raise StateError("no class of ours")
        return found, names


def _is_ours(kind: type, extra: frozenset[type] = frozenset()) -> bool:
    return kind.__module__.startswith(_PACKAGE) or kind in extra or kind in _SHARED.values()


def _name(kind: type) -> str:
    if kind.__module__.startswith(_PACKAGE):
        return f"{kind.__module__[len(_PACKAGE) :]}.{kind.__qualname__}"
    return kind.__name__


def _is_frozen(kind: type) -> bool:
    parameters = getattr(kind, "__dataclass_params__", None)
    return parameters is not None and bool(parameters.frozen)


def _attributes(value: object) -> dict[str, object]:
    """Return the attributes of an object, in its slots as well as in its dictionary."""
    slots = _slots(cast("Any", type(value)))
    if not slots:
        return vars(value)
    found = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return {**found, **getattr(value, "__dict__", {})}


@functools.cache
def _slots(kind: type) -> tuple[str, ...]:
    found: list[str] = []
    for one in kind.__mro__:
        slots = one.__dict__.get("__slots__", ())
        found += (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in found if name not in {"__dict__", "__weakref__"})


def _are_finite(items: Iterable[object]) -> bool:
    return all(math.isfinite(item) for item in items if type(item) is float)
