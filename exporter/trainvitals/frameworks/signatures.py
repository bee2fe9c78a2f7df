"""Arguments by their names, for functions whose parameters move from version to version."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


class Arguments:
    """Finds the arguments of calls of ``function``; raises ValueError for a function that tells no signature."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._signature = inspect.signature(function)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of one call by name, defaults included; raises TypeError for a call that cannot be."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments
