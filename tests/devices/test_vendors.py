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


@pytest.mark.parametrize("row", VENDORS.values(), ids=VENDORS)
def test_every_row_says_how_the_bus_knows_its_devices(row):
    """Without a number of the vendor nothing could be expected."""
    assert 0 < row.pci.vendor < 2**16
    assert row.pci.classes
