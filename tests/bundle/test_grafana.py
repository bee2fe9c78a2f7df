"""What Grafana would be started with; it is on no machine of the tests."""

from __future__ import annotations

import json

import yaml

from trainvitals.bundle import grafana


def test_the_command_depends_on_the_name_of_the_program(tmp_path):
    """`grafana server` and `grafana-server`, with the home beside a program that was unpacked."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "defaults.ini").write_text("")
    home = f"--homepath={tmp_path}"
    new, old = str(tmp_path / "bin" / "grafana"), str(tmp_path / "bin" / "grafana-server")
    assert grafana.command(new) == [new, "server", home]
    assert grafana.command(old) == [old, home]


def test_it_listens_on_loopback_and_calls_nobody(tmp_path):
    """Everything else that it writes is below its folder."""
    environment = grafana.environment(tmp_path, 3000)
    assert environment["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
    assert environment["GF_SERVER_HTTP_PORT"] == "3000"
    assert environment["GF_ANALYTICS_REPORTING_ENABLED"] == "false"
    paths = {value for name, value in environment.items() if name.startswith("GF_PATHS_")}
    assert all(path.startswith(str(tmp_path)) for path in paths)


def test_data_source_and_dashboards_are_where_it_looks(tmp_path):
    """Each language has a provider whose folder holds its dashboards; the source names Prometheus and its uid."""
    made = {"en/run.json": "{}", "zh/run.json": "{}"}
    grafana.provision(tmp_path, prometheus="http://127.0.0.1:9090", interval="1s", dashboards=made)
    sources = yaml.safe_load((tmp_path / "provisioning/datasources/trainvitals.yml").read_text())["datasources"]
    providers = yaml.safe_load((tmp_path / "provisioning/dashboards/trainvitals.yml").read_text())["providers"]
    assert (sources[0]["uid"], sources[0]["url"]) == ("trainvitals-prometheus", "http://127.0.0.1:9090")
    for provider, language in zip(providers, ("en", "zh"), strict=True):
        assert [path.name for path in (tmp_path / "dashboards" / language).iterdir()] == ["run.json"]
        assert provider["options"]["path"] == str(tmp_path / "dashboards" / language)
    assert ["Trainvitals", "Trainvitals 中文"] == [provider["folder"] for provider in providers]


def test_the_dashboards_are_those_of_the_repository():
    """Each is valid JSON with a title; each language has all six."""
    found = grafana.dashboards()
    names = ("compare", "fleet", "incidents", "node", "run", "self")
    assert sorted(found) == [f"{language}/{name}.json" for language in ("en", "zh") for name in names]
    assert all(json.loads(text)["title"] for text in found.values())
