"""From a group of alerts to notes of a size that a channel takes.

What comes from labels and annotations is foreign text: it may not make links, mentions or markup of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import Literal
from urllib.parse import quote, urlencode

from trainvitals.generate.messages import CHINESE, ENGLISH, Words
from trainvitals.notify.channels.base import Block, Note
from trainvitals.notify.group import Alert, Group

Language = Literal["en", "zh", "both"]

#: So many alerts stand in a message, one by one.
SHOWN = 10
#: A text longer than this is cut; so is one that alone would be too long for a channel.
_LONGEST = 2000
_WORDS: dict[Language, tuple[Words, ...]] = {"en": (ENGLISH,), "zh": (CHINESE,), "both": (CHINESE, ENGLISH)}
_GRAVITY = {"critical": 0, "warning": 1, "info": 2}
#: What would be markup in one robot or another; ways to write them as themselves differ.
_MARKUP = str.maketrans({"[": "［", "]": "］", "<": "＜", ">": "＞", "`": "'", "*": "＊", "\u2028": " ", "\u2029": " "})
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]+")


@dataclass(frozen=True)
class Style:
    """How a receiver wants its messages.

    ``dashboards`` is the address of Grafana, empty where there is none.  ``zone`` is that of times; None: of this
    machine.
    """

    language: Language = "en"
    dashboards: str = ""
    zone: tzinfo | None = None


def notes(group: Group, style: Style, write: Callable[[Note], str], limit: int) -> list[tuple[Note, str]]:
    """Return a group as notes with their texts, each of at most ``limit`` bytes as ``write`` puts it."""
    words = _WORDS[style.language]
    alerts = sorted(group.alerts, key=lambda alert: (alert.status, _GRAVITY.get(alert.severity, 3), alert.place))
    blocks = [
        _block(alert, group, style, words, alone=len(alerts) == 1, before=before)
        for alert, before in zip(alerts[:SHOWN], (None, *alerts), strict=False)
    ]
    left = len(alerts) - len(blocks) + group.truncated
    whole = Note(
        title=_title(group, alerts, words),
        level=_level(group, alerts),
        footer=" / ".join(word.more.format(left) for word in words) if left else "",
    )
    found = [(note, write(note)) for note in _parts(whole, blocks, write, limit - 16)]
    if len(found) == 1:
        return found
    numbered = [replace(note, title=f"{note.title} ({n}/{len(found)})") for n, (note, _) in enumerate(found, 1)]
    return [(note, write(note)) for note in numbered]


def _parts(whole: Note, blocks: Sequence[Block], write: Callable[[Note], str], limit: int) -> list[Note]:
    """Return the blocks in as few notes as they fit into; the footer stands under the last."""
    found = [replace(whole, footer="")]
    for block in blocks:
        longer = replace(found[-1], blocks=(*found[-1].blocks, block))
        if _size(write(longer)) <= limit:
            found[-1] = longer
            continue
        alone = replace(whole, footer="", blocks=(block,))
        cut = _LONGEST
        while _size(write(alone)) > limit and cut > 40:
            cut = cut // 2
            alone = replace(alone, blocks=(_shorter(block, cut),))
        if found[-1].blocks:
            found.append(alone)
        else:
            found[-1] = alone
    if whole.footer:
        last = replace(found[-1], footer=whole.footer)
        if _size(write(last)) <= limit:
            found[-1] = last
        else:
            found.append(whole)
    return found


def _size(text: str) -> int:
    return len(text.encode())


def _shorter(block: Block, length: int) -> Block:
    fields = tuple((name, _cut(text, length)) for name, text in block.fields)
    links = tuple((text, address) for text, address in block.links if len(address) <= length)
    return Block(_cut(block.heading, length), fields, links)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def clean(text: str) -> str:
    """Return a foreign text on one line, that means nothing but itself in any robot's markup."""
    return _cut(_CONTROLS.sub(" ", text).replace("->", "→").translate(_MARKUP).strip(), _LONGEST)


def _level(group: Group, alerts: Sequence[Alert]) -> str:
    if group.status == "resolved":
        return "resolved"
    firing = [alert.severity for alert in alerts if alert.status == "firing"]
    return next((level for level in ("critical", "warning") if level in firing), "info")


