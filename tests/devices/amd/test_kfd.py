"""Processes on cards of AMD, as the compute driver shows them."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.devices.amd.machine import Machine, read

from trainvitals.devices.amd import kfd
from trainvitals.telemetry import DeviceProcess

#: The number of the driver, and where the card is: the bus in the second byte, its part of a split card on top.
NODES = {
    "0": ("0", "cpu_cores_count 96\nsimd_count 0\nlocation_id 0\ndomain 0"),
    "1": ("41021", "cpu_cores_count 0\nsimd_count 1216\nlocation_id 5376\ndomain 0"),
    "2": ("52877", "simd_count 1216\nlocation_id 25856\ndomain 2"),
    "3": ("60001", "simd_count 304\nlocation_id 268461312\ndomain 2"),
}


@pytest.fixture
def folder(tmp_path):
    """Return a folder as /sys/class/kfd/kfd, with a processor and two cards, one of them split in two."""
    root = tmp_path / "class" / "kfd" / "kfd"
    for node, (number, properties) in NODES.items():
        path = root / "topology" / "nodes" / node
        path.mkdir(parents=True)
        (path / "gpu_id").write_text(f"{number}\n")
        (path / "properties").write_text(f"{properties}\n")
    (root / "proc").mkdir()
    return root


def _process(folder, pid, **memory):
    path = folder / "proc" / pid
    path.mkdir()
    (path / "pasid").write_text("32770\n")
    for number, text in memory.items():
        (path / f"vram_{number[1:]}").write_text(f"{text}\n")


def test_processes_are_told_by_the_address_of_their_card(folder):
    """Only those with memory there; the parts of a split card are one."""
    _process(folder, "4711", n41021="68719476736", n52877="0")
    _process(folder, "4712", n41021="0", n52877="1073741824", n60001="2147483648")

    assert kfd.processes(str(folder)) == {
        "0000:15:00.0": (DeviceProcess(4711, 68719476736.0),),
        "0002:65:00.0": (DeviceProcess(4712, 3221225472.0),),
    }


def test_a_card_that_nobody_uses_has_none(folder):
    """That is known, so it is 0."""
    assert kfd.processes(str(folder)) == {"0000:15:00.0": (), "0002:65:00.0": ()}


@pytest.mark.parametrize("missing", ["proc", "topology"])
def test_where_the_driver_does_not_show_them_nothing_is_known(folder, missing):
    """An older kernel, or no compute driver."""
    (folder / missing).rename(folder / "elsewhere")

    assert kfd.processes(str(folder)) is None


@pytest.mark.parametrize("text", ["", "N/A", "-1", "18446744073709551615", "lots"])
def test_memory_that_is_none_is_not_told(folder, text):
    """The process has no known memory on the card."""
    _process(folder, "4711", n41021=text)

    assert kfd.processes(str(folder))["0000:15:00.0"] == ()


@pytest.mark.parametrize("pid", ["0", "self", "-3", "99999999999", "١٢"])
def test_what_is_no_process_is_left_out(folder, pid):
    """A name that is no process id."""
    _process(folder, pid, n41021="5000000")

    assert kfd.processes(str(folder))["0000:15:00.0"] == ()


def test_a_sample_has_its_processes_every_15_seconds(tmp_path, folder):
    """They are told with the card, and counted."""
    machine = Machine(tmp_path)
    machine.add("0000:15:00.0", 1)
    _process(folder, "4711", n41021="68719476736")
    reader = machine.reader()

    (sample,) = read(reader).values()
    assert sample.processes == (DeviceProcess(4711, 68719476736.0),)
    assert sample.values["processes",] == 1.0

    _process(folder, "4712", n41021="4096")
    machine.now += 14
    assert read(reader)[0].values["processes",] == 1.0
    machine.now += 1
    assert read(reader)[0].values["processes",] == 2.0


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(["topology/nodes/1/gpu_id", "topology/nodes/1/properties", "proc/77/vram_41021"]),
    content=st.binary(max_size=40),
)
def test_no_content_raises(folder, name, content):
    """Random bytes in every file."""
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)

    for used in (kfd.processes(str(folder)) or {}).values():
        assert all(0 < one.memory_bytes <= 2**50 for one in used)
