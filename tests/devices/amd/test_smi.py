"""What amd-smi adds to sysfs, in each shape that its JSON is known to have."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.devices.amd.machine import INSTINCT, Machine, read, text

from trainvitals.devices.amd import smi
from trainvitals.devices.amd.reader import Amd
from trainvitals.devices.plausible import is_plausible
from trainvitals.devices.tools import FAILED, MISSING, TIMED_OUT, Answer, Runner

#: A card of which sysfs tells next to nothing: a guest of a hypervisor.
BARE = {"vendor": "0x1002", "device": "0x74b5", "class": "0x120000"}


@pytest.fixture
def machine(tmp_path):
    """Return a machine without a card."""
    return Machine(tmp_path)


def _measure(record):
    failed: dict[str, int] = {}
    return smi.measure(record, failed), failed


def test_every_value_of_the_older_shape():
    """A list; energy, clocks and errors in our units; N/A and a highest clock of 0 are absent."""
    values, failed = _measure(smi.records(text("metric-list"))[0])

    assert failed == {}
    assert values == {
        ("utilization_ratio",): 0.42,
        ("memory_activity_ratio",): 0.11,
        ("clock_hertz", "sm"): 1.71e9,
        ("clock_hertz", "memory"): 1.61e9,
        ("clock_max_hertz", "sm"): 1.72e9,
        ("ecc_errors_total", "corrected"): 12.0,
        ("ecc_errors_total", "uncorrected"): 0.0,
        ("pcie_replays_total",): 5.0,
        ("power_watts", "default"): 322.0,
        ("energy_joules_total",): 73122.125,
        ("temperature_celsius", "gpu"): 47.0,
        ("temperature_celsius", "hotspot"): 58.0,
        ("temperature_celsius", "memory"): 61.0,
        ("memory_total_bytes",): 68702699520.0,
        ("memory_used_bytes",): 34613493760.0,
    }


def test_every_value_of_the_newer_shape():
    """An object with the list; what holds the clocks down; the hottest spot is the chip's where the edge is N/A."""
    values, failed = _measure(smi.records(text("metric-gpu-data"))[0])

    assert failed == {}
    assert values == {
        ("utilization_ratio",): 0.99,
        ("memory_activity_ratio",): 0.63,
        ("ecc_errors_total", "corrected"): 2.0,
        ("ecc_errors_total", "uncorrected"): 1.0,
        ("ecc_errors_total", "deferred"): 3.0,
        ("power_watts", "default"): 1212.0,
        ("energy_joules_total",): 1850077.5,
        ("temperature_celsius", "gpu"): 83.0,
        ("temperature_celsius", "memory"): 71.0,
        ("memory_total_bytes",): 309220868096.0,
        ("memory_used_bytes",): 300973817856.0,
        ("clock_limited", "sw_power_cap"): 1.0,
        ("clock_limited", "hw_slowdown"): 0.0,
        ("clock_limited", "hw_thermal"): 1.0,
    }


def test_the_second_part_of_a_split_card_tells_nothing():
    """Whole groups are N/A there, and that is no failure."""
    assert _measure(smi.records(text("metric-gpu-data"))[1]) == ({}, {})


@pytest.mark.parametrize(
    ("fixture", "name", "driver", "values"),
    [
        (
            "static-list",
            "AMD Instinct Example 2",
            "6.8.5",
            {("power_limit_watts",): 500.0, ("power_limit_bound_watts", "max"): 560.0},
        ),
        (
            "static-gpu-data",
            "AMD Instinct Example 5",
            "6.16.9",
            {("power_limit_watts",): 1300.0, ("power_limit_bound_watts", "max"): 1350.0},
        ),
    ],
)
def test_what_stays_the_same_in_both_shapes(fixture, name, driver, values):
    """Name, driver, and the limit of power, which has moved."""
    failed: dict[str, int] = {}

    told = smi.describe(smi.records(text(fixture))[0], failed)

    assert (told.name, told.driver_version, told.values, failed) == (name, driver, values, {})


