"""The programs of the bundle that are not ours: where they are, or how to get them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program by its title, the names it goes by, and the ways to get it."""

    title: str
    names: tuple[str, ...]
    #: Debian's package; empty where Debian has none.
    package: str
    download: str
    #: What is missing without it.
    without: str


#: Debian calls upstream's ``alertmanager`` ``prometheus-alertmanager``.
PROMETHEUS = Program(
    title="Prometheus",
    names=("prometheus",),
    package="prometheus",
    download="https://prometheus.io/download/",
    without="no history, no gauges and no alerts",
)
ALERTMANAGER = Program(
    title="Alertmanager",
    names=("alertmanager", "prometheus-alertmanager"),
    package="prometheus-alertmanager",
    download="https://prometheus.io/download/",
    without="nobody is told of an alert",
)
GRAFANA = Program(
    title="Grafana",
    names=("grafana", "grafana-server"),
    package="",
    download="https://grafana.com/grafana/download",
    without="no dashboards",
)


def find(program: Program, which: Callable[[str], str | None] = shutil.which) -> str | None:
    """Return the path of a program, or None when it is not on PATH."""
    return next((path for name in program.names if (path := which(name))), None)


def how_to_get(programs: list[Program], system: str) -> str:
    """Return one sentence that says how to get these programs; ``system`` is one of :func:`system`'s."""
    packages = [program.package for program in programs if program.package]
    if system == "debian" and len(packages) == len(programs):
        return f"Get {_and(programs)} with: apt-get install {' '.join(packages)}"
    pages = dict.fromkeys(program.download for program in programs)
    return f"Get {_and(programs)} from {' and '.join(pages)} and put {'it' if len(programs) == 1 else 'them'} on PATH."


def system(release: Mapping[str, str]) -> str:
    """Return "debian" for Debian and what is made of it (Ubuntu, ...), else an empty string.

    ``release`` is what ``platform.freedesktop_os_release()`` returns.
    """
    family = [release.get("ID", ""), *release.get("ID_LIKE", "").split()]
    return "debian" if {"debian", "ubuntu"} & set(family) else ""


def _and(programs: list[Program]) -> str:
    return " and ".join(program.title for program in programs)
