"""The command ``trainvitals diagnose``.  It imports little: it is to be over before one has looked up."""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import os
import sys
from collections.abc import Iterator, Sequence

from trainvitals import detect
from trainvitals.diagnose.bar import Bar
from trainvitals.diagnose.read import read, save_input, standard_input
from trainvitals.diagnose.report import FAIL_ON, Report, make
from trainvitals.follow.formats import why_unknown

#: Exit statuses: a finding that ``--fail-on`` names, and nothing that could be read.
FOUND, NOTHING = 1, 2


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    described = argparse.ArgumentParser(
        prog="trainvitals diagnose",
        description="Check up on runs by their logs: what is fine, what to watch, what to act on, what cannot be said.",
    )
    described.add_argument(
        "paths", nargs="+", metavar="PATH", help="logs, folders or globs of them; - is standard input"
    )
    described.add_argument("--json", metavar="FILE", help="write JSON to a file, or to standard output with -")
    described.add_argument("--html", metavar="FILE", help="write one page with plots that opens offline")
    described.add_argument("--fail-on", choices=FAIL_ON, help="exit with 1 on such a finding, or a graver one")
    described.add_argument(
        "--format", default="", metavar="NAME", help="format of the logs [default: found by what is in them]"
    )
    return described


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Log nothing, since what is wrong with a log is in the report; and look for no cycles.

    Millions of small objects without a cycle among them: looking for one takes a tenth of the time.
    """
    ours = logging.getLogger("trainvitals")
    level = ours.level
    ours.setLevel(logging.CRITICAL)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        ours.setLevel(level)


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    described = parser()
    options = described.parse_args(arguments)
    if options.format and (why := why_unknown(options.format)):
        print(f"trainvitals diagnose: --format: {why}", file=sys.stderr)
        return NOTHING
    with quiet():
        report = _report(options.paths, options.format)
    if not report.runs:
        print(f"trainvitals diagnose: {_why(report, options.paths)}", file=sys.stderr)
        return NOTHING
    try:
        _write(report, options.json, options.html)
    except OSError as error:
        print(f"trainvitals diagnose: {error}", file=sys.stderr)
        return NOTHING
    return FOUND if options.fail_on and report.fails(options.fail_on) else 0


def _report(paths: Sequence[str], format_name: str) -> Report:
    with contextlib.ExitStack() as stack:
        if "-" in paths:
            import tempfile  # noqa: PLC0415  Few read from there.

            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="trainvitals-"))
            copy = os.path.join(folder, "stdin")
            save_input(standard_input(), copy)
            paths = [copy if path == "-" else path for path in paths]
        bar = stack.enter_context(contextlib.closing(Bar(sys.stderr)))
        return make(read(paths, detect.build, format_name=format_name, progress=bar))


def _write(report: Report, json_path: str | None, html_path: str | None) -> None:
    if html_path is not None:
        from trainvitals.diagnose.page import as_html  # noqa: PLC0415  Most calls want none.

        with open(html_path, "w", encoding="utf-8") as file:
            file.write(as_html(report))
    if json_path is not None:
        from trainvitals.diagnose.document import as_json  # noqa: PLC0415  As above.

        if json_path == "-":
            print(as_json(report))
            return
        with open(json_path, "w", encoding="utf-8") as file:
            file.write(as_json(report) + "\n")
    from trainvitals.diagnose.terminal import show  # noqa: PLC0415  rich takes longer than many a log.

    show(report, sys.stdout)


def _why(report: Report, paths: Sequence[str]) -> str:
    problems = "; ".join(f"{path}: {why}" for path, why in sorted(report.problems.items())[:3])
    return f"nothing that can be read in {', '.join(paths[:5])}" + (f" ({problems})" if problems else "")