def test_the_address_says_which_device_is_meant():
    """Of the parts of a split card the first."""
    assert smi.addresses(smi.records(text("static-gpu-data"))) == {"0002:15:00.0": 0}


@pytest.mark.parametrize("mark", ["N/A", "", "-", "NA", -1, "-1", None, [], {}, {"value": "N/A", "unit": "W"}, True])
def test_no_mark_becomes_a_number(mark):
    """Whatever stands for "cannot read" is absent, and nothing has failed."""
    record = {
        "usage": {"gfx_activity": mark, "umc_activity": mark},
        "power": {"socket_power": mark},
        "temperature": {"hotspot": mark, "mem": mark},
        "energy": {"total_energy_consumption": mark},
        "ecc": {"total_correctable_count": mark},
        "mem_usage": {"total_vram": mark, "used_vram": mark},
        "throttle": {"ppt_violation_status": mark if isinstance(mark, str) and mark != "-1" else "N/A"},
    }

    assert _measure(record) == ({}, {})


@pytest.mark.parametrize(
    ("group", "name", "value", "reason"),
    [
        ("usage", "gfx_activity", {"value": 101, "unit": "%"}, "implausible"),
        ("usage", "gfx_activity", {"value": 65535, "unit": "%"}, ""),
        ("power", "socket_power", {"value": 65535, "unit": "W"}, "implausible"),
        ("power", "socket_power", {"value": 0, "unit": "W"}, ""),
        ("power", "socket_power", {"value": 300, "unit": "kW"}, "not_understood"),
        ("temperature", "hotspot", {"value": 0, "unit": "C"}, "implausible"),
        ("temperature", "hotspot", {"value": 600, "unit": "C"}, "implausible"),
        ("energy", "total_energy_consumption", {"value": 0.0, "unit": "J"}, ""),
        ("ecc", "total_correctable_count", 2**64 - 1, ""),
        ("ecc", "total_correctable_count", "many", "not_understood"),
        ("throttle", "ppt_violation_status", "PERHAPS", "not_understood"),
        ("mem_usage", "total_vram", {"value": 0, "unit": "MB"}, "implausible"),
        ("mem_usage", "total_vram", {"value": 64, "unit": "parsec"}, "not_understood"),
    ],
)
def test_what_no_card_can_have_is_no_value(group, name, value, reason):
    """It is left out and counted."""
    assert _measure({group: {name: value}}) == ({}, {reason: 1} if reason else {})


def test_a_dead_card_tells_nothing():
    """Neither its temperature nor its power can be."""
    record = {
        "usage": {"gfx_activity": {"value": 100, "unit": "%"}},
        "power": {"socket_power": {"value": 65535, "unit": "W"}},
        "temperature": {"hotspot": {"value": 0, "unit": "C"}},
    }

    assert _measure(record) == ({}, {"implausible": 2})


@pytest.mark.parametrize(
    "printed",
    [
        "",
        "amd-smi: error: argument : invalid choice",
        "[]",
        "{}",
        '{"gpu_data": []}',
        '{"gpu_data": "N/A"}',
        '{"card0": {"GPU use (%)": "4"}}',
        '[{"uuid": "GPU-1"}]',
        '[{"gpu": "0"}]',
        '[{"gpu": -1}]',
        "[1, 2]",
        '[{"gpu": 0, "usage": {"gfx_activ',
        "[" * 100000,
    ],
)
def test_what_is_not_the_tool_is_known(printed):
    """An error with status 0, half of an output, and other programs."""
    assert smi.records(printed) is None


def test_warnings_before_and_after_do_not_matter():
    """Both outputs of the tool are one."""
    assert smi.records(f"WARNING: {{old}} library\n{text('metric-list')}\nbye [1]")[0]["gpu"] == 0


