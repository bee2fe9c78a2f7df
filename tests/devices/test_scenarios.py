"""What may happen to the devices of a node, each told to the real collector with the real child on the stub.

After each scenario the other devices have their values, and no round of the collector took longer than a moment.
The table names the test of every scenario; what is the matter of one reader alone is tested beside it.
"""

from __future__ import annotations

import ast
import json
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tests.devices.helpers import is_running, wait_until
from tests.fixtures.nvml.driver import uuid

from trainvitals.collect.base import NoData, Sink, Tally
from trainvitals.collect.devices import DevicesCollector
from trainvitals.devices.pci import Bus
from trainvitals.devices.supervisor import Supervisor
from trainvitals.devices.vendors import VENDORS

TESTS = Path(__file__).parents[1]
HERE = "devices/test_scenarios.py"
NVIDIA = "devices/test_nvidia"

#: Scenario -> file below tests/ and test.
SCENARIOS = {
    "normal, 8 GPUs": (HERE, "test_eight_healthy_devices"),
    "GPU lost in the middle of a run": (HERE, "test_a_device_that_is_lost_and_comes_back"),
    "handle fails at the start": (HERE, "test_a_device_without_a_handle_from_the_start"),
    "reset required": (HERE, "test_a_device_that_needs_a_reset"),
    "all GPUs blocked (cgroup)": (HERE, "test_a_container_that_loses_its_devices"),
    "NVML init fails with UNKNOWN (daemon-reload)": (HERE, "test_a_library_that_fails_in_a_container"),
    "driver absent, then appears": (HERE, "test_a_driver_that_comes_late"),
    "driver upgraded (mismatch)": (HERE, "test_an_upgraded_driver"),
    "driver unloaded": (HERE, "test_a_driver_that_is_unloaded_and_loaded"),
    "driver let go of for a reset": (HERE, "test_a_pause_for_a_reset"),
    "NVML call never returns": (HERE, "test_a_call_that_never_returns"),
    "NVML call never returns, over HTTP": (HERE, "test_every_scrape_of_a_wedged_node_is_quick"),
    "two devices hang": (HERE, "test_two_devices_that_hang"),
    "slow call, 45 s": (HERE, "test_a_call_that_is_slow"),
    "GPU vanishes from bus and driver": (HERE, "test_a_device_that_vanishes"),
    "GPU on the bus that the driver never lists": (HERE, "test_a_device_that_the_driver_never_lists"),
    "utilization 4294967295": ("collect/test_devices.py", "test_absurd_values_are_rejected_and_counted"),
    "temperature margin -5": (f"{NVIDIA}_values.py", "test_a_margin_may_be_used_up"),
    "12 of 36 links": (f"{NVIDIA}_nvlink.py", "test_links_are_counted_where_the_driver_does_not_say_how_many"),
    "Blackwell link ids": (f"{NVIDIA}_nvlink.py", "test_blackwell_has_other_fields"),
    "one id poisons a batch of fields": (f"{NVIDIA}_fields.py", "test_one_field_that_spoils_the_call_costs_itself"),
    "MIG created and destroyed": (HERE, "test_instances_that_come_and_go"),
    "MIG created and destroyed, values": (f"{NVIDIA}_mig.py", "test_instances_that_are_destroyed_leave_no_series"),
    "PID gone": (f"{NVIDIA}_processes.py", "test_processes_that_end_are_gone"),
    "PID reused": ("collect/test_processes.py", "test_the_process_of_a_rank_is_found_by_its_lock"),
    "UUID bytes not UTF-8": (HERE, "test_a_uuid_that_is_no_text"),
    "XID 31 twice": (f"{NVIDIA}_events.py", "test_two_equal_xids_are_two"),
    "XID 79, then lost": (f"{NVIDIA}_events.py", "test_a_device_that_falls_off_the_bus_is_named"),
    "XID 149 with sub-code from the kernel's log": (
        "collect/test_faults.py",
        "test_the_log_adds_the_sub_code_to_what_the_driver_told",
    ),
    "XID before the start": ("collect/test_kernel.py", "test_xids_of_the_log_become_series_of_their_devices"),
    "energy counter reset": (f"{NVIDIA}_values.py", "test_energy_begins_anew_with_the_driver"),
    "PCIe bytes wrap": (f"{NVIDIA}_values.py", "test_bytes_over_pcie_are_counted_over_the_wrap"),
    "Slurm by UUID, index, minor": ("collect/test_attribution.py", "test_a_number_is_that_of_the_device_file"),
    "rank dies and leaves its series": ("collect/test_attribution.py", "test_an_ended_rank_has_no_device"),
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_scenario_has_its_test(scenario):
    """The table names tests that exist."""
    file, name = SCENARIOS[scenario]
    tree = ast.parse((TESTS / file).read_text())

    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def key(index, **labels):
    """Return the labels of a device as text."""
    return ",".join(
        f'{name}="{text}"' for name, text in sorted({"device": index, "uuid": uuid(index), **labels}.items())
    )


class Node:
    """A collector of the real child on the stub, and a bus with the stub's eight devices."""

    def __init__(self, driver, folder, **settings):
        self.driver = driver
        self.bus = folder / "bus"
        for index in range(8):
            self.plug(f"0000:{0x1A + index:02x}:00.0")
        times = {"interval": 0.05, "hung_after": 1.0, "backoff": (0.05, 0.2), "retry": (0.3, 0.6), "retry_absent": 0.2}
        self.source = Supervisor(
            "nvidia",
            bus=Bus(VENDORS["nvidia"].pci, root=str(self.bus), environ={}, proc=str(folder)),
            start_child=driver.spawn,
            **{**times, **settings},
        )
        self.collector = DevicesCollector([self.source])
        self.longest = 0.0

    def plug(self, address):
        """Put a device on the bus."""
        place = self.bus / address
        place.mkdir(parents=True)
        (place / "vendor").write_text("0x10de\n")
        (place / "class").write_text("0x030200\n")

    def unplug(self, address):
        """Take a device from the bus."""
        for name in ("vendor", "class"):
            (self.bus / address / name).unlink()
        (self.bus / address).rmdir()

    def scrape(self):
        """Return the series of one round; no round takes longer than a moment."""
        sink = Sink(Tally(), limit=20_000, collector="devices")
        begun = time.monotonic()
        try:
            self.collector.collect(sink)
        except NoData:
            return {}
        finally:
            self.longest = max(self.longest, time.monotonic() - begun)
        found = {}
        for family in sink.families():
            for sample in family.samples:
                labels = ",".join(f'{name}="{text}"' for name, text in sorted(sample.labels.items()))
                found[f"{sample.name}{{{labels}}}"] = sample.value
        return found

    def until(self, condition):
        """Scrape until ``condition`` holds for a round; return that round."""
        rounds = []

        def holds():
            rounds[:] = [self.scrape()]
            return condition(rounds[0])

        wait_until(holds, seconds=60.0)
        return rounds[0]

    def healthy(self, *, but=(), of=8):
        """Wait until all devices but some are up; check that these have their own values; return that round."""
        well = [index for index in range(of) if index not in but]
        found = self.until(
            lambda found: (
                all(up(found, index) == 1.0 for index in well) and not any(up(found, index) == 1.0 for index in but)
            )
        )
        check(found, well)
        return found


def up(found, index):
    """Return whether a device is up; None when it is not known."""
    return found.get(f"trainvitals_device_up{{{key(index)}}}")


def reason(found, index):
    """Return why a device is down; empty when it is not."""
    names = [name for name in found if name.startswith("trainvitals_device_down_info{") and uuid(index) in name]
    assert len(names) <= 1
    return re.search(r'reason="(\w+)"', names[0])[1] if names else ""


def check(found, well):
    """Check that these devices are up with the values that the stub gives each of them."""
    for index in well:
        assert up(found, index) == 1.0
        assert found[f"trainvitals_device_utilization_ratio{{{key(index)}}}"] == pytest.approx(0.90 + index / 100)
        assert found[f"trainvitals_device_temperature_celsius{{{key(index, sensor='gpu')}}}"] == 50.0 + index
        assert not reason(found, index)


def values(found, index):
    """Return the series of a device that are more than its identity and its state."""
    state = ("trainvitals_device_info", "trainvitals_device_up", "trainvitals_device_down_")
    return [name for name in found if uuid(index) in name and not name.startswith(state)]


@pytest.fixture
def node(driver, tmp_path):
    """Return a function that starts a node; in the end no round may have taken as long as a hang."""
    nodes = []

    def start(*rules, **settings):
        driver.behave(*rules)
        nodes.append(Node(driver, tmp_path, **settings))
        nodes[-1].collector.start()
        return nodes[-1]

    yield start
    for one in nodes:
        one.collector.stop()
        assert one.longest < 1.0


def test_eight_healthy_devices(node):
    """All are up with their own values, expected and readable are eight, and nothing has a reason to be down."""
    found = node().healthy()

    assert found['trainvitals_devices_expected{vendor="nvidia"}'] == 8.0
    assert found['trainvitals_devices_readable{vendor="nvidia"}'] == 8.0
    assert not [name for name in found if "_down_" in name or "missing" in name]


#: All that a Hopper with NVSwitches tells; the health of the fabric is well in each of its aspects.
EVERYTHING = ("value * gpm 1", "value * links 18", "value * fabric 3", "value * fabric_health 20906")


def test_eight_devices_stay_within_their_budget(node):
    """A node has 1,500 series in all; its devices, which are most of them, have 1,040."""
    here = node(*EVERYTHING)
    here.healthy()
    found = here.until(lambda found: any("sm_activity" in name for name in found))

    assert sum(name.startswith("trainvitals_device_link_transmit_bytes_total") for name in found) == 144
    assert found[f"trainvitals_device_fabric_unhealthy{{{key(7)}}}"] == 0.0
    assert len(found) <= 1040


def lost_and_back(node, code, word):
    """Let device 5 return a code for a while."""
    here = node()
    here.healthy()
    before = time.time()
    here.driver.behave(f"return 5 * {code}")
    found = here.healthy(but=[5])

    assert reason(found, 5) == word
    assert before - 1 <= found[f"trainvitals_device_down_since_timestamp_seconds{{{key(5)}}}"] <= time.time()
    assert values(found, 5) == []
    assert found['trainvitals_devices_readable{vendor="nvidia"}'] == 7.0
    assert found['trainvitals_device_source_restarts_total{vendor="nvidia"}'] == 0.0
    here.driver.behave()
    assert values(here.healthy(), 5)


def test_a_device_that_is_lost_and_comes_back(node):
    """It is lost, with its name and without values, and comes back with the same name."""
    lost_and_back(node, 15, "lost")


def test_a_device_that_needs_a_reset(node):
    """It says so."""
    lost_and_back(node, 16, "reset_required")


def test_a_device_without_a_handle_from_the_start(node):
    """It has no name yet, but its number, its address (the only one that is left on the bus) and a reason."""
    here = node("return 2 handle 15")
    found = here.until(lambda found: up(found, 7) == 1.0)
    check(found, [0, 1, 3, 4, 5, 6, 7])

    assert found['trainvitals_device_down_info{device="2",reason="lost",uuid=""}'] == 1.0
    assert [name for name in found if 'pci_bus_id="0000:1c:00.0"' in name and 'device="2"' in name]
    assert not [name for name in found if "missing" in name]
    here.driver.behave()
    found = here.healthy()
    assert 'trainvitals_device_up{device="2",uuid=""}' not in found


def test_a_container_that_loses_its_devices(node):
    """Every device is blocked; when the container has them again nothing had to be restarted."""
    here = node()
    here.healthy()
    here.driver.behave("return * * 17")
    found = here.until(lambda found: all(up(found, index) == 0.0 for index in range(8)))

    assert {reason(found, index) for index in range(8)} == {"blocked"}
    here.driver.behave()
    assert here.healthy()['trainvitals_device_source_restarts_total{vendor="nvidia"}'] == 0.0


def test_a_library_that_fails_in_a_container(node):
    """After a reload of systemd the library cannot be opened: unknown is what it says, and that is shown."""
    here = node()
    here.healthy()
    here.driver.behave("return * count 999", "return * init 999")
    found = here.until(lambda found: found.get('trainvitals_device_source_up{vendor="nvidia"}') == 0.0)

    assert {reason(found, index) for index in range(8)} == {"unknown"}
    assert found['trainvitals_device_source_down_info{reason="unknown",vendor="nvidia"}'] == 1.0
    assert found['trainvitals_devices_readable{vendor="nvidia"}'] == 0.0
    here.driver.behave()
    here.healthy()


def test_a_driver_that_comes_late(node):
    """Before it the devices on the bus are expected and none is readable; then they are read."""
    here = node("unloaded")
    found = here.until(lambda found: 'trainvitals_device_source_up{vendor="nvidia"}' in found)

    assert found['trainvitals_device_source_up{vendor="nvidia"}'] == 0.0
    assert found['trainvitals_device_source_down_info{reason="driver_not_loaded",vendor="nvidia"}'] == 1.0
    assert found['trainvitals_devices_expected{vendor="nvidia"}'] == 8.0
    assert found['trainvitals_devices_readable{vendor="nvidia"}'] == 0.0
    here.driver.behave()
    here.healthy()


def test_a_driver_that_is_unloaded_and_loaded(node):
    """Its devices are down with the driver, and the same process reads them again."""
    here = node()
    here.healthy()
    here.driver.behave("unloaded")
    found = here.until(lambda found: found['trainvitals_device_source_up{vendor="nvidia"}'] == 0.0)

    assert {reason(found, index) for index in range(8)} == {"driver"}
    here.driver.behave()
    assert here.healthy()['trainvitals_device_source_restarts_total{vendor="nvidia"}'] == 0.0


def test_an_upgraded_driver(node):
    """The library that is loaded no longer fits: the reading process is replaced by one that loads the new one."""
    here = node()
    here.healthy()
    here.driver.behave("return * count 18")
    found = here.until(lambda found: found['trainvitals_device_source_up{vendor="nvidia"}'] == 0.0)

    assert {reason(found, index) for index in range(8)} == {"driver"}
    assert found['trainvitals_device_source_down_info{reason="lib_rm_version_mismatch",vendor="nvidia"}'] == 1.0
    here.driver.behave()
    assert here.healthy()['trainvitals_device_source_restarts_total{vendor="nvidia"}'] >= 1.0


def test_a_pause_for_a_reset(node, tmp_path):
    """While the file is there all are paused; then they are read again, and none of it counts as a failure."""
    file = tmp_path / "pause"
    here = node(pause_file=str(file))
    here.healthy()
    file.touch()
    found = here.until(lambda found: found['trainvitals_device_source_up{vendor="nvidia"}'] == 0.0)

    assert {reason(found, index) for index in range(8)} == {"paused"}
    assert not [name for name in found if name.startswith("trainvitals_device_reads_failed_total")]
    file.unlink()
    assert here.healthy()['trainvitals_device_source_restarts_total{vendor="nvidia"}'] == 0.0


def test_a_call_that_never_returns(node):
    """The device that was asked hangs since then; the others are read on by another process; it comes back."""
    here = node()
    here.healthy()
    before = time.time()
    here.driver.behave("hang 3 utilization")
    wait_until(here.driver.hung)
    after = time.time()
    found = here.healthy(but=[3])

    assert reason(found, 3) == "hung"
    since = found[f"trainvitals_device_down_since_timestamp_seconds{{{key(3)}}}"]
    assert before - 1 <= since <= after + 1
    assert values(found, 3) == []
    fresh = found['trainvitals_device_source_read_timestamp_seconds{vendor="nvidia"}']
    newer = here.until(
        lambda found: found['trainvitals_device_source_read_timestamp_seconds{vendor="nvidia"}'] > fresh + 1
    )
    check(newer, [0, 1, 2, 4, 5, 6, 7])
    assert newer[f"trainvitals_device_down_since_timestamp_seconds{{{key(3)}}}"] == since
    here.driver.behave()
    here.healthy()
    wait_until(lambda: not any(is_running(pid) for pid in here.driver.hung()))


def test_two_devices_that_hang(node):
    """Both are named, the other six are read, and each comes back by itself."""
    here = node()
    here.healthy()
    here.driver.behave("hang 3 utilization", "hang 6 utilization")
    found = here.healthy(but=[3, 6])

    assert (reason(found, 3), reason(found, 6)) == ("hung", "hung")
    here.driver.behave("hang 6 utilization")
    found = here.healthy(but=[6])
    assert reason(found, 6) == "hung"
    here.driver.behave()
    here.healthy()


def test_a_call_that_is_slow(node):
    """One that takes longer than a hang counts as one until it is quick again; a shorter one is waited for."""
    here = node()
    here.healthy()
    here.driver.behave("slow 3 utilization 400")
    begun = time.monotonic()
    here.until(lambda _: time.monotonic() - begun > 2.0)
    assert here.healthy()['trainvitals_device_source_restarts_total{vendor="nvidia"}'] == 0.0

    here.driver.behave("slow 3 utilization 2250")
    found = here.healthy(but=[3])
    assert reason(found, 3) == "hung"
    here.driver.behave()
    here.healthy()


def test_a_device_that_vanishes(node):
    """One that neither the driver nor the bus has any more was here once: it is missed, by name and by address."""
    here = node()
    here.healthy()
    here.unplug("0000:21:00.0")
    here.driver.behave("count 7")
    found = here.healthy(but=[7])

    assert reason(found, 7) == "missing"
    assert found['trainvitals_devices_expected{vendor="nvidia"}'] == 8.0
    assert found['trainvitals_devices_readable{vendor="nvidia"}'] == 7.0
    assert found['trainvitals_device_missing_info{pci_bus_id="0000:21:00.0",vendor="nvidia"}'] == 1.0
    here.driver.behave()
    found = here.healthy()
    assert not [name for name in found if "missing" in name]


def test_a_device_that_the_driver_never_lists(node):
    """One on the bus that the driver does not have is expected and named."""
    here = node("count 5")
    found = here.healthy(of=5)

    assert found['trainvitals_devices_expected{vendor="nvidia"}'] == 8.0
    assert found['trainvitals_devices_readable{vendor="nvidia"}'] == 5.0
    missing = [name for name in found if name.startswith("trainvitals_device_missing_info")]
    assert [re.search(r'pci_bus_id="([^"]+)"', name)[1] for name in sorted(missing)] == [
        "0000:1f:00.0",
        "0000:20:00.0",
        "0000:21:00.0",
    ]


def test_a_uuid_that_is_no_text(node):
    """Bytes that are no UTF-8 are shown damaged; the device is read."""
    found = node("uuid 4 damaged").healthy(but=[4])

    device = [name for name in found if name.startswith('trainvitals_device_up{device="4"')]
    assert len(device) == 1
    assert found[device[0]] == 1.0
    damaged = re.search(r'uuid="([^"]*)"', device[0])[1]
    assert found[f'trainvitals_device_utilization_ratio{{device="4",uuid="{damaged}"}}'] == 0.94


def test_instances_that_come_and_go(node):
    """A device that is split keeps its board's values, and is whole when the driver is back."""
    here = node("value 2 mig_mode 1", "value 2 mig0 100")
    found = here.healthy()
    assert [name for name in found if name.startswith("trainvitals_device_mig_info") and uuid(2) in name]

    # Whoever changes a partition lets go of the device first, or resets it.
    here.driver.behave("unloaded")
    here.until(lambda found: up(found, 2) == 0.0)
    here.driver.behave()
    found = here.healthy()
    assert not [name for name in found if name.startswith("trainvitals_device_mig_info")]


# The exporter itself -----------------------------------------------------------------------------------------------


@pytest.fixture
def exporter(driver, tmp_path):
    """The URL of the real exporter on the stub."""
    settings = {
        "web": {"listen_address": "127.0.0.1:0"},
        "spool": {"folders": [str(tmp_path / "spool")]},
        "collect": {"interval": "200ms"},
        "devices": {"interval": "100ms", "hung_after": "1s", "retry_first": "1s", "retry_longest": "2s"},
    }
    (tmp_path / "settings.yml").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "trainvitals", "exporter", "--config.file", str(tmp_path / "settings.yml")]
    environ = {name: text for name, text in driver.environ.items() if name != "TRAINVITALS_DIR"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environ)
    log = []
    reader = threading.Thread(target=lambda: log.extend(process.stderr))
    reader.start()
    wait_until(lambda: re.search(r"listening on (\S+)", "".join(log)))
    yield re.search(r"listening on (\S+)", "".join(log))[1]
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0, "".join(log)
    reader.join()
    process.stderr.close()


