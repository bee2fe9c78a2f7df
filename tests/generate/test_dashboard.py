"""Every dashboard, held against the rules that Grafana's dashboard-linter checks, and some more.

The linter itself is a program in Go that cannot be installed by pip; its rules are few.  Three of its seventeen are
about Loki, which nothing here asks.  Four want a choice of job and instance on every query: here the job is fixed by
the rules, and a run is the choice where a node is not.
"""

from __future__ import annotations

import itertools
import json
import re
import warnings
from pathlib import Path

import promql_parser
import pytest
from tests.generate.series import labels_in, labels_of, names_in, series_names

from trainvitals.diagnose import signals as check_up
from trainvitals.generate import dashboard
from trainvitals.generate.dashboard_run_checks import SIX, ratio
from trainvitals.generate.dashboards import DASHBOARDS
from trainvitals.generate.panels import said

pytest.importorskip("grafana_foundation_sdk", reason="grafana-foundation-sdk is not installed")

ROOT = Path(__file__).parents[2]
NAMES = ("fleet", "run", "node", "compare", "incidents", "self")
CHINESE = re.compile(r"[\u4e00-\u9fff]")
#: Units of Grafana that are used here.
UNITS = {
    "percentunit",
    "none",
    "short",
    "sci",
    "s",
    "Bps",
    "bytes",
    "celsius",
    "watt",
    "hertz",
    "dateTimeAsIso",
}
TYPES = {"row", "gauge", "stat", "timeseries", "state-timeline", "heatmap", "table", "xychart"}
#: Words that are the same in both languages.
SAME = {"", "CPU", "Rank", "UUID", "XID", "Hash"}
FILES = [f"{language}/{name}.json" for language in ("en", "zh") for name in NAMES]


@pytest.fixture(scope="module")
def texts():
    """All dashboards as they would be written."""
    return dashboard.dashboards()


@pytest.fixture(scope="module", params=FILES)
def document(request, texts):
    """One dashboard as Grafana reads it."""
    return json.loads(texts[request.param])


@pytest.fixture
def panels(document):
    """Its panels without rows, those in closed rows included."""
    return [panel for panel in everything(document) if panel["type"] != "row"]


def everything(document):
    """Return rows and panels in their order."""
    return [inner for panel in document["panels"] for inner in (panel, *panel.get("panels", ()))]


def language_of(document):
    """Return the language of a dashboard, by its uid."""
    return "zh" if document["uid"].endswith("-zh") else "en"


def targets_of(panels):
    """Return panel and query of every target."""
    return [(panel, target) for panel in panels for target in panel["targets"]]


def test_there_are_six_in_both_languages(texts):
    """Each has its file, its fixed uid, and a title of its own in each language."""
    documents = {name: json.loads(text) for name, text in texts.items()}

    assert sorted(FILES) == sorted(documents)
    for name in NAMES:
        assert documents[f"en/{name}.json"]["uid"] == f"trainvitals-{name}"
        assert documents[f"zh/{name}.json"]["uid"] == f"trainvitals-{name}-zh"
    titles = [document["title"] for document in documents.values()]
    assert len(titles) == len(set(titles))


def test_they_are_made_the_same_every_time(texts):
    """Two runs give the same bytes."""
    assert texts == dashboard.dashboards()


def test_it_can_be_provisioned_from_a_file(document):
    """Classic JSON of a schema that Grafana 11 knows: no numeric id, no inputs, not editable."""
    assert document["schemaVersion"] == 39
    assert document["editable"] is False
    assert not {"id", "__inputs", "__requires", "apiVersion", "spec"} & set(document)