def test_the_tool_adds_what_sysfs_lacks(machine):
    """Name, driver and energy are the tool's, and what sysfs tells stays sysfs's."""
    machine.add("0000:63:00.0", 1, {**INSTINCT, "product_name": ""})
    machine.static, machine.metric = text("static-list"), text("metric-list")
    reader = machine.reader()
    read(reader)

    (sample,) = read(reader).values()

    assert (sample.name, sample.driver_version) == ("AMD Instinct Example 2", "6.8.5")
    assert sample.values["energy_joules_total",] == 73122.125
    assert sample.values["utilization_ratio",] == 0.87
    assert ("power_watts", "default") not in sample.values
    assert ("temperature_celsius", "hotspot") not in sample.values
    assert sample.values["power_limit_watts",] == 750.0


def test_the_tool_is_enough_where_sysfs_tells_nothing(machine):
    """A guest without sensors."""
    machine.add("0000:63:00.0", 1, BARE)
    machine.static, machine.metric = text("static-list"), text("metric-list")
    reader = machine.reader()
    read(reader)

    (sample,) = read(reader).values()

    assert sample.up
    assert sample.values["utilization_ratio",] == 0.42
    assert sample.values["temperature_celsius", "hotspot"] == 58.0


def test_one_question_in_a_round_and_seldom(machine):
    """Who they are every 10 minutes, values every minute."""
    machine.add("0000:63:00.0", 1)
    machine.static, machine.metric = text("static-list"), text("metric-list")
    reader = machine.reader()

    def asked(after):
        machine.now += after
        machine.calls.clear()
        read(reader)
        return machine.calls

    assert asked(0) == ["amd-smi static --json"]
    assert asked(2) == ["amd-smi metric --json"]
    assert asked(50) == []
    assert asked(11) == ["amd-smi metric --json"]
    assert asked(600) == ["amd-smi static --json"]
    assert asked(2) == ["amd-smi metric --json"]


def test_a_costly_tool_is_asked_more_seldom(machine):
    """It takes one part in thirty of a processor at most."""
    machine.add("0000:63:00.0", 1)
    machine.static = text("static-list")
    reader = Amd(_slow(machine, 40.0), root=str(machine.root), clock=lambda: machine.now)
    reader.open()
    reader.devices()
    machine.now += 1199

    reader.devices()
    assert machine.calls.count("amd-smi static --json") == 1
    machine.now += 2
    reader.devices()
    assert machine.calls.count("amd-smi static --json") == 2


def _slow(machine, seconds):
    def run(command):
        machine.now += seconds if "static" in command else 0
        return machine(command)

    return run


@pytest.mark.parametrize(
    ("answer", "failed"),
    [
        (Answer(reason=MISSING), {}),
        (Answer(reason=TIMED_OUT), {"timeout": 1}),
        (Answer("Traceback ...", FAILED), {"failed": 1}),
        (Answer("ERROR: no permission"), {"not_understood": 1}),
        (Answer('{"card0": {"GPU use (%)": "7"}}'), {"not_understood": 1}),
    ],
)
def test_whatever_becomes_of_the_tool_sysfs_is_read(machine, answer, failed):
    """It is counted once, asked again later, and another program of its name is not believed."""
    machine.add("0000:15:00.0", 1)
    machine.static = answer
    reader = machine.reader()

    first, second = read(reader)[0], read(reader)[0]

    assert (first.up, first.values["utilization_ratio",], first.failed) == (True, 0.87, failed)
    assert second.failed == {}
    assert machine.calls == ["amd-smi static --json"]
    machine.now += 31
    read(reader)
    assert len(machine.calls) == 2


def test_with_a_card_less_the_numbers_of_the_tool_are_asked_anew(machine):
    """Until then nothing of it is believed: its number 0 may be another card."""
    machine.add("0000:15:00.0", 1, BARE)
    machine.add("0000:63:00.0", 2, BARE)
    machine.static = json.dumps([_is(0, "0000:15:00.0"), _is(1, "0000:63:00.0")])
    machine.metric = json.dumps([_busy(0, 10), _busy(1, 20)])
    reader = machine.reader()
    assert _shares(reader, rounds=2) == {"0000:15:00.0": 0.1, "0000:63:00.0": 0.2}

    machine.remove("0000:15:00.0", 1)
    machine.static = json.dumps([_is(0, "0000:63:00.0")])
    machine.metric = json.dumps([_busy(0, 21)])

    assert _shares(reader, rounds=1) == {"0000:63:00.0": None}
    assert _shares(reader, rounds=1) == {"0000:63:00.0": 0.21}


