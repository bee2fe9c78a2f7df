"""Tables and XY charts: how the frames of several queries become one with named columns, or one for each line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainvitals.generate.panels import LETTERS, Column, Language, Panel, State, said


def transformations(panel: Panel, language: Language) -> list[dict[str, Any]]:
    """Return what joins the queries of a table by their labels and puts its columns in order."""
    fields = _fields(panel)
    shown = [field for field, _ in fields]
    hidden = ["Time", "__name__", "job", *_values(panel)]
    organize = {
        "excludeByName": {field: True for field in hidden if field not in shown},
        "indexByName": {field: place for place, field in enumerate(shown)},
        "renameByName": {field: said(column, "name", language) for field, column in fields},
    }
    joined = [{"id": "merge", "options": {}}] if len(panel.queries) > 1 else []
    return [*joined, {"id": "organize", "options": organize}]


def tall(panel: Panel, language: Language) -> list[dict[str, Any]]:
    """Return what makes a frame for each line of an XY chart, which takes the first number of a frame as x."""
    x, y = (names[0] if language == "en" else names[1] for names in panel.axes)
    organize = {
        "excludeByName": {"Time": True},
        "indexByName": {"Time": 0, panel.by: 1, "Value #A": 2, "Value #B": 3},
        "renameByName": {"Value #A": x, "Value #B": y},
    }
    partition = {"fields": [panel.by], "keepFields": False, "naming": {"asLabels": True}}
    return [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": organize},
        {"id": "partitionByValues", "options": partition},
    ]


def overrides(panel: Panel, language: Language, uid: Callable[[str, Language], str]) -> list[dict[str, Any]]:
    """Return unit, colors, words, bars and links of the columns of a table, by their names."""
    made = []
    for column in panel.columns:
        properties = _properties(column, language, uid)
        if properties:
            matcher = {"id": "byName", "options": said(column, "name", language)}
            made.append(
                {"matcher": matcher, "properties": [{"id": key, "value": value} for key, value in properties.items()]}
            )
    return made


def mappings(states: tuple[State, ...], language: Language) -> list[dict[str, Any]]:
    """Return value mappings: ranges that are shown as words."""
    return [
        {
            "type": "range",
            "options": {
                "from": low,
                "to": high,
                "result": {"index": place, "text": text if language == "en" else text_zh, "color": color},
            },
        }
        for place, (low, high, text, text_zh, color) in enumerate(states)
    ]


def link(target: str, variable: str, value: str, language: Language) -> dict[str, Any]:
    """Return a link to a dashboard that keeps data source and time and sets one variable."""
    return {
        "title": "Open" if language == "en" else "打开",
        "url": f"/d/{target}?${{datasource:queryparam}}&var-{variable}={value}&${{__url_time_range}}",
        "targetBlank": False,
    }


def _values(panel: Panel) -> list[str]:
    """Return how Grafana names the values of the queries."""
    count = len(panel.queries)
    return ["Value"] if count == 1 else [f"Value #{letter}" for letter in LETTERS[:count]]


def _fields(panel: Panel) -> list[tuple[str, Column]]:
    """Return the field behind each column: a label, or the value of the next query."""
    values = iter(_values(panel))
    return [(column.label or next(values), column) for column in panel.columns if column.label or column.expr]


def _properties(column: Column, language: Language, uid: Callable[[str, Language], str]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if column.unit:
        made["unit"] = column.unit
    if column.decimals is not None:
        made["decimals"] = column.decimals
    if column.thresholds:
        steps = [{"value": value, "color": color} for value, color in column.thresholds]
        made["thresholds"] = {"mode": "absolute", "steps": steps}
    if column.states:
        made["mappings"] = mappings(column.states, language)
    if column.bar:
        made |= {"min": 0, "max": 1, "custom.cellOptions": {"type": "gauge", "mode": "basic"}}
    elif column.thresholds or column.states:
        made["custom.cellOptions"] = {"type": "color-text"}
    if column.thresholds:
        made["color"] = {"mode": "thresholds"}
    if column.link:
        name, variable = column.link
        made["links"] = [link(uid(name, language), variable, "${__value.raw:percentencode}", language)]
    return made
