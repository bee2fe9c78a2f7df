"""The table of alerts and the recording rules, looked at without Prometheus."""

from __future__ import annotations

import re
from pathlib import Path

import promql_parser
import pytest
import yaml
from tests.generate.series import names_in, series_names

import trainvitals
from trainvitals import detect
from trainvitals.generate.alerts import ALERTS, rule_files
from trainvitals.generate.docs import metrics_page
from trainvitals.generate.limits import duration
from trainvitals.generate.records import RECORDS
from trainvitals.generate.rules import Record
from trainvitals.generate.runbooks import runbooks
from trainvitals.metrics import FAMILIES

CHINESE = re.compile(r"[\u4e00-\u9fff]")
RULES = [*RECORDS, *ALERTS]


def name_of(rule):
    """Return a name for the report of the tests."""
    return rule.name


@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_expressions_parse_and_know_their_series(rule):
    """Every expression is PromQL, and every series in it is one that something makes."""
    promql_parser.parse(rule.expr)

    assert not names_in(rule.expr) - series_names()


@pytest.mark.parametrize("alert", ALERTS, ids=name_of)
def test_queries_in_texts_parse_and_know_their_series(alert):
    """The expressions that the texts look up are PromQL too, once the labels are filled in."""
    for text in (alert.summary, alert.summary_zh, alert.description, alert.description_zh):
        for query in re.findall(r"printf `([^`]+)`", text):
            promql_parser.parse(query.replace("%q", '"x"'))

            assert not names_in(query) - series_names()


@pytest.mark.parametrize("alert", ALERTS, ids=name_of)
def test_alerts_compare(alert):
    """An alert without a comparison would fire for any value, 0 included."""
    assert re.search(r"[<>]|==", re.sub(r"\{[^}]*\}", "", alert.expr))


@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_divisors_are_guarded(rule):
    """Whatever a rule divides by is filtered to be positive, or it would fire on infinity and hide on NaN."""
    plain = re.sub(r'"(?:\\.|[^"\\])*"', '""', rule.expr)
    for divisor in re.findall(r"/\s*(?:on \([^)]*\) )?(.{1,200})", plain, flags=re.DOTALL):
        assert divisor.startswith("("), divisor
        assert "> 0)" in divisor


@pytest.mark.parametrize("alert", ALERTS, ids=name_of)
def test_labels_and_texts(alert):
    """Every alert has all labels and all texts, in both languages, and no label that could change while it is on."""
    rule = alert.as_rule()

    assert alert.name.startswith("Trainvitals")
    assert set(rule["labels"]) == {"severity", "category", "gauge"}
    assert not any("{{" in value for value in rule["labels"].values())
    for name in ("summary", "description", "action"):
        assert rule["annotations"][name].strip()
        assert not CHINESE.search(rule["annotations"][name])
        assert CHINESE.search(rule["annotations"][f"{name}_zh"])
    assert "{{" not in alert.action + alert.action_zh
    for name in (alert.impact, alert.diagnosis):
        assert name.strip()
        assert not CHINESE.search(name)
    assert CHINESE.search(alert.impact_zh)
    assert CHINESE.search(alert.diagnosis_zh)
    for name, language in (("runbook_url", "en"), ("runbook_url_zh", "zh")):
        assert rule["annotations"][name].endswith(f"/docs/runbooks/{language}/{alert.name}.md")


@pytest.mark.parametrize("alert", ALERTS, ids=name_of)
def test_chinese_has_chinese_punctuation(alert):
    """Beside a Chinese character stands no half-width punctuation, and no mark that a draft left behind."""
    texts = (alert.summary_zh, alert.description_zh, alert.action_zh, alert.impact_zh, alert.diagnosis_zh)
    for text in texts:
        plain = re.sub(r"`[^`]*`", "code", re.sub(r"\{\{.*?\}\}", "value", text))

        assert not re.search(r"[\u4e00-\u9fff，。：；（）][,:;()?!]|[,:;()?!][\u4e00-\u9fff，。：；（）]", plain), plain
        assert "@" not in plain


@pytest.mark.parametrize("alert", ALERTS, ids=name_of)
def test_labels_in_texts_are_kept_by_the_expression(alert):
    """A text names no label that the expression aggregates away."""
    used = set(re.findall(r"\$labels\.(\w+)", alert.summary + alert.description + alert.summary_zh))
    kept = re.match(r"\s*\(?\s*(?:count|max|min|sum) by \(([^)]*)\)", alert.expr)

    assert used <= set(kept.group(1).split(", ") if kept else ())


@pytest.mark.parametrize("alert", ALERTS, ids=name_of)
def test_waits_are_at_least_two_scrapes(alert):
    """One lost scrape of 15 seconds decides nothing."""
    assert alert.wait == 0 or alert.wait >= 30
    assert alert.keep == 0 or alert.keep >= 30


def test_ranges_span_four_scrapes():
    """A rate over less than four scrapes of 15 seconds has gaps."""
    seconds = {"s": 1, "m": 60, "h": 3600}
    for rule in RULES:
        for number, unit in re.findall(r"\[(\d+)([smh])\]", rule.expr):
            assert int(number) * seconds[unit] >= 60