def _title(group: Group, alerts: Sequence[Alert], words: Sequence[Words]) -> str:
    firing = [alert for alert in alerts if alert.status == "firing"]
    counted = firing or list(alerts)
    said = [dict.fromkeys(_text(alert, "summary", word) or alert.name for alert in counted) for word in words]
    # Alerts of one group may differ in what they say; then their common name does.
    names = [next(iter(texts)) if len(texts) == 1 else counted[0].name for texts in said]
    state = _state(counted[0], words, len(counted) + group.truncated)
    return _cut(f"{state} {clean(' / '.join(dict.fromkeys(names)))}", 300)


def _state(alert: Alert, words: Sequence[Words], number: int = 1) -> str:
    """Return what stands at the head: that it began, how grave it is and for how many; or that it is over."""
    count = f":{number}" if number > 1 else ""
    if alert.status != "firing":
        return f"[{_named(words, 'resolved')}{count}]"
    severity = " ".join(dict.fromkeys(clean(word.severity(alert.severity)) for word in words))
    return f"[{_named(words, 'firing')}{count}{' ' * bool(severity)}{severity}]"


def _named(words: Sequence[Words], field: str) -> str:
    return " ".join(getattr(word, field) for word in words)


def _text(alert: Alert, name: str, words: Words) -> str:
    """Return an annotation in a language; where it has none in Chinese, the English one."""
    return alert.annotations.get(name + words.suffix) or alert.annotations.get(name, "")


def _block(
    alert: Alert, group: Group, style: Style, words: Sequence[Words], *, alone: bool, before: Alert | None
) -> Block:
    """Return an alert: without a heading when it is ``alone``, for the title says it; no action twice in a row."""
    is_firing = alert.status == "firing"
    heading = " / ".join(dict.fromkeys(clean(_text(alert, "summary", word) or alert.name) for word in words))
    neutral = [("where", clean(alert.place) or "-"), ("since", _time(alert.starts, style))]
    if not is_firing and alert.ends is not None:
        neutral.append(("until", _time(alert.ends, style)))
    fields = [(_named(words, name) + words[-1].colon, text) for name, text in neutral]
    evidence = [(word.evidence + word.colon, clean(_text(alert, "description", word))) for word in words]
    fields += [(name, text) for name, text in evidence if text]
    for word in words:
        if is_firing and (action := _text(alert, "action", word)):
            is_same = before is not None and _text(before, "action", word) == action
            fields.append((word.action + word.colon, word.same if is_same else clean(action)))
    return Block(
        "" if alone else f"{_state(alert, words)} {heading}",
        tuple(fields),
        _links(alert, group, style, words),
    )


def _time(moment: datetime, style: Style) -> str:
    # Not the zone's name: CST is China's, America's and Cuba's.
    text = moment.astimezone(style.zone).isoformat(" ", "seconds")
    return f"{text[:19]} {text[19:]}"


def _links(alert: Alert, group: Group, style: Style, words: Sequence[Words]) -> tuple[tuple[str, str], ...]:
    found = []
    if runbook := next(filter(None, (_text(alert, "runbook_url", word) for word in words)), ""):
        found.append((_named(words, "runbook"), runbook))
    if style.dashboards:
        found.append((_named(words, "dashboard"), _dashboard(alert, style)))
    if alert.status == "firing" and group.url.startswith(("http://", "https://")):
        matchers = ",".join(f"{name}={_quoted(value)}" for name, value in sorted(alert.labels.items()))
        address = f"{group.url.rstrip('/')}/#/silences/new?filter={quote('{' + matchers + '}', safe='')}"
        found.append((_named(words, "silence"), address))
    return tuple((text, address) for text, address in found if _is_address(address))


def _dashboard(alert: Alert, style: Style) -> str:
    """Return the address of the run's dashboard, else of the node's, around the time of the alert."""
    begun = round(alert.starts.timestamp() * 1000)
    language = "-zh" if style.language != "en" else ""
    run, node = alert.labels.get("run"), alert.labels.get("instance")
    kind, variable = ("run", {"var-run": run}) if run else ("node", {"var-instance": node} if node else {})
    query = urlencode({**variable, "from": begun - 3_600_000, "to": "now"})
    return f"{style.dashboards.rstrip('/')}/d/trainvitals-{kind}{language}?{query}"


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _is_address(address: str) -> bool:
    return address.startswith(("http://", "https://")) and not re.search(r"[\s()<>\[\]]", address)
