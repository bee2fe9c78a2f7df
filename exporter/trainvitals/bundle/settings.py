"""The settings of Prometheus and Alertmanager on loopback, written anew into the data folder at every start.

Only what Prometheus 2.42 and 3.x, Alertmanager 0.25 and 0.3x read alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trainvitals.bundle.sinks import STATUS_HEADER
from trainvitals.generate.inhibitions import inhibit_rules
from trainvitals.generate.rules import JOB
from trainvitals.generate.write import rules_for_bundle


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How often things are looked at and how long messages wait, as Prometheus writes durations."""

    #: Of scrapes and of rules.
    interval: str
    #: Before the first message of a group, and between its messages.
    group_wait: str
    group_interval: str
    #: Replaces how long an alert is held after its cause has gone; None keeps what the rules say.
    keep_firing_for: str | None = None


#: On one machine a scrape costs next to nothing.
USUAL = Pace(interval="5s", group_wait="5s", group_interval="30s")
#: Somebody is watching and waiting.
DEMO = Pace(interval="1s", group_wait="1s", group_interval="5s", keep_firing_for="15s")


def rules(pace: Pace) -> dict[str, str]:
    """Return the rule files by name, all at this pace: what a fleet evaluates seldom costs nothing on one machine."""
    return {name: _at(text, pace) for name, text in rules_for_bundle().items()}


def _at(text: str, pace: Pace) -> str:
    document = yaml.safe_load(text)
    for group in document["groups"]:
        group.pop("interval", None)
        for rule in group["rules"]:
            if "keep_firing_for" in rule and pace.keep_firing_for is not None:
                rule["keep_firing_for"] = pace.keep_firing_for
    return _yaml(document)


def prometheus(pace: Pace, *, exporter: str, alertmanager: str | None, rules: Path) -> str:
    """Return prometheus.yml; addresses are host and port, ``rules`` is the folder of the rule files."""
    document: dict[str, Any] = {
        "global": {"scrape_interval": pace.interval, "evaluation_interval": pace.interval},
        "rule_files": [f"{rules}/*.yml"],
        "scrape_configs": [{"job_name": JOB, "static_configs": [{"targets": [exporter]}]}],
    }
    if alertmanager is not None:
        document["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]}
    return _yaml(document)


def alertmanager(pace: Pace, *, webhook: str, mail: str | None, templates: Path, robots: Sequence[str] = ()) -> str:
    """Return alertmanager.yml.

    Every alert goes to the webhook and, with ``mail`` (host and port), by mail too; to the webhooks of ``robots`` goes
    what is more than information.
    """
    terminal: dict[str, Any] = {"name": "terminal", "webhook_configs": [{"url": webhook, "send_resolved": True}]}
    people = {"name": "robots", "webhook_configs": [{"url": url, "send_resolved": True} for url in robots]}
    to_robots = {"receiver": "robots", "matchers": ['severity!="info"'], "continue": True}
    if mail is not None:
        terminal["email_configs"] = [
            {
                "to": "you@localhost",
                "from": "trainvitals@localhost",
                "smarthost": mail,
                "require_tls": False,
                "send_resolved": True,
                "headers": {"Subject": '{{ template "trainvitals.subject" . }}', STATUS_HEADER: "{{ .Status }}"},
                "text": '{{ template "trainvitals.text" . }}',
                "html": '{{ template "trainvitals.html" . }}',
            }
        ]
    return _yaml(
        {
            "templates": [f"{templates}/*.tmpl"],
            "route": {
                "receiver": "terminal",
                # One message for each thing that goes wrong with a run, whatever the number of its ranks.
                "group_by": ["alertname", "run"],
                "group_wait": pace.group_wait,
                "group_interval": pace.group_interval,
                "repeat_interval": "4h",
                # Always on, to prove that alerts arrive; whoever looks at this terminal sees that anyway.
                "routes": [
                    {"receiver": "nobody", "matchers": ['alertname="TrainvitalsWatchdog"']},
                    *([to_robots, {"receiver": "terminal"}] if robots else []),
                ],
            },
            "inhibit_rules": inhibit_rules(),
            "receivers": [terminal, {"name": "nobody"}, *([people] if robots else [])],
        }
    )


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write files into a folder and remove others of their kind that an earlier start left there."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        if old.name not in files and old.suffix in {Path(name).suffix for name in files}:
            old.unlink()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def _yaml(document: dict[str, Any]) -> str:
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
