"""Many rows at once, column by column: what is a call in Python for each cell otherwise is one for each column."""

from __future__ import annotations

from collections.abc import Sequence


def numbers(column: Sequence[object]) -> list[float] | None:
    """Return a column of int and float as float; None where anything else stands in it."""
    kinds = set(map(type, column))
    if kinds == {float}:
        return column if isinstance(column, list) else list(column)  # type: ignore[arg-type]
    return list(map(float, column)) if kinds <= {float, int} else None  # type: ignore[arg-type]
