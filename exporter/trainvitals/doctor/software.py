"""Python, the libraries of the exporter, and the programs of ``trainvitals up``."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata

from trainvitals._version import __version__
from trainvitals.doctor.base import Here, Result, absent, ok, problem
from trainvitals.host import programs

#: "name>=1.2; extra == 'node'", as the package's own metadata have it.
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*(?:>=\s*([\d.]+))?.*extra == .node.")
#: The oldest Prometheus and Alertmanager whose rules and settings are tested.
_OLDEST = {"Prometheus": (2, 42), "Alertmanager": (0, 25)}
_VERSION = re.compile(r"version v?(\d+)\.(\d+)")
_PROMTOOL = programs.Program(
    title="promtool",
    names=("promtool",),
    package="prometheus",
    download="https://prometheus.io/download/",
    without="nobody can check changed rules",
)
_PROGRAMS = (programs.PROMETHEUS, programs.ALERTMANAGER, programs.GRAFANA, _PROMTOOL)
_PATIENCE = 5.0


def python(_: Here) -> Iterator[Result]:
    """Say which Python and which Trainvitals this is."""
    yield ok(f"Trainvitals {__version__}, Python {platform.python_version()}, {sys.executable}")


def libraries(
    _: Here,
    requires: Callable[[str], list[str] | None] = metadata.requires,
    version: Callable[[str], str] = metadata.version,
) -> Iterator[Result]:
    """Check that the libraries of the exporter are there, and new enough."""
    found, lacking = [], []
    for requirement in requires("trainvitals") or ():
        match = _REQUIREMENT.match(requirement)
        if match is None:
            continue
        name, least = match[1], match[2] or "0"
        try:
            installed = version(name)
        except metadata.PackageNotFoundError:
            lacking.append(f"{name} is missing")
            continue
        found.append(f"{name} {installed}")
        if _numbers(installed) < _numbers(least):
            lacking.append(f"{name} is {installed}, and {least} is needed")
    if lacking:
        yield problem("; ".join(lacking), f"{sys.executable} -m pip install --upgrade 'trainvitals[node]'")
    elif found:
        yield ok(", ".join(found))
    else:
        yield absent("the package has no metadata: it was not installed, and its needs are not known")


def bundle(
    _: Here,
    which: Callable[[str], str | None] = shutil.which,
    ask: Callable[[str], str] | None = None,
    release: Callable[[], dict[str, str]] = platform.freedesktop_os_release,
) -> Iterator[Result]:
    """Find the programs of ``trainvitals up``; a node that is scraped from elsewhere needs none of them."""
    try:
        system = programs.system(release())
    except OSError:
        system = ""
    for program in _PROGRAMS:
        path = programs.find(program, which)
        if path is None:
            yield _missing(program, system)
        else:
            yield _version(program, path, (ask or _ask)(path))


def _missing(program: programs.Program, system: str) -> Result:
    package = system == "debian" and program.package
    why = f"without it: {program.without}" + ("" if package else f"; from {program.download}")
    return absent(why, f"apt-get install {program.package}" if package else "", program.title)


def _version(program: programs.Program, path: str, text: str) -> Result:
    match = _VERSION.search(text)
    if match is None:
        return ok(path, subject=program.title)
    found, least = (int(match[1]), int(match[2])), _OLDEST.get(program.title, (0, 0))
    words = f"{found[0]}.{found[1]}, {path}"
    if found < least:
        why = f"{words}: older than {least[0]}.{least[1]}, with which the rules are tested"
        return problem(why, f"{path} --version", program.title)
    return ok(words, subject=program.title)


def _ask(path: str) -> str:
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=_PATIENCE, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers at the start of a version, as in 1.2.3rc1: enough to compare with a lower bound."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else (0,)
