"""What dashboards are made of, free of any library: rows of panels, panels with queries, tables with columns.

Each text stands beside its Chinese twin (``title``, ``title_zh``); :func:`said` picks one by the language.
Variables in queries are regular expressions, so every matcher on them is `=~`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from trainvitals.generate.records import RECORDS
from trainvitals.generate.rules import JOB

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")
Kind = Literal["gauge", "stat", "timeseries", "statetimeline", "heatmap", "table", "xychart"]

#: Matchers of the variables.
RUN = 'run=~"$run"'
RANK = 'run=~"$run",rank=~"$rank"'
NODE = 'instance=~"$instance"'
DEVICE = 'instance=~"$instance",device=~"$device"'
EXPORTER = f'job="{JOB}",instance=~"$instance"'

#: What recorded series mean.
HELP = {record.name: record.help for record in RECORDS}

#: Grafana divides a dashboard into so many columns.
COLUMNS = 24
#: Names of the queries of a panel; so many it can have.
LETTERS = "ABCDEFGHIJKLMNOP"

#: (from this value on, color); the first has no lower end.
Thresholds = tuple[tuple[float | None, str], ...]
#: (from, to, text, Chinese text, color): a value that is shown as a word; an end that is None is open.
State = tuple[float | None, float | None, str, str, str]

#: For gauges where much is good.
GOOD_WHEN_HIGH: Thresholds = ((None, "red"), (0.5, "orange"), (0.8, "green"))
#: For signals, whose ratio is 1 at the threshold.
SIGNAL: Thresholds = ((None, "green"), (0.5, "yellow"), (1.0, "red"))
#: Where no value is good or bad by itself.
NEUTRAL: Thresholds = ((None, "blue"),)
#: Where there should be none.
NONE_IS_GOOD: Thresholds = ((None, "green"), (1, "red"))
#: Where one thing or more is worth a look and no fault.
FEW_IS_GOOD: Thresholds = ((None, "green"), (1, "orange"))
#: For what is 1 when it is well.
WELL: Thresholds = ((None, "red"), (1, "green"))

#: Grafana takes the first range that holds a value, so ends may touch.
CHECKS: tuple[State, ...] = (
    (1, None, "act", "处理", "red"),
    (0.5, 1, "watch", "留意", "yellow"),
    (None, 0.5, "fine", "正常", "green"),
)
UP: tuple[State, ...] = ((0, 0, "down", "无响应", "red"), (1, 1, "up", "正常", "green"))
YES_IS_BAD: tuple[State, ...] = ((0, 0, "no", "否", "green"), (1, None, "yes", "是", "red"))


@dataclass(frozen=True, kw_only=True)
class Query:
    """One query of a panel.  ``instant`` asks for the newest value only."""

    expr: str
    legend: str = ""
    #: Where the legend has words; else it serves both languages.
    legend_zh: str = ""
    instant: bool = False
    format: Literal["time_series", "table", "heatmap"] = "time_series"


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table: a label of the series or, with ``expr``, the value of a query for them.

    ``link`` is the name of a dashboard and of its variable that takes the value of the cell.
    """

    name: str
    name_zh: str
    label: str = ""
    expr: str = ""
    unit: str = ""
    decimals: int | None = None
    thresholds: Thresholds = ()
    states: tuple[State, ...] = ()
    #: A bar from 0 to 1 in place of a number.
    bar: bool = False
    link: tuple[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel: what it shows (``description``), in which unit, and how wide and high in grid cells."""

    kind: Kind
    title: str
    title_zh: str
    description: str
    description_zh: str
    unit: str
    queries: tuple[Query, ...]
    width: int = 8
    height: int = 8
    thresholds: Thresholds = NEUTRAL
    states: tuple[State, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    decimals: int | None = None
    stacked: bool = False
    logarithmic: bool = False
    #: Shown instead of an empty panel, where a reason is known.
    empty: str = ""
    empty_zh: str = ""
    #: Of a table, from left to right.
    columns: tuple[Column, ...] = ()
    #: Sort a table by this column (its English name), the largest first.
    sort: str = ""
    #: The names of x and y of an XY chart, and the label that makes a line of its own; in both languages.
    axes: tuple[tuple[str, str], ...] = ()
    by: str = ""
    #: A click leads to a dashboard by one of its variables, filled from a label of the same name.
    link: tuple[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of panels; one without a title is the top of the dashboard.  A closed row asks nothing until opened."""

    title: str
    title_zh: str
    panels: tuple[Panel, ...]
    closed: bool = False


@dataclass(frozen=True, kw_only=True)
class Annotation:
    """A mark in every panel over time.  With ``at_value``, the value of the series is the time, in milliseconds."""

    name: str
    name_zh: str
    expr: str
    title: str
    title_zh: str
    text: str
    text_zh: str
    color: str
    at_value: bool = False


@dataclass(frozen=True, kw_only=True)
class Variable:
    """A choice on top: the values of a label.  ``everything`` is the regular expression of its entry All."""

    name: str
    label: str
    label_zh: str
    query: str
    everything: str = ""
    #: Sort as numbers, not as words.
    numeric: bool = False


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """One dashboard.  ``name`` is that of its file and the end of its uid; ``span`` is the time range it opens with."""

    name: str
    title: str
    title_zh: str
    description: str
    description_zh: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...]
    annotations: tuple[Annotation, ...]
    span: str = "1h"

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All panels in their order."""
        return tuple(panel for row in self.rows for panel in row.panels)


def said(row: Any, name: str, language: Language) -> str:
    """Return a text of a row in a language; a legend without a twin serves both."""
    text: str = getattr(row, name if language == "en" else f"{name}_zh")
    return text or str(getattr(row, name))


def recorded(name: str) -> str:
    """Return a recorded series of the chosen runs."""
    return f"{name}{{{RUN}}}"


#: A run reports tokens, samples, both or neither.
THROUGHPUT = " or ".join(
    f'label_replace({recorded(f"run:trainvitals_{unit}:rate5m")}, "unit", "{unit}", "", "")'
    for unit in ("tokens", "samples")
)

Texts = tuple[str, str]


def stat(title: Texts, description: Texts, unit: str, expr: str, **options: Any) -> Panel:
    """Return one number per series; texts come in both languages, ``options`` are further fields of the panel."""
    made: dict[str, Any] = {"width": 4, "height": 4, "legend": "{{run}}", **options}
    legend = made.pop("legend")
    return Panel(
        kind="stat",
        title=title[0],
        title_zh=title[1],
        description=description[0],
        description_zh=description[1],
        unit=unit,
        queries=(Query(expr=expr, legend=legend),),
        **_twins(made),
    )


def lines(title: Texts, description: Texts, unit: str, *queries: tuple[str, ...], **options: Any) -> Panel:
    """Return lines over time; ``queries`` are expressions with legends, and the Chinese ones where they differ."""
    made = tuple(Query(expr=expr, legend=legend, legend_zh=zh[0] if zh else "") for expr, legend, *zh in queries)
    return Panel(
        kind=options.pop("kind", "timeseries"),
        title=title[0],
        title_zh=title[1],
        description=description[0],
        description_zh=description[1],
        unit=unit,
        queries=made,
        **_twins(options),
    )


def states(title: Texts, description: Texts, unit: str, *queries: tuple[str, ...], **options: Any) -> Panel:
    """Return bands over time whose color is the state."""
    return lines(title, description, unit, *queries, kind="statetimeline", **options)


def table(title: Texts, description: Texts, *columns: Column, source: str = "", **options: Any) -> Panel:
    """Return a table: a line for each set of labels.

    With ``source``, one query whose labels are all there is; ``hidden`` are queries that only give labels.
    """
    made: dict[str, Any] = {"width": COLUMNS, "height": 9, **options}
    asked = [column.expr for column in columns if column.expr] or [source]
    asked += made.pop("hidden", ())
    return Panel(
        kind="table",
        title=title[0],
        title_zh=title[1],
        description=description[0],
        description_zh=description[1],
        unit="none",
        queries=tuple(Query(expr=expr, instant=True, format="table") for expr in asked),
        columns=columns,
        **_twins(made),
    )


def against(
    title: Texts, description: Texts, unit: str, x: tuple[str, Texts], y: tuple[str, Texts], **options: Any
) -> Panel:
    """Return one quantity over another, a line for each run; ``x`` and ``y`` are expressions with their names."""
    made: dict[str, Any] = {"width": 12, "height": 10, "by": "run", **options}
    return Panel(
        kind="xychart",
        title=title[0],
        title_zh=title[1],
        description=description[0],
        description_zh=description[1],
        unit=unit,
        queries=tuple(Query(expr=expr, format="table") for expr, _ in (x, y)),
        axes=(x[1], y[1]),
        **_twins(made),
    )


def _twins(options: dict[str, Any]) -> dict[str, Any]:
    """Spread a pair of texts over its two fields."""
    if "empty" not in options:
        return options
    empty, empty_zh = options["empty"]
    return {**options, "empty": empty, "empty_zh": empty_zh}
