"""What a check is, what it finds, and the machine that it looks at."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from trainvitals.config import ConfigError, Settings, load


class Outcome(str, Enum):
    """How something stands."""

    OK = "ok"
    #: There is nothing of this kind here, and that is no fault.
    ABSENT = "not here"
    PROBLEM = "problem"


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a check found: one sentence, and at most one next action, a command that can be pasted.

    ``subject`` tells several results of one check apart (device 3, a mount).  An action without a problem is advice.
    """

    outcome: Outcome
    why: str
    action: str = ""
    subject: str = ""


def ok(why: str, action: str = "", subject: str = "") -> Result:
    """Return that all is well."""
    return Result(outcome=Outcome.OK, why=why, action=action, subject=subject)


def absent(why: str, action: str = "", subject: str = "") -> Result:
    """Return that there is nothing of this kind here."""
    return Result(outcome=Outcome.ABSENT, why=why, action=action, subject=subject)


def problem(why: str, action: str, subject: str = "") -> Result:
    """Return that something is broken."""
    return Result(outcome=Outcome.PROBLEM, why=why, action=action, subject=subject)


@dataclass(frozen=True, kw_only=True)
class Here:
    """The machine and the settings.  ``root`` is put before every absolute path of the kernel's files.

    ``settings`` are the defaults where ``settings_error`` says why those of the user cannot be used.
    """

    settings: Settings = field(default_factory=Settings)
    settings_error: str = ""
    config_file: str | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    root: str = ""

    def path(self, absolute: str) -> str:
        """Return where a file of the kernel is."""
        return self.root + absolute

    def text(self, absolute: str, limit: int = 65536) -> str | None:
        """Return a small file's text without white space around it; None when it cannot be read."""
        try:
            descriptor = os.open(self.path(absolute), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return os.read(descriptor, limit).decode(errors="replace").strip()
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def exists(self, absolute: str) -> bool:
        """Say whether there is such a file or folder."""
        return os.path.exists(self.path(absolute))


class Check(NamedTuple):
    """One row of the table: a name in few words, what it covers, and what makes it.

    ``make`` may raise and may hang: it runs in a process of its own.
    """

    name: str
    covers: str
    make: Callable[[Here], Iterable[Result]]


class Group(NamedTuple):
    """Checks of one subject."""

    title: str
    checks: tuple[Check, ...]


def here(config_file: str | None, environ: Mapping[str, str]) -> Here:
    """Return this machine, with the settings that an exporter would have that is started here."""
    try:
        return Here(settings=load(config_file, environ, {}), config_file=config_file, environ=dict(environ))
    except ConfigError as error:
        return Here(settings_error=str(error), config_file=config_file, environ=dict(environ))
