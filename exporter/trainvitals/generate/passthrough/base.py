"""How the series of a maker's own exporter become ours: one table for each, rendered to recording rules.

For nodes that already run such an exporter: some drivers answer one asker at a time, so nobody should ask twice.
A rule goes by the name of the scrape job, since two makers use the same names of series.
Recorded series have the labels of our own, without ``job``; ``instance`` is what the scrape job makes of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from trainvitals.generate.rules import Record
from trainvitals.metrics import FAMILIES

PERCENT = 0.01
MEGA = 1e6
MIB = 1024.0 * 1024.0
MILLI = 1e-3
MICRO = 1e-6

#: Devices that an exporter shows, by node and maker; not our name, so that it meets none of our exporter's series.
SHOWN = "instance:trainvitals_passthrough_devices:count"

_PREFIX = "trainvitals_"
_DEVICE = ("device", "uuid")
#: The place of a label that is taken from one of theirs.
_TAKEN = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Row:
    """One family of ours, named without ``trainvitals_device_``, from an expression over series of theirs.

    ``labels`` are those after ``device`` and ``uuid``, in the order of the family: a word, or ``{name}`` for the value
    of a label of theirs.  What lies below ``least`` or above ``most``, in their unit, is a mark of "cannot read" or of
    a dead card and is left out.  With ``equals`` the value is 1 where theirs is that, else 0; with ``code`` the value
    becomes the last label, as an integer, and the series is 1.
    """

    family: str
    theirs: str
    labels: tuple[str, ...] = ()
    unit: float = 1.0
    least: float = 0.0
    most: float = math.inf
    equals: float | None = None
    code: bool = False


@dataclass(frozen=True)
class Map:
    """What one exporter shows.  ``job`` is the name that its scrape job must have, ``port`` where it listens.

    ``prefixes`` begin all of its names.  ``device``, ``uuid`` and ``model`` are labels of theirs; an empty one is not
    there.  ``seen`` is a series that every device has; ``total`` one with the devices of the node, where there is one.
    ``left_out`` says what could be taken and is not, and why.  ``source`` is where the names and units are written.
    """

    job: str
    vendor: str
    title: str
    port: int
    prefixes: tuple[str, ...]
    device: str
    uuid: str
    model: str
    seen: str
    rows: tuple[Row, ...]
    source: str
    total: str = ""
    left_out: Mapping[str, str] | None = None


def records(found: Map) -> list[Record]:
    """Return the rules of an exporter: who is there, then the rows."""
    return [*_inventory(found), *(_record(found, row) for row in found.rows)]


def selected(found: Map, expr: str) -> str:
    """Return an expression in which each series of theirs is that of the exporter's scrape job."""
    names = "|".join(found.prefixes)
    job = f'job="{found.job}"'
    return re.sub(rf"\b((?:{names})\w*)(\{{)?", lambda match: f"{match[1]}{{{job}" + (", " if match[2] else "}"), expr)


def _identified(found: Map, expr: str) -> str:
    """Return an expression with our labels ``device`` and ``uuid`` beside theirs."""
    for ours, theirs in (("device", found.device), ("uuid", found.uuid)):
        if theirs and theirs != ours:
            expr = f'label_replace({expr}, "{ours}", "$1", "{theirs}", "(.+)")'
    return expr


def _inventory(found: Map) -> list[Record]:
    """Return who is there: what the device is, that it answers, and how many there are and should be."""
    seen = _identified(found, selected(found, found.seen))
    named = f'label_replace({seen}, "name", "$1", "{found.model}", "(.+)")' if found.model not in ("", "name") else seen
    vendor = {"vendor": found.vendor}
    count = f"count by (instance) (group by (instance, device, uuid) ({seen}))"
    total = f"max by (instance) ({selected(found, found.total)} > 0)"
    lasting = f'max by (instance) (max_over_time({SHOWN}{{via="{found.job}"}}[1d]))'
    rules = [
        _rule("trainvitals_device_info", f"max by (instance, device, uuid, name) (0 * {named} + 1)", vendor),
        _rule(SHOWN, count, vendor | {"via": found.job}),
        _rule("trainvitals_devices_readable", count, vendor),
        _rule("trainvitals_devices_expected", total if found.total else lasting, vendor),
    ]
    if any(row.family == "up" for row in found.rows):
        return rules
    return [*rules, _record(found, Row("up", f"0 * {found.seen} + 1"))]


def _record(found: Map, row: Row) -> Record:
    name = f"{_PREFIX}device_{row.family}"
    own = FAMILIES[name].labels[len(_DEVICE) :]
    if len(own) != len(row.labels) + row.code:
        raise ValueError(f"{found.job}: {row.family} has the labels {own}")
    expr = _identified(found, _guarded(selected(found, row.theirs), row))
    fixed, taken = {}, []
    for ours, label in zip(own, row.labels, strict=False):
        match = _TAKEN.fullmatch(label)
        if match is None:
            fixed[ours] = label
            continue
        taken.append(ours)
        if match[1] != ours:
            expr = f'label_replace({expr}, "{ours}", "$1", "{match[1]}", "(.+)")'
    by = ", ".join(("instance", *_DEVICE, *taken))
    if row.code:
        return _rule(name, f'0 * count_values by ({by}) ("{own[-1]}", {expr}) + 1', fixed)
    unit = "" if row.unit == 1.0 else f" * {row.unit:.15g}"
    return _rule(name, f"max by ({by}) ({expr}){unit}", fixed)


def _guarded(expr: str, row: Row) -> str:
    bounds = f" >= {row.least:g}" + ("" if math.isinf(row.most) else f" <= {row.most:g}")
    if row.equals is not None:
        return f"(({expr}){bounds}) == bool {row.equals:g}"
    return f"({expr}){bounds}"


def _rule(name: str, expr: str, fixed: Mapping[str, str]) -> Record:
    return Record(name=name, expr=expr, help="", fixed=fixed)
