"""The command ``trainvitals backtest``."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence

from trainvitals.config import ConfigError, Settings, read_sections
from trainvitals.detect import rules as table
from trainvitals.detect.rules import Rules, RulesError
from trainvitals.diagnose.backtest.labels import LabelError, Labels
from trainvitals.diagnose.backtest.labels import read as read_labels
from trainvitals.diagnose.backtest.score import Result, score
from trainvitals.diagnose.backtest.trial import Trial, build
from trainvitals.diagnose.bar import Bar
from trainvitals.diagnose.command import quiet
from trainvitals.diagnose.read import read
from trainvitals.follow.formats import why_unknown

#: Exit statuses: more alarms or misses than somebody set, and what could not be read or makes no sense.
ABOVE, NOTHING = 1, 2
#: In place of a file of rules.
DEFAULTS = "defaults"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    described = argparse.ArgumentParser(
        prog="trainvitals backtest",
        description="Say what rules would have said on runs of the past, and when, beside what the defaults say.",
    )
    described.add_argument(
        "rules", nargs="?", metavar="RULES", help='a settings file with "detectors:", or the word defaults'
    )
    described.add_argument("paths", nargs="*", metavar="PATH", help="logs, folders or globs of them")
    described.add_argument("--defaults", action="store_true", help="print all settings with their defaults, and end")
    described.add_argument("--labels", metavar="FILE", help="what is known of the runs: path, label, step; with tabs")
    described.add_argument("--json", metavar="FILE", help="write JSON to a file, or to standard output with -")
    described.add_argument(
        "--format", default="", metavar="NAME", help="format of the logs [default: found by what is in them]"
    )
    described.add_argument(
        "--fail-on-alarms-above",
        type=float,
        metavar="N",
        help="exit with 1 on more alarms in 10,000 steps; with labels, on more false ones",
    )
    described.add_argument(
        "--fail-on-missed-above", type=int, metavar="N", help="exit with 1 when more labelled events were missed"
    )
    return described


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    described = parser()
    options = described.parse_args(arguments)
    if options.defaults:
        print(table.as_yaml(), end="")
        return 0
    if options.rules is None or not options.paths:
        described.error("expected a file of rules, and logs (--defaults prints a file to begin with)")
    if options.fail_on_missed_above is not None and not options.labels:
        described.error("--fail-on-missed-above: only labels tell what was missed")
    try:
        result, rules = _run(options)
        if not result.rows:
            raise ConfigError(_why(result, options.paths))
        _write(result, rules, options.json)
    except (ConfigError, RulesError, LabelError, OSError) as error:
        print(f"trainvitals backtest: {error}", file=sys.stderr)
        return NOTHING
    return ABOVE if _is_above(result, options.fail_on_alarms_above, options.fail_on_missed_above) else 0


def _run(options: argparse.Namespace) -> tuple[Result, Rules]:
    if options.format and (why := why_unknown(options.format)):
        raise ConfigError(f"--format: {why}")
    rules = load(options.rules)
    labels = read_labels(options.labels) if options.labels else Labels()
    with contextlib.closing(Bar(sys.stderr)) as bar, quiet():
        reading = read(
            options.paths,
            build,
            format_name=options.format,
            progress=bar,
            make=lambda name: Trial(name, build, rules=rules),
        )
        return score(reading, labels), rules


def load(path: str) -> Rules:
    """Return the rules of a settings file; other sections of the exporter may be in it.  Raises what names the file."""
    if path == DEFAULTS and not os.path.lexists(path):
        return Rules()
    document = read_sections(path, "detectors:")
    for section in document:
        if section not in Settings.model_fields:
            is_signal = section in table.known()
            why = f"{section} belongs below detectors:" if is_signal else table.unknown(section, Settings.model_fields)
            raise ConfigError(f"{path}: {why}")
    if "detectors" not in document:
        raise ConfigError(f"{path}: expected a section detectors: (trainvitals backtest --defaults prints one)")
    try:
        return table.parse(document["detectors"])
    except RulesError as error:
        raise ConfigError(f"{path}: {error}") from None


def _write(result: Result, rules: Rules, path: str | None) -> None:
    if path is not None:
        from trainvitals.diagnose.backtest.document import as_json  # noqa: PLC0415  Most calls want none.

        if path == "-":
            print(as_json(result, rules))
            return
        with open(path, "w", encoding="utf-8") as file:
            file.write(as_json(result, rules) + "\n")
    from trainvitals.diagnose.backtest.terminal import show  # noqa: PLC0415  rich takes longer than many a log.

    show(result, sys.stdout)


def _is_above(result: Result, most_alarms: float | None, most_missed: int | None) -> bool:
    total = result.rules
    rate = total.rate if total.false_rate is None else total.false_rate
    return (most_alarms is not None and rate > most_alarms) or (most_missed is not None and total.missed > most_missed)


def _why(result: Result, paths: Sequence[str]) -> str:
    problems = "; ".join(f"{path}: {why}" for path, why in sorted(result.problems.items())[:3])
    return f"no run with steps in {', '.join(paths[:5])}" + (f" ({problems})" if problems else "")
