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

import contextlib
import os
import sys
import time
from _thread import get_ident  # Not threading: a trainer that has none needs none.
from collections.abc import Callable, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any

from trainvitals.probe import spool
from trainvitals.probe.ending import Ending
from trainvitals.probe.identity import identify
from trainvitals.probe.recorder import Recorder
from trainvitals.rankfile import PHASES

if TYPE_CHECKING:
    from trainvitals.probe.lineage import Lineage
    from trainvitals.probe.orders import Obedience

__all__ = ["checkpoint", "evaluate", "event", "finish", "init", "log", "phase", "step"]

#: So many errors of our own switch the probe off.
MAX_ERRORS = 3
_WHOLE_NUMBERS = ("target_steps", "attempt", "rank", "local_rank", "node_rank", "world_size")
_LONGEST_MESSAGE = 400

_recorder: Recorder | None = None
#: The recorder of a probe that was switched off by its own errors: its file still learns how the run ended.
_switched_off: Recorder | None = None
#: The thread that started to record: the training's.
_thread = 0
#: In a forked child that is no rank itself (a worker that loads data): the rank file of the process around it.
_parent_file: str | None = None
#: Is called after an event of the program's.
_after_event: Callable[[], None] | None = None
#: What a recorder has told of what its run is made of.
_told_lineage: tuple[Recorder, Lineage] | None = None
#: The number of the newest order to this run, and the one up to which they were obeyed: the same while none is given.
_mail: Any = (0,)
_obeyed = 0
_obedience: Obedience | None = None
_fork_hook_installed = False
_told: set[str] = set()
#: What tells the exception that was recorded last; the exception itself would keep its frames alive.
_last_exception: tuple[int, str] | None = None


def init(
    run: str | None = None,
    target_steps: int | None = None,
    *,
    config: object = None,
    dataset: object = None,
    model: object = None,
    **identity: Any,
) -> bool:
    """Start to record this process; return whether it does.  A second call only adds what the run is made of.

    ``run`` is the name of the job, the same on every rank and across restarts.
    By default it comes from ``TRAINVITALS_RUN``, else from the launcher, else from the program.
    ``target_steps`` is the planned number of steps; without it there is no percentage and no remaining time.
    ``identity`` is what no launcher told: ``rank``, ``local_rank``, ``world_size``, ``attempt``, ``device_uuid``.
    ``config``, ``dataset`` and ``model`` are kept as short tables that show what changed between attempts; see
    :mod:`trainvitals.probe.digest`.
    """
    global _recorder, _thread
    if _recorder is not None:
        add_lineage(config=config, dataset=dataset, model=model)
        return True
    if _switched_off is not None or not _wanted() or _is_import_by_child(sys._getframe(1)):  # noqa: SLF001  no other way
        return False
    try:
        folder = spool.folder(os.environ)
        spool.prepare(folder)
        spool.tidy(folder)
        who = identify(os.environ, run=run)
        who.update(_known({"target_steps": target_steps, **identity}))
        recorder = Recorder(folder, who)
    except Exception as error:
        _tell_once("init", "this run is not recorded", error)
        return False
    _recorder, _thread = recorder, get_ident()
    _call(_install)
    _call(Recorder.event, "start", {name: who[name] for name in ("attempt", "world_size")})
    _call(_begin_orders, folder)
    if os.environ.get("TRAINVITALS_LINEAGE", "") != "0":
        recorder.after_first_step = _complete_lineage
    add_lineage(config=config, dataset=dataset, model=model)
    return _recorder is not None


def _wanted() -> bool:
    is_known = sys.platform.startswith("linux") and sys.byteorder == "little"
    return is_known and os.environ.get("TRAINVITALS_DISABLE", "") in ("", "0")


def _is_import_by_child(caller: FrameType) -> bool:
    """Whether a spawned child (a data-loader worker) only imports the training's script: it is no rank of its own."""
    return caller.f_globals.get("__name__") == "__mp_main__" and caller.f_code.co_name == "<module>"