def test_it_survives_a_round_trip_through_the_models(document):
    """The library reads what was written, and writes the same again: each field has the type that its model wants."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from grafana_foundation_sdk.cog.encoder import JSONEncoder
        from grafana_foundation_sdk.cog.plugins import register_default_plugins
        from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    again = json.loads(JSONEncoder().encode(Dashboard.from_json(json.loads(json.dumps(document)))))

    assert not list(lost(document, again))


#: Fields of the JSON that the library's models do not know; Grafana does.
UNKNOWN_TO_MODELS = {"titleFormat", "textFormat", "useValueForTime"}


def lost(before, after, place=""):
    """Yield where the second document lacks or changes something of the first; what it adds by default is fine."""
    if isinstance(before, dict):
        for key, value in before.items():
            if key in UNKNOWN_TO_MODELS or value is None:
                continue
            if not isinstance(after, dict) or key not in after:
                yield f"{place}.{key} is gone"
            else:
                yield from lost(value, after[key], f"{place}.{key}")
    elif isinstance(before, list):
        if not isinstance(after, list) or len(before) != len(after):
            yield f"{place}: {before} became {after}"
            return
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from lost(one, other, f"{place}[{number}]")
    elif before != after:
        yield f"{place}: {before} became {after}"


def test_panels_have_ids_in_a_row_and_known_types(document):
    """An id of 0 or twice the same opens the wrong panel; a type of the old Angular kind opens none."""
    found = everything(document)

    assert [panel["id"] for panel in found] == list(range(1, len(found) + 1))
    assert {panel["type"] for panel in found} <= TYPES


def test_panels_fit_the_grid_and_do_not_overlap(document):
    """Each panel lies within 24 columns, on cells of its own; so do the panels of each closed row among themselves."""
    groups = [document["panels"], *(panel["panels"] for panel in document["panels"] if panel.get("panels"))]
    for group in groups:
        cells = []
        for panel in group:
            at = panel["gridPos"]
            assert at["x"] + at["w"] <= 24
            cells += itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"]))
        assert len(cells) == len(set(cells))


def test_rows_follow_each_other_without_holes(document):
    """Lines of panels begin where the line above ends."""
    ends = 0
    for panel in document["panels"]:
        at = panel["gridPos"]
        assert at["y"] <= ends
        ends = max(ends, at["y"] + at["h"])


def test_closed_rows_hold_their_panels(document):
    """A row that is closed asks nothing until it is opened; an open one holds none."""
    for panel in document["panels"]:
        if panel["type"] == "row":
            assert bool(panel["panels"]) is panel["collapsed"]


def test_the_verdict_is_on_top(document):
    """The first line is numbers or gauges without a row; only a comparison begins with its curves."""
    first = [panel["type"] for panel in document["panels"] if panel["gridPos"]["y"] == 0]

    assert set(first) <= {"gauge", "stat"} or document["uid"].startswith("trainvitals-compare")


def test_panels_explain_themselves(panels):
    """Every panel has a title, a sentence, a unit, thresholds and at least one query."""
    for panel in panels:
        defaults = panel["fieldConfig"]["defaults"]
        assert panel["title"]
        assert panel["description"].endswith((".", "。"))
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


def test_columns_of_tables_are_known(panels):
    """Every field that a table names is a label of its queries or a value of one, and each value is shown or hidden."""
    for panel in panels:
        if panel["type"] != "table":
            continue
        letters = [target["refId"] for target in panel["targets"]]
        values = {f"Value #{letter}" for letter in letters} if len(letters) > 1 else {"Value"}
        labels = {label for target in panel["targets"] for label in grouped_by(target["expr"])}
        (organize,) = [step["options"] for step in panel["transformations"] if step["id"] == "organize"]
        shown = list(organize["renameByName"])
        names = list(organize["renameByName"].values())

        assert set(shown) <= labels | values, panel["title"]
        assert values <= set(shown) | set(organize["excludeByName"]), panel["title"]
        assert labels <= set(shown), panel["title"]
        assert len(names) == len(set(names))
        assert {entry["matcher"]["options"] for entry in panel["fieldConfig"]["overrides"]} <= set(names)
        assert {entry["displayName"] for entry in panel["options"]["sortBy"]} <= set(names)


def grouped_by(expr):
    """Return the labels that the outermost aggregation keeps; a bare series would keep its name as a label, too."""
    found = re.match(r"(?:1000 \* |time\(\) - )?\w+ by \(([^)]*)\)", expr)
    assert found, expr
    return found.group(1).split(", ")


def test_lines_of_tables_can_be_joined(panels):
    """Grafana joins lines by all labels that they share, so each value has the same ones; others may add some."""
    for panel in panels:
        if panel["type"] in {"table", "xychart"} and len(panel["targets"]) > 1:
            exprs = [target["expr"] for target in panel["targets"]]
            fewest = min((set(grouped_by(expr)) for expr in exprs), key=len)
            assert all(fewest <= set(grouped_by(expr)) for expr in exprs), panel["title"]
            values = [entry for entry in panel["transformations"][1]["options"]["renameByName"] if "#" in entry]
            shown = [target["expr"] for target in panel["targets"] if f"Value #{target['refId']}" in values]
            assert all(set(grouped_by(expr)) == fewest for expr in shown), panel["title"]


def test_the_data_source_is_a_variable_everywhere(document, panels):
    """No panel, query, variable or annotation names a data source of its own."""
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    source, *variables = document["templating"]["list"]

    assert (source["type"], source["name"]) == ("datasource", "datasource")
    assert source["label"] == ("Data source" if language_of(document) == "en" else "数据源")
    for panel, target in targets_of(panels):
        assert panel["datasource"] == target["datasource"] == chosen
    for variable in variables:
        assert variable["datasource"] == chosen
        assert variable["refresh"] == 2
        assert variable["multi"] is True
        assert variable["includeAll"] is True
    for annotation in document["annotations"]["list"]:
        assert annotation["builtIn"] if "builtIn" in annotation else annotation["datasource"] == chosen


def test_variables_go_by_info_series(document):
    """A sensor that is missing on some machine would empty the list; queries of variables parse, too."""
    for variable in document["templating"]["list"][1:]:
        selector = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
        (name,) = names_in(selector.group(1))
        promql_parser.parse(selector.group(1))
        assert name.endswith("_info")
        assert selector.group(2) in labels_of(name)
        assert selector.group(2) == variable["name"]


def test_links_keep_variables_and_time_and_the_language(document):
    """The list of dashboards goes by a tag that one language has; links in cells set one variable and keep the rest."""
    language = language_of(document)
    (link,) = document["links"]

    assert document["tags"] == ["trainvitals", f"trainvitals-{language}"]
    assert link["tags"] == [f"trainvitals-{language}"]
    assert (link["asDropdown"], link["includeVars"], link["keepTime"]) == (True, True, True)
    known = {f"trainvitals-{name}" + ("" if language == "en" else "-zh") for name in NAMES}
    for url in re.findall(r'"url": "(/d/[^"]+)"', json.dumps(document)):
        target, rest = re.fullmatch(r"/d/([\w-]+)\?(.+)", url).groups()
        assert target in known
        assert "${datasource:queryparam}" in rest
        assert "${__url_time_range}" in rest
        assert re.search(r"var-(run|instance)=", rest)


def test_one_comes_from_the_fleet_to_the_run_to_the_node(texts):
    """Each step down is a link."""
    for language, end in (("en", ""), ("zh", "-zh")):
        for name, target, variable in (
            ("fleet", "run", "run"),
            ("fleet", "node", "instance"),
            ("run", "node", "instance"),
        ):
            assert f"/d/trainvitals-{target}{end}?" in texts[f"{language}/{name}.json"]
            assert f"var-{variable}=" in texts[f"{language}/{name}.json"]


def test_queries_are_promql_of_known_series():
    """Every query parses once its variables are filled in, and selects series that something makes."""
    for place, query in dashboard.queries(run="a|b"):
        assert "$" not in query, place
        promql_parser.parse(query)
        assert not names_in(query) - series_names(), place


def test_labels_in_queries_are_those_of_the_series():
    """Every label that a selector matches is one that its series has by the catalogue."""
    for place, query in dashboard.queries():
        for name, labels in labels_in(query):
            assert labels <= labels_of(name), (place, name)


def test_labels_in_legends_are_kept(panels):
    """A legend names no label that every query aggregates away."""
    for panel, target in targets_of(panels):
        wanted = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        kept = re.match(r"(?:-|60 \* |1000 \* )?(?:sum|max|min|avg|count) by \(([^)]*)\)", target["expr"])
        if kept and wanted:
            assert wanted <= set(kept.group(1).split(", ")), panel["title"]


def test_the_list_of_queries_is_complete(texts):
    """The list for the test against Prometheus holds what the files hold: every target and every annotation."""
    for name in NAMES:
        document = json.loads(texts[f"en/{name}.json"])
        shown = [panel for panel in everything(document) if panel["type"] != "row"]
        written = [target["expr"] for _, target in targets_of(shown)]
        written += [annotation["expr"] for annotation in document["annotations"]["list"][1:]]
        same = {key: f"${key}" for key in ("run", "rank", "instance", "device", "__rate_interval", "__range")}

        assert written == [query for _, query in dashboard.queries(name, **same)]


def test_variables_are_matched_as_patterns(panels):
    """Several runs can be chosen, so no matcher on a variable is an equality."""
    for _, target in targets_of(panels):
        assert not re.search(r'[^~]"\$', target["expr"])


def test_only_variables_that_the_dashboard_has_are_used(document, panels):
    """A query with a variable that is not there matches nothing."""
    names = {variable["name"] for variable in document["templating"]["list"]}
    for panel, target in targets_of(panels):
        used = {name for name in re.findall(r"\$(\w+)", target["expr"]) if not name.startswith("__")}
        assert used <= names, panel["title"]


def test_rates_follow_the_zoom(panels):
    """Over time, ranges are Grafana's rate interval; only what shows one number has a window of its own."""
    for panel, target in targets_of(panels):
        ranges = set(re.findall(r"\[([^\]]+)\]", target["expr"]))
        one_number = target.get("instant") or panel["type"] == "stat"
        assert ranges <= ({"5m", "$__range"} if one_number else {"$__rate_interval"}), panel["title"]


