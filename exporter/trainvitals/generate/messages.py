"""The templates of Alertmanager's messages: subject, plain text and HTML, in English and in Chinese.

A message says, for each alert: severity, what, where, since when, evidence, action, runbook; and how to silence it.
The address of Grafana is nobody's but the user's: `trainvitals.dashboard` is empty until a later file defines it.
They use only what Alertmanager 0.25 knows.  `{{ template "trainvitals.text" . }}` names one; `_zh` is appended for
Chinese.
"""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Words:
    """What a message says around the texts of an alert; ``suffix`` is that of the annotations."""

    suffix: str
    firing: str
    resolved: str
    where: str
    since: str
    until: str
    evidence: str
    action: str
    runbook: str
    footer: str
    dashboard: str
    silence: str
    more: str


ENGLISH = Words(
    suffix="",
    firing="FIRING",
    resolved="RESOLVED",
    where="Where",
    since="Since",
    until="Until",
    evidence="Evidence",
    action="What to do",
    runbook="More",
    footer="Sent by Alertmanager",
    dashboard="Dashboard",
    silence="Silence",
    more="and {} more",
)
CHINESE = Words(
    suffix="_zh",
    firing="告警",
    resolved="恢复",
    where="位置",
    since="开始",
    until="结束",
    evidence="证据",
    action="处理",
    runbook="详情",
    footer="由 Alertmanager 发送",
    dashboard="仪表盘",
    silence="静默",
    more="另有 {} 条",
)

_SUBJECT = """\
{{ define "trainvitals.subject@" -}}
[{{ if eq .Status "firing" }}FIRING_{{ else }}RESOLVED_{{ end }}\
{{ with .CommonLabels.severity }} {{ . }}{{ end }}] \
{{ with .CommonAnnotations.summary@ }}{{ . }}{{ else }}\
{{ .GroupLabels.alertname }}{{ with .GroupLabels.run }} {{ . }}{{ end }} ({{ len .Alerts }}){{ end }}
{{- end }}
"""

#: What says where: every label but those that say what.  A scrape job and a name of an alert are no place.
NO_PLACE = ("alertname", "severity", "category", "gauge", "job")
_PLACE = (
    f"{{{{ range (.Labels.Remove (stringSlice {' '.join(map(json.dumps, NO_PLACE))})).SortedPairs }}}}"
    "{{ .Name }}={{ .Value }} {{ else }}-{{ end }}"
)
_TIME = '.Format "2006-01-02 15:04:05 MST"'

_TEXT = """\
{{ define "trainvitals.text.alert@" -}}
{{ if eq .Status "firing" }}FIRING_{{ else }}RESOLVED_{{ end }} {{ .Labels.severity }}: {{ .Annotations.summary@ }}
WHERE_: PLACE
SINCE_: {{ .StartsAt TIME }}{{ if eq .Status "resolved" }}
UNTIL_: {{ .EndsAt TIME }}{{ end }}
EVIDENCE_: {{ .Annotations.description@ }}
{{ if eq .Status "firing" }}ACTION_: {{ .Annotations.action@ }}
{{ end }}RUNBOOK_: RUNBOOK URL{{ template "trainvitals.dashboard@" . }}
{{ end }}
{{ define "trainvitals.text@" -}}
{{ range .Alerts }}{{ template "trainvitals.text.alert@" . }}
{{ end }}-- \n\
SILENCE_: SILENCE URL
FOOTER_ {{ .ExternalURL }}
{{ end }}
"""

#: For chats, which show little: five alerts one by one, as plain text that no chat takes for markup of its own.
_CHAT = """\
{{ define "trainvitals.chat@" -}}
{{ range $index, $alert := .Alerts }}{{ if lt $index 5 }}{{ template "trainvitals.text.alert@" $alert }}
{{ end }}{{ end }}{{ if gt (len .Alerts) 5 }}... ({{ len .Alerts }})
{{ end }}SILENCE_: SILENCE URL
{{- end }}
"""

