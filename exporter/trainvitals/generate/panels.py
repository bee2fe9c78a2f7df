"""What a dashboard is made of, free of any library: rows of panels, panels with queries.

Variables in queries: `$run` and `$rank` are regular expressions, so every matcher on them is `=~`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from trainvitals.generate.records import RECORDS

Kind = Literal["gauge", "stat", "timeseries", "statetimeline", "heatmap", "table", "xychart"]

#: Matchers of the variables.
RUN = 'run=~"$run"'
RANK = 'run=~"$run",rank=~"$rank"'

#: What recorded series mean.
HELP = {record.name: record.help for record in RECORDS}

#: Grafana divides a dashboard into so many columns.
COLUMNS = 24

#: (from this value on, color); the first has no lower end.
Thresholds = tuple[tuple[float | None, str], ...]

#: For gauges where much is good.
GOOD_WHEN_HIGH: Thresholds = ((None, "red"), (0.5, "orange"), (0.8, "green"))
#: For signals, whose ratio is 1 at the threshold.
SIGNAL: Thresholds = ((None, "green"), (0.5, "yellow"), (1.0, "red"))
#: Where no value is good or bad by itself.
NEUTRAL: Thresholds = ((None, "blue"),)


@dataclass(frozen=True, kw_only=True)
class Query:
    """One query of a panel.  ``instant`` asks for the newest value only."""

    expr: str
    legend: str = ""
    instant: bool = False
    format: Literal["time_series", "table", "heatmap"] = "time_series"


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel: what it shows (``description``), in which unit, and how wide and high in grid cells."""

    kind: Kind
    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    width: int = 8
    height: int = 8
    thresholds: Thresholds = NEUTRAL
    minimum: float | None = None
    maximum: float | None = None
    decimals: int | None = None
    stacked: bool = False
    logarithmic: bool = False
    #: Shown instead of an empty panel, where a reason is known.
    empty: str | None = None
    transformations: tuple[tuple[str, dict[str, Any]], ...] = ()
    #: Properties of single fields, by the name of the field.
    overrides: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of panels; one without a title is the top of the dashboard."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, kw_only=True)
class Annotation:
    """A mark in every panel over time.  With ``at_value``, the value of the series is the time, in milliseconds."""

    name: str
    expr: str
    title: str
    text: str
    color: str
    at_value: bool = False


def recorded(name: str) -> str:
    """Return a recorded series of the chosen runs."""
    return f"{name}{{{RUN}}}"


#: A run reports tokens, samples, both or neither.
THROUGHPUT = " or ".join(
    f'label_replace({recorded(f"run:trainvitals_{unit}:rate5m")}, "unit", "{unit}", "", "")'
    for unit in ("tokens", "samples")
)


def stat(title: str, description: str, unit: str, expr: str, **options: Any) -> Panel:
    """Return one number per run; ``options`` are further fields of the panel."""
    return Panel(
        kind="stat",
        title=title,
        description=description,
        unit=unit,
        queries=(Query(expr=expr, legend="{{run}}"),),
        width=4,
        height=4,
        **options,
    )


def lines(title: str, description: str, unit: str, *queries: tuple[str, str], **options: Any) -> Panel:
    """Return lines over time; ``queries`` are expressions with their legends, ``options`` further fields."""
    made = tuple(Query(expr=expr, legend=legend) for expr, legend in queries)
    return Panel(kind="timeseries", title=title, description=description, unit=unit, queries=made, **options)