#: Counters that are shown as the number that they have, with the reason.
PLAIN_COUNTERS = {
    "trainvitals_steps_total": "work done, beside the step of the run, which goes back with a rollback",
    "trainvitals_tokens_total": "the x of a comparison at equal tokens",
    "trainvitals_log_errors_total": "errors of a log that was read from its beginning",
    **dict.fromkeys(
        (
            "trainvitals_incidents_total",
            "trainvitals_incident_steps_lost_total",
            "trainvitals_incident_seconds_to_recover_total",
        ),
        "counts of the journal, which outlasts the exporter; a series begins with its first interruption",
    ),
}


def test_counters_are_only_read_as_rates(panels):
    """The number of a counter since some restart says nothing; the exceptions have a reason."""
    for panel, target in targets_of(panels):
        plain = re.sub(r"(rate|increase)\(\w+(\{[^}]*\})?\[[^\]]*\]\)", "", target["expr"])
        assert set(re.findall(r"\w+_(?:total|bucket)\b", plain)) <= set(PLAIN_COUNTERS), panel["title"]


def test_reference_letters_are_unique(panels):
    """Transformations name queries by their letters."""
    for panel in panels:
        assert [target["refId"] for target in panel["targets"]] == list("ABCDEFGHIJKLMNOP"[: len(panel["targets"])])


