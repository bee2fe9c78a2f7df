"""What every source ends in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.telemetry import pci_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0000:05:00.0", "0000:05:00.0"),
        ("0000:05:00", "0000:05:00.0"),
        ("PCI:0000:05:00", "0000:05:00.0"),
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("0000:D2:00.1\n", "0000:d2:00.1"),
        ("0018:01:00", "0018:01:00.0"),
        ("00010000:e1:00.0", "10000:e1:00.0"),
        ("e1:00.0", "0000:e1:00.0"),
        ("5:0", "0000:05:00.0"),
        ("", ""),
        ("GPU-1234", ""),
        ("0000:05:00.8", ""),
        ("0000:05:00.0 and more", ""),
        ("0" * 400 + ":05:00.0", ""),
    ],
)
def test_every_spelling_of_a_pci_address_becomes_one(text, address):
    """The kernel, NVML and the driver's messages write it differently."""
    assert pci_address(text) == address


@given(st.text(max_size=60))
def test_no_text_makes_it_raise(text):
    """What is no address is empty, and an address stays what it is."""
    address = pci_address(text)

    assert pci_address(address) == address