def test_when_the_tool_has_lost_a_card_its_numbers_are_not_believed(machine):
    """The card is still on the bus, and the tool has moved the number of the other one to its place."""
    machine.add("0000:15:00.0", 1, BARE)
    machine.add("0000:63:00.0", 2, BARE)
    machine.static = json.dumps([_is(0, "0000:15:00.0"), _is(1, "0000:63:00.0")])
    machine.metric = json.dumps([_busy(0, 20)])

    assert _shares(machine.reader(), rounds=2) == {"0000:15:00.0": None, "0000:63:00.0": None}


def _is(number, address):
    return {"gpu": number, "bus": {"bdf": address.upper()}}


def _busy(number, share):
    return {"gpu": number, "usage": {"gfx_activity": {"value": share, "unit": "%"}}}


def _shares(reader, rounds):
    """Return how busy each card is after some rounds, by its address."""
    for _ in range(rounds):
        samples = read(reader)
    return {sample.pci_bus_id: sample.values.get(("utilization_ratio",)) for sample in samples.values()}


def test_a_tool_that_hangs_costs_its_time_once(machine, tmp_path):
    """It is killed with its group, and sysfs is read all the same."""
    machine.add("0000:15:00.0", 1)
    tool = tmp_path / "bin" / "amd-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nsleep 1000\n")
    tool.chmod(0o755)
    runner = Runner([str(tool.parent)], timeout=0.3, environ={"PATH": "/usr/bin:/bin"})
    reader = Amd(runner, root=str(machine.root))
    reader.open()

    (sample,) = read(reader).values()

    assert (sample.up, sample.failed) == (True, {"timeout": 1})
    assert read(reader)[0].failed == {}


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    fixture=st.sampled_from(["metric-list", "metric-gpu-data", "static-list", "static-gpu-data"]),
    cut=st.tuples(st.integers(0, 3000), st.integers(0, 80)),
    noise=st.binary(max_size=20),
)
def test_damage_never_raises_and_never_gives_a_value_out_of_bounds(fixture, cut, noise):
    """Random cuts and bytes in every known output."""
    begin, length = cut
    raw = text(fixture).encode()
    damaged = (raw[:begin] + noise + raw[begin + length :]).decode(errors="replace")

    for record in (smi.records(damaged) or {}).values():
        failed: dict[str, int] = {}
        values = {**smi.measure(record, failed), **smi.describe(record, failed).values}
        assert all(is_plausible(family, value) for (family, *_), value in values.items())
        assert failed.keys() <= {"implausible", "not_understood"}


_GROUPS = ["usage", "power", "temperature", "mem_usage", "throttle", "limit", "asic", "bus", "ecc", "clock"]
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["value", "unit", "gfx_activity", "hotspot", "total_vram", "ppt0"]), inner)
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(_GROUPS), _JSON))
def test_no_shape_raises(record):
    """Any JSON in the place of any other."""
    failed: dict[str, int] = {}
    values = {**smi.measure(record, failed), **smi.describe(record, failed).values}

    smi.addresses({0: record})
    assert all(is_plausible(family, value) for (family, *_), value in values.items())


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(name=st.sampled_from(sorted(set(INSTINCT) - {"vendor"})), content=st.binary(max_size=60))
def test_no_file_of_sysfs_raises(tmp_path_factory, name, content):
    """Random bytes in every file of a card."""
    machine = Machine(tmp_path_factory.mktemp("card"))
    (machine.add("0000:15:00.0", 1) / name).write_bytes(content)

    (sample,) = read(machine.reader()).values()

    assert all(is_plausible(family, value) for (family, *_), value in sample.values.items())
    assert sample.pci_bus_id == "0000:15:00.0"
