"""What Prometheus knows of the runs just now, for the terminal: the four gauges and a few numbers beside them."""

from __future__ import annotations

import json
import urllib.parse
from dataclasses import dataclass, field
from typing import Any

from trainvitals.bundle.process import get

GAUGES = ("progress", "learning", "efficiency", "health")
_QUERY = (
    '{__name__=~"run:trainvitals_(progress|learning|efficiency|health):ratio|run:trainvitals_remaining:seconds'
    '|trainvitals_(step|target_steps|loss|learning_rate)"}'
    ' or ALERTS{alertstate="firing",alertname!="TrainvitalsWatchdog"}'
)


@dataclass
class Vitals:
    """One run.  ``gauges`` holds ratios by name; what is not known is not there."""

    run: str
    gauges: dict[str, float] = field(default_factory=dict)
    #: By metric name without the prefix: step, target_steps, loss, learning_rate, remaining; of the lowest rank.
    numbers: dict[str, float] = field(default_factory=dict)
    alerts: list[str] = field(default_factory=list)


def read(prometheus: str) -> list[Vitals]:
    """Return the runs by name; ``prometheus`` is a URL.  Raises OSError or ValueError when there is no answer."""
    url = f"{prometheus}/api/v1/query?" + urllib.parse.urlencode({"query": _QUERY})
    return parse(json.loads(get(url))["data"]["result"])


def parse(result: list[dict[str, Any]]) -> list[Vitals]:
    """Return the runs in the result of an instant query."""
    runs: dict[str, Vitals] = {}
    for series in sorted(result, key=lambda series: int(series["metric"].get("rank", 0)), reverse=True):
        labels, value = series["metric"], float(series["value"][1])
        if "run" not in labels:
            continue
        vitals = runs.setdefault(labels["run"], Vitals(labels["run"]))
        name = labels.get("__name__", "").removeprefix("run:").removeprefix("trainvitals_").partition(":")[0]
        if name == "ALERTS":
            vitals.alerts.append(labels["alertname"])
        elif name in GAUGES:
            vitals.gauges[name] = value
        else:
            vitals.numbers[name] = value
    return [runs[name] for name in sorted(runs) if runs[name].gauges or runs[name].numbers]