def test_counters_are_only_read_by_functions_that_know_resets():
    """A bare counter is a number since some restart."""
    for rule in RULES:
        for counter in re.findall(r"(\w+)\(\s*trainvitals_\w+_total\b", rule.expr):
            assert counter in {"rate", "increase", "resets"}, rule.name
        assert not re.search(r"(?<![(\w])trainvitals_\w+_total\b", rule.expr), rule.name


def test_names_are_unique():
    """Two rules of one name would be two truths."""
    names = [rule.name for rule in RULES]

    assert len(names) == len(set(names))


def test_every_signal_has_an_alert_of_its_category():
    """A detector that nobody hears about is useless; the bottleneck and a plateau are answers and no alarms."""
    answers = {"bottleneck", "plateau"}
    signals = {detector.signal: detector.category for detector in detect.build() if detector.signal not in answers}

    assert signals == {alert.signal: alert.category for alert in ALERTS if alert.signal}


def test_all_three_categories_have_alerts():
    """Resource, data and parameter are all covered."""
    assert {"resource", "data", "parameter"} == {alert.category for alert in ALERTS}


def test_the_four_gauges_are_ratios():
    """Each gauge is one recorded series per run."""
    gauges = {f"run:trainvitals_{name}:ratio" for name in ("progress", "learning", "efficiency", "health")}

    assert gauges <= {record.name for record in RECORDS if record.labels == ("run",)}


def test_files_hold_every_rule_once():
    """Groups are named as their files, and no rule is lost between the table and the files."""
    found = []
    for name, text in rule_files().items():
        groups = yaml.safe_load(text)["groups"]
        own = "trainvitals-" + name.removesuffix(".yml")
        assert [group["name"] for group in groups] in ([own], [own, f"{own}-1m"])
        for group in groups:
            assert set(group) - {"interval"} == {"name", "rules"}
            found += [rule.get("alert") or rule["record"] for rule in group["rules"]]

    assert sorted(rule.name for rule in RULES) == sorted(found)


def test_durations_are_written_as_prometheus_does():
    """Whole minutes and hours are short."""
    assert ["90s", "10m", "2h", "0s"] == [duration(90), duration(600), duration(7200), duration(0)]


def test_records_of_several_lines_stay_readable():
    """An expression of several lines is a block in the file, indented as it was written."""
    several = [rule for rule in RULES if isinstance(rule, Record) and "\n" in rule.expr]
    text = rule_files()["recording.yml"]

    assert several
    assert "\\n" not in text
    assert text.count("expr: |-") == len(several)


def test_a_page_names_every_family():
    """docs/metrics.md lists each family and recorded series."""
    metrics = metrics_page()

    assert not [name for name in (*FAMILIES, *(record.name for record in RECORDS)) if f"| `{name}` |" not in metrics]


def test_every_alert_has_a_runbook_in_both_languages():
    """Four sections and the rule, no placeholder in them; docs/alerts.md leads to both pages."""
    pages = runbooks()
    sections = {
        "en": ("Meaning", "Impact", "Diagnosis", "Mitigation", "Rule"),
        "zh": ("含义", "影响", "诊断", "处理", "规则"),
    }

    assert len(pages) == 1 + 2 * len(ALERTS)
    for alert in ALERTS:
        for language, names in sections.items():
            path = f"runbooks/{language}/{alert.name}.md"
            page = pages[path]
            assert tuple(re.findall(r"^## (.+)$", page, re.MULTILINE)) == names
            assert "{{" not in page.split("```")[0]
            assert f"({path})" in pages["alerts.md"]


@pytest.mark.parametrize("alert", ALERTS, ids=name_of)
def test_series_that_a_text_names_exist(alert):
    """Who reads a runbook asks for them; so does each query inside a text."""
    texts = (
        alert.impact, alert.impact_zh, alert.diagnosis, alert.diagnosis_zh, alert.action, alert.action_zh,
        alert.description, alert.description_zh,
    )  # fmt: skip
    named = {name for text in texts for name in re.findall(r"\btrainvitals_[a-z0-9_]+", text)}

    assert named <= series_names()


def test_every_reason_to_reject_a_file_has_its_advice():
    """The action of the alert on rejected files names each reason that the code can give."""
    package = Path(trainvitals.__file__).parent
    sources = [*(package / "rankfile").glob("*.py"), *(package / "collect").glob("*.py")]
    found = {
        reason
        for source in sources
        for reason in re.findall(r'(?:RankFileError\(|rejected\[|, )"(\w+)"(?:,|\)|\]|:)', source.read_text())
        if f'RankFileError("{reason}"' in source.read_text() or f'rejected["{reason}"]' in source.read_text()
    } - {"boot"}
    alert = next(alert for alert in ALERTS if alert.name == "TrainvitalsRankFilesRejected")

    assert {"unreadable", "owner", "slow", "events", "too_many"} <= found
    for reason in (*found, "duplicate"):
        assert re.search(rf"\b{reason}\b", alert.action), reason
        assert reason in alert.action_zh
