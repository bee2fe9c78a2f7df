"""Builds the dashboards from their description, as classic JSON that Grafana 11, 12 and 13 load from files.

The builders of grafana-foundation-sdk write the JSON of each panel type; they leave gaps, which
:mod:`trainvitals.generate.dashboard_finish` closes.  The library is imported inside, so that the rules and the list
of queries need none.
"""

from __future__ import annotations

import json
import warnings
from typing import Any

from trainvitals.generate import dashboard_finish
from trainvitals.generate.dashboards import DASHBOARDS
from trainvitals.generate.panels import LANGUAGES, LETTERS, Dashboard, Language, Panel, Query, said

#: What a variable stands for when queries are run outside of Grafana.
_DEFAULTS = {
    "run": ".+",
    "rank": ".*",
    "instance": ".+",
    "device": ".*",
    "__rate_interval": "1m",
    "__interval": "15s",
    "__range": "1h",
}


def dashboards() -> dict[str, str]:
    """Return the dashboards by file name, a folder for each language.

    Raises ModuleNotFoundError without grafana-foundation-sdk.
    """
    return {
        f"{language}/{row.name}.json": json.dumps(build(row, language), indent=2, sort_keys=True, ensure_ascii=False)
        + "\n"
        for language in LANGUAGES
        for row in DASHBOARDS
    }


def queries(*names: str, **values: str) -> list[tuple[str, str]]:
    """Return place and PromQL of every query, annotations included, with the variables filled in.

    ``names`` choose dashboards; without one, all.  ``values`` fills variables, for example ``run="a|b"``.
    A place is the name of the dashboard, its row and the title of the panel, with slashes.
    """
    found = []
    for row in DASHBOARDS:
        if names and row.name not in names:
            continue
        for part in row.rows:
            place = f"{row.name}/{part.title}".rstrip("/")
            found += [(f"{place}/{panel.title}", query.expr) for panel in part.panels for query in panel.queries]
        found += [(f"{row.name}/annotation/{mark.name}", mark.expr) for mark in row.annotations]
    return [(place, _fill(expr, {**_DEFAULTS, **values})) for place, expr in found]


def _fill(expr: str, values: dict[str, str]) -> str:
    for name in sorted(values, key=len, reverse=True):
        expr = expr.replace(f"${name}", values[name])
    return expr


def build(row: Dashboard, language: Language) -> dict[str, Any]:
    """Return one dashboard as a JSON document."""
    with warnings.catch_warnings():
        # Importing the classic builders warns that there are newer ones, for a format that files cannot hold yet.
        warnings.simplefilter("ignore", DeprecationWarning)
        from grafana_foundation_sdk.builders import dashboard as sdk  # noqa: PLC0415
        from grafana_foundation_sdk.cog.encoder import JSONEncoder  # noqa: PLC0415
        from grafana_foundation_sdk.models.dashboard import DashboardCursorSync  # noqa: PLC0415

        builder = (
            sdk.Dashboard(said(row, "title", language))
            .uid(dashboard_finish.uid(row.name, language))
            .description(said(row, "description", language))
            .time(f"now-{row.span}", "now")
            .refresh("30s")
            .tooltip(DashboardCursorSync.CROSSHAIR)
            .readonly()
        )
        for part in row.rows:
            if part.title:
                builder.with_row(sdk.Row(said(part, "title", language)))
            for panel in part.panels:
                builder.with_panel(_panel(panel, language))
        document: dict[str, Any] = json.loads(JSONEncoder().encode(builder.build()))
    return dashboard_finish.finish(document, row, language)


def _panel(panel: Panel, language: Language) -> Any:
    """Return the library's builder of one panel."""
    from grafana_foundation_sdk.builders import dashboard as sdk  # noqa: PLC0415
    from grafana_foundation_sdk.models import dashboard as models  # noqa: PLC0415

    thresholds = sdk.ThresholdsConfig().mode(models.ThresholdsMode("absolute"))
    thresholds.steps([models.Threshold(value=value, color=color) for value, color in panel.thresholds])
    builder = (
        _new(panel.kind)
        .title(said(panel, "title", language))
        .description(said(panel, "description", language))
        .unit(panel.unit)
        .thresholds(thresholds)
        .height(panel.height)
        .span(panel.width)
    )
    for set_it, value in (
        (builder.min, panel.minimum),
        (builder.max, panel.maximum),
        (builder.decimals, panel.decimals),
        (builder.no_value, said(panel, "empty", language) or None),
    ):
        if value is not None:
            set_it(value)
    for query, letter in zip(panel.queries, LETTERS, strict=False):
        builder.with_target(_target(query, letter, language))
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


def _target(query: Query, letter: str, language: Language) -> Any:
    from grafana_foundation_sdk.builders import prometheus  # noqa: PLC0415
    from grafana_foundation_sdk.models.prometheus import PromQueryFormat  # noqa: PLC0415

    target = prometheus.Dataquery().ref_id(letter).expr(query.expr).format(PromQueryFormat(query.format))
    target.legend_format(said(query, "legend", language) or "__auto")
    return target.instant() if query.instant else target.range()