_HTML = """\
{{ define "trainvitals.html@" -}}
<!DOCTYPE html>
<html><head><meta charset="utf-8"></head>
<body style="font-family:sans-serif;font-size:14px;color:#222;max-width:44em">
{{ range .Alerts -}}
{{ $color := "#2b8a3e" }}{{ if eq .Status "firing" }}{{ $color = "#c92a2a" }}\
{{ if ne .Labels.severity "critical" }}{{ $color = "#b35900" }}{{ end }}{{ end -}}
<div style="border-left:6px solid {{ $color }};padding:2px 12px;margin:0 0 18px">
<p style="margin:4px 0;color:{{ $color }}"><b>\
{{ if eq .Status "firing" }}FIRING_{{ else }}RESOLVED_{{ end }} {{ .Labels.severity }}</b></p>
<p style="margin:4px 0;font-size:17px"><b>{{ .Annotations.summary@ }}</b></p>
<table style="font-size:14px;border-spacing:0">
<tr><td style="padding:2px 12px 2px 0;vertical-align:top">WHERE_</td><td>PLACE</td></tr>
<tr><td style="padding:2px 12px 2px 0;vertical-align:top">SINCE_</td><td>{{ .StartsAt TIME }}</td></tr>
{{ if eq .Status "resolved" }}<tr><td style="padding:2px 12px 2px 0">UNTIL_</td><td>{{ .EndsAt TIME }}</td></tr>
{{ end -}}
<tr><td style="padding:2px 12px 2px 0;vertical-align:top">EVIDENCE_</td><td>{{ .Annotations.description@ }}</td></tr>
{{ if eq .Status "firing" }}<tr><td style="padding:2px 12px 2px 0;vertical-align:top">ACTION_</td>\
<td><b>{{ .Annotations.action@ }}</b></td></tr>
{{ end -}}
</table>
<p style="margin:4px 0"><a href="RUNBOOK URL">RUNBOOK_</a>{{ template "trainvitals.dashboard@" . }}</p>
</div>
{{ end -}}
<p style="color:#888"><a href="SILENCE URL">SILENCE_</a> · FOOTER_ \
<a href="{{ .ExternalURL }}">{{ .ExternalURL }}</a></p>
</body></html>
{{ end }}
"""


#: A page in the language of the message, where there is one.
_RUNBOOK = "{{ or .Annotations.runbook_url@ .Annotations.runbook_url }}"
#: Alertmanager's form with the labels that all alerts of the message have.
_SILENCE = (
    "{{ .ExternalURL }}/#/silences/new?filter=%7B{{ range $place, $label := .CommonLabels.SortedPairs }}"
    "{{ if $place }}%2C{{ end }}{{ .Name }}%3D%22"
    # `urlquery` writes a plus for a blank, which behind a # is a plus.
    '{{ reReplaceAll "[+]" "%20" (urlquery .Value) }}%22{{ end }}%7D'
)
_DASHBOARD = '{{ define "trainvitals.dashboard@" }}{{ end }}\n'


_TEMPLATES = (_DASHBOARD, _SUBJECT, _TEXT, _CHAT, _HTML)


def mail_template() -> str:
    """Return the text of a template file for Alertmanager's `templates`."""
    comment = "{{/* Generated by `trainvitals generate`; changes belong into exporter/trainvitals/generate/. */ -}}\n"
    parts = [_in(template, words) for words in (ENGLISH, CHINESE) for template in _TEMPLATES]
    return comment + "\n".join(parts)


def _in(template: str, words: Words) -> str:
    """Put the words of one language into a template."""
    text = template.replace("RUNBOOK URL", _RUNBOOK).replace("SILENCE URL", _SILENCE)
    text = text.replace("@", words.suffix).replace("PLACE", _PLACE).replace(" TIME", _TIME)
    for name in ("firing", "resolved", "where", "since", "until", "evidence", "action", "runbook", "footer", "silence"):
        text = text.replace(f"{name.upper()}_", getattr(words, name))
    return text
