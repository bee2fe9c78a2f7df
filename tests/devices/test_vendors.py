"""The table of vendors."""

from __future__ import annotations

import pytest

from trainvitals.devices.vendors import VENDORS, create


@pytest.mark.parametrize("name", VENDORS)
def test_every_row_makes_a_reader(name):
    """Each vendor can be created without touching a driver, and is called what its row says."""
    vendor = create(name)

    assert vendor.name == name
    vendor.close()
