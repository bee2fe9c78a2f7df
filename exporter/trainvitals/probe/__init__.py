"""What a training loop calls.  Nothing here raises into, blocks or slows a training; standard library only.

::

    import trainvitals

    trainvitals.init(run="my-run", target_steps=10_000)
    for batch in loader:
        ...
        trainvitals.step(loss=loss, learning_rate=lr, tokens=batch.numel())
    trainvitals.finish()

Without :func:`init`, in a forked child, where the spool is missing, read-only or full, and with
``TRAINVITALS_DISABLE=1``, every call does nothing.  After three internal errors the probe says so once on standard
error, switches itself off and marks the rank file.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import stat
import sys
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from trainvitals.probe.identity import identify
from trainvitals.probe.recorder import Recorder

__all__ = ["checkpoint", "evaluate", "event", "finish", "init", "phase", "spool_folder", "step"]

#: So many errors of our own switch the probe off.
MAX_ERRORS = 3
#: Memory-mapped files on these are not coherent between processes, or block when a server goes away.
_REMOTE_FILESYSTEMS = ("nfs", "lustre", "ceph", "gpfs", "fuse", "cifs", "9p", "beegfs")

_recorder: Recorder | None = None
_installed = False
_failed = False
_told: set[str] = set()


def spool_folder(environ: Mapping[str, str]) -> str:
    """Return the folder of the rank files: ``TRAINVITALS_DIR``, or one per user on tmpfs."""
    return environ.get("TRAINVITALS_DIR") or f"/dev/shm/trainvitals-{os.getuid()}"


def init(run: str | None = None, *, target_steps: int | None = None, **identity: Any) -> bool:
    """Start to record this process; return whether it does.  A second call changes nothing.

    ``run`` is the name of the job, the same on every rank and across restarts.
    By default it comes from ``TRAINVITALS_RUN``, else from the launcher (torchrun, Slurm, Ray), else from the program.
    ``target_steps`` is the planned number of steps; without it there is no percentage and no remaining time.
    """
    global _recorder
    if _recorder is not None:
        return True
    if os.environ.get("TRAINVITALS_DISABLE", "") not in ("", "0") or not sys.platform.startswith("linux"):
        return False
    try:
        folder = spool_folder(os.environ)
        _prepare(folder)
        who = identify(os.environ, run=run)
        who.update({name: value for name, value in {"target_steps": target_steps, **identity}.items() if value is not None})
        _recorder = Recorder(folder, who)
        _install()
        _recorder.event("start", {"attempt": who["attempt"], "world_size": who["world_size"]})
    except Exception as error:
        _tell_once(f"this run is not recorded: {error}")
        return False
    return True


def step(step: int | None = None, values: Mapping[str, Any] | None = None, /, **named: Any) -> None:
    """Report the end of one optimizer step.

    ``step`` is its number; without one, the number before plus one.
    Values are Python numbers or tensors of one element, as keywords or as one mapping (which is cheaper).
    ``loss``, ``learning_rate`` and ``grad_norm`` have series of their own; other names become
    ``trainvitals_value{name=...}``; ``tokens`` and ``samples`` are added up.
    ``skipped=True`` marks a step that the loss scaler skipped.
    A tensor on a device is copied without a synchronisation, and its value appears a step or two later.
    """
    recorder = _recorder
    if recorder is not None:
        try:
            recorder.step(step, named if values is None else {**values, **named} if named else values)
        except Exception as error:
            _internal_error(error)


def phase(name: str) -> contextlib.ContextDecorator:
    """Count the time inside as spent in a phase: ``with trainvitals.phase("data"): ...``, or as a decorator.

    ``name`` is one of init, train, data, forward, backward, optimizer, communication, checkpoint, evaluation, other.
    Time is counted by the host's clock, for the innermost phase alone, so that all phases add up to the wall time.
    """
    return _Phase(name)


class _Phase(contextlib.ContextDecorator):
    """A class and not a generator: half the cost, and exceptions of the block pass untouched."""

    __slots__ = ("_begun", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._begun: Recorder | None = None

    def _recreate_cm(self) -> _Phase:
        return _Phase(self._name)

    def __enter__(self) -> None:
        self._begun = _call(Recorder.begin_phase, self._name)

    def __exit__(self, *_: object) -> None:
        if self._begun is not None and self._begun is _recorder:
            _call(Recorder.end_phase)


def evaluate(step: int | None = None, *, name: str = "validation", **values: Any) -> None:
    """Report the results of an evaluation, for example ``evaluate(step, loss=0.31, accuracy=0.92)``."""
    _call(Recorder.evaluate, step, name, values)


def checkpoint(step: int | None = None, path: object = None, *, kind: str = "save") -> contextlib.AbstractContextManager[None]:
    """Time a checkpoint: ``with trainvitals.checkpoint(step, path): torch.save(...)``.

    ``kind`` is "save" or "load".  An exception inside is recorded as a failed checkpoint and goes on its way.
    """
    return _Checkpoint(step, path, kind)


class _Checkpoint(contextlib.AbstractContextManager[None]):
    """Keeps our errors out of the user's block and the user's exceptions intact."""

    def __init__(self, step: int | None, path: object, kind: str) -> None:
        self._arguments = (step, path, kind)
        self._inner: contextlib.AbstractContextManager[None] | None = None

    def __enter__(self) -> None:
        recorder = _recorder
        if recorder is None:
            return
        try:
            inner = recorder.checkpoint(*self._arguments)
            inner.__enter__()
            self._inner = inner
        except Exception as error:
            _internal_error(error)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._inner is None or _recorder is None:
            return
        try:
            self._inner.__exit__(kind, error, trace)
        except BaseException as raised:
            # The generator hands the user's own exception back: the with statement raises it again by itself.
            if raised is not error:
                _internal_error(raised)


def event(kind: str, message: str | None = None, *, step: int | None = None, **fields: Any) -> None:
    """Report something rare: a change of a setting, a damaged sample, a restart."""
    extra = {} if message is None else {"message": message}
    if step is not None:
        extra["step"] = step  # type: ignore[assignment]
    _call(Recorder.event, kind, {**fields, **extra})


def finish(status: str = "ok") -> None:
    """Report the end of the run: "ok" or "failed".  Called by itself when the interpreter exits."""
    global _recorder
    recorder = _recorder
    _recorder = None
    if recorder is not None:
        try:
            recorder.finish(status)
        except Exception as error:
            _tell_once(f"the end of the run is not recorded: {error}")


def _call(method: Callable[..., Any], *arguments: Any) -> Recorder | None:
    """Call a method of the recorder, if there is one; return it only if the call went well."""
    recorder = _recorder
    if recorder is None:
        return None
    try:
        method(recorder, *arguments)
    except Exception as error:
        _internal_error(error)
        return None
    return recorder


def _internal_error(error: BaseException) -> None:
    """Count an error of ours; after the third, say so and stop."""
    global _recorder
    recorder = _recorder
    if recorder is None:
        return
    try:
        if recorder.count_error() < MAX_ERRORS:
            return
        recorder.disable()
    except Exception as second:
        error = second
    _recorder = None
    _tell_once(f"switched off after {MAX_ERRORS} internal errors, the training goes on; the last was {error!r}")


def _tell_once(message: str) -> None:
    if message not in _told:
        _told.add(message)
        with contextlib.suppress(Exception):
            print(f"trainvitals: {message}", file=sys.stderr)


def _prepare(folder: str) -> None:
    """Make the spool and refuse one that is not ours to use; raises OSError with the reason."""
    with contextlib.suppress(FileExistsError):
        # Only the last part: a spool that an administrator should have mounted must not appear on the root disk.
        os.mkdir(folder, 0o755)
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode):
        raise OSError(f"{folder} is not a folder")
    shared = bool(status.st_mode & stat.S_ISVTX)
    if status.st_uid not in (os.getuid(), 0) and not shared:
        raise OSError(f"{folder} belongs to another user (uid {status.st_uid})")
    remote = _filesystem(folder)
    if remote.startswith(_REMOTE_FILESYSTEMS):
        raise OSError(f"{folder} is on {remote}; TRAINVITALS_DIR must name a local folder, best on tmpfs")


def _filesystem(folder: str) -> str:
    """Return the type of the file system that a folder is on, or an empty string."""
    best = ("", "")
    real = os.path.realpath(folder)
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                _, point, kind = line.split(" ", 3)[:3]
                inside = real == point or real.startswith(point.rstrip("/") + "/")
                if inside and len(point) >= len(best[0]):
                    best = (point, kind)
    except (OSError, ValueError):
        return ""
    return best[1]


def _install() -> None:
    """Hook into the end of the process and into fork, once; earlier hooks are called as before."""
    global _installed
    if _installed:
        return
    _installed = True
    os.register_at_fork(after_in_child=_forget)
    atexit.register(_finish_at_exit)
    if multiprocessing := sys.modules.get("multiprocessing.util"):
        # Its children leave by os._exit, which skips atexit but not this.
        multiprocessing.Finalize(None, _finish_at_exit, exitpriority=0)
    previous = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        global _failed
        _failed = True
        _call(Recorder.event, "exception", {"type": kind.__name__, "message": str(error)[:500]})
        previous(kind, error, trace)

    sys.excepthook = excepthook


def _finish_at_exit() -> None:
    error = sys.exc_info()[1]
    finish("failed" if _failed or (error is not None and not isinstance(error, SystemExit)) else "ok")


def _forget() -> None:
    """In a forked child: drop the recorder without touching the file, which belongs to the parent."""
    global _recorder
    _recorder = None
