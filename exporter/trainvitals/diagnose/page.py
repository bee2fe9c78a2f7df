"""The report as one HTML page: it needs no network, no script and no font, and is dark where the reader's screen is.

What comes from a log is escaped, and the page forbids itself to load anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from trainvitals._version import __version__
from trainvitals.diagnose.compare import Comparison
from trainvitals.diagnose.curves import Curve
from trainvitals.diagnose.plot import Line, Mark, plot, safe
from trainvitals.diagnose.report import Report, RunReport
from trainvitals.diagnose.signals import Signal, State

_STYLE = """
:root { color-scheme: light dark; --text: #1a1a1a; --dim: #5f6368; --back: #fff; --line: #dadce0;
  --loss: #1a73e8; --validation: #e8710a; --fine: #188038; --watch: #b06000; --act: #c5221f; }
@media (prefers-color-scheme: dark) { :root { --text: #e8eaed; --dim: #9aa0a6; --back: #17181a; --line: #3c4043;
  --loss: #8ab4f8; --validation: #fcad70; --fine: #81c995; --watch: #fdd663; --act: #f28b82; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); max-width: 900px;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2.5rem; overflow-wrap: anywhere; }
p, figcaption, small { color: var(--dim); overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem .35rem 0; border-top: 1px solid var(--line);
  overflow-wrap: anywhere; }
th { color: var(--dim); font-weight: normal; border: 0; }
td:first-child { white-space: nowrap; } td.number { text-align: right; }
.fine { color: var(--fine); } .watch { color: var(--watch); } .act { color: var(--act); font-weight: bold; }
.cannot_say { color: var(--dim); } .action { display: block; }
figure { margin: 1rem 0; } figcaption span { margin-left: .8rem; }
svg { width: 100%; height: auto; } svg text { font-size: 11px; fill: var(--dim); }
svg .end { text-anchor: end; } svg .middle { text-anchor: middle; }
.grid { stroke: var(--line); } .line { fill: none; stroke-width: 1.3; stroke: currentColor; }
.loss { color: var(--loss); } .validation { color: var(--validation); }
.mark { stroke: currentColor; stroke-dasharray: 4 3; } .broken { stroke: var(--act); stroke-width: 2; }
"""
_WORDS = {State.cannot_say: "cannot say"}


def as_html(report: Report) -> str:
    """Return the page."""
    parts = [
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Check-up of {_number(len(report.runs), 'run')}</title><style>{_STYLE}</style></head><body>",
        f"<h1>Check-up of {_number(len(report.runs), 'run')}</h1>",
        *(_summary(report.runs) if len(report.runs) > 1 else ()),
        *([_comparison(report.comparison)] if report.comparison is not None else ()),
        *(_run(number, run) for number, run in enumerate(report.runs)),
        *_problems(report.problems),
        f"<p><small>trainvitals {safe(__version__)}</small></p></body></html>\n",
    ]
    return "\n".join(parts)


def _summary(runs: Sequence[RunReport]) -> Iterator[str]:
    yield "<table><tr><th>state</th><th>run</th><th>findings</th></tr>"
    for number, run in enumerate(runs):
        found = ", ".join(row.signal for row in run.signals if row.is_finding)
        link = f'<a href="#run{number}">{safe(run.case.name)}</a>'
        yield f"<tr>{_state(run.state)}<td>{link}</td><td>{safe(found)}</td></tr>"
    yield "</table>"


def _run(number: int, run: RunReport) -> str:
    case = run.case
    about = [
        _number(case.steps, "step"),
        "" if case.last is None else f"the last {case.last.step:,}",
        "" if case.identity.target_steps is None else f"of {case.identity.target_steps:,} planned",
        ", ".join(case.formats),
        case.identity.framework,
        _number(case.attempts, "attempt") if case.attempts > 1 else "",
        ", ".join(case.paths[:8]) + (f" and {len(case.paths) - 8} more" if len(case.paths) > 8 else ""),
    ]
    rows = "".join(_row(row) for row in run.signals)
    return (
        f'<h2 id="run{number}">{safe(case.name)}</h2><p>{safe("; ".join(part for part in about if part))}</p>'
        "<table><tr><th>state</th><th>signal</th><th>since step</th><th>what is known</th></tr>"
        f"{rows}</table>{''.join(_plots(run))}"
    )


def _row(row: Signal) -> str:
    told = [safe(row.evidence or row.title)]
    if row.is_finding:
        told.append(f"<small>{safe('; '.join(part for part in (row.severity, row.location) if part))}</small>")
    if row.changes:
        told.append(f"<small>before it: {safe('; '.join(row.changes))}</small>")
    if row.gated:
        told.append(f"<small>left out: {safe(row.gated)}</small>")
    if row.action and row.is_finding:
        told.append(f'<b class="action">{safe(row.action)}</b>')
    since = "" if row.since_step is None else f"{row.since_step:,}"
    cells = f'<td>{safe(row.signal)}</td><td class="number">{since}</td><td>{" ".join(told)}</td>'
    return f"<tr>{_state(row.state)}{cells}</tr>"


def _plots(run: RunReport) -> Iterator[str]:
    curves, marks = run.case.curves, _marks(run.signals)
    validation = curves.validation or Curve()
    loss = [Line("training", curves.training["loss"], "loss"), Line("validation", validation, "validation")]
    yield plot("loss", loss, marks)
    for name in ("learning_rate", "grad_norm"):
        yield plot(name.replace("_", " "), [Line("training", curves.training[name], "loss")], marks)


def _marks(rows: Iterable[Signal]) -> list[Mark]:
    return [
        Mark(row.since_step, f"{row.signal} since step {row.since_step:,}: {row.evidence}", row.state.value)
        for row in rows
        if row.is_finding and row.since_step is not None
    ]


def _comparison(found: Comparison) -> str:
    head = "<tr><th>run</th><th>step</th><th>loss</th><th>error</th><th>to the first</th><th>noise</th>"
    head += "<th>validation</th><th>at step</th></tr>"
    rows = []
    for row in found.rows:
        numbers = ["" if value is None else f"{value:.4g}" for value in (row.loss, row.error)]
        difference = "" if row.difference is None else f"{row.difference:+.4g}"
        numbers += [difference, *("" if value is None else f"{value:.4g}" for value in (row.floor, row.validation))]
        at = "" if row.validation_step is None else f"{row.validation_step:,}"
        rows.append(_cells([row.run, f"{row.step:,}", *numbers, at]))
    differences = ""
    if found.differences:
        names = "".join(f"<th>{safe(row.run)}</th>" for row in found.rows)
        lines = "".join(
            _cells([name, *(value or "not known" for value in values)]) for name, values in found.differences
        )
        differences = f"<p>What is known to differ:</p><table><tr><th></th>{names}</tr>{lines}</table>"
    return (
        f"<h2>Compared at {found.at:,.0f} {found.unit}</h2><table>{head}{''.join(rows)}</table>"
        f"{''.join(f'<p><b>{safe(row.verdict)}</b></p>' for row in found.rows if row.verdict)}"
        f"<p>The noise is that {safe(found.noise)}; the error of a loss is that of the noise within its run.</p>"
        f"<p><b>{safe(found.checked)}</b></p>"
        f"{differences}"
    )


def _cells(texts: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<td>{safe(text)}</td>' for text in texts)}</tr>"


def _problems(problems: dict[str, str]) -> Iterator[str]:
    if problems:
        yield "<h2>What could not be read</h2><table>"
        for path, why in sorted(problems.items()):
            yield f"<tr><td>{safe(path)}</td><td>{safe(why)}</td></tr>"
        yield "</table>"


def _state(state: State) -> str:
    return f'<td class="{state.value}">{_WORDS.get(state, state.value)}</td>'


def _number(count: int, name: str) -> str:
    return f"{count:,} {name}{'' if count == 1 else 's'}"
