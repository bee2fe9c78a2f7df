"""Fixtures of the tests of links."""

from __future__ import annotations

import pytest
from tests.host.sysfs_tables import Clock, Opener


@pytest.fixture
def clock():
    """The clock of a test."""
    return Clock()


@pytest.fixture
def opener():
    """The opener of a test."""
    return Opener()
