"""Faults from two sources: each once, under the name of its device."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import Scrape

from trainvitals.collect.base import NoData, Sink, Tally
from trainvitals.collect.faults import FaultLog, FaultsCollector
from trainvitals.telemetry import Fault

NOW = 1_700_000_000.0
PCI = "0000:05:00.0"
DEVICES = {PCI: ("2", "GPU-a"), "0000:3b:00.0": ("5", "GPU-b")}


class Clock:
    """A clock that is turned on by hand."""

    now = 50.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def xid(code: int, moment: float, source: str = "kernel", pci: str = PCI, text: str = "") -> Fault:
    """Return an XID, ``moment`` seconds after NOW."""
    return Fault(source, pci, code, NOW + moment, text)


def known() -> FaultLog:
    """Return a log that knows two devices."""
    faults = FaultLog()
    faults.know(DEVICES)
    return faults


def scrape(faults: FaultLog) -> Scrape:
    """Return what the collector shows."""
    sink = Sink(Tally(), limit=20_000, collector="faults")
    FaultsCollector(faults).collect(sink)
    return Scrape(sink.families())


def counts(faults: FaultLog) -> dict[str, float]:
    """Return the count of every XID by its code."""
    found = scrape(faults)
    prefix = "trainvitals_device_xid_errors_total{"
    return {name.split('xid="')[1][:-2]: value for name, value in found.items() if name.startswith(prefix)}


def test_an_xid_is_counter_time_and_meaning():
    """Three series under the name of the device, and a 0 for what did not happen."""
    faults = known()

    assert faults.add(xid(31, 7.0))

    index, pci = 'device="2"', 'pci_bus_id="0000:05:00.0"'
    device = f"{index},{pci}"
    assert scrape(faults) == {
        f'trainvitals_device_xid_errors_total{{{device},uuid="GPU-a",xid="31"}}': 1.0,
        f'trainvitals_device_xid_last_timestamp_seconds{{{device},uuid="GPU-a",xid="31"}}': NOW + 7.0,
        (
            f'trainvitals_device_xid_info{{action="check_application",{index},'
            f'meaning="page fault on the GPU: a program used a wrong address",{pci},'
            'uuid="GPU-a",xid="31",xid_category="application",xid_severity="warning"}'
        ): 1.0,
        f'trainvitals_device_fallen_off_bus_total{{{device},uuid="GPU-a"}}': 0.0,
        'trainvitals_device_fallen_off_bus_total{device="5",pci_bus_id="0000:3b:00.0",uuid="GPU-b"}': 0.0,
        "trainvitals_faults_dropped_total": 0.0,
    }


def test_the_same_xid_twice_from_one_source_is_two():
    """However alike and however close."""
    faults = known()

    assert faults.add(xid(31, 0.0))
    assert faults.add(xid(31, 0.0))

    assert counts(faults) == {"31": 2.0}


@pytest.mark.parametrize(("first", "second"), [("kernel", "driver"), ("driver", "kernel")])
def test_the_same_xid_from_driver_and_log_is_one(first, second):
    """In either order, some seconds apart, in two spellings of the address."""
    faults = known()

    assert faults.add(xid(79, 0.0, first, "PCI:0000:05:00"))
    assert not faults.add(xid(79, 4.0, second, "00000000:05:00.0"))

    assert counts(faults) == {"79": 1.0}


def test_of_several_alike_each_finds_its_own():
    """Three lines of the log and two events of the driver are three XIDs."""
    faults = known()

    for source, moment in [("kernel", 0.0), ("driver", 0.1), ("kernel", 0.2), ("kernel", 0.3), ("driver", 5.0)]:
        faults.add(xid(13, moment, source))

    assert counts(faults) == {"13": 3.0}


@given(st.lists(st.tuples(st.sampled_from(["kernel", "driver"]), st.floats(0.0, 10.0)), max_size=30))
def test_alike_and_close_are_as_many_as_the_busier_source_told(tellings):
    """In whatever order they come."""
    faults = known()

    for source, moment in tellings:
        faults.add(xid(13, moment, source))

    told = [source for source, _ in tellings]
    assert sum(counts(faults).values()) == max(told.count("kernel"), told.count("driver"))


def test_what_is_not_the_same_is_not_put_together():
    """Another code, another device, another time."""
    faults = known()

    faults.add(xid(48, 0.0, "kernel"))
    faults.add(xid(63, 0.0, "driver"))
    faults.add(xid(48, 0.0, "driver", "0000:3b:00.0"))
    faults.add(xid(48, 30.0, "driver"))

    found = scrape(faults)
    labels = 'device="{}",pci_bus_id="{}",uuid="{}",xid="48"'
    assert found[f"trainvitals_device_xid_errors_total{{{labels.format(2, PCI, 'GPU-a')}}}"] == 2.0
    assert found[f"trainvitals_device_xid_errors_total{{{labels.format(5, '0000:3b:00.0', 'GPU-b')}}}"] == 1.0


def test_an_old_xid_keeps_its_own_time():
    """One from before the exporter started is counted with the time at which it happened."""
    faults = known()

    faults.add(xid(94, -86_400.0))

    labels = f'device="2",pci_bus_id="{PCI}",uuid="GPU-a",xid="94"'
    assert scrape(faults)[f"trainvitals_device_xid_last_timestamp_seconds{{{labels}}}"] == NOW - 86_400.0


def test_the_last_time_does_not_go_back():
    """Sources report out of order."""
    faults = known()

    faults.add(xid(13, 100.0, "driver"))
    faults.add(xid(13, 20.0, "kernel"))

    labels = f'device="2",pci_bus_id="{PCI}",uuid="GPU-a",xid="13"'
    assert scrape(faults)[f"trainvitals_device_xid_last_timestamp_seconds{{{labels}}}"] == NOW + 100.0


def test_a_gpu_falls_off_the_bus_once():
    """XID 79 from both sources and the words, said again and again, are one XID and one fall."""
    faults = known()

    faults.add(xid(79, 0.0, "driver"))
    faults.add(xid(79, 0.5, "kernel"))
    for minute in range(0, 180, 15):
        faults.fallen_off_bus(PCI, NOW + 1.0 + 60.0 * minute)

    found = scrape(faults)
    device = f'device="2",pci_bus_id="{PCI}",uuid="GPU-a"'
    assert counts(faults) == {"79": 1.0}
    assert found[f"trainvitals_device_fallen_off_bus_total{{{device}}}"] == 1.0
    assert found[f"trainvitals_device_fallen_off_bus_last_timestamp_seconds{{{device}}}"] == NOW


def test_a_fall_without_a_number_is_a_fall():
    """The words alone are enough; a second fall a day later is one more."""
    faults = known()

    faults.fallen_off_bus("PCI:0000:3b:00", NOW)
    faults.fallen_off_bus("0000:3b:00.0", NOW + 86_400.0)

    device = 'device="5",pci_bus_id="0000:3b:00.0",uuid="GPU-b"'
    assert counts(faults) == {}
    assert scrape(faults)[f"trainvitals_device_fallen_off_bus_total{{{device}}}"] == 2.0


def test_the_log_adds_the_sub_code_to_what_the_driver_told():
    """149 is one XID; unit, effect, link and cause come from the log, whoever was first."""
    faults = known()

    faults.add(xid(149, 0.0, "driver"))
    faults.add(xid(149, 0.2, "kernel", text="NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000)"))

    found = scrape(faults)
    device = f'device="2",effect="fatal",link="8",pci_bus_id="{PCI}",subcode="NETIR_LINK_EVT",uuid="GPU-a",xid="149"'
    assert counts(faults) == {"149": 1.0}
    assert found[f'trainvitals_device_link_faults_total{{cause="signal",{device}}}'] == 1.0
    assert found[f'trainvitals_device_link_fault_last_timestamp_seconds{{cause="signal",{device}}}'] == NOW + 0.2
    (info,) = [name for name in found if name.startswith("trainvitals_device_xid_info")]
    assert 'action="reset_gpu"' in info
    assert 'xid_severity="critical"' in info


@pytest.mark.parametrize(("later", "severity"), [(60.0, "critical"), (7200.0, "info")])
def test_a_milder_message_does_not_take_back_a_worse_one_at_once(later, severity):
    """For an hour; the counter's labels stay the same whatever the verdict is."""
    faults = known()

    faults.add(xid(149, 0.0, text="NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6)"))
    faults.add(xid(149, later, text="NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x00086226)"))

    (info,) = [name for name in scrape(faults) if name.startswith("trainvitals_device_xid_info")]
    assert f'xid_severity="{severity}"' in info
    assert counts(faults) == {"149": 2.0}


