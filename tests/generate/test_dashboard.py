"""The dashboard, held against the rules that Grafana's dashboard-linter checks, and some more.

The linter itself is a program in Go that cannot be installed by pip; its rules are few.
"""

from __future__ import annotations

import itertools
import json
import re

import promql_parser
import pytest
from tests.generate.series import names_in, series_names

from trainvitals.generate import dashboard, dashboard_run

pytest.importorskip("grafana_foundation_sdk", reason="grafana-foundation-sdk is not installed")

#: Units of Grafana that are used here.
UNITS = {"percentunit", "none", "short", "sci", "s", "Bps", "bytes", "celsius", "watt", "hertz"}
TYPES = {"row", "gauge", "stat", "timeseries", "state-timeline", "heatmap", "table", "xychart"}


@pytest.fixture(scope="module")
def document():
    """The dashboard as Grafana reads it."""
    (text,) = dashboard.dashboards().values()
    return json.loads(text)


@pytest.fixture(scope="module")
def panels(document):
    """Its panels without rows."""
    return [panel for panel in document["panels"] if panel["type"] != "row"]


def targets_of(panels):
    """Return panel and query of every target."""
    return [(panel, target) for panel in panels for target in panel["targets"]]


def test_it_is_made_the_same_every_time():
    """Two runs give the same bytes."""
    assert dashboard.dashboards() == dashboard.dashboards()


def test_it_can_be_provisioned_from_a_file(document):
    """Classic JSON of a schema that Grafana 11 knows: a fixed uid, no numeric id, no inputs, not editable."""
    assert document["uid"] == "trainvitals-run"
    assert document["title"] == "Run"
    assert document["schemaVersion"] == 39
    assert document["editable"] is False
    assert document["tags"] == ["trainvitals"]
    assert not {"id", "__inputs", "__requires", "apiVersion", "spec"} & set(document)


def test_panels_have_unique_ids_and_known_types(document):
    """An id of 0 or twice the same opens the wrong panel; a type of the old Angular kind opens none."""
    ids = [panel["id"] for panel in document["panels"]]

    assert min(ids) >= 1
    assert len(ids) == len(set(ids))
    assert {panel["type"] for panel in document["panels"]} <= TYPES


def test_panels_fit_the_grid_and_do_not_overlap(document):
    """Each panel lies within 24 columns, on cells of its own."""
    cells = []
    for panel in document["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells += itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"]))

    assert len(cells) == len(set(cells))


def test_the_four_gauges_are_on_top(panels):
    """The first thing that a person sees is the verdict, from 0 to 100 %."""
    first = panels[:4]

    assert ["Progress", "Learning", "Efficiency", "Health"] == [panel["title"] for panel in first]
    assert {"gauge"} == {panel["type"] for panel in first}
    assert {0} == {panel["gridPos"]["y"] for panel in first}
    assert {(0.0, 1.0)} == {
        (panel["fieldConfig"]["defaults"]["min"], panel["fieldConfig"]["defaults"]["max"]) for panel in first
    }


def test_panels_explain_themselves(panels):
    """Every panel has a title, a sentence, a unit, thresholds and at least one query."""
    for panel in panels:
        defaults = panel["fieldConfig"]["defaults"]
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert defaults["unit"] in UNITS
        assert panel["targets"]
        # Grafana's own default is red at 80, whatever the unit.
        assert defaults["thresholds"]["steps"][0]["value"] is None
        assert 80 not in [step["value"] for step in defaults["thresholds"]["steps"]]


def test_numbers_and_lines_show_something(panels):
    """Single numbers reduce their series to the newest value; lines have a legend."""
    for panel in panels:
        if panel["type"] in {"gauge", "stat"}:
            assert panel["options"]["reduceOptions"]["calcs"] == ["lastNotNull"]
        if panel["type"] in {"timeseries", "xychart"}:
            assert panel["options"]["legend"]["showLegend"] is True


