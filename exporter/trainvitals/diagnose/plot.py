"""Curves as inline SVG: no script, no font, nothing from elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import NamedTuple

from trainvitals.diagnose.curves import Curve, Extreme
from trainvitals.output import printable

WIDTH, HEIGHT = 860, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 10, 26
#: A curve is drawn with so many pieces at most, of which the lowest and the highest value are seen.
_PIECES = 420
#: Positive values that span more than such a factor are drawn by their logarithm.
_LOGARITHMIC = 30.0
_TICKS = 4


class Line(NamedTuple):
    """A curve, its name, and its class in the style sheet."""

    name: str
    curve: Curve
    style: str


class Mark(NamedTuple):
    """A finding: its step, its words, and its class."""

    step: int
    text: str
    style: str


class _Scale(NamedTuple):
    """Where values lie on an axis of ``length`` pixels."""

    low: float
    high: float
    length: float
    logarithmic: bool = False

    def at(self, value: float) -> float:
        if self.logarithmic:
            value = math.log(max(value, self.low))
            low, high = math.log(self.low), math.log(self.high)
        else:
            low, high = self.low, self.high
        return (min(max(value, self.low if not self.logarithmic else low), high) - low) / (high - low) * self.length

    def ticks(self) -> list[float]:
        shares = [number / _TICKS for number in range(_TICKS + 1)]
        if self.logarithmic:
            return [self.low * (self.high / self.low) ** share for share in shares]
        return [self.low + (self.high - self.low) * share for share in shares]


def plot(title: str, lines: Sequence[Line], marks: Iterable[Mark] = ()) -> str:
    """Return a figure of curves over steps, or an empty string where no curve has two points."""
    drawn = [(line, line.curve.extremes(_PIECES)) for line in lines if len(line.curve) > 1]
    numbers = [value for _, pieces in drawn for piece in pieces for value in (piece.low, piece.high)]
    finite = [value for value in numbers if math.isfinite(value)]
    if not finite:
        return ""
    across = _across(drawn)
    up = _up(min(finite), max(finite))
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{safe(title)}">',
        *_axes(across, up),
        *(part for line, pieces in drawn for part in _curve(line, pieces, across, up)),
        *_marks(marks, across),
        "</svg>",
    ]
    keys = " ".join(f'<span class="{line.style}">{safe(line.name)}</span>' for line, _ in drawn)
    scale = ", logarithmic" if up.logarithmic else ""
    return f"<figure><figcaption>{safe(title)}{scale} {keys}</figcaption>{''.join(parts)}</figure>\n"


def _across(drawn: Sequence[tuple[Line, list[Extreme]]]) -> _Scale:
    ends = [end for _, pieces in drawn for piece in pieces for end in (piece.first, piece.last)]
    low, high = min(ends), max(ends)
    return _Scale(float(low), float(max(high, low + 1)), WIDTH - _LEFT - _RIGHT)


def _up(low: float, high: float) -> _Scale:
    length = float(HEIGHT - _TOP - _BOTTOM)
    if low > 0.0 and high / low > _LOGARITHMIC:
        return _Scale(low, high, length, logarithmic=True)
    # Halves first: the difference of two large numbers may be no number.
    margin = (high / 2 - low / 2) * 0.1 or abs(low) * 0.05 or 1.0
    low, high = max(low - margin, -1.7e308), min(high + margin, 1.7e308)
    return _Scale(low, high, length) if math.isfinite(high - low) else _Scale(low / 4, high / 4, length)


def _axes(across: _Scale, up: _Scale) -> Iterator[str]:
    bottom = HEIGHT - _BOTTOM
    for value in up.ticks():
        y = bottom - up.at(value)
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" class="end">{safe(f"{value:.3g}")}</text>'
    for value in across.ticks():
        x = _LEFT + across.at(value)
        style = "end" if value == across.high else "middle"
        yield f'<text x="{x:.1f}" y="{HEIGHT - 8}" class="{style}">{value:,.0f}</text>'


def _curve(line: Line, pieces: Sequence[Extreme], across: _Scale, up: _Scale) -> Iterator[str]:
    """Yield the path of a curve; it begins anew with each attempt, and where there is no number."""
    bottom = HEIGHT - _BOTTOM
    words, before, is_down = [], None, False
    for piece in pieces:
        if not math.isfinite(piece.low):
            x = _LEFT + across.at(piece.first)
            yield f'<path class="broken" d="M{x:.1f} {_TOP}v8"><title>no number at step {piece.first:,}</title></path>'
            is_down = False
            continue
        is_down = is_down and (before is None or piece.first > before)
        before = piece.last
        points = [(piece.first, piece.high), (piece.last, piece.low)] if piece.high > piece.low else [
            (piece.last, piece.low)
        ]  # fmt: skip
        for step, value in points:
            x, y = _LEFT + across.at(step), bottom - up.at(value)
            words.append(f"{'L' if is_down else 'M'}{x:.1f} {y:.1f}")
            is_down = True
    if words:
        yield f'<path class="line {line.style}" d="{"".join(words)}"/>'


def _marks(marks: Iterable[Mark], across: _Scale) -> Iterator[str]:
    for mark in marks:
        if across.low <= mark.step <= across.high:
            x = _LEFT + across.at(mark.step)
            yield (
                f'<path class="mark {mark.style}" d="M{x:.1f} {_TOP}V{HEIGHT - _BOTTOM}">'
                f"<title>{safe(mark.text)}</title></path>"
            )


def safe(text: str) -> str:
    """Return text that is safe anywhere in the page; what cannot be printed is a blank."""
    return escape(printable(text))
