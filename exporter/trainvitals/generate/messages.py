"""The templates of Alertmanager's messages: subject, plain text and HTML, in English and in Chinese.

A message says, for each alert: severity, what, where, since when, evidence, action, runbook; and how to silence it.
The address of Grafana is nobody's but the user's: `trainvitals.dashboard` is empty until a later file defines it.
They use only what Alertmanager 0.25 knows.  `{{ template "trainvitals.text" . }}` names one; `_zh` is appended for
Chinese.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Words:
    """What a message says around the texts of an alert; ``suffix`` is that of the annotations.

    ``severities`` are the words for labels that people would read in another language; ``colon`` stands behind a word.
    """

    suffix: str
    colon: str
    severities: Mapping[str, str]
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
    same: str
    cut: str

    def severity(self, label: str) -> str:
        """Return the word for how grave something is."""
        return self.severities.get(label, label)


ENGLISH = Words(
    suffix="",
    colon=": ",
    severities={},
    firing="FIRING",
    resolved="RESOLVED",
    where="Where",
    since="Since",
    until="Until",
    evidence="Evidence",
    action="What to do",
    runbook="Runbook",
    footer="Sent by Alertmanager",
    dashboard="Dashboard",
    silence="Silence",
    more="and {} more",
    same="as above",
    cut="The first 5 of",
)
CHINESE = Words(
    suffix="_zh",
    colon="：",
    severities={"critical": "严重", "warning": "一般", "info": "提示"},
    firing="告警",
    resolved="恢复",
    where="位置",
    since="开始时间",
    until="结束时间",
    evidence="证据",
    action="处理建议",
    runbook="处理手册",
    footer="由 Alertmanager 发送",
    dashboard="仪表盘",
    silence="静默",
    more="另有 {} 条",
    same="同上",
    cut="仅列出前 5 条，总数",
)

_SUBJECT = """\
{{ define "trainvitals.subject@" -}}
[{{ if eq .Status "firing" }}FIRING_{{ with .CommonLabels.severity }} SEVERITY{{ end }}{{ else }}RESOLVED_{{ end }}] \
{{ with .CommonAnnotations.summary@ }}{{ . }}{{ else }}\
{{ .GroupLabels.alertname }}{{ with .GroupLabels.run }} {{ . }}{{ end }} ({{ len .Alerts }}){{ end }}
{{- end }}
"""

#: What says where: every label but those that say what.  A scrape job and a name of an alert are no place.
NO_PLACE = ("alertname", "severity", "category", "gauge", "job")
_PLACE = (
    f"{{{{ range $at, $label := (.Labels.Remove (stringSlice {' '.join(map(json.dumps, NO_PLACE))})).SortedPairs }}}}"
    "{{ if $at }} {{ end }}{{ .Name }}={{ .Value }}{{ else }}-{{ end }}"
)
#: What stands at the head of an alert; the end of one is not grave.
_STATE = '{{ if eq .Status "firing" }}FIRING_{{ with .Labels.severity }} SEVERITY{{ end }}{{ else }}RESOLVED_{{ end }}'
_TIME = '.Format "2006-01-02 15:04:05 MST"'

_TEXT = """\
{{ define "trainvitals.text.alert@" -}}
STATECOLON_{{ .Annotations.summary@ }}
WHERE_COLON_PLACE
SINCE_COLON_{{ .StartsAt TIME }}{{ if eq .Status "resolved" }}
UNTIL_COLON_{{ .EndsAt TIME }}{{ end }}
EVIDENCE_COLON_{{ .Annotations.description@ }}
{{ if eq .Status "firing" }}ACTION_COLON_{{ .Annotations.action@ }}
{{ end }}RUNBOOK_COLON_RUNBOOK URL{{ template "trainvitals.dashboard@" . }}
{{ end }}
{{ define "trainvitals.text@" -}}
{{ range .Alerts }}{{ template "trainvitals.text.alert@" . }}
{{ end }}-- \n\
{{ if eq .Status "firing" }}SILENCE_COLON_SILENCE URL
{{ end }}FOOTER_ {{ .ExternalURL }}
{{ end }}
"""

#: For chats, which show little: five alerts one by one, as plain text that no chat takes for markup of its own.
_CHAT = """\
{{ define "trainvitals.chat@" -}}
{{ range $index, $alert := .Alerts }}{{ if lt $index 5 }}{{ template "trainvitals.text.alert@" $alert }}
{{ end }}{{ end }}{{ if gt (len .Alerts) 5 }}CUT_ {{ len .Alerts }}
{{ end }}{{ if eq .Status "firing" }}SILENCE_COLON_SILENCE URL{{ end }}
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
<p style="margin:4px 0;color:{{ $color }}"><b>STATE</b></p>
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
<p style="color:#888">{{ if eq .Status "firing" }}<a href="SILENCE URL">SILENCE_</a> · {{ end }}FOOTER_ \
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
    text = template.replace("RUNBOOK URL", _RUNBOOK).replace("SILENCE URL", _SILENCE).replace("STATE", _STATE)
    text = text.replace("@", words.suffix).replace("PLACE", _PLACE).replace(" TIME", _TIME)
    text = text.replace("SEVERITY", _severity(words))
    for name in ("firing", "resolved", "where", "since", "until", "evidence", "action", "runbook", "footer", "silence"):
        text = text.replace(f"{name.upper()}_", getattr(words, name))
    return text.replace("CUT_", words.cut).replace("COLON_", words.colon)


def _severity(words: Words) -> str:
    """Return a template that writes the word for the severity that the dot is."""
    cases = "".join(f'{{{{ if eq . "{label}" }}}}{word}{{{{ else }}}}' for label, word in words.severities.items())
    return cases + "{{ . }}" + "{{ end }}" * len(words.severities)
