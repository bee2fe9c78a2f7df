"""How the process ends: well, by an exception, or with an exit code that says it failed.

atexit knows none of this, so the hooks that see it are chained: what was there before is called as before.
A bare ``raise SystemExit(1)`` passes by no hook and counts as a clean end.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, NoReturn


class Ending:
    """Calls ``on_exit(failed)`` when the interpreter ends and ``on_exception(error, failed)`` before a traceback.

    ``progress`` returns something that changes while the training goes on.
    """

    def __init__(
        self,
        on_exit: Callable[[bool], None],
        on_exception: Callable[[BaseException, bool], None],
        progress: Callable[[], object],
    ) -> None:
        self._on_exit = on_exit
        self._on_exception = on_exception
        self._progress = progress
        #: Where the training was when it asked to leave with an exit code that is a failure.
        self._left_at: object = None
        self._installed = False
        self._finalizer_installed = False
        self._failed = False

    def install(self) -> None:
        """Chain the hooks, once."""
        if not self._finalizer_installed and (multiprocessing := sys.modules.get("multiprocessing.util")):
            # Its children leave by os._exit, which skips atexit but not this.
            multiprocessing.Finalize(None, self._at_exit, exitpriority=0)
            self._finalizer_installed = True
        if not self._installed:
            self._installed = True
            atexit.register(self._at_exit)
            self._chain_excepthook()
            self._chain_exit()

    def forget(self) -> None:
        """In a forked child: nothing has failed here yet, and multiprocessing has dropped the parent's finalizers."""
        self._finalizer_installed = self._failed = False
        self._left_at = None

    def _chain_excepthook(self) -> None:
        previous = sys.excepthook

        def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            if not _is_interactive():
                self._failed = is_failure(error)
                self._on_exception(error, self._failed)
            previous(kind, error, trace)

        sys.excepthook = excepthook

    def _chain_exit(self) -> None:
        previous = sys.exit

        def leave(status: Any = None, /) -> NoReturn:
            if status not in (None, 0) and _is_main_thread():
                self._left_at = self._progress()
            previous(status)

        leave.__doc__ = previous.__doc__
        sys.exit = leave

    def _at_exit(self) -> None:
        # A child of multiprocessing is still inside the exception that ends it; a hook set after ours may have kept
        # one from us, and then the interpreter remembers it.
        error = sys.exc_info()[1] or (None if _is_interactive() else getattr(sys, "last_value", None))
        # Somebody may have caught the exit and gone on training.
        left = self._left_at is not None and self._left_at == self._progress()
        self._on_exit(self._failed or left or is_failure(error) or _code_of_child() != 0)


def is_failure(error: BaseException | None) -> bool:
    """Whether a process that ends by this exception has failed.  Ctrl-C is what somebody wanted: nobody is woken."""
    if isinstance(error, SystemExit):
        return error.code not in (None, 0)
    return error is not None and not isinstance(error, KeyboardInterrupt)


def _is_interactive() -> bool:
    """Whether somebody types here: then an exception is a line that went wrong and no end."""
    return hasattr(sys, "ps1")


def _code_of_child() -> int:
    """Return the exit code with which multiprocessing is about to leave a forked child, else 0.

    From Python 3.13 on, the exception is over by then, and only the frame that calls us knows the code; before, it
    does not know the code yet.
    """
    frame: FrameType | None = sys._getframe() if sys.version_info >= (3, 13) else None  # noqa: SLF001  no other way
    while frame is not None:
        if frame.f_globals.get("__name__") in ("multiprocessing.popen_fork", "multiprocessing.forkserver"):
            code = frame.f_locals.get("code")
            return code if isinstance(code, int) else 0
        frame = frame.f_back
    return 0


def _is_main_thread() -> bool:
    # In another thread, sys.exit ends the thread alone.  Where nobody imported the module there is no other.
    threading = sys.modules.get("threading")
    return threading is None or threading.current_thread() is threading.main_thread()
