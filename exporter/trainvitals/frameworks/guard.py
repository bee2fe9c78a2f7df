"""Keeps what we do inside somebody else's program from hurting it.

Whatever we hang into a framework goes through here: an error of ours is counted in the rank file and goes no further,
and what the program itself raises or returns is not touched.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from trainvitals import probe

Function = TypeVar("Function", bound=Callable[..., Any])

_MARK = "__trainvitals__"


def safe(function: Callable[..., Any]) -> Callable[..., None]:
    """Return ``function`` as one that never raises an Exception and returns nothing."""

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> None:
        try:
            function(*args, **kwargs)
        except Exception as error:
            probe.count_error(error)

    return guarded


def around(
    owner: Any,
    name: str,
    *,
    before: Callable[..., Any] | None = None,
    after: Callable[..., Any] | None = None,
    failed: Callable[..., Any] | None = None,
) -> bool:
    """Call ours around ``owner.name``; return whether that could be done.

    ``before(*args, **kwargs)`` is called first, ``after(result, *args, **kwargs)`` when the call returned,
    ``failed(error, *args, **kwargs)`` when it raised.  All are made safe.  A second time changes nothing.
    """
    original = getattr(owner, name, None)
    if not callable(original) or getattr(original, _MARK, False):
        return False
    before, after, failed = (None if call is None else safe(call) for call in (before, after, failed))

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            before(*args, **kwargs)
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            if failed is not None:
                failed(error, *args, **kwargs)
            raise
        if after is not None:
            after(result, *args, **kwargs)
        return result

    setattr(wrapper, _MARK, True)
    try:
        setattr(owner, name, wrapper)
    except (AttributeError, TypeError):  # A class of an extension module cannot be changed.
        return False
    return True
