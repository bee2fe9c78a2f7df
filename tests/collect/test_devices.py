"""The collector of devices."""

from __future__ import annotations

import time

import pytest
from tests.devices.helpers import wait_until
from tests.fixtures.nvml.driver import driver, stub, uuid  # noqa: F401  # Two of them are fixtures.
from tests.held import held, new_since

from trainvitals.collect.base import Collector, NoData, Sink, Tally
from trainvitals.collect.devices import DevicesCollector
from trainvitals.collect.faults import FaultLog
from trainvitals.collect.runner import Runner
from trainvitals.config import DeviceSettings
from trainvitals.devices.base import Reading
from trainvitals.devices.detect import Counted, Detected
from trainvitals.devices.simulated import SimulatedDevices
from trainvitals.devices.supervisor import Supervisor
from trainvitals.telemetry import DeviceSample, Fault

KEY = 'device="0",uuid="GPU-1"'


class FakeSource:
    """A source whose reading a test sets."""

    def __init__(self, reading=None, faults=()):
        self.reading = reading
        self.calls = []
        self.pending = list(faults)

    def start(self):
        """Remember."""
        self.calls.append("start")

    def latest(self):
        """Return what the test has set."""
        return self.reading

    def faults(self):
        """Return what came since the last call."""
        taken, self.pending = self.pending, []
        return taken

    def stop(self):
        """Remember."""
        self.calls.append("stop")


def series(families):
    """Return all samples as a table from 'name{labels}' to value."""

    def key(sample):
        return sample.name + "{" + ",".join(f'{name}="{text}"' for name, text in sorted(sample.labels.items())) + "}"

    return {key(sample): sample.value for family in families for sample in family.samples}


def collect(*sources, tally=None, clock=lambda: 1000.0):
    """Return the series of one round."""
    sink = Sink(tally or Tally(), limit=20_000, collector="devices")
    DevicesCollector(sources, clock).collect(sink)
    return series(sink.families())


def test_every_field_has_its_family():
    """A full sample becomes these series, and no others."""
    sample = DeviceSample(
        index=0,
        uuid="GPU-1",
        vendor="nvidia",
        name="NVIDIA H200",
        pci_bus_id="0000:1a:00.0",
        driver_version="570.1",
        values={
            ("utilization_ratio",): 0.5,
            ("memory_used_bytes",): 1e9,
            ("temperature_celsius", "gpu"): 40.0,
            ("temperature_celsius", "memory"): 55.0,
            ("power_watts", "instant"): 0.0,
            ("link_errors_total", "3", "replay"): 2.0,
        },
    )
    reading = Reading(vendor="nvidia", up=True, devices=[sample], age=2.0, restarts=3, failed={"unknown": 4})

    assert collect(FakeSource(reading)) == {
        'trainvitals_device_info{device="0",driver_version="570.1",name="NVIDIA H200",pci_bus_id="0000:1a:00.0",'
        'uuid="GPU-1",vendor="nvidia"}': 1.0,
        f"trainvitals_device_up{{{KEY}}}": 1.0,
        f"trainvitals_device_utilization_ratio{{{KEY}}}": 0.5,
        f"trainvitals_device_memory_used_bytes{{{KEY}}}": 1e9,
        'trainvitals_device_temperature_celsius{device="0",sensor="gpu",uuid="GPU-1"}': 40.0,
        'trainvitals_device_temperature_celsius{device="0",sensor="memory",uuid="GPU-1"}': 55.0,
        'trainvitals_device_power_watts{device="0",kind="instant",uuid="GPU-1"}': 0.0,
        'trainvitals_device_link_errors_total{device="0",kind="replay",link="3",uuid="GPU-1"}': 2.0,
        'trainvitals_device_source_up{vendor="nvidia"}': 1.0,
        'trainvitals_device_source_restarts_total{vendor="nvidia"}': 3.0,
        'trainvitals_device_source_read_timestamp_seconds{vendor="nvidia"}': 998.0,
        'trainvitals_device_reads_failed_total{reason="unknown"}': 4.0,
    }


def test_a_device_that_is_down_has_no_values():
    """Identity, up 0, the reason and since when is all there is."""
    values = {("utilization_ratio",): 0.5}
    sample = DeviceSample(index=0, uuid="GPU-1", vendor="nvidia", values=values).down("lost")
    sample.down_since = 950.5

    found = collect(FakeSource(Reading(vendor="nvidia", up=False, reason="hung", devices=[sample])))

    assert found == {
        'trainvitals_device_info{device="0",driver_version="",name="",pci_bus_id="",uuid="GPU-1",vendor="nvidia"}': 1.0,
        f"trainvitals_device_up{{{KEY}}}": 0.0,
        'trainvitals_device_down_info{device="0",reason="lost",uuid="GPU-1"}': 1.0,
        f"trainvitals_device_down_since_timestamp_seconds{{{KEY}}}": 950.5,
        'trainvitals_device_source_down_info{reason="hung",vendor="nvidia"}': 1.0,
        'trainvitals_device_source_up{vendor="nvidia"}': 0.0,
        'trainvitals_device_source_restarts_total{vendor="nvidia"}': 0.0,
    }


