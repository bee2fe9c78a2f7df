"""What trainspotter, runmedic and losslint say of a log: each reads it with its own command, as anyone would.

All that one has to say is read in one process of its own, as it would be lent; a log on which it takes longer than two
minutes counts as not read.
"""

from __future__ import annotations

import contextlib
import io
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any

_LONGEST = 120
#: The arguments of each, before the path and behind it, so that it answers in JSON.
COMMANDS = {
    "trainspotter": (["analyze"], ["--output", "json"]),
    "runmedic": (["diagnose"], ["--json"]),
    "losslint": (["check"], ["--format", "json"]),
}
#: What their findings are about, in the names of the faults of made.py and of the labels of a manifest.
ABOUT = {
    "trainspotter": {
        "divergence": {"divergence", "nan", "val_nan", "collapse"},
        "spikes": {"spike"},
        "overfitting": {"overfit"},
        "plateau": {"stuck"},
        "loss_floor": {"collapse", "stuck"},
        "throughput": {"slow"},
        "grad_norm": {"nan", "divergence"},
    },
    "runmedic": {
        "non_finite": {"nan", "val_nan", "collapse"},
        "divergence": {"divergence", "drift"},
        "loss_spikes": {"spike"},
        "no_learning": {"stuck"},
        "constant_lr_plateau": {"stuck"},
        "overfitting": {"overfit"},
        "grad_spikes": {"spike", "divergence"},
        "slowdown": {"slow"},
        "slow_steps": {"slow"},
    },
    "losslint": {
        "nan_inf": {"nan", "val_nan", "collapse"},
        "loss_spike": {"spike"},
        "divergence": {"divergence", "drift"},
        "overfit_onset": {"overfit"},
        "stagnation": {"stuck"},
    },
}


@dataclass(frozen=True)
class Answer:
    """Whether a log was read, what its findings are about, and whether one of them is a warning or graver."""

    read: bool
    about: frozenset[str]
    warns: bool


def installed() -> dict[str, str]:
    """Return the version of each that is installed."""
    return {name: metadata.version(name) for name in COMMANDS if find_spec(name) is not None}


def ask(name: str, paths: Sequence[str]) -> Iterator[Answer]:
    """Yield what one says of each log, in a process that is started anew where it breaks."""
    left = list(paths)
    while left:
        child = subprocess.Popen(
            [sys.executable, __file__, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert child.stdin is not None
        assert child.stdout is not None
        with child:
            while left:
                try:
                    child.stdin.write(left[0] + "\n")
                    child.stdin.flush()
                    line = child.stdout.readline()
                except BrokenPipeError:
                    line = ""
                left.pop(0)
                if not line:
                    yield Answer(False, frozenset(), False)
                    break
                yield _answer(name, json.loads(line))
            with contextlib.suppress(BrokenPipeError):
                child.stdin.close()


def _answer(name: str, document: Any) -> Answer:
    if document is None:
        return Answer(False, frozenset(), False)
    runs = document if isinstance(document, list) else [document]
    findings = [finding for run in runs for finding in run["findings"]]
    read = any(_points(run) for run in runs)
    key = "detector" if name == "trainspotter" else "check"
    about = {fault for finding in findings for fault in ABOUT[name].get(finding[key], ())}
    grave = {"warning", "error", "critical"}
    warns = any(finding["severity"] in grave and finding[key] != "parse" for finding in findings)
    return Answer(read, frozenset(about), warns)


def _points(run: dict[str, Any]) -> bool:
    """Whether anything was read: points of a series."""
    if "series" in run and isinstance(run["series"], dict):
        return bool(run["series"])
    if "runs" in run and isinstance(run["runs"], list) and run["runs"] and "points" in run["runs"][0]:
        return any(part["points"] for part in run["runs"])
    return any(series["count"] for series in run.get("run", {}).get("metrics", {}).values())


def _alarm(*_: object) -> None:
    raise TimeoutError


def _serve(name: str) -> None:
    """Answer for the paths that come, a line each."""
    main = import_module(f"{name}.cli").main
    before, behind = COMMANDS[name]
    signal.signal(signal.SIGALRM, _alarm)
    for line in sys.stdin:
        out = io.StringIO()
        signal.alarm(_LONGEST)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
                main([*before, line.rstrip("\n"), *behind])
        except SystemExit:
            pass
        except Exception:
            out = io.StringIO()
        finally:
            signal.alarm(0)
        try:
            document = json.loads(out.getvalue())
        except ValueError:
            document = None
        print(json.dumps(document), flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1])
