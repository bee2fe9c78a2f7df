"""Builds the dashboards from their description, as classic JSON that Grafana 11, 12 and 13 load from files.

The builders of grafana-foundation-sdk write the JSON of each panel type; they leave gaps (ids, legends, reducers,
overflowing rows), which :func:`_finish` closes.  The library is imported inside, so that the rules and the list of
queries need none.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any

from trainvitals.generate import dashboard_run
from trainvitals.generate.panels import COLUMNS, NEUTRAL, Annotation, Panel, Query, Row

#: Grafana 11.0 writes 39; newer ones take it and migrate.  The library writes 42, which 11 does not know.
SCHEMA_VERSION = 39

_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
#: What a variable stands for when queries are run outside of Grafana.
_DEFAULTS = {"run": ".+", "rank": ".*", "__rate_interval": "1m", "__interval": "15s", "__range": "1h"}


def dashboards() -> dict[str, str]:
    """Return the dashboards by file name.  Raises ModuleNotFoundError without grafana-foundation-sdk."""
    document = build(dashboard_run.ROWS)
    return {"run.json": json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"}


def queries(**values: str) -> list[tuple[str, str]]:
    """Return title and PromQL of every query, annotations included, with the variables filled in.

    ``values`` fills variables, for example ``run="a|b"``; all ranks and a rate interval of a minute are the defaults.
    """
    found = [(panel.title, query.expr) for row in dashboard_run.ROWS for panel in row.panels for query in panel.queries]
    found += [(annotation.name, annotation.expr) for annotation in dashboard_run.ANNOTATIONS]
    return [(title, _fill(expr, {**_DEFAULTS, **values})) for title, expr in found]


def _fill(expr: str, values: dict[str, str]) -> str:
    for name in sorted(values, key=len, reverse=True):
        expr = expr.replace(f"${name}", values[name])
    return expr


def build(rows: tuple[Row, ...]) -> dict[str, Any]:
    """Return the dashboard "Run" as a JSON document."""
    with warnings.catch_warnings():
        # Importing the classic builders warns that there are newer ones, for a format that files cannot hold yet.
        warnings.simplefilter("ignore", DeprecationWarning)
        from grafana_foundation_sdk.builders import dashboard as sdk  # noqa: PLC0415
        from grafana_foundation_sdk.cog.encoder import JSONEncoder  # noqa: PLC0415
        from grafana_foundation_sdk.models.dashboard import DashboardCursorSync  # noqa: PLC0415

        builder = (
            sdk.Dashboard(dashboard_run.TITLE)
            .uid(dashboard_run.UID)
            .description("One training run, from its four gauges down to the disks of its nodes.")
            .tags([dashboard_run.TAG])
            .time("now-1h", "now")
            .refresh("30s")
            .tooltip(DashboardCursorSync.CROSSHAIR)
            .readonly()
        )
        for row in rows:
            if row.title:
                builder.with_row(sdk.Row(row.title))
            for panel in row.panels:
                builder.with_panel(_panel(panel))
        document: dict[str, Any] = json.loads(JSONEncoder().encode(builder.build()))
    return _finish(document, rows)


def _panel(panel: Panel) -> Any:
    """Return the library's builder of one panel."""
    from grafana_foundation_sdk.builders import dashboard as sdk  # noqa: PLC0415
    from grafana_foundation_sdk.models import dashboard as models  # noqa: PLC0415

    thresholds = sdk.ThresholdsConfig().mode(models.ThresholdsMode("absolute"))
    thresholds.steps([models.Threshold(value=value, color=color) for value, color in panel.thresholds])
    builder = (
        _new(panel.kind)
        .title(panel.title)
        .description(panel.description)
        .unit(panel.unit)
        .thresholds(thresholds)
        .height(panel.height)
        .span(panel.width)
    )
    for set_it, value in (
        (builder.min, panel.minimum),
        (builder.max, panel.maximum),
        (builder.decimals, panel.decimals),
        (builder.no_value, panel.empty),
    ):
        if value is not None:
            set_it(value)
    for query, letter in zip(panel.queries, "ABCDEFGH", strict=False):
        builder.with_target(_target(query, letter))
    for name, options in panel.transformations:
        builder.with_transformation(models.DataTransformerConfig(id_val=name, options=options))
    for name, properties in panel.overrides.items():
        values = [models.DynamicConfigValue(id_val=key, value=value) for key, value in properties.items()]
        builder.override_by_name(name, values)
    return builder


def _new(kind: str) -> Any:
    from grafana_foundation_sdk.builders import (  # noqa: PLC0415
        gauge,
        heatmap,
        stat,
        statetimeline,
        table,
        timeseries,
        xychart,
    )

    modules = (gauge, heatmap, stat, statetimeline, table, timeseries, xychart)
    return {module.__name__.rsplit(".", 1)[-1]: module for module in modules}[kind].Panel()


def _target(query: Query, letter: str) -> Any:
    from grafana_foundation_sdk.builders import prometheus  # noqa: PLC0415
    from grafana_foundation_sdk.models.prometheus import PromQueryFormat  # noqa: PLC0415

    target = prometheus.Dataquery().ref_id(letter).expr(query.expr).format(PromQueryFormat(query.format))
    target.legend_format(query.legend or "__auto")
    return target.instant() if query.instant else target.range()