def test_expected_readable_and_missing_devices_are_shown():
    """A device that is down is expected and not readable; an address that the driver does not list has its series."""
    devices = [DeviceSample(index=index, uuid=f"GPU-{index}", vendor="nvidia") for index in range(3)]
    devices[1] = devices[1].down("lost")
    reading = Reading(vendor="nvidia", up=True, devices=devices, expected=4, missing=["0000:5e:00.0"], faults_lost=7)

    found = collect(FakeSource(reading))

    assert found['trainvitals_devices_expected{vendor="nvidia"}'] == 4.0
    assert found['trainvitals_devices_readable{vendor="nvidia"}'] == 2.0
    assert found['trainvitals_device_missing_info{pci_bus_id="0000:5e:00.0",vendor="nvidia"}'] == 1.0
    assert found['trainvitals_device_faults_lost_total{vendor="nvidia"}'] == 7.0


def test_devices_without_a_library_are_expected_and_nothing_else():
    """Where nothing can read them there is no source that could be up or down."""
    assert collect(FakeSource(Reading(vendor="nvidia", up=None, expected=8))) == {
        'trainvitals_devices_expected{vendor="nvidia"}': 8.0,
        'trainvitals_devices_readable{vendor="nvidia"}': 0.0,
    }


def test_all_devices_can_be_asked_for():
    """Whoever maps devices to jobs gets the samples of all sources, as they are."""
    one = DeviceSample(index=0, uuid="GPU-1", vendor="nvidia")
    real = FakeSource(Reading(vendor="nvidia", up=True, devices=[one]))

    devices = DevicesCollector([real, FakeSource(None), SimulatedDevices(1)]).latest_devices()

    assert [device.uuid for device in devices] == ["GPU-1", "SIMULATED-0"]


def test_faults_are_passed_on_once_with_the_names_of_the_devices():
    """A fault that the driver reported is counted for the device at its address, and not again in the next round."""
    lost = DeviceSample(index=3, uuid="GPU-3", vendor="nvidia", pci_bus_id="0000:1d:00.0").down("lost")
    source = FakeSource(
        Reading(vendor="nvidia", up=True, devices=[lost]), faults=[Fault("driver", "0000:1d:00.0", 79, 999.5)]
    )
    log = FaultLog()
    collector = DevicesCollector([source], faults=log)

    for _ in range(2):
        collector.collect(Sink(Tally(), limit=20_000, collector="devices"))

    sink = Sink(Tally(), limit=20_000, collector="faults")
    log.show(sink)
    found = {name: value for name, value in series(sink.families()).items() if 'xid="79"' in name}
    assert [value for name, value in found.items() if name.startswith("trainvitals_device_xid_errors_total")] == [1.0]
    assert all('device="3"' in name and 'uuid="GPU-3"' in name for name in found)


def test_without_any_source_there_is_no_data():
    """A machine without devices is no failure."""
    with pytest.raises(NoData):
        collect(FakeSource(None))


def test_sources_stand_side_by_side():
    """Real and simulated devices with the same index do not clash, and failures are added up."""
    real = Reading(
        vendor="nvidia",
        up=True,
        devices=[DeviceSample(index=0, uuid="GPU-1", vendor="nvidia", values={("utilization_ratio",): 0.5})],
        failed={"unknown": 1, "timeout": 1},
    )
    other = Reading(vendor="other", up=False, failed={"unknown": 2})

    found = collect(FakeSource(real), FakeSource(other), FakeSource(None), SimulatedDevices(1, clock=lambda: 0.0))

    assert found[f"trainvitals_device_utilization_ratio{{{KEY}}}"] == 0.5
    assert found['trainvitals_device_power_limit_watts{device="0",uuid="SIMULATED-0"}'] == 700.0
    assert found['trainvitals_device_source_up{vendor="simulated"}'] == 1.0
    assert found['trainvitals_device_source_up{vendor="other"}'] == 0.0
    assert found['trainvitals_device_reads_failed_total{reason="unknown"}'] == 3.0
    assert found['trainvitals_device_reads_failed_total{reason="timeout"}'] == 1.0


def test_settings_make_the_sources():
    """A supervised process for NVIDIA, one for each other vendor that is here; simulated devices only on request."""
    without = DevicesCollector.from_settings(DeviceSettings())
    with_three = DevicesCollector.from_settings(DeviceSettings(simulate=3))

    kinds = [type(source) for source in without._sources]
    assert (kinds.count(Supervisor), set(kinds) - {Supervisor, Detected, Counted}) == (1, set())
    assert type(with_three._sources[-1]) is SimulatedDevices
    assert len(with_three._sources[-1].latest().devices) == 3


def test_sources_are_started_and_stopped():
    """The collector owns its sources."""
    source = FakeSource()
    collector = DevicesCollector([source])

    collector.start()
    collector.stop()

    assert source.calls == ["start", "stop"]


