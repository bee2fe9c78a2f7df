"""A stand-in for somebody's object that behaves like it in all but what we watch.

Attributes are read from, written to and deleted on the object behind.  ``isinstance`` says what it says of that object.
Special methods are looked up on the class of an object, so each stand-in gets a class with those that its object has:
what has no length must not seem to have one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, TypeVar

_SPECIAL = (
    "__add__",
    "__aiter__",
    "__anext__",
    "__bool__",
    "__call__",
    "__contains__",
    "__delitem__",
    "__enter__",
    "__eq__",
    "__exit__",
    "__getitem__",
    "__hash__",
    "__len__",
    "__length_hint__",
    "__mul__",
    "__reversed__",
    "__rmul__",
    "__setitem__",
)
_OWN = "_trainvitals"
#: So many classes are kept; a program has a few kinds of loaders.
_KINDS = 256


class Proxy:
    """The base.  ``_trainvitals`` is an object of ours; its ``target`` is the object that is stood in for."""

    __slots__ = (_OWN, "__weakref__")
    _trainvitals: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trainvitals.target, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._trainvitals.target, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._trainvitals.target, name)

    def __dir__(self) -> list[str]:
        return dir(self._trainvitals.target)

    def __repr__(self) -> str:
        return repr(self._trainvitals.target)

    def __reduce_ex__(self, _: Any) -> Any:
        return self._trainvitals.reduced()

    if not TYPE_CHECKING:

        @property
        def __class__(self) -> type:
            return self._trainvitals.target.__class__


Kind = TypeVar("Kind", bound=Proxy)

_classes: dict[tuple[type[Proxy], type], Any] = {}


def stand_in(kind: type[Kind], own: Any) -> Kind:
    """Return a stand-in of class ``kind`` for ``own.target``."""
    target = type(own.target)
    made = _classes.get((kind, target))
    if made is None:
        special: dict[str, Any] = {
            name: _forwarder(name)
            for name in _SPECIAL
            if callable(getattr(target, name, None)) and not any(name in base.__dict__ for base in kind.__mro__[:-1])
        }
        if not issubclass(target, Hashable):
            special["__hash__"] = None
        made = type(kind.__name__, (kind,), {"__slots__": (), **special})
        if len(_classes) < _KINDS:
            _classes[kind, target] = made
    proxy: Kind = made()
    object.__setattr__(proxy, _OWN, own)
    return proxy


def own_part(value: object, kind: type[Proxy]) -> Any:
    """Return our part of a stand-in of class ``kind``, or None for anything else."""
    # By type and not by isinstance, which stand-ins mislead.
    return object.__getattribute__(value, _OWN) if kind in type(value).__mro__ else None


def _forwarder(name: str) -> Callable[..., Any]:
    def method(self: Proxy, *args: Any) -> Any:
        return getattr(self._trainvitals.target, name)(*args)

    method.__name__ = name
    return method
