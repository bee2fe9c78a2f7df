"""The landing page: what this is, where the metrics are, and which runs are on this node."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from trainvitals._version import __version__

#: The page loads nothing: no script, no font, no picture.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


class RunRow(NamedTuple):
    """One line of the table of runs."""

    run: str
    #: running, finished, silent, failed or died.
    state: str
    #: The last optimizer step; None before the first.
    step: int | None
    #: Ranks on this node.
    ranks: int


#: Relative, so that they hold behind a proxy that adds a prefix.
_LINKS = (
    ("metrics", "Metrics", "for Prometheus"),
    ("-/healthy", "Healthy", "answers while the process lives"),
    ("-/ready", "Ready", "answers once there are values"),
)

_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>Trainvitals</title>
<style>
:root { --ink: #1c2330; --dim: #5b6472; --line: #d9dde3; --back: #ffffff; --link: #0b57c4; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ee; --dim: #9aa4b2; --line: #343b46; --back: #14181f; --link: #86b4ff; }
}
body { margin: 0 auto; max-width: 44rem; padding: 1.5rem 1rem; color: var(--ink); background: var(--back);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { margin: 0; font-size: 1.5rem; }
h2 { margin: 2rem 0 .5rem; font-size: 1.1rem; }
p, small { color: var(--dim); }
a { color: var(--link); }
ul { padding-left: 1.2rem; }
div { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; }
th, td { padding: .4rem .6rem .4rem 0; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; }
th { font-weight: 600; color: var(--dim); }
td:first-child { overflow-wrap: anywhere; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
</style>
</head>
<body>
"""


def render(rows: Sequence[RunRow]) -> str:
    """Return the page.  Every text that comes from a run is escaped."""
    links = "".join(f'<li><a href="{path}">{name}</a> <small>{text}</small></li>\n' for path, name, text in _LINKS)
    return (
        f"{_HEAD}<h1>Trainvitals</h1>\n"
        f"<p>The vital signs of the training runs on this node. Version {escape(__version__)}.</p>\n"
        f"<ul>\n{links}</ul>\n<h2>Runs on this node</h2>\n{_table(rows)}</body>\n</html>\n"
    )


def _table(rows: Sequence[RunRow]) -> str:
    if not rows:
        return "<p>None yet. A training that calls <code>trainvitals.init()</code> appears here by itself.</p>\n"
    lines = "".join(
        f"<tr><td>{escape(row.run)}</td><td>{escape(row.state)}</td>"
        f'<td class="number">{"" if row.step is None else f"{row.step:,}"}</td>'
        f'<td class="number">{row.ranks}</td></tr>\n'
        for row in rows
    )
    return (
        '<div><table>\n<tr><th scope="col">Run</th><th scope="col">State</th>'
        '<th scope="col" class="number">Last step</th><th scope="col" class="number">Ranks</th></tr>\n'
        f"{lines}</table></div>\n"
    )