def test_the_data_source_is_a_variable_everywhere(document, panels):
    """No panel, query, variable or annotation names a data source of its own."""
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    variables = {variable["name"]: variable for variable in document["templating"]["list"]}

    assert list(variables) == ["datasource", "run", "rank"]
    assert (variables["datasource"]["type"], variables["datasource"]["label"]) == ("datasource", "Data source")
    for panel, target in targets_of(panels):
        assert panel["datasource"] == target["datasource"] == chosen
    for variable in (variables["run"], variables["rank"]):
        assert variable["datasource"] == chosen
        assert variable["refresh"] == 2
    for annotation in document["annotations"]["list"]:
        assert annotation["builtIn"] if "builtIn" in annotation else annotation["datasource"] == chosen


def test_variables_go_by_info_series(document):
    """A sensor that is missing on some machine would empty the list of runs."""
    queries = [variable["query"]["query"] for variable in document["templating"]["list"][1:]]

    assert [
        "label_values(trainvitals_run_info, run)",
        'label_values(trainvitals_rank_info{run=~"$run"}, rank)',
    ] == queries


def test_queries_are_promql_of_known_series():
    """Every query parses once its variables are filled in, and selects series that something makes."""
    for title, query in dashboard.queries(run="a|b"):
        assert "$" not in query, title
        promql_parser.parse(query)
        assert not names_in(query) - series_names(), title


def test_the_list_of_queries_is_complete(document, panels):
    """The list for the end-to-end test holds what the file holds: every target and every annotation."""
    written = [target["expr"] for _, target in targets_of(panels)]
    written += [annotation["expr"] for annotation in document["annotations"]["list"][1:]]
    listed = [query for _, query in dashboard.queries(run="$run", rank="$rank", __rate_interval="$__rate_interval")]

    assert written == listed


def test_variables_are_matched_as_patterns(panels):
    """Several runs can be chosen, so no matcher on a variable is an equality."""
    for _, target in targets_of(panels):
        assert not re.search(r'="\$', target["expr"])


def test_rates_follow_the_zoom(panels):
    """Over time, ranges are Grafana's rate interval; only what shows one number has a window of its own."""
    for panel, target in targets_of(panels):
        ranges = set(re.findall(r"\[([^\]]+)\]", target["expr"]))
        assert ranges <= ({"5m"} if target.get("instant") else {"$__rate_interval"}), panel["title"]


def test_counters_are_only_read_as_rates(panels):
    """The number of a counter since some restart says nothing."""
    for panel, target in targets_of(panels):
        plain = re.sub(r"(rate|increase)\(\w+(\{[^}]*\})?\[[^\]]*\]\)", "", target["expr"])
        assert not re.search(r"_total\b|_bucket\b", plain), panel["title"]


def test_reference_letters_are_unique(panels):
    """Transformations name queries by their letters."""
    for panel in panels:
        assert [target["refId"] for target in panel["targets"]] == list("ABCDEFGH"[: len(panel["targets"])])


def test_loss_against_step_is_a_tall_frame_per_run(panels):
    """Merge, step before loss, one frame per run: the first number of a frame is the x of the chart."""
    (panel,) = [panel for panel in panels if panel["type"] == "xychart"]
    names = [step["id"] for step in panel["transformations"]]
    order = panel["transformations"][1]["options"]["indexByName"]

    assert ["merge", "organize", "partitionByValues"] == names
    assert order["Value #A"] < order["Value #B"]
    assert {"table"} == {target["format"] for target in panel["targets"]}
    assert panel["options"]["mapping"] == "auto"


def test_annotations_mark_starts_checkpoints_and_alerts(document):
    """Marks can be switched off one by one; those at a value give the time in milliseconds."""
    marks = document["annotations"]["list"][1:]

    assert ["Run start", "Checkpoint", "Alert"] == [mark["name"] for mark in marks]
    assert [True, True, False] == [mark["useValueForTime"] for mark in marks]
    assert all(mark["expr"].startswith("1000 * ") for mark in marks[:2])


def test_titles_do_not_repeat_within_a_row():
    """A person must be able to name a panel."""
    for row in dashboard_run.ROWS:
        titles = [panel.title for panel in row.panels]
        assert len(titles) == len(set(titles))
