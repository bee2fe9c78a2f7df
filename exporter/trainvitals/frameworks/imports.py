"""Calls us when a module of a framework has been imported, without importing it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from trainvitals.frameworks.guard import safe

Ready = Callable[[ModuleType], Any]

_waiting: dict[str, list[Callable[..., None]]] = {}


def when_imported(name: str, ready: Ready) -> None:
    """Call ``ready(module)`` once the module ``name`` is there: now, or right after its import.  Never raises."""
    module = sys.modules.get(name)
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        safe(ready)(module)
        return
    _waiting.setdefault(name, []).append(safe(ready))
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


class _Finder:
    """Finds nothing itself: it lets the others find a module that is waited for, and adds our call behind it."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in _waiting:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: ModuleSpec | None = find(name, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    _call_after(spec.loader, name)
                return spec
        return None


def _call_after(loader: Any, name: str) -> None:
    """Let this one loader, made for this one module, call us when it is done."""
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        for ready in _waiting.pop(name, ()):
            ready(module)

    try:
        loader.exec_module = exec_module
    except AttributeError:  # A loader with slots or of an extension: then this module is not watched.
        _waiting.pop(name, None)


_finder = _Finder()
