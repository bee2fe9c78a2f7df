"""Healthy runs that look ill to who does not know their kind: read in full, and no warning."""

from __future__ import annotations

import pytest
from benchmarks.accuracy import see
from benchmarks.quirks import QUIRKS, write


@pytest.mark.parametrize("name", QUIRKS)
def test_nobody_is_warned_of_a_healthy_run_of_an_odd_kind(name, tmp_path):
    """Three of each; every line is a step."""
    for seed in range(3):
        file, text = write(name, seed)
        path = tmp_path / file
        path.write_text(text)
        seen = see(path)
        assert seen.steps == text.count("\n") - file.endswith(".csv")
        assert seen.warnings == set()
