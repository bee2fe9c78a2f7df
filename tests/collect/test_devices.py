"""The collector of devices."""

from __future__ import annotations

import threading

import pytest
from tests.devices.helpers import children, descriptors, wait_until
from tests.fixtures.nvml.driver import driver, stub, uuid  # noqa: F401  # Two of them are fixtures.

from trainvitals.collect.base import Collector, NoData, Runner, Sink, Tally
from trainvitals.collect.devices import DevicesCollector
from trainvitals.config import DeviceSettings
from trainvitals.devices.base import Reading
from trainvitals.devices.simulated import SimulatedDevices
from trainvitals.devices.supervisor import Supervisor
from trainvitals.telemetry import DeviceSample

KEY = 'device="0",uuid="GPU-1"'


class FakeSource:
    """A source whose reading a test sets."""

    def __init__(self, reading=None):
        self.reading = reading
        self.calls = []

    def start(self):
        """Remember."""
        self.calls.append("start")

    def latest(self):
        """Return what the test has set."""
        return self.reading

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
    """Identity, up 0 and the reason is all there is."""
    values = {("utilization_ratio",): 0.5}
    sample = DeviceSample(index=0, uuid="GPU-1", vendor="nvidia", values=values).down("lost")

    found = collect(FakeSource(Reading(vendor="nvidia", up=False, devices=[sample])))

    assert found == {
        'trainvitals_device_info{device="0",driver_version="",name="",pci_bus_id="",uuid="GPU-1",vendor="nvidia"}': 1.0,
        f"trainvitals_device_up{{{KEY}}}": 0.0,
        'trainvitals_device_down_info{device="0",reason="lost",uuid="GPU-1"}': 1.0,
        'trainvitals_device_source_up{vendor="nvidia"}': 0.0,
        'trainvitals_device_source_restarts_total{vendor="nvidia"}': 0.0,
    }


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
    """One supervised process per vendor; simulated devices only on request."""
    without = DevicesCollector.from_settings(DeviceSettings())
    with_three = DevicesCollector.from_settings(DeviceSettings(simulate=3))

    assert [type(source) for source in without._sources] == [Supervisor]
    assert [type(source) for source in with_three._sources] == [Supervisor, SimulatedDevices]
    assert len(with_three._sources[1].latest().devices) == 3


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
    source = Supervisor("nvidia", interval=0.05, hung_after=1.0, backoff=(0.05, 0.1), start_child=driver.spawn)
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


def test_a_hung_driver_costs_nobody_else_anything(collector, driver):  # noqa: F811
    """Rounds go on while a call hangs; all devices become down, other collectors keep their series."""
    runner = Runner([collector, Other()], timeout=60.0, limit=20_000)

    def found():
        return series(runner.run({}, 0.0))

    try:
        wait_until(lambda: found().get('trainvitals_device_source_up{vendor="nvidia"}') == 1.0)
        driver.behave("hang 6 memory_v2")
        wait_until(driver.hung)
        wait_until(lambda: found()['trainvitals_device_source_up{vendor="nvidia"}'] == 0.0)
        during = found()
    finally:
        runner.stop()

    up = [during[f'trainvitals_device_up{{device="{index}",uuid="{uuid(index)}"}}'] for index in range(8)]
    assert up == [0.0] * 8
    assert not [name for name in during if name.startswith(("trainvitals_device_util", "trainvitals_device_temp"))]
    assert during["trainvitals_host_load1{}"] == 0.5
    assert during['trainvitals_collector_success{collector="devices"}'] == 1.0
    assert during['trainvitals_collector_success{collector="other"}'] == 1.0


def test_rounds_leave_nothing_behind(driver):  # noqa: F811
    """Descriptors, threads and processes are the same before and after 50 rounds."""
    before = (descriptors(), threading.active_count(), children())
    source = Supervisor("nvidia", interval=0.05, start_child=driver.spawn)
    collector = DevicesCollector([source])
    collector.start()
    wait_until(source.latest)
    during = (descriptors(), threading.active_count(), children())

    for _ in range(50):
        collector.collect(Sink(Tally(), limit=20_000, collector="devices"))

    assert (descriptors(), threading.active_count(), children()) == during
    collector.stop()
    assert (descriptors(), threading.active_count(), children()) == before
