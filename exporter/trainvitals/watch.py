"""The command ``trainvitals follow``: one line per run whenever it has something new, or one summary of all."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections import deque
from typing import TextIO

from trainvitals import detect
from trainvitals.collect.logs import LogsCollector
from trainvitals.collect.rank import Rank
from trainvitals.collect.runs import Runs
from trainvitals.config import Settings
from trainvitals.daemon import Exporter

#: Collectors that have nothing to do with logs.
OTHERS = ("devices", "faults", "host", "processes", "attribution", "storage", "network", "kernel", "journal")
#: The pace is taken over so many lines.
_PACE = 12


def follow(settings: Settings, out: TextIO, *, serve: bool) -> int:
    """Print what is new in the sources of the settings until a signal comes; with ``serve`` also answer scrapes.

    Raises ConfigError.
    """
    screen = Screen(out)
    if serve:
        exporter = Exporter(settings, remembers_logs=False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: exporter.stop())
        print(f"serving {exporter.start()}/metrics", file=out, flush=True)
        exporter.run(after=lambda: screen.show(exporter.runs, exporter.logs))
        return 0
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    logs, runs = LogsCollector.from_settings(settings.sources), Runs(detect.build)
    try:
        while not stop.is_set():
            logs.read()
            runs.update(logs.poll(), time.time())
            screen.show(runs, logs)
            # What was there before is shown at once, and not a slice every few seconds.
            stop.wait(0.05 if logs.is_behind else settings.collect.interval)
    finally:
        logs.stop()
    return 0


def summarize(settings: Settings, out: TextIO) -> int:
    """Read everything that the sources hold now, print a line per run, then what could not be read.

    Returns 0, or 1 where no run was found.  Raises ConfigError.
    """
    logs, runs = LogsCollector.from_settings(settings.sources, is_limited=False), Runs(detect.build)
    logs.read()
    while logs.is_behind:
        runs.update(logs.poll(), time.time())
        logs.read()
    logs.read(final=True)
    runs.update(logs.poll(), time.time())
    screen = Screen(out)
    screen.show(runs, logs, whole=True)
    for path, why in logs.complaints():
        print(printable(f"{path}: {why}"), file=out)
    logs.stop()
    return 0 if runs.by_run() else 1


class Screen:
    """Prints lines about runs, each only when it says something new."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._shown: dict[str, str] = {}
        self._paces: dict[str, deque[tuple[float, int]]] = {}
        self._complaints: set[tuple[str, str]] = set()

    def show(self, runs: Runs, logs: LogsCollector, *, whole: bool = False) -> None:
        """Print what changed since the last time; with ``whole`` more of each run."""
        for run, ranks in sorted(runs.by_run().items()):
            parts = self._line(run, ranks[0], logs.format_of(run))
            if whole:
                parts += _history(ranks[0])
            line = "  ".join(part for part in (" ".join(run.split()), *parts) if part)
            findings = [
                f"    {finding.signal}, {finding.location}: {finding.verdict.evidence}"
                for finding in runs.findings(ranks, time.time())
                if finding.verdict.active
            ]
            text = "\n".join([line, *findings])
            if self._shown.get(run) != text:
                self._shown[run] = text
                print(printable(text), file=self._out, flush=True)
        for complaint in () if whole else logs.complaints():
            if complaint not in self._complaints:
                self._complaints.add(complaint)
                print(printable(": ".join(complaint)), file=self._out, flush=True)

    def _line(self, run: str, rank: Rank, format_name: str) -> list[str]:
        parts = [format_name, rank.state if rank.state != "running" else ""]
        step = rank.last_step
        if step is None:
            return [*parts, "no step yet"]
        target = rank.target_steps
        parts.append(f"step {step.step}/{target}" if target else f"step {step.step}")
        parts += [f"{name} {rank.values[name]:.6g}" for name in ("loss", "grad_norm") if name in rank.values]
        pace = self._paces.setdefault(run, deque(maxlen=_PACE))
        if not pace or pace[-1] != (step.time, step.step):
            if pace and step.step < pace[-1][1]:
                pace.clear()
            pace.append((step.time, step.step))
        seconds, steps = pace[-1][0] - pace[0][0], pace[-1][1] - pace[0][1]
        if seconds > 0 and steps > 0 and rank.up and target and target > step.step:
            parts.append("eta " + duration((target - step.step) * seconds / steps))
        return parts


def _history(rank: Rank) -> list[str]:
    """Return what a summary says beside the last step."""
    parts = [f"{rank.counters.get('steps', 0.0):.0f} steps"]
    if rank.counters.get("nonfinite"):
        parts.append(f"{rank.counters['nonfinite']:.0f} with a loss that is not finite")
    if rank.checkpoints:
        parts.append(f"{rank.checkpoints} checkpoints")
    for split, evaluation in rank.evaluations.items():
        loss = evaluation.values.get("loss")
        if loss is not None:
            parts.append(f"{split} loss {loss:.6g} at {evaluation.step}")
    parts += [f"{cause.replace('_', ' ')} ({count})" for (_, cause), count in rank.log_errors.counts.most_common(4)]
    return parts


def printable(text: str) -> str:
    """Return a text without what would command a terminal or cannot be written: names of files may hold anything."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text)


def duration(seconds: float) -> str:
    """Write seconds as people say them: 42s, 7m, 3h12m, 5d4h."""
    if not math.isfinite(seconds):
        return "unknown"
    minutes, hours = seconds / 60, seconds / 3600
    if minutes < 1:
        return f"{seconds:.0f}s"
    if hours < 1:
        return f"{minutes:.0f}m"
    if hours < 48:
        return f"{int(hours)}h{int(minutes % 60):02d}m"
    return f"{int(hours // 24)}d{int(hours % 24)}h"
