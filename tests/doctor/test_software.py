"""The checks of Python, libraries and programs."""

from __future__ import annotations

import sys
from importlib import metadata

from tests.doctor.helpers import machine, only, outcomes

from trainvitals import __version__
from trainvitals.doctor import software
from trainvitals.doctor.base import Outcome

NEEDS = ["psutil>=6; extra == 'node'", "PyYAML>=6; extra == 'node'", 'pytest>=8; extra == "test"']


def test_versions_are_told(tmp_path):
    """Who asks for help needs them."""
    assert f"Trainvitals {__version__}, Python 3." in only(software.python(machine(tmp_path))).why


def libraries(tmp_path, installed):
    """Return the result when these libraries are installed."""

    def version(name):
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return installed[name]

    return only(software.libraries(machine(tmp_path), lambda _: NEEDS, version))


def test_libraries_are_compared_with_what_is_needed(tmp_path):
    """10 is newer than 6; other extras do not count."""
    assert libraries(tmp_path, {"psutil": "10.0rc1", "PyYAML": "6.0.2"}).why == "psutil 10.0rc1, PyYAML 6.0.2"


def test_missing_and_old_libraries_are_a_problem(tmp_path):
    """With the Python that runs now."""
    result = libraries(tmp_path, {"psutil": "5.9.8"})

    assert result.outcome is Outcome.PROBLEM
    assert result.why == "psutil is 5.9.8, and 6 is needed; PyYAML is missing"
    assert result.action == f"{sys.executable} -m pip install --upgrade 'trainvitals[node]'"


def test_a_package_without_metadata_tells_no_needs(tmp_path):
    """A checkout on PYTHONPATH."""
    result = only(software.libraries(machine(tmp_path), lambda _: None))

    assert result.outcome is Outcome.ABSENT


def programs(tmp_path, found, texts, release=None):
    """Return the results when these programs are on PATH."""
    return list(software.bundle(machine(tmp_path), found.get, lambda path: texts[path], lambda: release or {}))


def test_programs_that_are_missing_are_no_fault(tmp_path):
    """A node that is scraped from elsewhere needs none; on Debian a command brings them."""
    results = programs(tmp_path, {}, {}, {"ID": "debian"})

    assert set(outcomes(results).values()) == {"not here"}
    actions = {result.subject: result.action for result in results}
    assert actions["Prometheus"] == "apt-get install prometheus"
    assert actions["Grafana"] == ""
    elsewhere = programs(tmp_path, {}, {})
    assert "https://prometheus.io/download/" in elsewhere[0].why


def test_versions_of_programs_are_compared(tmp_path):
    """Rules and settings are tested from Prometheus 2.42 on."""
    found = {"prometheus": "/p", "prometheus-alertmanager": "/a", "grafana": "/g"}
    texts = {
        "/p": "prometheus, version 2.9.1 (branch: HEAD)",
        "/a": "alertmanager, version 0.28.1",
        "/g": "what is this",
    }

    results = programs(tmp_path, found, texts)

    assert {"Prometheus": "problem", "Alertmanager": "ok", "Grafana": "ok", "promtool": "not here"} == outcomes(results)
    assert results[0].why == "2.9, /p: older than 2.42, with which the rules are tested"
    assert results[1].why == "0.28, /a"


def test_a_program_that_hangs_or_cannot_run_tells_no_version(tmp_path):
    """It is found all the same."""
    broken = tmp_path / "prometheus"
    broken.write_text("no program")
    broken.chmod(0o755)

    results = software.bundle(machine(tmp_path), lambda name: str(broken) if name == "prometheus" else None)

    assert next(iter(results)).why == str(broken)
