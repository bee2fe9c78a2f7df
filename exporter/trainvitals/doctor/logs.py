"""The logs that the exporter follows, and the file that remembers how far."""

from __future__ import annotations

import contextlib
import glob
import math
import os
import shlex
import time
from collections.abc import Iterator

from trainvitals.config import LogSettings
from trainvitals.doctor.base import Here, Result, absent, ok, problem
from trainvitals.folders import state_folder
from trainvitals.follow.base import BlockFormat, Format
from trainvitals.follow.follower import Follower
from trainvitals.follow.formats import FORMATS, choose, why_unknown
from trainvitals.follow.reader import SNIFF
from trainvitals.follow.sources import Log, Source, Sources

#: So many logs of a source are opened, the newest ones.
_OPENED = 64
#: A log that is longer is not read for the time of its newest step: the check would not be over in time.
_LARGEST = 1 << 24
_NAMED = 3
#: A clock of a file server may be a little ahead.
_AHEAD = 60.0


def sources(here: Here) -> Iterator[Result]:
    """Check each source of the settings: is it there, may we read it, is its format known, how old is the newest."""
    settings = here.settings.sources
    if not settings.paths:
        yield absent("no log is followed: sources: is not set")
        return
    for log in settings.paths:
        yield _source(log, settings.keep)


def positions(here: Here) -> Iterator[Result]:
    """Check that it can be remembered how far the logs were read."""
    if not here.settings.sources.paths:
        yield absent("no log is followed")
        return
    folder = state_folder(here.settings.sources.state_folder, here.environ)
    there = folder
    while not os.path.lexists(there) and os.path.dirname(there) != there:
        there = os.path.dirname(there)
    action = f"install -d -m 700 -o {shlex.quote(_user())} {shlex.quote(folder)}"
    if not os.path.isdir(there):
        yield problem(f"{there} is no folder", f"ls -ld {shlex.quote(there)}", folder)
    elif not os.access(there, os.W_OK | os.X_OK):
        yield problem(f"{_user()} may not write to {there}: a restart reads all logs again", action, folder)
    elif os.statvfs(there).f_bavail == 0:
        why = "the disk is full: a restart of the exporter reads again what came since it was"
        yield problem(why, f"df -h {shlex.quote(there)}", folder)
    else:
        yield ok("how far each log was read can be remembered" + ("" if there == folder else "; made when needed"))


def _source(log: LogSettings, keep: float) -> Result:
    path, quoted = log.path, shlex.quote(log.path)
    if log.format and (why := why_unknown(log.format)):
        return problem(why, "trainvitals follow --formats", path)
    finder = Sources([Source(path, log.run, log.format)], FORMATS, keep)
    found = finder.find(time.time())
    rejected = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in sorted(finder.rejected.items()))
    if not found:
        return _nothing(path, finder.rejected["old"], rejected)
    logs = sorted(found, key=_changed, reverse=True)[:_OPENED]
    closed = [one.path for one in logs if not _can_read(one.path)]
    if closed:
        some = ", ".join(closed[:_NAMED])
        why = f"{_user()} may not read {len(closed)} of {len(logs)} logs: {some}"
        return problem(why, f"setfacl -m u:{shlex.quote(_user())}:r {shlex.quote(closed[0])}", path)
    formats = {one.path: _format(one) for one in logs}
    unknown = [name for name, known in formats.items() if known is None]
    for known in dict.fromkeys(known for known in formats.values() if known is not None):
        if missing := _missing(known):
            return problem(
                f"{known.name} needs a library: {missing}", f"pip install 'trainvitals[{known.extra}]'", path
            )
    names = ", ".join(dict.fromkeys(known.name for known in formats.values() if known is not None))
    told = f"{len(found)} log{'s' * (len(found) > 1)}: {names or 'no known format'}; {_age(logs[0])}"
    told += f"; passed over: {rejected}" if rejected else ""
    if len(unknown) == len(logs) and all(os.path.getsize(name) for name in unknown):
        why = f"no format is known in {', '.join(unknown[:_NAMED])}: they are read for errors alone"
        return ok(f"{told}; {why}", f"trainvitals follow --once {quoted}", path)
    return ok(told, subject=path)


def _nothing(path: str, old: int, rejected: str) -> Result:
    quoted = shlex.quote(path)
    if old:
        return absent(f"every log in it is older than sources.keep ({rejected})", f"trainvitals follow {quoted}", path)
    if rejected.endswith("unreadable"):
        return problem(f"{_user()} may not look into it ({rejected})", f"ls -ld {quoted}", path)
    if glob.has_magic(path) or os.path.isdir(os.path.expanduser(path)):
        return absent("no log is there yet; it is looked for every ten seconds", subject=path)
    return problem("not there; it is looked for every ten seconds", f"ls -ld {quoted}", path)


def _changed(log: Log) -> float:
    try:
        return os.stat(log.path).st_mtime
    except OSError:
        return -math.inf


def _can_read(path: str) -> bool:
    if os.path.isdir(path):
        return os.access(path, os.R_OK | os.X_OK)
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.read(1)
        return True
    return False


def _format(log: Log) -> Format | None:
    """Return the format of a log by its begin, else by its end: a program may say much before it trains."""
    known = [one for one in FORMATS if not log.format or one.name == log.format]
    if os.path.isdir(log.path):
        return next((one for one in known if one.sniff(b"", log.path)), None)
    with contextlib.suppress(OSError), open(log.path, "rb") as file:
        found, _ = choose(file.read(SNIFF), log.path, known)
        size = file.seek(0, os.SEEK_END)
        if found is None and size > SNIFF:
            file.seek(size - SNIFF)
            found, _ = choose(file.read().partition(b"\n")[2], log.path, known)
        return found
    return None


def _missing(known: Format) -> str:
    """Return which library a format lacks here; empty: none."""
    if not known.extra or not isinstance(known, BlockFormat):
        return ""
    try:
        known.parser()
    except ImportError as error:
        return str(error)
    return ""


def _age(log: Log) -> str:
    """Say how old the newest step of the newest log is, or where that takes too long, the log."""
    now = time.time()
    grew = f"the newest grew {_ago(now - _changed(log))}"
    if os.path.isdir(log.path) or os.path.getsize(log.path) > _LARGEST:
        return grew
    follower = Follower([Source(log.path, format=log.format)], rate=math.inf)
    try:
        runs = [run for run in follower.poll(final=True) if run.last_step is not None]
    finally:
        follower.close()
    if not runs:
        return f"{grew}, and tells no step"
    run = max(runs, key=lambda run: run.newest)
    step = 0 if run.last_step is None else run.last_step.step
    return f"{grew}, its newest step is {step}" + (f" of {_ago(now - run.newest)}" if run.timed else "")


def _ago(seconds: float) -> str:
    if seconds < -_AHEAD:
        return f"in the future, by {_long(-seconds)}: a clock is wrong"
    return f"{_long(max(0.0, seconds))} ago"


def _long(seconds: float) -> str:
    for size, word in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.0f} {word}"
    return f"{seconds:.0f} seconds"


def _user() -> str:
    import pwd  # noqa: PLC0415  Linux only, and needed for a complaint.

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