def _finish(document: dict[str, Any], rows: tuple[Row, ...]) -> dict[str, Any]:
    """Close the gaps that the library leaves, and check that nothing overlaps or overflows."""
    described = iter([panel for row in rows for panel in row.panels])
    document["schemaVersion"] = SCHEMA_VERSION
    document["version"] = 1
    document["annotations"]["list"] = [_BUILT_IN, *(_annotation(mark) for mark in dashboard_run.ANNOTATIONS)]
    document["templating"]["list"] = _VARIABLES
    document["links"] = [_LINK]
    for number, panel in enumerate(document["panels"], start=1):
        panel["id"] = number
        if panel["type"] != "row":
            panel["datasource"] = _DATASOURCE
            for target in panel["targets"]:
                target["datasource"] = _DATASOURCE
            _OPTIONS[panel["type"]](panel, next(described))
    _place(document["panels"])
    return document


def _place(panels: list[dict[str, Any]]) -> None:
    """Lay out panels from left to right; a panel that would not fit begins a new line."""
    x = y = line = 0
    for panel in panels:
        width, height = panel["gridPos"]["w"], panel["gridPos"]["h"]
        if x + width > COLUMNS:
            x, y, line = 0, y + line, 0
        panel["gridPos"] = {"x": x, "y": y, "w": width, "h": height}
        x, line = x + width, max(line, height)


def _reduced(panel: dict[str, Any], described: Panel) -> None:
    """Finish gauges and single numbers: the newest value of each series, colored by its threshold."""
    panel["options"]["reduceOptions"] = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    panel["fieldConfig"]["defaults"]["color"] = {"mode": "thresholds"}
    if panel["type"] == "stat":
        panel["options"]["graphMode"] = "none" if described.decimals == 0 else "area"
        panel["options"]["textMode"] = "value"


def _lines(panel: dict[str, Any], described: Panel) -> None:
    panel["options"]["legend"] = {
        "showLegend": True,
        "displayMode": "table",
        "placement": "bottom",
        "calcs": ["lastNotNull", "max"],
    }
    panel["options"]["tooltip"] = {"mode": "multi", "sort": "desc"}
    custom = panel["fieldConfig"]["defaults"]["custom"]
    panel["fieldConfig"]["defaults"]["color"] = {"mode": "palette-classic"}
    custom |= {"lineWidth": 1, "fillOpacity": 0, "showPoints": "auto", "spanNulls": False}
    if described.thresholds != NEUTRAL:
        custom["thresholdsStyle"] = {"mode": "dashed"}
    if described.stacked:
        custom |= {"stacking": {"mode": "normal", "group": "A"}, "fillOpacity": 60}
    if described.logarithmic:
        custom["scaleDistribution"] = {"type": "log", "log": 10}


def _states(panel: dict[str, Any], _described: Panel) -> None:
    panel["options"]["legend"]["showLegend"] = False
    panel["options"] |= {"showValue": "never", "mergeValues": True}
    panel["fieldConfig"]["defaults"]["color"] = {"mode": "thresholds"}


def _heatmap(panel: dict[str, Any], described: Panel) -> None:
    panel["options"]["yAxis"] = {"unit": described.unit}
    panel["options"]["tooltip"] = {"mode": "single", "yHistogram": False}


def _xychart(panel: dict[str, Any], _described: Panel) -> None:
    panel["options"]["legend"] = {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []}
    panel["fieldConfig"]["defaults"]["custom"] |= {"show": "lines", "lineWidth": 1}
    panel["fieldConfig"]["defaults"]["color"] = {"mode": "palette-classic"}


def _table(panel: dict[str, Any], _described: Panel) -> None:
    panel["options"]["sortBy"] = []


_OPTIONS: dict[str, Callable[[dict[str, Any], Panel], None]] = {
    "gauge": _reduced,
    "stat": _reduced,
    "timeseries": _lines,
    "state-timeline": _states,
    "heatmap": _heatmap,
    "xychart": _xychart,
    "table": _table,
}

_BUILT_IN = {
    "builtIn": 1,
    "datasource": {"type": "grafana", "uid": "-- Grafana --"},
    "enable": True,
    "hide": True,
    "iconColor": "rgba(0, 211, 255, 1)",
    "name": "Annotations & Alerts",
    "type": "dashboard",
}

_LINK = {
    "asDropdown": True,
    "icon": "external link",
    "includeVars": True,
    "keepTime": True,
    "tags": [dashboard_run.TAG],
    "targetBlank": False,
    "title": "Trainvitals",
    "tooltip": "",
    "type": "dashboards",
    "url": "",
}


def _annotation(mark: Annotation) -> dict[str, Any]:
    return {
        "datasource": _DATASOURCE,
        "enable": True,
        "expr": mark.expr,
        "hide": False,
        "iconColor": mark.color,
        "name": mark.name,
        "textFormat": mark.text,
        "titleFormat": mark.title,
        "useValueForTime": mark.at_value,
    }


def _variable(name: str, label: str, query: str, *, everything: str | None = None) -> dict[str, Any]:
    """Return a variable with the values of a label; ``everything`` is the regular expression of its entry All."""
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": _DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": "StandardVariableQuery"},
        # On every change of the time range.
        "refresh": 2,
        "sort": 3 if everything else 1,
        "multi": True,
        "includeAll": everything is not None,
        "allValue": everything,
        "current": {"text": ["All"], "value": ["$__all"]} if everything else {},
        "hide": 0,
        "regex": "",
        "options": [],
    }


_VARIABLES = [
    {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "query": "prometheus",
        "refresh": 1,
        "current": {},
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "regex": "",
        "options": [],
    },
    # An info series that is always there: a run without a loss or a device is a run too.
    _variable("run", "Run", "label_values(trainvitals_run_info, run)"),
    _variable("rank", "Rank", 'label_values(trainvitals_rank_info{run=~"$run"}, rank)', everything=".*"),
]
