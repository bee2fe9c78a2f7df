"""Closes the gaps that the library leaves in the JSON of a dashboard: ids, places, legends, variables, links, marks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainvitals.generate import dashboard_table
from trainvitals.generate.panels import (
    COLUMNS,
    NEUTRAL,
    Annotation,
    Dashboard,
    Language,
    Panel,
    Variable,
    said,
)

#: Grafana 11.0 writes 39; newer ones take it and migrate.  The library writes 42, which 11 does not know.
SCHEMA_VERSION = 39
TAG = "trainvitals"

_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def uid(name: str, language: Language) -> str:
    """Return the fixed uid of a dashboard, which links and bookmarks go by."""
    return f"trainvitals-{name}" + ("" if language == "en" else f"-{language}")


def finish(document: dict[str, Any], row: Dashboard, language: Language) -> dict[str, Any]:
    """Complete the document; it holds rows and panels in the order in which they are described."""
    family = f"{TAG}-{language}"
    document["schemaVersion"] = SCHEMA_VERSION
    document["version"] = 1
    document["tags"] = [TAG, family]
    document["annotations"]["list"] = [_BUILT_IN, *(_annotation(mark, language) for mark in row.annotations)]
    document["templating"]["list"] = [_source(language), *(_variable(choice, language) for choice in row.variables)]
    document["links"] = [{**_LINK, "tags": [family], "title": "Trainvitals"}]
    described = iter(row.panels)
    for number, panel in enumerate(document["panels"], start=1):
        panel["id"] = number
        if panel["type"] != "row":
            panel["datasource"] = _DATASOURCE
            for target in panel["targets"]:
                target["datasource"] = _DATASOURCE
            _complete(panel, next(described), language)
    _place(document["panels"])
    document["panels"] = _fold(document["panels"], {said(part, "title", language) for part in row.rows if part.closed})
    return document


def _complete(panel: dict[str, Any], described: Panel, language: Language) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    if described.states:
        defaults["mappings"] = dashboard_table.mappings(described.states, language)
    if described.link:
        name, variable = described.link
        value = f"${{__field.labels.{variable}}}"
        defaults["links"] = [dashboard_table.link(uid(name, language), variable, value, language)]
    _OPTIONS[panel["type"]](panel, described, language)


def _place(panels: list[dict[str, Any]]) -> None:
    """Lay out panels from left to right; a panel that would not fit begins a new line."""
    x = y = line = 0
    for panel in panels:
        width, height = panel["gridPos"]["w"], panel["gridPos"]["h"]
        if x + width > COLUMNS:
            x, y, line = 0, y + line, 0
        panel["gridPos"] = {"x": x, "y": y, "w": width, "h": height}
        x, line = x + width, max(line, height)


def _fold(panels: list[dict[str, Any]], closed: set[str]) -> list[dict[str, Any]]:
    """Put the panels of closed rows into their rows; what follows moves up, as Grafana does when it closes one."""
    kept: list[dict[str, Any]] = []
    row: dict[str, Any] | None = None
    gone = 0
    for panel in panels:
        is_row = panel["type"] == "row"
        if is_row:
            if row is not None and row["panels"]:
                gone += max(inner["gridPos"]["y"] + inner["gridPos"]["h"] for inner in row["panels"])
                gone -= row["gridPos"]["y"] + row["gridPos"]["h"]
            row = None
        panel["gridPos"]["y"] -= gone
        if is_row and panel["title"] in closed:
            row = panel
            row |= {"collapsed": True, "panels": []}
        elif row is not None:
            row["panels"].append(panel)
            continue
        kept.append(panel)
    return kept


def _reduced(panel: dict[str, Any], described: Panel, _language: Language) -> None:
    """Finish gauges and single numbers: the newest value of each series, colored by its threshold."""
    panel["options"]["reduceOptions"] = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    panel["fieldConfig"]["defaults"]["color"] = {"mode": "thresholds"}
    if panel["type"] == "stat":
        panel["options"]["graphMode"] = "none" if described.decimals == 0 or described.states else "area"
        panel["options"]["colorMode"] = "background" if described.states else "value"
        named = "{{" in described.queries[0].legend
        panel["options"]["textMode"] = "value_and_name" if described.states and named else "auto" if named else "value"


def _lines(panel: dict[str, Any], described: Panel, _language: Language) -> None:
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


def _states(panel: dict[str, Any], _described: Panel, _language: Language) -> None:
    panel["options"]["legend"]["showLegend"] = False
    panel["options"] |= {"showValue": "never", "mergeValues": True}
    panel["fieldConfig"]["defaults"]["color"] = {"mode": "thresholds"}


def _heatmap(panel: dict[str, Any], described: Panel, _language: Language) -> None:
    panel["options"]["yAxis"] = {"unit": described.unit}
    panel["options"]["tooltip"] = {"mode": "single", "yHistogram": False}


def _xychart(panel: dict[str, Any], described: Panel, language: Language) -> None:
    panel["options"]["legend"] = {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []}
    panel["fieldConfig"]["defaults"]["custom"] |= {"show": "lines", "lineWidth": 1}
    panel["fieldConfig"]["defaults"]["color"] = {"mode": "palette-classic"}
    panel["transformations"] = dashboard_table.tall(described, language)


def _table(panel: dict[str, Any], described: Panel, language: Language) -> None:
    sort = [column for column in described.columns if column.name == described.sort]
    # Of Grafana before 12.2; the library writes it.
    panel["options"].pop("footer", None)
    panel["options"]["sortBy"] = [{"displayName": said(column, "name", language), "desc": True} for column in sort]
    panel["transformations"] = dashboard_table.transformations(described, language)
    panel["fieldConfig"]["overrides"] = dashboard_table.overrides(described, language, uid)


_OPTIONS: dict[str, Callable[[dict[str, Any], Panel, Language], None]] = {
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
    "targetBlank": False,
    "tooltip": "",
    "type": "dashboards",
    "url": "",
}


def _annotation(mark: Annotation, language: Language) -> dict[str, Any]:
    return {
        "datasource": _DATASOURCE,
        "enable": True,
        "expr": mark.expr,
        # Each has its switch on top.
        "hide": False,
        "iconColor": mark.color,
        "name": said(mark, "name", language),
        "textFormat": said(mark, "text", language),
        "titleFormat": said(mark, "title", language),
        "useValueForTime": mark.at_value,
    }


def _variable(choice: Variable, language: Language) -> dict[str, Any]:
    return {
        "type": "query",
        "name": choice.name,
        "label": said(choice, "label", language),
        "datasource": _DATASOURCE,
        "definition": choice.query,
        "query": {"query": choice.query, "refId": "StandardVariableQuery"},
        # On every change of the time range.
        "refresh": 2,
        "sort": 3 if choice.numeric else 1,
        "multi": True,
        "includeAll": bool(choice.everything),
        "allValue": choice.everything or None,
        **({"current": {"text": ["All"], "value": ["$__all"]}} if choice.everything else {}),
        "hide": 0,
        "regex": "",
        "options": [],
    }


def _source(language: Language) -> dict[str, Any]:
    return {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source" if language == "en" else "数据源",
        "query": "prometheus",
        "refresh": 1,
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "regex": "",
        "options": [],
    }
