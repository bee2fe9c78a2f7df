"""Many nodes from the scrapes of one: the labels that tell nodes apart are replaced, and the values go on.

Nothing is made up: each series, label and number was shown by the exporter.
Counters and numbers of steps go on at the pace that they had, times that moved go on with the clock, and every other
value takes its turn among those that were seen.
Only what stands still because the devices and ports of a test do, and never does at work, is moved on purpose (_ALIVE).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from benchmarks.fleet_node import RUN, Scrape

#: Stand in a template for what is different on each node; no exporter shows such characters.
_NODE, _RUN, _RANK = "\x01", "\x02", "\x03"
_SERIES = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?P<labels>\{.*\})? (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
#: Labels whose values no two devices share.
_UNIQUE = frozenset({"uuid", "serial"})
#: Gauges that grow as counters do.
_GROWING = "_step"
_TIME = "_timestamp_seconds"
#: Traffic, energy and activity.
_ALIVE = re.compile(
    r"trainvitals_(device_\w*(bytes|joules)_total|(infiniband|network)_\w*(bytes|packets|wait)_total"
    r"|device_(utilization|\w*activity|\w*occupancy|\w*bandwidth)_ratio|device_(power_watts|temperature_celsius|clock_hertz)"
    r"|device_\w+_bytes_per_second)"
)
#: Series that are not those of a healthy node here: a container sees no clock that is kept, and the stub has banks
#: without spare rows.
_HEALTHY = {
    re.compile(r"trainvitals_host_clock_synchronized"): "1.0",
    re.compile(r"trainvitals_host_clock_(max_error|offset)_seconds"): "0.001",
    re.compile(r'trainvitals_device_row_remap_banks\{.*spares="none".*'): "0.0",
}
#: By how much of itself in a second, or how far up and down.
_STIR = (0.0, 0.01, -0.01, 0.02, 0.005, -0.02, 0.0)

#: What a series shows at a time (seconds since 1970), in its so-manieth turn.
_Value = Callable[[float, int], str]


class Place(NamedTuple):
    """A node among the others: its number, the number of its run, and the first rank of the run that is on it."""

    node: int
    run: int
    first_rank: int


class Template:
    """What every node shows; from scrapes of one exporter, in the order in which they were taken."""

    def __init__(self, scrapes: Sequence[Scrape]) -> None:
        self._text, self._values = _compile(scrapes)
        self._texts: dict[Place, str] = {}
        lines = [line for line in scrapes[-1].text.splitlines() if not line.startswith("#")]
        self.series = len(lines)
        self.ranks = len({found[1] for line in lines if (found := re.search(r'[{,]rank="(\d+)"', line))})
        self.series_of_ranks = sum(bool(re.search(r'[{,]rank="\d', line)) for line in lines)
        self.names = {line.partition("{")[0].partition(" ")[0] for line in lines}

    def at(self, place: Place, now: float, turn: int) -> str:
        """Return the scrape of a node at a time."""
        return self._placed(place) % tuple([value(now, turn) for value in self._values])

    def _placed(self, place: Place) -> str:
        """Return the text with the labels of a node; kept, as it takes longer than the values."""
        text = self._texts.get(place)
        if text is None:
            text = self._text
            for rank in range(self.ranks):
                text = text.replace(f"{_RANK}{rank}{_RANK}", str(place.first_rank + rank))
            text = text.replace(_RUN, str(place.run)).replace(_NODE, str(place.node))
            self._texts[place] = text
        return text


def _compile(scrapes: Sequence[Scrape]) -> tuple[str, list[_Value]]:
    """Return a text with a ``%s`` for each value that moves, and these values."""
    seen = [dict(_series(scrape.text)) for scrape in scrapes]
    lines: list[str] = []
    values: list[_Value] = []
    type_ = ""
    for line in scrapes[-1].text.splitlines():
        if line.startswith("#"):
            type_ = line.split()[3] if line.startswith("# TYPE") else type_
            lines.append(line.replace("%", "%%"))
            continue
        series = line.rpartition(" ")[0]
        points = [(scrape.time, texts[series]) for scrape, texts in zip(scrapes, seen, strict=True) if series in texts]
        name = series.partition("{")[0]
        healthy = next((text for pattern, text in _HEALTHY.items() if pattern.fullmatch(series)), None)
        value = healthy or _value(points, name, is_growing=type_ in {"counter", "histogram"} or name.endswith(_GROWING))
        place = _placed(series).replace("%", "%%")
        if isinstance(value, str):
            lines.append(f"{place} {value}")
        else:
            lines.append(f"{place} %s")
            values.append(value)
    return "".join(f"{line}\n" for line in lines), values


def _series(text: str) -> list[tuple[str, str]]:
    found = []
    for line in text.splitlines():
        if not line.startswith("#"):
            match = _SERIES.fullmatch(line)
            if match is None:
                raise ValueError(f"not a line of a scrape: {line!r}")
            found.append((line.rpartition(" ")[0], match["value"]))
    return found


def _placed(series: str) -> str:
    """Replace what names the node, its run and its ranks."""

    def replace(match: re.Match[str]) -> str:
        name, value = match.groups()
        if name == "run" and value == RUN:
            value += f"-{_RUN}"
        elif name == "rank" and value:
            value = f"{_RANK}{value}{_RANK}"
        elif name in _UNIQUE and value:
            value += f"-{_NODE}"
        return f'{name}="{value}"'

    return _LABEL.sub(replace, series)


def _value(points: Sequence[tuple[float, str]], name: str, *, is_growing: bool) -> str | _Value:
    """Return how a series goes on, or its text when it stands still."""
    texts = [text for _, text in points]
    if len(set(texts)) == 1:
        if not _ALIVE.fullmatch(name):
            return texts[0]
        texts = [_stirred(texts[0], share) for share in _STIR]
        if is_growing:
            points = [points[0], (points[0][0] + 1, _stirred(texts[0], 0.01))]
            texts = [text for _, text in points]
    (begin, first), (end, last) = ((time, float(text)) for time, text in (points[0], points[-1]))
    if name.endswith(_TIME):
        return lambda now, _: repr(last + now - end)
    if not is_growing:
        return lambda _, turn: texts[turn % len(texts)]
    pace = max(0.0, (last - first) / (end - begin))
    if all(float(text).is_integer() for text in texts):
        return lambda now, _: str(int(last + pace * (now - end)))
    return lambda now, _: repr(last + pace * (now - end))


def _stirred(text: str, share: float) -> str:
    """Return a number that is more by a share of itself, as whole or as short as it was."""
    number = float(text)
    return repr(float(round(number * (1 + share))) if number.is_integer() and number > 1 else round(number + share, 3))
