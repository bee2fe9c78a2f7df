"""Pieces of expressions and of texts about hardware, which rows of several files share."""

from __future__ import annotations

from trainvitals.generate.limits import LIMITS, Limit
from trainvitals.generate.texts import DEVICE_USERS, listed

#: What identifies a device, and a device in a text of an alert that has these labels.
DEVICES = "max by (instance, device, uuid)"
DEVICE = "device {{ $labels.device }} ({{ $labels.uuid }}) on {{ $labels.instance }}"
DEVICE_ZH = "{{ $labels.instance }} 上的设备 {{ $labels.device }}（{{ $labels.uuid }}）"

#: What a list of an English text says, and what one of a Chinese text says instead.
_CHINESE = {
    "{{ else }}no rank known{{ end }}": "{{ else }}未知{{ end }}",
    "{{ else }}none known{{ end }}": "{{ else }}未知{{ end }}",
    "{{ else }}not known{{ end }}": "{{ else }}未知{{ end }}",
    "{{ else }}unknown{{ end }}": "{{ else }}未知{{ end }}",
    "{{ else }}no address known{{ end }}": "{{ else }}地址未知{{ end }}",
    "{{ else }}not told{{ end }}": "{{ else }}未说明{{ end }}",
    "{{ else }}none of late{{ end }}": "{{ else }}最近没有{{ end }}",
    "{{ else }}none{{ end }}": "{{ else }}无{{ end }}",
    "{{ else }}the kernel tells nothing{{ end }}": "{{ else }}无{{ end }}",
    "rank {{ .Labels.rank }} of run {{ .Labels.run }}": "训练 {{ .Labels.run }} 的 rank {{ .Labels.rank }}",
    "rank {{ .Labels.rank }} on {{ .Labels.instance }}: ": "{{ .Labels.instance }} 上的 rank {{ .Labels.rank }}：",
    "(device {{ .Labels.device }})": "（设备 {{ .Labels.device }}）",
    "device {{ .Labels.device }}": "设备 {{ .Labels.device }}",
    "link {{ .Labels.link }}": "链路 {{ .Labels.link }}",
    " on link {{ . }}": "（链路 {{ . }}）",
    "{{ if $index }}; {{ end }}": "{{ if $index }}；{{ end }}",
    '"offset"': '"偏差"',
    '"largest error"': '"最大误差"',
}


def chinese(template: str) -> str:
    """Return a list of a text (:func:`~trainvitals.generate.texts.listed`) with Chinese words around what it lists."""
    for english, words in _CHINESE.items():
        template = template.replace(english, words)
    return template


DEVICE_USERS_ZH = chinese(DEVICE_USERS)

#: Within this span errors of network links are counted.
ERRORS_WINDOW = f"{LIMITS.link_errors_window:duration}"


def settled(seconds: int | Limit) -> str:
    """Return what follows a rule about links: while they are trained after a boot, they go down and have errors.

    By a boot within so many ``seconds``, and not by counters that began anew: that would read twice as much.
    """
    return (
        "unless on (instance)\n"
        "trainvitals_snapshot_timestamp_seconds - on (job, instance) trainvitals_host_boot_timestamp_seconds\n"
        f"  < {seconds}"
    )


def age(timestamps: str) -> str:
    """Return the seconds since points in time that an exporter shows.

    Both times come from the node's clock, so the clock of Prometheus does not matter.
    """
    return f"trainvitals_snapshot_timestamp_seconds - on (job, instance) group_right ()\n  {timestamps}"


def recent(labels: str, timestamps: str, window: Limit) -> str:
    """Return the seconds since the last of some events, by labels, while that is less than ``window``.

    By the time of the event: its counter is above 0 already when the exporter comes, or has no series before.
    """
    return f"min by ({labels}) (\n  {age(timestamps)}\n) < {window}"


def rising(family: str, *labels: str) -> str:
    """Return a template that writes which kinds of errors of the alert's link there were of late."""
    matchers = ",".join(f"{label}=%q" for label in labels)
    return listed(
        f"increase({family}{{{matchers}}}[{ERRORS_WINDOW}]) > 0",
        '{{ .Labels.kind }} {{ .Value | printf "%.0f" }}',
        *labels,
        by="kind",
        none="none of late",
    )
