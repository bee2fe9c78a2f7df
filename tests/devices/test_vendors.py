"""The table of vendors."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainvitals.devices.vendors import COUNTED, VENDORS, create, matches

PAGE = Path(__file__).parents[2] / "docs" / "accelerators.md"


@pytest.mark.parametrize("name", VENDORS)
def test_every_row_makes_a_reader(name):
    """Each vendor can be created without touching a driver, and is called what its row says."""
    vendor = create(name)

    assert vendor.name == name
    vendor.close()


@pytest.mark.parametrize("match", matches().values(), ids=matches())
def test_every_row_says_how_the_bus_knows_its_devices(match):
    """Without a number of the vendor nothing could be expected."""
    assert 0 < match.vendor < 2**16
    assert match.classes


def test_no_two_vendors_have_one_number():
    """A device belongs to one of them."""
    numbers = [match.vendor for match in matches().values()]

    assert len(set(numbers)) == len(numbers)


def test_the_page_has_a_row_for_every_vendor():
    """With its number; and says of whom nobody reads anything yet."""
    rows = {line.split("|")[1].strip(): line for line in PAGE.read_text().splitlines() if line.startswith("| `")}

    assert set(rows) == {f"`{name}`" for name in matches()}
    for name, match in matches().items():
        assert f"0x{match.vendor:04x}" in rows[f"`{name}`"]
        assert ("counted only" in rows[f"`{name}`"]) == (name in COUNTED)