def test_curves_against_step_are_a_tall_frame_per_run(panels):
    """Merge, x before y, one frame per run: the first number of a frame is the x of the chart."""
    for panel in panels:
        if panel["type"] == "xychart":
            names = [step["id"] for step in panel["transformations"]]
            order = panel["transformations"][1]["options"]["indexByName"]

            assert ["merge", "organize", "partitionByValues"] == names
            assert order["Value #A"] < order["Value #B"]
            assert {"table"} == {target["format"] for target in panel["targets"]}
            assert panel["options"]["mapping"] == "auto"


def test_annotations_can_be_switched_off(document):
    """Marks have a switch each; those at a value give the time in milliseconds."""
    for mark in document["annotations"]["list"][1:]:
        assert mark["enable"] is True
        assert mark["hide"] is False
        assert mark["useValueForTime"] is mark["expr"].startswith("1000 * ")


def test_annotations_of_runs_mark_starts_checkpoints_changes_and_alerts(texts):
    """What may explain a bend in a curve is marked on it."""
    for name in ("fleet", "run", "compare", "incidents"):
        marks = json.loads(texts[f"en/{name}.json"])["annotations"]["list"][1:]
        assert ["Starts", "Checkpoints", "Changes", "Alerts"] == [mark["name"] for mark in marks]


def test_titles_do_not_repeat_within_a_row():
    """A person must be able to name a panel, and a row."""
    for row in DASHBOARDS:
        for language in ("en", "zh"):
            rows = [said(part, "title", language) for part in row.rows]
            assert len(rows) == len(set(rows))
            for part in row.rows:
                titles = [said(panel, "title", language) for panel in part.panels]
                assert len(titles) == len(set(titles))


def pairs(row):
    """Yield each text of a dashboard with its twin."""
    for part in (row, *row.rows, *row.panels, *row.variables, *row.annotations):
        for name in ("title", "description", "empty", "name", "label", "text"):
            if hasattr(part, f"{name}_zh"):
                yield getattr(part, name), getattr(part, f"{name}_zh")
    for panel in row.panels:
        yield from ((column.name, column.name_zh) for column in panel.columns)
        yield from ((text, text_zh) for _, _, text, text_zh, _ in panel.states)
        yield from panel.axes
        # A legend of labels alone serves both languages.
        yield from ((query.legend, query.legend_zh) for query in panel.queries if query.legend_zh)


@pytest.mark.parametrize("row", DASHBOARDS, ids=lambda row: row.name)
def test_every_text_has_its_twin(row):
    """English has no Chinese in it, and Chinese has some, but for words and names that are the same."""
    for text, twin in pairs(row):
        assert not CHINESE.search(text)
        assert CHINESE.search(twin) or (text in SAME and twin in {text, ""}) or "{{alertname}}" in twin, (text, twin)


def test_the_check_list_is_that_of_the_check_up():
    """The six questions and their signals are the same on the dashboard and in `trainvitals diagnose`."""
    questions = {}
    for signal, (question, _) in check_up._ABOUT.items():
        questions.setdefault(question, []).append(signal)
    wanted = {check.title: sorted(check.signals) for check in SIX}

    assert len(SIX) == 6
    assert {title: sorted(questions[title[0].lower() + title[1:]]) for title in wanted} == wanted


def test_mere_information_asks_nobody_to_act():
    """A plateau has no alert, so it is shown as something to watch, however large; the stop-loss has one."""
    by_title = {check.title: ratio(check) for check in SIX}

    assert (
        'clamp_max(trainvitals_signal_ratio{run=~"$run",signal=~"plateau"}, 0.9)'
        in by_title["Long effort, flat return"]
    )
    assert "clamp_max" not in by_title["Loss hardly falls"]