def test_an_error_of_a_switch_has_number_effect_and_link():
    """Under the address of the switch."""
    faults = FaultLog()

    faults.switch("0000:c2:00.0", 20034, "fatal", "28", NOW)
    faults.switch("0000:c2:00.0", 20034, "fatal", "28", NOW + 3.0)

    labels = 'effect="fatal",link="28",pci_bus_id="0000:c2:00.0",sxid="20034"'
    assert scrape(faults) == {
        f"trainvitals_nvswitch_sxid_errors_total{{{labels}}}": 2.0,
        f"trainvitals_nvswitch_sxid_last_timestamp_seconds{{{labels}}}": NOW + 3.0,
        "trainvitals_faults_dropped_total": 0.0,
    }


def test_faults_wait_for_the_name_of_their_device():
    """So that series do not change their labels when the devices answer some seconds after the log was read."""
    clock = Clock()
    faults = FaultLog(monotonic=clock, patience=30.0)
    faults.add(xid(79, 0.0))
    clock.now += 29.0
    assert counts(faults) == {}

    faults.know(DEVICES)

    assert counts(faults) == {"79": 1.0}


def test_faults_of_a_device_that_nobody_names_are_shown_after_a_while():
    """A driver that does not answer at all is when they matter; the log itself often tells the UUID."""
    clock = Clock()
    faults = FaultLog(monotonic=clock, patience=30.0)
    faults.add(xid(79, 0.0))
    faults.add(xid(62, 0.0, pci="0000:3b:00.0"))
    faults.identify("PCI:0000:3b:00", "GPU-b")
    clock.now += 30.0

    found = scrape(faults)
    assert found[f'trainvitals_device_xid_errors_total{{device="",pci_bus_id="{PCI}",uuid="",xid="79"}}'] == 1.0
    labels = 'device="",pci_bus_id="0000:3b:00.0",uuid="GPU-b",xid="62"'
    assert found[f"trainvitals_device_xid_errors_total{{{labels}}}"] == 1.0


