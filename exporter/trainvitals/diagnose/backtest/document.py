"""The result as JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from trainvitals._version import __version__
from trainvitals.detect.rules import Rules
from trainvitals.diagnose.backtest.score import Judged, Result, Row, Total


def as_json(result: Result, rules: Rules) -> str:
    """Return the document that docs/backtest.md describes."""
    document = {
        "version": __version__,
        "rules": {
            signal: {
                "enabled": rule.enabled,
                "alarm": rule.alarm,
                **({} if rule.settings is None else dataclasses.asdict(rule.settings)),
            }
            for signal, rule in rules.chosen.items()
        },
        "runs": [_run(row) for row in result.rows],
        "totals": {"rules": _total(result.rules), "defaults": _total(result.defaults)},
        "labelled": result.labelled,
        "not_scored": dict(result.unscored),
        "problems": [{"path": path, "problem": why} for path, why in sorted(result.problems.items())],
    }
    return json.dumps(_finite(document), indent=1, allow_nan=False)


def _run(row: Row) -> dict[str, Any]:
    trial, label = row.trial, row.label
    return {
        "run": trial.name,
        "source": trial.paths[0] if trial.paths else "",
        "steps": trial.span,
        "points": trial.steps,
        "last_step": None if trial.last is None else trial.last.step,
        "labels": None if label is None else [*(["healthy"] * label.healthy), *(e.label for e in label.expected)],
        "internal_errors": trial.complaints,
        "rules": _judged(row.rules),
        "defaults": _judged(row.defaults),
    }


def _judged(judged: Judged) -> dict[str, Any]:
    return {
        "alarms": [alarm._asdict() for alarm in judged.alarms.kept],
        "more": judged.alarms.more,
        "false": judged.false,
        "expected": [
            {
                "label": answer.expected.label,
                "step": answer.expected.step,
                "found_by": None if answer.alarm is None else answer.alarm.signal,
                "found_at": None if answer.alarm is None else answer.alarm.step,
                "delay": answer.delay,
            }
            for answer in judged.answers
        ],
    }


def _total(total: Total) -> dict[str, Any]:
    return {
        "steps": total.steps,
        "alarms": total.alarms,
        "alarms_per_10000_steps": total.rate,
        "runs_with_alarms": total.runs_with_alarms,
        "by_signal": dict(total.by_signal),
        "false": total.false if total.judged_steps else None,
        "false_per_10000_steps": total.false_rate,
        "expected": total.expected,
        "found": total.found,
        "missed": total.missed,
        "median_delay_steps": total.delay,
    }


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, (list, tuple)) else value
