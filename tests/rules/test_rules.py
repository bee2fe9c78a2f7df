"""Promtool runs the rules against written series: what fires, what stays quiet, what the texts say."""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
import yaml

from trainvitals.generate.alerts import ALERTS, FILES, rule_files

HERE = Path(__file__).parent
#: Files of cases; one is named as the file of rules that it is about, and what follows that.
CASES = tuple(sorted(path.stem for path in HERE.glob("*.yml")))
#: Always on by design.
NEVER_QUIET = {"TrainvitalsWatchdog"}

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


def promtool(*arguments, cwd):
    """Run promtool and return what it said; fail with that when it found something."""
    done = subprocess.run(["promtool", *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rules_in(folder, texts=False):
    """Write all rule files to a folder, by default without annotations, so that wording does not matter."""
    for name, text in (rule_files() if texts else rules_without_texts()).items():
        (folder / name).write_text(text)
    return sorted(rule_files())


def every_rule(document):
    """Return the rules of all groups of a file."""
    return [rule for group in document["groups"] for rule in group["rules"]]


def groups_of(name):
    """Return the groups of a file of rules."""
    return json.loads(rules_without_texts()[name])["groups"]


@cache
def rules_without_texts():
    """Return the rule files without annotations; what is JSON is YAML."""
    documents = {name: yaml.safe_load(text) for name, text in rule_files().items()}
    for document in documents.values():
        for rule in every_rule(document):
            rule.pop("annotations", None)
    return {name: json.dumps(document) for name, document in documents.items()}


def run_cases(folder, document, texts=False):
    """Run a document of promtool's unit tests against all rule files."""
    document["rule_files"] = rules_in(folder, texts)
    order = [group["name"] for name in ("recording", *FILES) for group in groups_of(f"{name}.yml")]
    document["group_eval_order"] = order
    (folder / "cases.yml").write_text(json.dumps(document))
    promtool("test", "rules", "cases.yml", cwd=folder)


def rules_about(document, file):
    """Return one file of rules, as promtool evaluates all that it has: the alerts that the cases ask for.

    Before them, in the same group, stands what is recorded for them.
    """
    asked = {check["alertname"] for case in document["tests"] for check in case.get("alert_rule_test", ())}
    recording, rules = (json.loads(rules_without_texts()[name]) for name in ("recording.yml", file))
    if file != "recording.yml":
        for group in rules["groups"]:
            found = [rule for rule in group["rules"] if rule["alert"] in asked]
            for record in reversed([*every_rule(recording)]):
                if any(record["record"] in rule["expr"] for rule in found):
                    found.insert(0, record)
            group["rules"] = found
        rules["groups"] = [group for group in rules["groups"] if group["rules"]]
    return json.dumps(rules)


def run_against(folder, document, file):
    """Run a document of promtool's unit tests against the alerts of one file that it asks for."""
    document["rule_files"] = [file]
    (folder / file).write_text(rules_about(document, file))
    (folder / "cases.yml").write_text(json.dumps(document))
    promtool("test", "rules", "cases.yml", cwd=folder)


@needs_promtool
@pytest.mark.parametrize("name", CASES)
def test_cases(name, tmp_path):
    """Every case of the file comes out as written."""
    document = yaml.safe_load((HERE / f"{name}.yml").read_text())

    run_against(tmp_path, document, f"{name.split('_')[0]}.yml")


def test_every_alert_has_a_case_that_fires_and_one_that_does_not():
    """No alert is missing among the cases; one that stays quiet has series to be quiet about."""
    fires, quiet = set(), set()
    for name in CASES:
        for case in yaml.safe_load((HERE / f"{name}.yml").read_text())["tests"]:
            for check in case.get("alert_rule_test", ()):
                if check["exp_alerts"]:
                    fires.add(check["alertname"])
                elif case["input_series"]:
                    quiet.add(check["alertname"])
    names = {alert.name for alert in ALERTS}

    assert names == fires
    assert names - NEVER_QUIET == quiet


@needs_promtool
def test_promtool_accepts_the_files(tmp_path):
    """The rule files are valid as they are written, texts included."""
    for name, text in rule_files().items():
        (tmp_path / name).write_text(text)

    assert promtool("check", "rules", "--lint=all", *sorted(rule_files()), cwd=tmp_path).count("SUCCESS") == 6


def life_of_a_run():
    """Return the series of a good run: start, steps, an exporter that restarts, a clean end, oblivion.

    Samples come every 15 seconds; the exporter is away for three of them and has then forgotten the first attempt.
    A value that is repeated is written 0+0x9: promtool reads 0x9 as a hexadecimal number.
    """
    rank = 'job="trainvitals",instance="a:20910",run="demo",rank="0"'
    node = 'job="trainvitals",instance="a:20910"'
    gone, after = "_x2", "stale"
    train = f"_x59 400+13x99 {gone} 1300+13x157 3354x100 {after}"
    series = {
        f"up{{{node}}}": "1x159 0+0x2 1x317",
        f"trainvitals_snapshot_timestamp_seconds{{{node}}}": f"0+15x159 {gone} 2445+15x317",
        f"trainvitals_rank_up{{{rank}}}": f"1x159 {gone} 1x157 0+0x100 {after}",
        f'trainvitals_rank_state{{{rank},state="running"}}': f"1x159 {gone} 1x157 0+0x100 {after}",
        f'trainvitals_rank_state{{{rank},state="finished"}}': f"0+0x159 {gone} 0+0x157 1x100 {after}",
        f'trainvitals_rank_state{{{rank},state="died"}}': f"0+0x159 {gone} 0+0x157 0+0x100 {after}",
        f'trainvitals_rank_state{{{rank},state="failed"}}': f"0+0x159 {gone} 0+0x157 0+0x100 {after}",
        f"trainvitals_start_timestamp_seconds{{{rank}}}": f"-5x159 {gone} -5x257 {after}",
        f"trainvitals_heartbeat_timestamp_seconds{{{rank}}}": f"0+15x159 {gone} 2445+15x157 4815x100 {after}",
        # A quarter of an hour of start (imports, compilation), then 15 steps per scrape.
        f"trainvitals_step{{{rank}}}": f"_x59 0+15x99 {gone} 1545+15x157 3900x100 {after}",
        f"trainvitals_last_step_timestamp_seconds{{{rank}}}": f"_x59 900+15x99 {gone} 2445+15x157 4800x100 {after}",
        f"trainvitals_step_duration_seconds_sum{{{rank}}}": f"_x59 0+15x99 {gone} 1000+15x157 3355x100 {after}",
        f"trainvitals_step_duration_seconds_count{{{rank}}}": f"_x59 0+15x99 {gone} 1000+15x157 3355x100 {after}",
        f"trainvitals_steps_total{{{rank}}}": f"_x59 500+15x99 {gone} 1545+15x157 3900x100 {after}",
        f"trainvitals_target_steps{{{rank}}}": f"9000x159 {gone} 9000x257 {after}",
        f'trainvitals_phase{{{rank},phase="init"}}': "1x58 stale",
        f'trainvitals_phase{{{rank},phase="train"}}': f"_x59 1x99 {gone} 1x157 {after}",
        f'trainvitals_phase_seconds_total{{{rank},phase="train"}}': train,
        f'trainvitals_phase_seconds_total{{{rank},phase="data"}}': f"_x59 400+2x99 {gone} 202+2x157 518x100 {after}",
        f"trainvitals_checkpoint_failures_total{{{rank}}}": f"2x159 {gone} 1x257 {after}",
        f"trainvitals_probe_disabled{{{rank}}}": f"0+0x159 {gone} 0+0x257 {after}",
        f'trainvitals_world_size{{{node},run="demo"}}': f"1x159 {gone} 1x257 {after}",
        f'trainvitals_signal_ratio{{{node},run="demo",signal="loss_nonfinite"}}': f"_x59 0+0x99 {gone} 0+0x257 {after}",
        f'trainvitals_signal_ratio{{{node},run="demo",signal="loss_spike"}}': f"_x99 0.4x59 {gone} 0.7x257 {after}",
        f'trainvitals_collector_success{{{node},collector="ranks"}}': f"1x159 {gone} 1x317",
        f"trainvitals_records_lost_total{{{node}}}": f"3x159 {gone} 0+0x317",
        f'trainvitals_series_dropped_total{{{node},collector="ranks"}}': f"3x159 {gone} 0+0x317",
        f"trainvitals_host_memory_available_bytes{{{node}}}": f"40e9x159 {gone} 40e9x317",
        f"trainvitals_host_memory_total_bytes{{{node}}}": f"100e9x159 {gone} 100e9x317",
        f'trainvitals_device_up{{{node},device="0",uuid="GPU-0"}}': f"1x159 {gone} _x2 1x315",
        f'trainvitals_device_source_up{{{node},vendor="nvidia"}}': f"1x159 {gone} 0+0x2 1x314",
    }
    return [{"series": name, "values": values} for name, values in series.items()]


@needs_promtool
def test_a_good_run_fires_nothing_from_start_to_oblivion(tmp_path):
    """Start, steps, a restart of the exporter, a clean end and the disappearance of all series are no alert."""
    checks = [
        {"alertname": alert.name, "eval_time": f"{minute}m", "exp_alerts": []}
        for alert in ALERTS
        if alert.name not in NEVER_QUIET
        for minute in range(120)
    ]
    case = {"interval": "15s", "input_series": life_of_a_run(), "alert_rule_test": checks}

    run_cases(tmp_path, {"evaluation_interval": "15s", "tests": [case]})


def text_case(alert, minute, series, labels, annotations):
    """Return a case that expects one alert with these texts; action and runbook come from the table."""
    fixed = {"action": alert.action, "action_zh": alert.action_zh, "runbook_url": alert.runbook_url}
    fixed["runbook_url_zh"] = alert.runbook_url_zh
    names = {"severity": alert.severity, "category": alert.category, "gauge": alert.gauge}
    expected = [{"exp_labels": {**names, **labels}, "exp_annotations": {**fixed, **annotations}}]
    return {
        "interval": "15s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [{"alertname": alert.name, "eval_time": minute, "exp_alerts": expected}],
    }


def alert_named(name):
    """Return a row of the table."""
    return next(alert for alert in ALERTS if alert.name == name)


@needs_promtool
def test_the_text_of_a_nonfinite_loss_names_ranks_and_steps_of_every_node(tmp_path):
    """Place and evidence are looked up when the rule is evaluated, and are no labels of the alert."""
    signal = 'job="trainvitals",run="demo \\"x\\"",signal="loss_nonfinite"'
    finding = signal + ',category="parameter"'
    series = {
        f'trainvitals_signal_ratio{{{signal},instance="a:20910"}}': "0+0x4 1x20",
        f'trainvitals_signal_ratio{{{signal},instance="b:20910"}}': "0+0x4 2x20",
        f'trainvitals_finding_info{{{finding},instance="b:20910",location="rank 3",'
        'evidence="since step 701: loss is NaN in 2 steps, last finite loss 0.25 at step 700"}': "_x4 1x20",
        f'trainvitals_finding_info{{{finding},instance="a:20910",location="rank 1",'
        'evidence="since step 700: loss is NaN in 1 step, last finite loss 0.24 at step 699"}': "_x4 1x20",
        'trainvitals_finding_info{job="trainvitals",run="other",signal="loss_nonfinite",category="parameter",'
        'instance="a:20910",location="rank 9",evidence="of another run"}': "1x24",
    }
    found = (
        "rank 1 on a:20910: since step 700: loss is NaN in 1 step, last finite loss 0.24 at step 699; "
        "rank 3 on b:20910: since step 701: loss is NaN in 2 steps, last finite loss 0.25 at step 700"
    )
    annotations = {
        "summary": 'Run demo "x": the loss is NaN or infinite',
        "summary_zh": '训练 demo "x"：损失为 NaN 或无穷大',
        "description": found + ".",
        "description_zh": found + "。",
    }
    case = text_case(alert_named("TrainvitalsLossNonfinite"), "3m", series, {"run": 'demo "x"'}, annotations)

    run_cases(tmp_path, {"evaluation_interval": "15s", "tests": [case]}, texts=True)


@needs_promtool
def test_the_text_of_a_dead_rank_names_ranks_nodes_and_the_last_step(tmp_path):
    """Only the ranks that died are named, and the step comes in full digits."""
    series = {}
    for rank, up in (("2", 0), ("5", 0), ("3", 1)):
        labels = f'job="trainvitals",instance="a:20910",run="demo",rank="{rank}"'
        series[f"trainvitals_rank_up{{{labels}}}"] = f"{up}+0x20"
        series[f'trainvitals_rank_state{{{labels},state="died"}}'] = f"{1 - up}+0x20"
        series[f"trainvitals_start_timestamp_seconds{{{labels}}}"] = "-60x20"
        series[f"trainvitals_heartbeat_timestamp_seconds{{{labels}}}"] = "-10x20"
        series[f"trainvitals_step{{{labels}}}"] = "12345678x20"
    ranks = "rank 2 on a:20910; rank 5 on a:20910"
    annotations = {
        "summary": "Run demo: a training process died",
        "summary_zh": "训练 demo：训练进程异常死亡",
        "description": f"{ranks} (2 in all) ended without a word, the last step of the run was 12345678.",
        "description_zh": f"{ranks}（共 2 个）未正常结束便消失，最后一步为 12345678。",
    }
    case = text_case(alert_named("TrainvitalsRankDied"), "3m", series, {"run": "demo"}, annotations)

    run_cases(tmp_path, {"evaluation_interval": "15s", "tests": [case]}, texts=True)


@needs_promtool
def test_the_text_of_a_device_names_who_uses_it(tmp_path):
    """The rank on a device that fell off the bus is found by the device's uuid; the reason is that of this device."""
    node = 'job="trainvitals",instance="a:20910"'
    series = {
        f'trainvitals_device_up{{{node},device="3",uuid="GPU-3"}}': "0+0x20",
        f'trainvitals_device_down_info{{{node},device="3",uuid="GPU-3",reason="lost"}}': "1x20",
        f'trainvitals_device_down_info{{{node},device="4",uuid="GPU-4",reason="hung"}}': "1x20",
        'trainvitals_rank_info{job="trainvitals",instance="a:20910",run="demo",rank="7",local_rank="3",attempt="0",'
        'uuid="GPU-3"}': "1x20",
    }
    annotations = {
        "summary": "Device 3 on a:20910 does not answer",
        "summary_zh": "a:20910 上的设备 3 无响应",
        "description": "Device 3 (GPU-3) does not answer. Reason: lost. It serves rank 7 of run demo.",
        "description_zh": "设备 3（GPU-3）无响应。原因：lost。使用者：训练 demo 的 rank 7。",
    }
    labels = {"instance": "a:20910", "device": "3", "uuid": "GPU-3"}
    case = text_case(alert_named("TrainvitalsDeviceDown"), "3m", series, labels, annotations)

    run_cases(tmp_path, {"evaluation_interval": "15s", "tests": [case]}, texts=True)


@needs_promtool
def test_the_text_of_missing_devices_names_their_addresses(tmp_path):
    """How many should be here, and where on the bus those are that the driver does not list."""
    node = 'job="trainvitals",instance="a:20910",vendor="nvidia"'
    series = {
        f"trainvitals_devices_expected{{{node}}}": "8x40",
        f"trainvitals_devices_readable{{{node}}}": "6x40",
        f'trainvitals_device_missing_info{{{node},pci_bus_id="0000:5e:00.0"}}': "1x40",
        f'trainvitals_device_missing_info{{{node},pci_bus_id="0000:1a:00.0"}}': "1x40",
    }
    annotations = {
        "summary": "Node a:20910 has fewer nvidia devices than it should",
        "summary_zh": "节点 a:20910 的 nvidia 设备少于应有数量",
        "description": "8 nvidia devices are expected on a:20910, and the driver lists fewer. "
        "Missing on the PCI bus: 0000:1a:00.0; 0000:5e:00.0.",
        "description_zh": "a:20910 上应有 8 个 nvidia 设备，但驱动列出的更少。"
        "PCI 总线上缺少的设备：0000:1a:00.0；0000:5e:00.0。",
    }
    labels = {"instance": "a:20910", "vendor": "nvidia"}
    case = text_case(alert_named("TrainvitalsDevicesMissing"), "6m", series, labels, annotations)

    run_cases(tmp_path, {"evaluation_interval": "15s", "tests": [case]}, texts=True)
