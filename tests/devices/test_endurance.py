"""An hour of polling, compressed; `make endurance` does twenty times as much."""

from __future__ import annotations

import pytest
from benchmarks.endurance import endure


@pytest.mark.no_cover
def test_a_thousand_polls_leave_nothing_behind(driver, tmp_path):
    """While devices come and go, neither process grows in memory, descriptors, threads or children."""
    report = endure(driver, tmp_path, 1000, calm=400)

    assert report.polls >= 1000
    assert report.restarts >= 4
    assert len(report.sizes) == 4
    # The tests around this one have memory of their own to move.
    assert report.growth(8.0) == []
    assert report.slowest < 1.0