def test_what_the_log_says_of_a_uuid_does_not_replace_what_the_driver_says():
    """The driver knows the index as well."""
    faults = known()
    faults.identify(PCI, "GPU-other")
    faults.add(xid(79, 0.0))

    assert f'trainvitals_device_xid_errors_total{{device="2",pci_bus_id="{PCI}",uuid="GPU-a",xid="79"}}' in scrape(
        faults
    )


def test_a_device_that_is_lost_keeps_its_name():
    """The list of devices gets shorter, the names stay."""
    faults = known()
    faults.know({"0000:3b:00.0": ("5", "GPU-b")})
    faults.add(xid(79, 0.0))

    assert f'trainvitals_device_xid_errors_total{{device="2",pci_bus_id="{PCI}",uuid="GPU-a",xid="79"}}' in scrape(
        faults
    )


def test_a_device_without_an_address_names_no_fault():
    """A driver that does not tell the address must not lend its device to faults from nowhere."""
    faults = FaultLog(patience=0.0)
    faults.know({"": ("3", "GPU-c")})
    faults.add(xid(79, 0.0, pci=""))

    assert 'trainvitals_device_xid_errors_total{device="",pci_bus_id="",uuid="",xid="79"}' in scrape(faults)


@pytest.mark.parametrize("code", [0, -1, 2**32 - 1, 10**400])
def test_numbers_that_are_no_xid_are_not_taken(code):
    """Sentinels of drivers, and nonsense."""
    faults = known()

    assert not faults.add(xid(code, 0.0))
    assert not faults.add(Fault("driver", PCI, 79, float("nan")))
    assert counts(faults) == {}


def test_ever_new_faults_do_not_grow_without_end():
    """Beyond a number of different ones they are only counted."""
    faults = known()

    for code in range(1, 1001):
        faults.add(xid(code, 0.0))
    for number in range(1, 1001):
        faults.switch("0000:c2:00.0", number, "fatal", "1", NOW)

    found = scrape(faults)
    assert len(counts(faults)) == 256
    assert found["trainvitals_faults_dropped_total"] == 744 + 744


def test_without_devices_and_faults_there_is_nothing():
    """A node without accelerators has no such families."""
    with pytest.raises(NoData):
        scrape(FaultLog())


def test_two_threads_may_add_at_once():
    """The reader of the log and the reader of the devices."""
    faults = known()

    def add(code: int) -> None:
        for number in range(2000):
            faults.add(xid(code, float(number)))

    threads = [threading.Thread(target=add, args=(code,)) for code in (13, 31)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        scrape(faults)
    for thread in threads:
        thread.join()

    assert counts(faults) == {"13": 2000.0, "31": 2000.0}
