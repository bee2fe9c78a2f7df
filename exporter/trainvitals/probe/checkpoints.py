"""Checkpoints by policy, around the program's own save and load.

::

    checkpoints = trainvitals.checkpoints("checkpoints", every_steps=500, keep=3, pin=5000)
    if (saved := checkpoints.newest()) is not None:
        load(saved.path)
    for step in ...:
        trainvitals.step(step, loss=loss)
        if checkpoints.due(step):
            with checkpoints.saving(step, loss=loss) as folder:
                torch.save(state, f"{folder}/model.pt")

A checkpoint is a folder, ``step-500``.  While it is written its name is ``step-500.partial``; it gets its own when all
its files are on the disk and are listed with their sizes (:mod:`trainvitals.probe.manifest`).  So one that has its name
is whole, and one that was damaged later is seen.

Errors of the program's own saving go on their way to the program: a disk that is full is no secret.
"""

from __future__ import annotations

import contextlib
import math
import operator
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from trainvitals import probe
from trainvitals.probe import manifest
from trainvitals.probe.knobs import KNOBS
from trainvitals.probe.manifest import NotWholeError, Saved
from trainvitals.probe.resume_path import resume_path, resume_since

_NAME = re.compile(r"step-(\d{1,18})")
PARTIAL = ".partial"
#: What is to be removed gets this name first: a removal that was broken off leaves no half checkpoint.
_GOING = ".removing"
_LEFT = re.compile(r"step-\d{1,18}\.removing")
#: Seconds between two checkpoints at least, as far as their order goes.
_TICK = 0.001
#: Where all ranks have to agree, time is looked at every so many steps.
_AGREE_EVERY = 10


