"""Writing and checking the generated files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trainvitals.generate.alerts import FILES, rule_files
from trainvitals.generate.write import render, rules_for_bundle, write

pytest.importorskip("grafana_foundation_sdk", reason="grafana-foundation-sdk is not installed")

ROOT = Path(__file__).parents[2]


def test_committed_files_are_fresh():
    """What is in the repository is what would be written."""
    assert not write(ROOT, check=True)


def test_writing_twice_changes_nothing(tmp_path):
    """The first call writes every file and says so, the second finds all of them fresh."""
    assert write(tmp_path) == sorted(render())
    assert write(tmp_path) == []
    assert write(tmp_path, check=True) == []


def test_a_check_names_what_is_stale_and_writes_nothing(tmp_path):
    """Changed, missing and superfluous files are stale; a check leaves them as they are."""
    write(tmp_path)
    changed, missing = tmp_path / "alert_rules/data.yml", tmp_path / "docs/metrics.md"
    extra = tmp_path / "dashboards/en/old.json"
    changed.write_text("by hand\n")
    missing.unlink()
    extra.write_text("{}")

    assert ["alert_rules/data.yml", "dashboards/en/old.json", "docs/metrics.md"] == write(tmp_path, check=True)
    assert changed.read_text() == "by hand\n"
    assert not missing.exists()

    assert ["alert_rules/data.yml", "dashboards/en/old.json", "docs/metrics.md"] == write(tmp_path)
    assert not extra.exists()
    assert write(tmp_path, check=True) == []


def test_a_bundle_gets_the_committed_rules():
    """`trainvitals up` runs with the same rules as the repository holds."""
    assert rules_for_bundle() == rule_files()
    assert set(rules_for_bundle()) == {f"{name}.yml" for name in ("recording", *FILES)}
    for name, text in rules_for_bundle().items():
        assert (ROOT / "alert_rules" / name).read_text(encoding="utf-8") == text


def test_rules_and_queries_need_no_library_for_dashboards():
    """A node that runs the bundle does not have grafana-foundation-sdk; writing then names what is missing."""
    program = """
import sys
sys.modules["grafana_foundation_sdk"] = None
from trainvitals.generate.dashboard import queries
from trainvitals.generate.write import rules_for_bundle, write
assert rules_for_bundle() and queries()
try:
    write(".", check=True)
except ModuleNotFoundError as error:
    print(error.name)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.stdout.startswith("grafana_foundation_sdk"), done.stderr
