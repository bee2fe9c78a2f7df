"""The options of ``trainvitals run`` that make it stay beside the command, and the supervision that they ask for."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
from collections.abc import Mapping, Sequence

from trainvitals.probe.identity import run_name
from trainvitals.probe.spool import folder as spool_folder
from trainvitals.supervise import resume, wishes
from trainvitals.supervise.settings import Limits, Settings, parse_processes

_SCRIPT = re.compile(r"[^\s=]+\.py")
_RENDEZVOUS = re.compile(r"--rdzv[-_]id")


def add(described: argparse.ArgumentParser) -> None:
    """Add the options; all are None unless given."""
    group = described.add_argument_group(
        "supervision", "with any of these, failures are judged and recorded, and the command is started again"
    )
    group.add_argument("--max-restarts", type=count, metavar="N", help="restarts in all; 3 unless given")
    group.add_argument("--checkpoint-dir", metavar="FOLDER", help="where the training saves; resume from the newest")
    group.add_argument("--resume-from", metavar="PATH", help="begin at a checkpoint of another run")
    group.add_argument("--resume-flag", metavar="FLAG", help="added to the command: '--resume {path}'")
    group.add_argument("--hang-after", type=_seconds, metavar="S", help="seconds between two steps that are a hang")
    group.add_argument("--no-progress", type=count, metavar="N", help="stop after so many attempts without; 3")
    group.add_argument("--back-off", type=_seconds, metavar="S", help="first pause without progress; doubles; 1")
    group.add_argument("--grace", type=_seconds, metavar="S", help="time to save when told to end; 30")
    group.add_argument("--wait", type=_seconds, metavar="S", help="wait so long for space or devices; 3600")
    group.add_argument("--processes", type=span, metavar="MIN:MAX", help="processes per node that will do")
    group.add_argument("--state-dir", metavar="FOLDER", help="what the supervisor remembers; one for each run")
    group.add_argument("--journal", metavar="FILE", help="where interruptions are recorded; the node's journal")


def count(text: str) -> int:
    """Return the whole number of an argument.  Raises ArgumentTypeError."""
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"expected a whole number, found {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0.0 <= float(text) < 1e9:
            return float(text)
    raise argparse.ArgumentTypeError(f"expected seconds, found {text!r}")


def span(text: str) -> tuple[int, int]:
    """Return the ``MIN:MAX`` of an argument.  Raises ArgumentTypeError."""
    try:
        return parse_processes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


_NAMES = (
    "max_restarts", "checkpoint_dir", "resume_from", "resume_flag", "hang_after", "no_progress", "back_off", "grace",
    "wait", "processes", "state_dir", "journal",
)  # fmt: skip


def are_given(options: argparse.Namespace) -> bool:
    """Whether any of them is given."""
    return any(getattr(options, name) is not None for name in _NAMES)


def settings_of(options: argparse.Namespace, path: str, command: Sequence[str], environ: Mapping[str, str]) -> Settings:
    """Return what is asked for.  Raises ValueError, in one line."""
    name = name_of(options.name, command, environ)
    given = {key: getattr(options, key) for key in ("hang_after", "grace", "wait", "processes")}
    return Settings(
        name=name,
        command=(path, *command[1:]),
        spool=spool_folder(environ),
        folder=os.path.abspath(options.state_dir or wishes.folder_of(name, environ)),
        checkpoints=None if options.checkpoint_dir is None else os.path.abspath(options.checkpoint_dir),
        resume_from=None if options.resume_from is None else os.path.abspath(options.resume_from),
        resume_flag=None if options.resume_flag is None else resume.check_flag(options.resume_flag),
        limits=Limits(
            max_restarts=3 if options.max_restarts is None else options.max_restarts,
            no_progress=options.no_progress or 3,
            pause=1.0 if options.back_off is None else options.back_off,
        ),
        **{key: value for key, value in given.items() if value is not None},
    )


def name_of(explicit: str | None, command: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the name that the ranks of a command would find for their run, had they its environment."""
    script = next((word for word in command[1:] if _SCRIPT.fullmatch(word)), command[0])
    known = dict(environ)
    for place, word in enumerate(command):
        option, equals, value = word.partition("=")
        if _RENDEZVOUS.fullmatch(option) and (equals or place + 1 < len(command)):
            known["TORCHELASTIC_RUN_ID"] = value if equals else command[place + 1]
    return run_name(known, explicit=explicit, program=script)


def tell(line: str) -> None:
    """Say something to the user, on standard error."""
    with contextlib.suppress(OSError, ValueError):
        print(f"trainvitals run: {line}", file=sys.stderr, flush=True)


def supervise(settings: Settings, environ: Mapping[str, str], journal: str) -> int:
    """Supervise a command to its end; return the exit status."""
    # Not before it is needed: the command alone needs no library.
    try:
        import ahocorasick_rs  # noqa: F401, PLC0415  The output is read with it.

        return _supervise(settings, environ, journal)
    except ModuleNotFoundError as error:
        tell(f"{error.name} is missing; supervision needs: pip install 'trainvitals[node]'")
        return 1


def _supervise(settings: Settings, environ: Mapping[str, str], journal: str) -> int:
    from trainvitals.follow.errors import ErrorReader  # noqa: PLC0415  As above.
    from trainvitals.host.kmsg import KernelLog  # noqa: PLC0415
    from trainvitals.supervise import processes  # noqa: PLC0415
    from trainvitals.supervise.kernel import Kernel, memory_events  # noqa: PLC0415
    from trainvitals.supervise.record import open_records  # noqa: PLC0415
    from trainvitals.supervise.state import BusyError, Store  # noqa: PLC0415
    from trainvitals.supervise.supervisor import Supervisor  # noqa: PLC0415

    def kernel_of(since: float) -> Kernel:
        return Kernel(KernelLog(), since=since, memory_events=memory_events())

    try:
        store = Store(settings.folder)
    except (BusyError, OSError) as error:
        tell(str(error))
        return 1
    processes.become_subreaper()
    records = open_records(journal, tell)
    try:
        return Supervisor(
            settings, store, records, environ, kernel_of=kernel_of, scan_of=lambda: ErrorReader().scan, tell=tell
        ).run()
    finally:
        records.close()
        store.close()
