"""Pieces of annotation templates: they look up what changes while an alert is on (ranks, steps, numbers).

`query` runs inside Prometheus when the rule is evaluated, so a text names places without a label that would change
the identity of the alert.  Strings inside are raw (in backquotes), values go in through %q, which PromQL reads alike.
"""

from __future__ import annotations

#: A text lists so many places.
TOP = 8

ON_RANK = "rank {{ .Labels.rank }} on {{ .Labels.instance }}"


def active(signal: str, *, mild: bool = False) -> str:
    """Return the expression of a signal that is on: one alert per run, whatever rank, step or number.

    What the detector itself calls information wakes nobody, unless the alert is ``mild`` as well.
    """
    is_on = f'max by (run) (trainvitals_signal_ratio{{signal="{signal}"}}) >= 1'
    if mild:
        return is_on
    return f"""
    {is_on}
    unless (
      max by (run) (trainvitals_finding_info{{signal="{signal}",severity="info"}})
      unless max by (run) (trainvitals_finding_info{{signal="{signal}",severity!="info"}})
    )
    """


def lookup(expr: str, *labels: str) -> str:
    """Return a pipeline that runs a query; each %q of ``expr`` takes one label of the alert."""
    values = " ".join(f"$labels.{label}" for label in labels)
    return f"printf `{' '.join(expr.split())}` {values} | query"


def listed(expr: str, item: str, *labels: str, by: str = "rank", none: str = "") -> str:
    """Return a template that writes ``item`` for each result, parted by semicolons, at most TOP of them.

    ``by`` is the label that they are sorted by; ``none`` is written when there are none.
    """
    source = lookup(f"topk({TOP}, {expr})", *(labels or ("run",)))
    otherwise = f"{{{{ else }}}}{none}" if none else ""
    return (
        f"{{{{ range $index, $found := {source} | sortByLabel `{by}` }}}}"
        f"{{{{ if $index }}}}; {{{{ end }}}}{item}{otherwise}{{{{ end }}}}"
    )


def findings(signal: str, none: str) -> str:
    """Return a template that writes place and evidence of a signal, as the exporter found them."""
    return listed(
        f'trainvitals_finding_info{{run=%q,signal="{signal}"}}',
        "{{ .Labels.location }} on {{ .Labels.instance }}: {{ .Labels.evidence }}",
        by="location",
        none=none,
    )


#: The ranks on the device with the uuid of the alert.
DEVICE_USERS = listed(
    'trainvitals_rank_info{uuid=%q,uuid!=""}',
    "rank {{ .Labels.rank }} of run {{ .Labels.run }}",
    "uuid",
    none="no rank known",
)


def last_step(before: str = "", after: str = "") -> str:
    """Return a template that writes the number of the run's last step, or nothing."""
    source = lookup("max(trainvitals_step{run=%q})", "run")
    return f'{{{{ range {source} }}}}{before}{{{{ .Value | printf "%.0f" }}}}{after}{{{{ end }}}}'