def _known(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was given, in the types that the exporter expects; a count that is none was not given."""
    known = {name: value for name, value in identity.items() if value is not None}
    for name in _WHOLE_NUMBERS:
        try:
            if name in known:
                known[name] = int(known[name])
        except (TypeError, ValueError, OverflowError):
            del known[name]
    return known


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
            if "step" in named:  # Somebody writes step(step=7, loss=...).
                number = named.pop("step")
                step = number if step is None else step
            values = named if values is None else _merged(values, named)
            recorder.step(step, values)
        except Exception as error:
            _internal_error(error)
        if _mail[0] != _obeyed:
            obey()


def _begin_orders(recorder: Recorder, folder: str) -> None:
    global _mail, _obeyed, _obedience
    from trainvitals.probe import orders  # noqa: PLC0415  A process that is not recorded has none.

    _obedience = orders.begin(recorder, folder)
    if _obedience is not None:
        _mail = _obedience.mail.word
        _obeyed = _mail[0]


def obey() -> None:
    """Obey the orders that are due, behind a step.  Raises SystemExit, if the program was told to stop and never asks.

    What counts the steps calls this when the newest order is not the last that was obeyed.
    """
    global _obeyed
    obedience = _obedience
    if obedience is None:
        return
    try:
        _obeyed = obedience.look()
        must_end = obedience.must_end
    except Exception as error:
        _internal_error(error)
        return
    if must_end:
        raise SystemExit(0)


def has_orders() -> bool:
    """Whether there are orders to look at."""
    return bool(_mail[0] != _obeyed)


def log(values: Mapping[str, Any] | None = None, /, **named: Any) -> None:
    """Add values to the step that was reported last: what became known only after it.

    Values are given as to :func:`step`.  Before the first step they are kept for it.
    """
    _call(Recorder.log, _merged(values, named))


def phase(name: str) -> _Phase:
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


def evaluate(
    step: int | None = None, values: Mapping[str, Any] | str | None = None, /, *, name: str = "validation", **named: Any
) -> None:
    """Report the results of an evaluation on the split ``name``: ``evaluate(step, loss=0.31, accuracy=0.92)``.

    Values are given as to :func:`step`.
    """
    if isinstance(values, str):  # Somebody writes evaluate(step, "test", loss=...).
        name, values = values, None
    step = named.pop("step", None) if step is None else step
    _call(lambda recorder: recorder.evaluate(step, name, _merged(values, named)))


def checkpoint(step: int | None = None, path: object = None, kind: str = "save") -> Checkpoint:
    """Time a checkpoint: ``with trainvitals.checkpoint(step, path): torch.save(...)``.

    ``kind`` is "save" or "load".  An exception inside is recorded as a failed checkpoint and goes on its way.
    """
    return Checkpoint(step, path, kind)


class Checkpoint(contextlib.AbstractContextManager[None]):
    """A class and not a generator: a forked child that drops a generator would run its end, in the parent's file."""

    __slots__ = ("_begun", "_kind", "_path", "_recorder", "_step")

    def __init__(self, step: int | None, path: object, kind: str) -> None:
        self._step, self._path, self._kind = step, path, kind
        self._recorder: Recorder | None = None
        self._begun = (0, 0.0)

    def __enter__(self) -> None:
        self._recorder = _call(self._begin)

    def _begin(self, recorder: Recorder) -> None:
        self._begun = recorder.begin_checkpoint(self._step)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._recorder is not None and self._recorder is _recorder:
            error = None if kind is None else kind.__name__
            _call(Recorder.end_checkpoint, self._begun, self._path, self._kind, error)

    def cancel(self) -> None:
        """End it as something that is no checkpoint after all: its time counts, and nothing else."""
        if self._recorder is not None and self._recorder is _recorder:
            _call(Recorder.end_phase)


def event(kind: str, message: str | None = None, step: int | None = None, /, **fields: Any) -> None:
    """Report something rare: a change of a setting, a damaged sample, a restart."""
    given = {"message": message, "step": step}
    _call(Recorder.event, kind, {**fields, **{name: value for name, value in given.items() if value is not None}})
    if _after_event is not None:
        _call(lambda _, after: after(), _after_event)


def _merged(values: Any, named: dict[str, Any]) -> Any:
    """Return the values of a mapping and of keywords together; what is no mapping is left to the recorder."""
    if values is None:
        return named
    return {**values, **named} if named and isinstance(values, Mapping) else values


def finish(status: str = "ok") -> None:
    """Report the end of the run: "ok" or "failed".  Called by itself when the interpreter exits."""
    global _recorder, _switched_off
    recorder = _recorder or _switched_off
    _recorder = _switched_off = None
    _forget_orders()
    if recorder is not None:
        try:
            recorder.finish(status)
        except Exception as error:
            _tell_once("finish", "the end of the run is not recorded", error)


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


def is_recording() -> bool:
    """Whether this process is recorded now."""
    return _recorder is not None


def recorder() -> Recorder | None:
    """Return what records this process, for the other parts of the probe."""
    return _recorder


def thread() -> int:
    """Return the thread that started to record: phases are its own."""
    return _thread


def rank_file() -> str | None:
    """Return the rank file of this process; in a forked worker that of the process around it."""
    return _parent_file if _recorder is None else _recorder.writer.path


def on_event(after: Callable[[], None]) -> None:
    """Call ``after`` after each event that the program reports."""
    global _after_event
    _after_event = after


def current_phase() -> str | None:
    """Return the phase that this process is in, or None when it is not recorded."""
    return None if _recorder is None else PHASES[_recorder.phases.current]


def end_init() -> None:
    """Say that the start is over: a first step was made, though nobody has reported it yet."""
    _call(lambda recorder: recorder.phases.end_init(time.monotonic()))


def steps_recorded() -> int:
    """Return how many steps this process has reported."""
    return 0 if _recorder is None else _recorder.writer.state.count


def add_identity(**identity: Any) -> None:
    """Add what became known after the start: target steps, the framework.  What :func:`init` was told stays."""

    def add(recorder: Recorder) -> None:
        told = recorder.writer.identity
        news = {name: value for name, value in _known(identity).items() if told.get(name) != value}
        recorder.identify(**{name: news[name] for name in news if name == "framework" or name not in recorder.given})

    _call(add)


def add_lineage(**given: object) -> None:
    """Add what the run is made of (``config``, ``dataset``, ``model``); a later table of a kind takes its place."""
    known = {name: value for name, value in given.items() if value is not None}
    if known and os.environ.get("TRAINVITALS_LINEAGE", "") != "0":
        _call(_add_lineage, known)


def offer_lineage(**given: object) -> None:
    """Add what a framework knows of the run: tables of kinds that the program itself has told stay."""
    recorder = _recorder
    if recorder is not None:
        own = recorder.given
        add_lineage(**{name: value for name, value in given.items() if name not in own})
        recorder.given = own


def _add_lineage(recorder: Recorder, given: Mapping[str, object]) -> None:
    recorder.given |= given.keys()
    recorder.writer.state.dropped += _lineage(recorder).add(**given)


def _complete_lineage() -> None:
    _call(lambda recorder: _lineage(recorder).complete())


def _lineage(recorder: Recorder) -> Lineage:
    """Return the lineage of this process."""
    global _told_lineage
    if _told_lineage is None or _told_lineage[0] is not recorder:
        from trainvitals.probe.lineage import Lineage  # noqa: PLC0415  It hashes: not before somebody needs it.

        identity = recorder.writer.identity
        lineage = Lineage(lambda fields: recorder.event("lineage", fields), whole=not identity.get("rank"))
        recorder.lineage = lambda: lineage.hash
        _told_lineage = recorder, lineage
    return _told_lineage[1]


def count_error(error: Exception) -> None:
    """Count an error of ours that was caught elsewhere, as one of the probe's own."""
    _internal_error(error)


def tell_once(occasion: str, message: str, error: BaseException) -> None:
    """Say something on standard error, once in the life of the process."""
    _tell_once(occasion, message, error)


def _internal_error(error: BaseException) -> None:
    """Count an error of ours; after the third, say so and stop."""
    global _recorder, _switched_off
    recorder = _recorder
    if recorder is None:
        return
    try:
        if recorder.count_error() < MAX_ERRORS:
            return
        recorder.disable()
    except Exception as second:
        error = second
    _recorder, _switched_off = None, recorder
    _tell_once("off", f"switched off after {MAX_ERRORS} internal errors, the training goes on; the last was", error)


def _tell_once(occasion: str, message: str, error: BaseException) -> None:
    """Write one line on standard error, the only one of its occasion in the life of the process."""
    if occasion in _told or sys.stderr is None:
        return
    _told.add(occasion)
    with contextlib.suppress(Exception):
        text = str(error) if isinstance(error, OSError) else repr(error)
        line = " ".join(f"trainvitals: {message}: {text}".split())
        print(line[:_LONGEST_MESSAGE], file=sys.stderr)


def _install(_: Recorder) -> None:
    """Hook into the end of the process and into fork."""
    global _fork_hook_installed
    _ending.install()
    if not _fork_hook_installed:
        _fork_hook_installed = True
        os.register_at_fork(after_in_child=_forget)


def _forget() -> None:
    """In a forked child: drop the recorder without touching the file, which belongs to the parent."""
    global _recorder, _switched_off, _parent_file
    if _recorder is not None:
        _parent_file = _recorder.writer.path
    _recorder = _switched_off = None
    _forget_orders()
    _ending.forget()


def _forget_orders() -> None:
    global _mail, _obeyed, _obedience
    _mail, _obeyed, _obedience = (0,), 0, None


def record_exception(error: BaseException, failed: bool) -> None:
    """Record what ended a training, once, although a framework and then the interpreter tell of it."""

    def record(recorder: Recorder) -> None:
        global _last_exception
        told = (id(error), type(error).__name__)
        if told != _last_exception:
            _last_exception = told
            kind = "exception" if failed else "interrupted"
            recorder.event(kind, {"type": told[1], "message": str(error)[:300]})

    _call(record)


def _progress() -> object:
    return None if _recorder is None else _recorder.writer.state.count


_ending = Ending(
    on_exit=lambda failed: finish("failed" if failed else "ok"), on_exception=record_exception, progress=_progress
)
