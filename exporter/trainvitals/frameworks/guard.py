"""Keeps what we do inside somebody else's program from hurting it.

Whatever we hang into a framework goes through here: an error of ours is counted in the rank file and goes no further,
and what the program itself raises or returns is not touched.
"""

from __future__ import annotations

import functools
import sys
from _thread import get_ident  # Not threading: a trainer that has none needs none.
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from trainvitals import probe

_MARK = "__trainvitals__"


def safe(function: Callable[..., Any]) -> Callable[..., None]:
    """Return ``function`` as one that never raises an Exception and returns nothing."""

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> None:
        try:
            function(*args, **kwargs)
        except Exception as error:
            count(error)

    return guarded


#: Errors from before a recording, at most as many as it would take; without the frames that they came through.
_early: list[Exception] = []


def count(error: Exception) -> None:
    """Count an error of ours, now or when the recording begins."""
    if probe.is_recording():
        probe.count_error(error)
    elif len(_early) < probe.MAX_ERRORS:
        _early.append(error.with_traceback(None))


def count_early() -> None:
    """Count what failed before the recording began: an adapter, say, that did not know its framework."""
    while _early:
        probe.count_error(_early.pop(0))


class Switch:
    """Mutes an adapter by its first error: the library is of a version that we do not know, and steps are many.

    Functions that are wrapped with the same switch fall silent together; the error itself is left to :func:`safe`.
    """

    def __init__(self) -> None:
        self.off = False

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``function`` as one that does nothing once one of this switch has raised."""

        @functools.wraps(function)
        def switched(*args: Any, **kwargs: Any) -> Any:
            if self.off:
                return None
            try:
                return function(*args, **kwargs)
            except Exception:
                self.off = True
                raise

        return switched


class Switches:
    """One switch for each name, for an object that may live shorter than the process."""

    def __init__(self) -> None:
        self._off: set[str] = set()

    def call(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call ``function`` unless it has raised under this name before; raises what it raises."""
        if name in self._off:
            return None
        try:
            return function(*args, **kwargs)
        except Exception:
            self._off.add(name)
            raise


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
    Code that ``torch.compile`` traces does not see them: ours would break its graph, or worse.
    """
    original = getattr(owner, name, None)
    if not callable(original) or getattr(original, _MARK, False):
        return False
    before, after, failed = (None if call is None else safe(call) for call in (before, after, failed))

    is_compiling = _compiling()

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(*args, **kwargs)
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


def _compiling() -> Callable[[], bool]:
    """Return the question whether ``torch.compile`` is tracing, which it answers itself while it does."""
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    question: Callable[[], bool] = getattr(compiler, "is_dynamo_compiling", _never)
    return question


def _never() -> bool:
    return False


def within(owner: Any, name: str, enter: Callable[..., AbstractContextManager[Any] | None]) -> bool:
    """Run ``owner.name`` within the context that ``enter(*args, **kwargs)`` returns, which may be None for none.

    The context is one of ours (a phase, a checkpoint) and learns of an exception, but cannot swallow it.
    """
    opened: dict[int, list[AbstractContextManager[Any] | None]] = {}

    def before(*args: Any, **kwargs: Any) -> None:
        contexts = opened.setdefault(get_ident(), [])
        contexts.append(None)
        context = enter(*args, **kwargs)
        if context is not None:
            context.__enter__()
            contexts[-1] = context

    def leave(error: BaseException | None) -> None:
        context = opened[get_ident()].pop()
        if context is not None:
            context.__exit__(None if error is None else type(error), error, None)

    return around(
        owner,
        name,
        before=before,
        after=lambda *_, **__: leave(None),
        failed=lambda error, *_, **__: leave(error),
    )
