"""The report as one JSON document.  Numbers that are not finite are null: JSON has no word for them."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from trainvitals._version import __version__
from trainvitals.diagnose.report import Report, RunReport
from trainvitals.diagnose.signals import Signal


def as_json(report: Report) -> str:
    """Return the document."""
    comparison = None if report.comparison is None else asdict(report.comparison)
    document = {
        "version": __version__,
        "runs": [_run(run) for run in report.runs],
        "comparison": _plain(comparison),
        "problems": [{"path": path, "problem": why} for path, why in sorted(report.problems.items())],
    }
    return json.dumps(document, indent=2, allow_nan=False, ensure_ascii=True)


def _run(run: RunReport) -> dict[str, Any]:
    case = run.case
    curves = case.curves
    final = {name: curve.last for name, curve in curves.training.items() if len(curve)}
    final.update({f"{split}/{name}": curve.last for (split, name), curve in curves.results.items()})
    return {
        "run": case.name,
        "source": ", ".join(case.paths),
        "state": run.state.value,
        "steps": case.steps,
        "last_step": None if case.last is None else case.last.step,
        "target_steps": case.identity.target_steps,
        "attempts": case.attempts,
        "framework": case.identity.framework,
        "formats": list(case.formats),
        "files": list(case.paths),
        "final": _plain(final),
        "events": dict(case.kinds),
        "log_errors": dict(case.causes),
        "bad_lines": case.bad,
        "signals": [_signal(row) for row in run.signals],
        "internal_errors": case.complaints,
    }


def _signal(row: Signal) -> dict[str, Any]:
    return {
        "signal": row.signal,
        "title": row.title,
        "question": row.question,
        "category": row.category,
        "state": row.state.value,
        "severity": row.severity,
        "since_step": row.since_step,
        "location": row.location,
        "evidence": row.evidence,
        "action": row.action,
        "over": row.over,
        "gated": row.gated,
        "changes": list(row.changes),
        "confidence": _plain(row.confidence),
        "ratio": _plain(row.ratio),
        "statistics": _plain(dict(row.statistics)),
    }


def _plain(value: Any) -> Any:
    """Return a value as JSON knows it."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): _plain(found) for name, found in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(found) for found in value]
    return value