@pytest.fixture
def collector(driver):  # noqa: F811
    """A collector of the real child on the stub of the driver."""
    source = Supervisor(
        "nvidia", interval=0.05, hung_after=1.0, backoff=(0.05, 0.1), retry=(0.2, 0.2), start_child=driver.spawn
    )
    collector = DevicesCollector([source])
    collector.start()
    yield collector
    collector.stop()


def test_absurd_values_are_rejected_and_counted(collector, driver):  # noqa: F811
    """All-ones answers of a driver cost their series alone."""
    driver.behave(
        "value 0 utilization 4294967295",
        "value 0 temperature_v 65535",
        "value 0 field82 4294967295",
        "value 0 field186 4294967295",
        "value 0 limit 4294967295",
        "value 0 sm_clock 4294967295",
        "value 0 memory_v2 18446744073709551615",
    )
    expected = {
        "trainvitals_device_utilization_ratio": 1,
        "trainvitals_device_temperature_celsius": 2,
        "trainvitals_device_power_watts": 1,
        "trainvitals_device_power_limit_watts": 1,
        "trainvitals_device_clock_hertz": 1,
        "trainvitals_device_memory_used_bytes": 1,
    }

    def rejected():
        tally = Tally()
        sink = Sink(tally, limit=20_000, collector="devices")
        try:
            collector.collect(sink)
        except NoData:
            return None
        return series(sink.families()) if tally.rejected == expected else None

    wait_until(rejected)
    found = rejected()
    device = f'device="0",uuid="{uuid(0)}"'
    gone = ("utilization_ratio{", "memory_used_bytes{", "power_limit_watts{", "temperature_celsius{")
    assert not [name for name in found if uuid(0) in name and any(family in name for family in gone)]
    assert [name for name in found if uuid(0) in name and "_power_watts{" in name] == [
        f'trainvitals_device_power_watts{{device="0",kind="average",uuid="{uuid(0)}"}}'
    ]
    assert f'trainvitals_device_clock_hertz{{clock="sm",{device}}}' not in found
    assert found[f'trainvitals_device_clock_hertz{{clock="memory",{device}}}'] == 2619e6
    assert found[f"trainvitals_device_memory_total_bytes{{{device}}}"] == 100 * 2**30
    assert found[f'trainvitals_device_utilization_ratio{{device="1",uuid="{uuid(1)}"}}'] == 0.91


class Other(Collector):
    """Another collector, which must not notice."""

    name = "other"

    def collect(self, sink):
        """Add one series."""
        sink.add("trainvitals_host_load1", 0.5)


def test_a_hung_device_costs_nobody_else_anything(collector, driver):  # noqa: F811
    """Rounds go on while a call hangs; that device is down since then, the others and other collectors keep theirs."""
    runner = Runner([collector, Other()], timeout=60.0, limit=20_000)

    def found():
        return series(runner.run({}, 0.0))

    hung = f'device="6",uuid="{uuid(6)}"'
    try:
        wait_until(lambda: found().get('trainvitals_device_source_up{vendor="nvidia"}') == 1.0)
        before = time.time()
        driver.behave("hang 6 memory_v2")
        wait_until(driver.hung)
        after = time.time()
        wait_until(lambda: found()[f"trainvitals_device_up{{{hung}}}"] == 0.0)
        during = found()
        driver.behave()
        wait_until(lambda: found()[f"trainvitals_device_up{{{hung}}}"] == 1.0)
    finally:
        runner.stop()

    up = [during[f'trainvitals_device_up{{device="{index}",uuid="{uuid(index)}"}}'] for index in range(8)]
    assert up == [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0]
    assert during[f'trainvitals_device_down_info{{device="6",reason="hung",uuid="{uuid(6)}"}}'] == 1.0
    assert before <= during[f"trainvitals_device_down_since_timestamp_seconds{{{hung}}}"] <= after + 1
    busy = [name for name in during if name.startswith("trainvitals_device_utilization_ratio")]
    assert len(busy) == 7
    assert during["trainvitals_host_load1{}"] == 0.5
    assert during['trainvitals_collector_success{collector="devices"}'] == 1.0
    assert during['trainvitals_collector_success{collector="other"}'] == 1.0
    assert during['trainvitals_devices_expected{vendor="nvidia"}'] == 8.0
    assert during['trainvitals_devices_readable{vendor="nvidia"}'] == 7.0


def test_rounds_leave_nothing_behind(driver):  # noqa: F811
    """Descriptors, threads and processes are the same before and after 50 rounds."""
    before = held()
    source = Supervisor("nvidia", interval=0.05, start_child=driver.spawn)
    collector = DevicesCollector([source])
    collector.start()
    wait_until(source.latest)
    during = held()

    for _ in range(50):
        collector.collect(Sink(Tally(), limit=20_000, collector="devices"))

    assert new_since(during) == []
    collector.stop()
    assert new_since(before) == []