class Checkpoints:
    """The checkpoints of one run in one folder.

    ``every_steps`` and ``every_seconds`` say when one is due, whichever comes first.  Each rank goes by its own clock:
    where ranks save together, give ``every_steps`` alone, or ``agree``, which is called by all ranks in the same step
    with what each thinks, and returns what all do.
    ``barrier`` is called by all ranks when each has written its part; rank 0 finishes the checkpoint behind it.
    ``keep`` so many of the newest stay, and those whose step is a multiple of ``pin``; and always the newest with a
    sound loss, and the newest of those that was saved before the newest (somebody may have to go back behind what went
    wrong in between).
    ``whole`` reads all of each file for its checksum, not the ends alone.
    Raises ValueError for a policy that makes no sense.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        every_steps: int | None = None,
        every_seconds: float | None = None,
        keep: int = 3,
        pin: int | None = None,
        agree: Callable[[bool], bool] | None = None,
        barrier: Callable[[], object] | None = None,
        rank: int | None = None,
        whole: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for name, value in (("every_steps", every_steps), ("every_seconds", every_seconds), ("pin", pin)):
            if value is not None and not value > 0:
                raise ValueError(f"{name}: expected a number above 0, found {value!r}")
        if keep < 1:
            raise ValueError(f"keep: expected 1 or more, found {keep!r}")
        self.folder = os.path.abspath(folder)
        self._every_steps, self._every_seconds = every_steps, every_seconds
        self._keep, self._pin, self._whole = keep, pin, whole
        self._agree, self._barrier, self._clock = agree, barrier, clock
        self._rank = _rank() if rank is None else rank
        self._saved_at = clock()
        self._saved_step: int | None = None
        self._is_ordered = False
        self._bad_steps = _nonfinite()
        KNOBS.offer_save(self._order, when_asked=True)

    def _order(self, _: int) -> str:
        """Be due at the next question: somebody has ordered a checkpoint behind this step."""
        self._is_ordered = True
        return ""

    def due(self, step: int) -> bool:
        """Whether to save behind this step; asked once in each step, by all ranks that save."""
        if self._is_ordered:
            return True
        if step == self._saved_step:
            return False
        if self._every_steps is not None and step > 0 and step % self._every_steps == 0:
            return True
        if self._every_seconds is None or (self._agree is not None and step % _AGREE_EVERY):
            return False
        is_due = self._clock() - self._saved_at >= self._every_seconds
        return is_due if self._agree is None else self._agree(is_due)

    @contextlib.contextmanager
    def saving(self, step: int, *, loss: object = None, **facts: object) -> Iterator[str]:
        """Give a folder to write into, and make a checkpoint of it when the block is left without an exception.

        ``loss`` is a number, or a tensor of one element, which is read.  ``facts`` are kept beside it, as JSON.
        """
        if (step := operator.index(step)) < 0:  # Also that of numpy, which JSON does not know.
            raise ValueError(f"step: expected 0 or more, found {step}")
        self._is_ordered = False
        partial = os.path.join(self.folder, f"step-{step}{PARTIAL}")
        final = partial.removesuffix(PARTIAL)
        with probe.checkpoint(step, final):
            if self._rank == 0:
                shutil.rmtree(partial, ignore_errors=True)
            os.makedirs(partial, exist_ok=True)
            if self._barrier is not None:
                self._barrier()  # No rank writes into what another removes.
            try:
                yield partial
                if self._barrier is not None:
                    self._barrier()
                if self._rank == 0:
                    self._finish(partial, final, step, _number(loss), facts)
            except BaseException:
                if self._rank == 0:
                    shutil.rmtree(partial, ignore_errors=True)
                raise
        self._saved_at, self._saved_step = self._clock(), step
        if self._rank == 0:
            self.prune()

    def _finish(self, partial: str, final: str, step: int, loss: float | None, facts: dict[str, object]) -> None:
        bad, before = _nonfinite(), self._bad_steps
        self._bad_steps = bad
        saved = Saved(
            path=final,
            step=step,
            loss=loss if loss is not None and math.isfinite(loss) else None,
            time=self._now(),
            is_sound=bad == before and (loss is None or math.isfinite(loss)),
            facts={**_known_facts(), **{name: _plain(value) for name, value in facts.items()}},
        )
        manifest.write(partial, saved, whole=self._whole)
        shutil.rmtree(f"{final}{_GOING}", ignore_errors=True)
        # Where the run went back and has come by this step again, there is one already: at no moment there is none.
        if _exchange(partial, final):
            os.rename(partial, f"{final}{_GOING}")
        else:
            with contextlib.suppress(FileNotFoundError):
                os.rename(final, f"{final}{_GOING}")
            os.rename(partial, final)
        manifest.flush(self.folder)

    def _now(self) -> float:
        """Return the time, behind that of each checkpoint: their order depends on it, and a clock may be set back."""
        return max([time.time(), *(saved.time + _TICK for saved in self.all())])

    def all(self) -> list[Saved]:
        """Return the checkpoints that are there, the one that was saved last first; they are not verified.

        A run that went back saves smaller steps later: those of the way that it left are the older ones.
        """
        found = []
        for name in self._names():
            with contextlib.suppress(NotWholeError):
                found.append(manifest.read(os.path.join(self.folder, name)))
        return sorted(found, key=lambda saved: (saved.time, saved.step), reverse=True)

    def newest(self, before: int | None = None) -> Saved | None:
        """Return the whole checkpoint that was saved last, of a step before ``before``; None where there is none.

        What ``trainvitals run`` found for this attempt comes first, if it is one of these and none was saved since:
        torchrun may start ranks again within an attempt.  A damaged one is passed over, and told of as an event.
        """
        readable = {saved.path: saved.time for saved in self.all()}
        paths = [os.path.join(self.folder, name) for name in self._names()]
        paths = [path for path in paths if before is None or _step_of(path) < before]
        paths.sort(key=lambda path: (_time(readable, path), _step_of(path)), reverse=True)
        wanted = resume_path()
        if wanted is not None and before is None and os.path.realpath(wanted) in map(os.path.realpath, paths):
            since = resume_since()
            later = [path for path in paths if since is not None and _time(readable, path) > since]
            paths = [*later, os.path.realpath(wanted), *paths]
        elif wanted is not None and before is None and not paths:
            paths = [wanted]  # A clone begins where another run has saved.
        for path in paths:
            try:
                return manifest.verify(path)
            except NotWholeError as error:
                probe.event("checkpoint", None, None, action="load", ok=False, path=path, error=str(error))
        return None

    def prune(self) -> list[str]:
        """Remove the checkpoints that the policy does not keep; return their paths.  What cannot be removed stays."""
        found = self.all()
        sound = [saved for saved in found if saved.is_sound]
        kept = {saved.step for saved in (*found[: self._keep], *sound[:1])}
        kept |= {saved.step for saved in [one for one in sound if one is not found[0]][:1]}
        removed = []
        for name in self._names(_LEFT):
            shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)
        for saved in found:
            is_pinned = self._pin is not None and saved.step % self._pin == 0
            if saved.step not in kept and not is_pinned and self._remove(saved.path):
                removed.append(saved.path)
        return removed

    @staticmethod
    def _remove(path: str) -> bool:
        try:
            os.rename(path, f"{path}{_GOING}")
            shutil.rmtree(f"{path}{_GOING}")
        except OSError:
            return False
        return True

    def _names(self, shape: re.Pattern[str] = _NAME) -> Sequence[str]:
        try:
            return [name for name in os.listdir(self.folder) if shape.fullmatch(name)]
        except OSError:
            return []


#: From <fcntl.h> and <linux/fs.h>.
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2

#: What a training calls: ``trainvitals.checkpoints(folder, every_steps=500)``.
checkpoints = Checkpoints


def _step_of(path: str) -> int:
    return int(os.path.basename(path).removeprefix("step-"))


def _exchange(one: str, other: str) -> bool:
    """Let two folders change names at once; return False where one is missing, or the file system cannot (NFS)."""
    if not os.path.lexists(other):
        return False
    try:
        import ctypes  # noqa: PLC0415  Seldom needed, and a trainer shall load little.

        rename = ctypes.CDLL(None).renameat2
    except (ImportError, OSError, AttributeError):  # Another C library than glibc 2.28 and newer, or none to call.
        return False
    changed: int = rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    return changed == 0


def _time(readable: Mapping[str, float], path: str) -> float:
    """Return when a checkpoint was saved; one whose list is damaged, when its folder was changed."""
    if path in readable:
        return readable[path]
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def _rank() -> int:
    recorder = probe.recorder()
    told = None if recorder is None else recorder.writer.identity.get("rank")
    value = os.environ.get("RANK", "0") if told is None else told
    try:
        return int(value)
    except (TypeError, ValueError):
        return 0


def _nonfinite() -> int:
    """Return how many losses of this process were not finite so far."""
    recorder = probe.recorder()
    return 0 if recorder is None else recorder.state.nonfinite


def _known_facts() -> dict[str, object]:
    recorder = probe.recorder()
    if recorder is None:
        return {}
    identity = recorder.writer.identity
    facts = {name: identity[name] for name in ("run", "attempt", "world_size") if name in identity}
    return facts | ({} if recorder.lineage is None else {"lineage": recorder.lineage()})


def _number(value: object) -> float | None:
    if value is None:
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


def _plain(value: object) -> object:
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)[:256]
