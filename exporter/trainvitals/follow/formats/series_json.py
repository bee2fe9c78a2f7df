"""Values of a run as one JSON file: the reference values that Megatron-LM and MindSpeed-LLM keep of their test runs.

Sources: Megatron-LM's golden_values_*.json ({"lm loss": {"start_step": 1, "end_step": 50, "step_interval": 5,
"values": {"1": 10.5, ...}}, "iteration-time": ...}; steps that were not read are "nan") and MindSpeed-LLM's
baselines ({"lm loss": [10.5, ...], "throughput": [...], "memo info": [{...}, ...]}; the first step is 1).  The history
of Keras, saved as JSON ({"loss": [2.3, ...], "val_loss": [...]}), has the same shape.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from trainvitals import names
from trainvitals.follow.base import NO, SURE, FileFormat, Item, Row
from trainvitals.follow.record import number

_LARGEST = 1 << 28
_MARK = re.compile(rb'\A\s*\{\s*"[^"\n]{1,100}"\s*:\s*(?:\[\s*-?\d[\d.eE+-]*\s*[,\]]|\{\s*"start_step"\s*:)')
_KNOWN = re.compile(
    rb'"[^"\n]{0,100}(?:loss|accuracy|iteration-time|time info|throughput|num-zeros|grad)[^"\n]{0,100}"\s*:'
)
_OURS = {"iteration-time": ("step_seconds", 1.0), "time info": ("step_seconds", 1e-3)}


class SeriesJson(FileFormat):
    """See the module."""

    name = "series-json"
    framework = "megatron"

    def sniff(self, head: bytes, path: str) -> int:  # noqa: ARG002
        """Return how sure it is; see :class:`Format`."""
        return SURE if _MARK.search(head) and _KNOWN.search(head) else NO

    def read(self, path: str) -> Iterable[Item]:
        """Return its steps in order.  Raises ValueError for what is no whole file."""
        with open(path, "rb") as file:
            text = file.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise ValueError("more than 256 MiB")
        try:
            series = json.loads(text)
        except RecursionError:
            raise ValueError("nested too deeply") from None
        if not isinstance(series, dict):
            raise ValueError("not an object")  # noqa: TRY004  its contract
        steps: dict[int, dict[str, float]] = {}
        results: dict[tuple[int, str], dict[str, float]] = {}
        for name, data in list(series.items())[:256]:
            ours, factor = _OURS.get(name, (names.ours(name), 1.0))
            result = names.result(name)
            for step, value in _points(data):
                found = number(value)
                # Where a value was not read there stands "nan", in quotes; NaN itself is one.
                if found is None or value == "nan":
                    continue
                if result is not None:
                    results.setdefault((step, result.split), {})[result.name] = found
                else:
                    steps.setdefault(step, {})[ours] = found * factor
        rows = [Row(step, values) for step, values in steps.items()]
        rows += [Row(step, values, split=split) for (step, split), values in results.items()]
        return sorted(rows, key=lambda row: (row.step or 0, row.split))


def _points(data: object) -> Iterable[tuple[int, object]]:
    if isinstance(data, list):
        yield from enumerate(data, start=1)
    elif isinstance(data, dict) and isinstance(data.get("values"), dict):
        for step, value in data["values"].items():
            if step.isdecimal() and len(step) < 19:
                yield int(step), value
