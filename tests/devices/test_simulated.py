"""Simulated devices."""

from __future__ import annotations

from trainvitals.devices.base import Reading
from trainvitals.devices.simulated import SimulatedDevices


def test_simulated_devices_say_what_they_are():
    """Vendor, UUID and name leave no doubt."""
    devices = SimulatedDevices(2, clock=lambda: 0.0).sample()

    assert [(device.index, device.vendor, device.uuid, device.name) for device in devices] == [
        (0, "simulated", "SIMULATED-0", "Simulated device"),
        (1, "simulated", "SIMULATED-1", "Simulated device"),
    ]


def test_the_same_time_gives_the_same_values():
    """Values depend on the clock and the index alone, and move."""
    first, again, later = (SimulatedDevices(8, clock=lambda now=now: now).sample() for now in (100.0, 100.0, 175.0))

    assert first == again
    assert first != later
    assert first[0].values["power_watts", "instant"] != first[1].values["power_watts", "instant"]


def test_values_are_possible():
    """At any time every device has every value, and each is one that a real device could have."""
    for second in range(0, 600, 7):
        for device in SimulatedDevices(8, clock=lambda second=second: float(second)).sample():
            assert device.up
            values = device.values
            assert 0.0 <= values["utilization_ratio",] <= 1.0
            assert 0.0 <= values["memory_activity_ratio",] <= values["utilization_ratio",]
            assert 0.0 < values["memory_used_bytes",] < values["memory_total_bytes",]
            assert 0.0 < values["power_watts", "instant"] <= values["power_limit_watts",]
            assert all(30.0 < values["temperature_celsius", sensor] < 90.0 for sensor in ("gpu", "memory"))
            assert {key[1] for key in values if key[0] == "clock_hertz"} == {"sm", "memory"}


def test_they_are_a_source():
    """The newest reading is always of now and up."""
    source = SimulatedDevices(1, clock=lambda: 5.0)
    source.start()

    assert source.latest() == Reading(vendor="simulated", up=True, devices=source.sample(), age=0.0)
    source.stop()
