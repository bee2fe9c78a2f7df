"""Whatever some devices answer, the others are read as before, and afterwards all are."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from tests.devices.hurried import hurried, until

STUB = Path(__file__).parents[1] / "fixtures" / "nvml"
#: Codes that are about a device or a value; others are about the driver as a whole.
CODES = (2, 3, 4, 6, 7, 10, 13, 14, 15, 16, 17, 20, 21, 25, 26, 27, 28, 42, 255, 999)
NUMBERS = (0, 1, 2, 7, 50, 100, 101, 255, 4095, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**47, 2**63 - 1, 2**63, 2**64 - 1)
EVERYTHING = ("value * gpm 1", "value * links 18", "value * fabric 3")
DEVICES = range(8)


def calls():
    """Return every name that a rule can have, as the files of the stub have them, numbered fields included."""
    text = "".join(file.read_text() for file in sorted(STUB.glob("*.c")))
    names = set(re.findall(r'(?:ENTER\(\w+|fault\(self->index|value\(self->index), "(\w+)"', text))
    fields = {f"field{number}" for number in re.findall(r"^    \{ (\d+), ", text, re.MULTILINE)}
    metrics = {f"gpm{number}" for number in (1, 2, 3, 4, 5, 10, 11, 12, 13, 20, 21, 60, 61)}
    assert len(names) > 40
    assert len(fields) > 50
    return sorted(names | fields | metrics)


def rules(chance, victims):
    """Return some rules for these devices."""
    known = calls()
    fields = [name for name in known if name.startswith("field")]
    found = []
    for _ in range(chance.choice([1, 3, 20])):
        device, call = chance.choice(victims), chance.choice([*known, "*"])
        found += chance.choices(
            [
                f"return {device} {call} {chance.choice(CODES)}",
                f"value {device} {call} {chance.choice(NUMBERS)}",
                f"poison {device} {chance.choice(fields)} {chance.choice(CODES)}",
                f"spoil {device} {chance.choice(fields)}",
                f"clash {device} {chance.choice(fields)}",
                f"{chance.choice(['name', 'uuid', 'serial', 'board', 'firmware'])} {device} damaged",
            ],
            [6, 6, 1, 1, 1, 1],
        )
    return found


def told(device):
    """Return what a device says, but the bytes over PCIe, which begin with 0 whenever it is opened."""
    return (
        device.up,
        device.uuid,
        device.name,
        device.pci_bus_id,
        device.processes,
        {key: value for key, value in device.values.items() if not re.fullmatch("pcie_.*_bytes_total", key[0])},
    )


@pytest.mark.parametrize("seed", range(3))
def test_any_answer_of_a_device_is_its_own_matter(driver, seed):
    """Random codes, numbers and damaged texts for up to three of eight devices cost the others nothing."""
    chance = random.Random(seed)
    driver.behave(*EVERYTHING)
    with hurried(driver) as line:
        line()
        well = until(line, lambda message: all(("sm_activity_ratio",) in one.values for one in message.devices))
        before = [told(device) for device in well.devices]
        for _ in range(5):
            victims = chance.sample(DEVICES, chance.choice([1, 2, 3]))
            given = rules(chance, victims)
            driver.behave(*EVERYTHING, *given)
            for _ in range(4):
                message = line()
                assert (message.down, len(message.devices), message.count) == ("", 8, 8), given
                for device in message.devices:
                    if device.index not in victims:
                        assert told(device) == before[device.index], given
            # What spoiled a call, and links that had errors, are remembered until the driver is loaded again.
            driver.behave("unloaded")
            until(line, lambda message: message.down)
            driver.behave(*EVERYTHING)
            until(line, lambda message: [told(device) for device in message.devices] == before)
