"""The shape of the project: layers, what a trainer imports, and what must be documented."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_imports_go_downward_only():
    """import-linter keeps the layers of pyproject.toml."""
    pytest.importorskip("importlinter", reason="import-linter is not installed")
    script = "from importlinter.cli import lint_imports_command; lint_imports_command(['--no-cache'])"

    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_a_trainer_imports_nothing_but_the_standard_library():
    """A fresh interpreter that imports trainvitals has loaded only the standard library and our lowest layers."""
    script = "import sys; before = set(sys.modules); import trainvitals; print(*sorted(set(sys.modules) - before))"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    loaded = {name.split(".")[0] for name in done.stdout.split()}
    ours = {name for name in done.stdout.split() if name.startswith("trainvitals")}
    assert loaded - {"trainvitals"} <= set(sys.stdlib_module_names)
    assert ours <= {
        "trainvitals",
        "trainvitals._version",
        "trainvitals.probe",
        "trainvitals.probe.ending",
        "trainvitals.probe.events",
        "trainvitals.probe.identity",
        "trainvitals.probe.phases",
        "trainvitals.probe.quick",
        "trainvitals.probe.ranks",
        "trainvitals.probe.recorder",
        "trainvitals.probe.split",
        "trainvitals.probe.spool",
        "trainvitals.probe.tensors",
        "trainvitals.rankfile",
        "trainvitals.rankfile.layout",
        "trainvitals.rankfile.ledger",
        "trainvitals.rankfile.reader",
        "trainvitals.rankfile.writer",
    }


@pytest.mark.parametrize(
    "name",
    [
        "step",
        "log",
        "phase",
        "evaluate",
        "checkpoint",
        "event",
        "finish",
        "init",
        "auto",
        "data",
        "guarded",
        "resume_path",
        "checkpoints",
        "knob",
        "on_checkpoint",
        "should_stop",
    ],
)
def test_every_call_of_the_probe_is_documented(name):
    """docs/probe.md has a row for each public call."""
    assert f"| `{name}(" in (ROOT / "docs" / "probe.md").read_text()


def test_every_dependency_has_its_line():
    """docs/dependencies.md says of each dependency why it and not another."""
    if sys.version_info < (3, 11):
        pytest.skip("tomllib came with Python 3.11")
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    page = (ROOT / "docs" / "dependencies.md").read_text()

    for requirements in project["optional-dependencies"].values():
        for requirement in requirements:
            name = requirement.split(";")[0].split("=")[0].split(">")[0].split("[")[0].strip()
            assert name in page, name
    assert project["dependencies"] == []


def test_the_readme_names_only_targets_that_exist():
    """`make demo` and `make test` are the two commands of the README."""
    readme = (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()

    for target in ("demo", "test"):
        assert f"make {target} " in readme
        assert f"\n{target}: " in makefile


def test_links_in_the_documentation_lead_somewhere():
    """Every relative link of README and docs names a file that exists."""
    import re

    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.relative_to(ROOT)}: {link}"
