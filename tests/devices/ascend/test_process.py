"""The real reading process with a script for npu-smi and a folder for the bus: from the tool to the series."""

from __future__ import annotations

import shlex

import pytest
from tests.devices.ascend.test_reader import without_card
from tests.devices.ascend.tools import text
from tests.devices.helpers import is_running, wait_until
from tests.doctor.helpers import machine, outcomes
from tests.held import held, new_since

from trainvitals.collect.base import NoData, Sink, Tally
from trainvitals.collect.devices import DevicesCollector
from trainvitals.config import DeviceSettings
from trainvitals.devices import child
from trainvitals.doctor.ascend import ADVICE
from trainvitals.doctor.devices import check

ADDRESSES = ("0000:c1:00.0", "0000:c2:00.0", "0000:81:00.0")


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A machine with three cards; ``node.tool(script)`` is its npu-smi."""

    class Node:
        folder = tmp_path
        environ: dict[str, str]

        def card(self, address, vendor="0x19e5"):
            place = tmp_path / "pci" / address
            place.mkdir(parents=True)
            (place / "vendor").write_text(f"{vendor}\n")
            (place / "class").write_text("0x120000\n")

        def tool(self, script, name="npu-smi"):
            path = tmp_path / "bin" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)

        def prints(self, table, **kinds):
            """Let npu-smi print a table, and an answer to each kind of question."""
            (tmp_path / "table").write_text(table)
            for kind, answer in kinds.items():
                (tmp_path / kind).write_text(answer)
            folder = shlex.quote(str(tmp_path))
            self.tool(
                f'if [ "$2" = -t ]; then cat {folder}/"$3" 2>/dev/null || echo "This device does not support it.";\n'
                f"else cat {folder}/table; fi"
            )

        def collector(self):
            return DevicesCollector.from_settings(DeviceSettings(interval=0.2))

    made = Node()
    (tmp_path / "pci").mkdir()
    for address in ADDRESSES:
        made.card(address)
    monkeypatch.setenv("TRAINVITALS_PCI_DEVICES", str(tmp_path / "pci"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return made


def series(collector):
    """Return the series of one round, without labels that are not asked for here."""
    sink = Sink(Tally(), limit=10_000, collector="devices")
    try:
        collector.collect(sink)
    except NoData:
        return {}
    return {
        (sample.name.removeprefix("trainvitals_"), *sample.labels.values()): sample.value
        for family in sink.families()
        for sample in family.samples
    }


@pytest.fixture
def run(node):
    """Return a function that runs the collector of this machine until a condition on its series holds."""
    collectors = []
    before = held()

    def until(condition, seconds=30.0):
        collector = node.collector()
        collectors.append(collector)
        collector.start()
        wait_until(lambda: condition(series(collector)), seconds)
        return series(collector)

    yield until
    for collector in collectors:
        collector.stop()
    assert new_since(before) == []


def test_a_machine_with_three_cards(node, run):
    """Its series have the names, units and labels that those of NVIDIA have."""
    node.prints(text("info-910b"), common=text("common-910b"), board=text("board"), ecc=text("ecc"))

    found = run(lambda found: ("device_ecc_errors_total", "0", DIE, "corrected") in found)

    assert found["device_info", "0", DIE, "ascend", "Ascend 910B4", "0000:c1:00.0", "24.1.0"] == 1.0
    assert found["device_up", "0", DIE] == 1.0
    assert found["device_utilization_ratio", "0", DIE] == 0.05
    assert found["device_memory_total_bytes", "0", DIE] == 34359738368.0
    assert found["device_temperature_celsius", "0", DIE, "gpu"] == 41.0
    assert found["device_power_watts", "0", DIE, "instant"] == 88.3
    assert found["device_clock_hertz", "0", DIE, "sm"] == 800e6
    assert found["device_health_state", "0", DIE, "ok"] == 1.0
    assert found["devices_expected", "ascend"] == found["devices_readable", "ascend"] == 3.0
    assert not any(name == "device_reads_failed_total" for name, *_ in found)


DIE = "1A2B3C4D-00000001-00000002-00000003-0000000F"


def test_a_lost_card_is_missed_by_its_address(node, run):
    """The bus has it, npu-smi does not: no software of the maker is needed to know that."""
    node.prints(without_card(text("info-910b"), 1), board=text("board"))

    found = run(lambda found: ("devices_readable", "ascend") in found)

    assert (found["devices_expected", "ascend"], found["devices_readable", "ascend"]) == (3.0, 2.0)
    assert found["device_missing_info", "ascend", "0000:c2:00.0"] == 1.0


@pytest.mark.usefixtures("node")
def test_without_the_tool_the_cards_are_expected_all_the_same(run):
    """Three cards, and none can be read."""
    found = run(lambda found: ("devices_expected", "ascend") in found)

    assert (found["devices_expected", "ascend"], found["devices_readable", "ascend"]) == (3.0, 0.0)
    assert ("device_source_up", "ascend") not in found


def test_a_tool_that_hangs_takes_its_source_down_and_nothing_else(node, run):
    """It is killed, and what it has started with it; a reason is shown."""
    node.tool(f"sleep 1000 & echo $! > {node.folder}/pid; wait")

    found = run(lambda found: ("device_source_down_info", "ascend", "timeout") in found)

    assert found["device_source_up", "ascend"] == 0.0
    assert found["devices_readable", "ascend"] == 0.0
    wait_until(lambda: not is_running(int((node.folder / "pid").read_text())))


def test_another_program_of_that_name_is_not_believed(node, run):
    """Its output is not that of npu-smi."""
    node.tool("echo 'GPU 0: 34 C'")

    found = run(lambda found: ("device_source_down_info", "ascend", "not_understood") in found)

    assert not any(name == "device_info" for name, *_ in found)


def test_on_a_machine_with_other_cards_the_tool_is_never_started(node):
    """Cards of another maker are counted, and a program named npu-smi is left alone."""
    node.card("0000:01:00.0", "0xcabc")
    for address in ADDRESSES:
        (node.folder / "pci" / address / "vendor").write_text("0x8086\n")
    node.tool(f"echo started > {node.folder}/started")
    collector = node.collector()
    collector.start()

    try:
        wait_until(lambda: series(collector).get(("devices_expected", "cambricon")) == 1.0)
        assert not any("ascend" in key for key in series(collector))
    finally:
        collector.stop()
    assert not (node.folder / "started").exists()


def test_the_doctor_reads_it(node, tmp_path):
    """The real process once more; what npu-smi does not tell is said with its reason."""
    node.prints(text("info-910b"), board=text("board"), ecc=text("ecc"), common=text("common-910b"))
    environ = {"PATH": f"{node.folder / 'bin'}:/usr/bin:/bin", "TRAINVITALS_PCI_DEVICES": str(node.folder / "pci")}

    results = list(check("ascend", ADVICE)(machine(tmp_path, environ=environ)))

    found = {result.subject: result for result in results}
    assert found["answering"].why == "3 answer: Ascend 910B4; driver 24.1.0"
    assert outcomes(results)["network port"] == "not here"
    assert "memory errors (ECC)" in found["signals"].why


def test_the_doctor_leaves_alone_what_is_not_here(tmp_path):
    """Without a card on the bus nothing is started."""

    def start(*_, **__):
        raise AssertionError("it was started")

    (result,) = check("ascend", ADVICE, start)(machine(tmp_path, {"/sys/bus/pci/devices/": ""}))

    assert (result.outcome.value, result.why) == ("not here", "no device of this vendor on the PCI bus")


def test_the_process_ends_with_who_started_it_and_its_tool_does_too(node):
    """Nothing is left in the driver."""
    node.tool(f"echo $$ > {node.folder}/pid.new; mv {node.folder}/pid.new {node.folder}/pid; exec sleep 1000")
    process = child.spawn("ascend", 0.2)
    wait_until((node.folder / "pid").exists)

    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        pipe.close()

    wait_until(lambda: not is_running(int((node.folder / "pid").read_text())))