def test_every_scrape_of_a_wedged_node_is_quick(exporter, driver):
    """Over HTTP, every scrape during a hang answers within a second, names the device, and shows the others fresh."""
    seen = []

    def scrape():
        begun = time.monotonic()
        with urllib.request.urlopen(f"{exporter}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        seen.append(time.monotonic() - begun)
        pattern = re.compile(r"^(trainvitals_devices?_\S*?\{[^}]*\}) (\S+)$", re.MULTILINE)
        return {name: float(value) for name, value in pattern.findall(text)}

    def until(condition):
        rounds = []

        def holds():
            with_503 = False
            try:
                rounds[:] = [scrape()]
            except urllib.error.HTTPError as error:
                with_503 = error.code == 503
            return not with_503 and condition(rounds[0])

        wait_until(holds, seconds=60.0)
        return rounds[0]

    until(lambda found: all(up(found, index) == 1.0 for index in range(8)))
    seen.clear()
    before = time.time()
    driver.behave("hang 3 utilization")
    wait_until(driver.hung)
    after = time.time()

    others = [0, 1, 2, 4, 5, 6, 7]

    def told(found):
        # While the hang is found out, and while the next process starts, nobody else is down.
        assert all(up(found, index) == 1.0 for index in others)
        return up(found, 3) == 0.0

    found = until(told)
    assert reason(found, 3) == "hung"
    since = found[f"trainvitals_device_down_since_timestamp_seconds{{{key(3)}}}"]
    assert before - 1 <= since <= after + 1
    read = found['trainvitals_device_source_read_timestamp_seconds{vendor="nvidia"}']
    found = until(
        lambda found: (
            told(found) and found['trainvitals_device_source_read_timestamp_seconds{vendor="nvidia"}'] > read + 2
        )
    )
    check(found, others)
    driver.behave()
    found = until(lambda found: up(found, 3) == 1.0)
    check(found, range(8))
    assert len(seen) > 5
    assert max(seen) < 1.0
