"""Renders every generated file, and writes or checks them."""

from __future__ import annotations

from pathlib import Path

from trainvitals.generate.alerts import rule_files
from trainvitals.generate.docs import metrics_page
from trainvitals.generate.messages import mail_template
from trainvitals.generate.passthrough import passthrough_files
from trainvitals.generate.passthrough.page import passthrough_page
from trainvitals.generate.runbooks import runbooks
from trainvitals.generate.threshold_file import template
from trainvitals.generate.thresholds import Thresholds

#: Folders that hold generated files and nothing else: what is in them and is not rendered is stale.
_OWNED = (
    ("alert_rules", "*.yml"),
    ("dashboards", "**/*.json"),
    ("deploy/prometheus/passthrough", "*.yml"),
    ("docs/runbooks", "**/*.md"),
)


def rules_for_bundle() -> dict[str, str]:
    """Return the rule files by name, for a Prometheus that is started from here."""
    return rule_files()


def render() -> dict[str, str]:
    """Return every generated file by its path below the root of the repository.

    Raises ModuleNotFoundError without the library that builds dashboards.
    """
    from trainvitals.generate.dashboard import dashboards  # noqa: PLC0415  needs a library that a node does not have

    files = {f"alert_rules/{name}": text for name, text in rule_files().items()}
    files |= {f"dashboards/{name}": text for name, text in dashboards().items()}
    files["deploy/alertmanager/templates/trainvitals.tmpl"] = mail_template()
    files["deploy/prometheus/thresholds.yml"] = template()
    files |= {f"deploy/prometheus/passthrough/{name}": text for name, text in passthrough_files().items()}
    files["docs/metrics.md"] = metrics_page()
    files["docs/passthrough.md"] = passthrough_page()
    files |= {f"docs/{path}": text for path, text in runbooks().items()}
    return files


def write(root: Path | str, check: bool = False) -> list[str]:
    """Write what is stale and return its paths, sorted; with ``check``, write nothing.

    A file in a folder of generated files that nothing generates any more is stale too, and is removed.
    """
    base = Path(root)
    files = render()
    stale = [path for path, text in files.items() if _read(base / path) != text]
    extra = [
        path
        for folder, pattern in _OWNED
        for file in (base / folder).glob(pattern)
        if (path := file.relative_to(base).as_posix()) not in files
    ]
    if not check:
        _write(base, {path: files[path] for path in stale})
        for path in extra:
            (base / path).unlink()
    return sorted(stale + extra)


def write_rules(folder: Path | str, thresholds: Thresholds, check: bool = False) -> list[str]:
    """Write the rule files with some thresholds into a folder and return those that were stale, sorted.

    Other files there are left alone; with ``check``, nothing is written.
    """
    base = Path(folder)
    stale = {name: text for name, text in rule_files(thresholds).items() if _read(base / name) != text}
    if not check:
        _write(base, stale)
    return sorted(stale)


def _write(base: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (base / path).parent.mkdir(parents=True, exist_ok=True)
        (base / path).write_text(text, encoding="utf-8")


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
