"""NVLink: the real nvidia-ml-py on the stub, every device and link with numbers of its own."""

from __future__ import annotations

import pytest
from tests.devices.hurried import hurried, until
from tests.fixtures.nvml.driver import Driver, compile_stub

from trainvitals.collect.links import KnownLinks
from trainvitals.devices.nvidia.nvlink import bit_error_ratio

KIB = 1024.0
HOPPER = "value * links 18"
BLACKWELL = ("value * links 18", "value * blackwell 1")


def of(device, family):
    """Return the values of a family by their labels, which are one text when there is one."""
    found = {key[1:]: value for key, value in device.values.items() if key[0] == family}
    return {key[0] if len(key) == 1 else key: value for key, value in found.items()}


def links(device):
    """Return the families about links that a sample has."""
    return {key[0] for key in device.values if key[0].startswith("link")}


def test_every_link_has_its_state_and_its_bytes(driver):
    """The driver counts in KiB, sent and received apart, for each link of each device."""
    driver.behave(HOPPER)

    device = driver.message().devices[5]

    assert of(device, "link_up") == {str(link): 1.0 for link in range(18)}
    sent, received = of(device, "link_transmit_bytes_total"), of(device, "link_receive_bytes_total")
    assert (len(sent), len(received)) == (18, 18)
    assert (sent["0"], sent["1"], sent["17"]) == (10000 * KIB, 10010 * KIB, 10170 * KIB)
    assert (received["0"], received["17"]) == (12000 * KIB, 12170 * KIB)
    assert of(device, "links_errors_total") == {"replay": 0.0, "recovery": 0.0, "crc": 0.0}
    assert of(device, "link_errors_total") == {}
    assert of(device, "link_bit_error_ratio") == {}
    assert device.failed == {}


@pytest.mark.parametrize("hidden", ["return * field91 3", "value * field91 4000000000"], ids=["absent", "nonsense"])
def test_links_are_counted_where_the_driver_does_not_say_how_many(driver, hidden):
    """An A100 has 12 where there could be 36: the first one that is not there ends the count."""
    driver.behave("value * links 12", hidden)

    device = driver.message().devices[0]

    assert of(device, "link_up") == {str(link): 1.0 for link in range(12)}
    assert device.failed == {}


def test_a_driver_without_the_field_of_the_state_is_asked_link_by_link(driver):
    """Before Hopper the state comes from a call of its own."""
    driver.behave(HOPPER, "value * no_state_field 1", "value 2 link7 0")

    device = driver.message().devices[2]

    assert of(device, "link_up") == {str(link): float(link != 7) for link in range(18)}
    assert device.failed == {}


@pytest.mark.parametrize(("state", "up"), [(0, 0.0), (1, 1.0), (2, 1.0), (3, 0.0), (4, 0.0)])
def test_a_sleeping_link_works_and_one_without_traffic_does_not(driver, state, up):
    """A link that saves power wakes up by itself; inactive, disabled for traffic, or unknown is not up."""
    driver.behave(HOPPER, f"value 0 link4 {state}")

    assert of(driver.message().devices[0], "link_up")["4"] == up


def test_blackwell_has_other_fields(driver):
    """From Blackwell on bytes are bytes, and the kinds of errors are others."""
    driver.behave(*BLACKWELL, "value 1 field215.14 505", "value 1 field214.14 3", "value 1 field215.2 7")

    device = driver.message().devices[1]

    assert of(device, "link_transmit_bytes_total")["2"] == 901020.0
    assert of(device, "link_receive_bytes_total")["2"] == 301020.0
    assert of(device, "links_errors_total") == {
        "malformed_packet": 0.0,
        "buffer_overrun": 0.0,
        "receive": 0.0,
        "receive_remote": 0.0,
        "receive_general": 0.0,
        "link_integrity": 0.0,
        "transmit_discard": 0.0,
        "recovery_failed": 3.0,
        "recovery": 512.0,
        "effective": 0.0,
        "symbol": 0.0,
    }
    assert of(device, "link_errors_total") == {
        ("14", "recovery"): 505.0,
        ("14", "recovery_failed"): 3.0,
        ("2", "recovery"): 7.0,
    }
    assert device.failed == {}


def test_a_bit_error_ratio_is_shown_once_there_was_one(driver):
    """15e-255 is how the driver writes none: it has no series until there was another."""
    driver.behave(*BLACKWELL, "value 0 field222.3 1294", "value 0 field220.3 1039")
    with hurried(driver) as line:
        first = line().devices[0]
        driver.behave(*BLACKWELL)
        later = until(line, lambda message: of(message.devices[0], "link_bit_error_ratio")["3", "symbol"] == 0.0)

    assert of(first, "link_bit_error_ratio") == {("3", "symbol"): 5e-14, ("3", "effective"): 4e-15}
    assert of(later.devices[0], "link_bit_error_ratio") == {("3", "symbol"): 0.0, ("3", "effective"): 0.0}


@pytest.mark.parametrize(
    ("packed", "ratio"),
    [(0x50E, 5e-14), (0x10C, 1e-12), (0xF0F, 15e-15), (0xFFF, 0.0), (0, 0.0), (0x0FE, 0.0), (0x1000, 4096.0)],
)
def test_a_bit_error_ratio_is_unpacked(packed, ratio):
    """Mantissa in bits 8 to 11, exponent in bits 0 to 7; more bits are no ratio, and are rejected as one."""
    assert bit_error_ratio(packed) == ratio


def test_errors_of_a_link_are_shown_once_they_happened(driver):
    """The trend of one link tells of a fault days ahead; a link without errors costs no series."""
    driver.behave(HOPPER)
    with hurried(driver) as line:
        before = line().devices[6]
        driver.behave(HOPPER, "value 6 field162.14 2", "value 6 field162.3 40", "value 6 field163.3 5")
        after = until(line, lambda message: of(message.devices[6], "link_errors_total")).devices

    assert of(before, "link_errors_total") == {}
    assert of(after[6], "link_errors_total") == {("14", "recovery"): 2.0, ("3", "recovery"): 40.0, ("3", "crc"): 5.0}
    assert of(after[6], "links_errors_total") == {"replay": 0.0, "recovery": 42.0, "crc": 5.0}
    assert of(after[5], "links_errors_total") == {"replay": 0.0, "recovery": 0.0, "crc": 0.0}


def test_a_link_that_does_not_tell_its_errors_does_not_lower_the_sum(driver):
    """A sum that fell and rose again would look like new errors."""
    errors = ("value 0 field162.14 7", "value 0 field162.3 40")
    driver.behave(HOPPER, *errors)
    with hurried(driver) as line:
        line()
        driver.behave(HOPPER, *errors, "return 0 field162.14 999")
        device = until(line, lambda message: message.devices[0].failed).devices[0]

    assert of(device, "links_errors_total")["recovery"] == 47.0
    assert of(device, "link_errors_total") == {("3", "recovery"): 40.0}
    assert device.failed == {"unknown": 1}


def test_a_link_that_begins_anew_does_not_lower_the_sum(driver):
    """A link that is trained again counts from 0; the sum keeps what it had counted."""
    driver.behave(HOPPER, "value 0 field161.14 7", "value 0 field161.3 40")
    with hurried(driver) as line:
        line()
        driver.behave(HOPPER, "value 0 field161.14 7", "value 0 field161.3 2")
        after = until(line, lambda message: of(message.devices[0], "link_errors_total")["3", "replay"] < 40).devices[0]

    assert of(after, "link_errors_total") == {("14", "replay"): 7.0, ("3", "replay"): 2.0}
    assert of(after, "links_errors_total")["replay"] == 49.0


def test_a_blank_is_no_count(driver):
    """All bits set stays as it is, so that it is rejected, and belongs to no sum."""
    driver.behave(HOPPER, "value 0 field161.2 4294967295", "value 0 field138.5 18446744073709551615")

    device = driver.message().devices[0]

    assert of(device, "links_errors_total")["replay"] == 0.0
    assert of(device, "link_errors_total")["2", "replay"] == 4294967295.0
    assert of(device, "link_transmit_bytes_total")["5"] == float(2**64 - 1)


@pytest.mark.parametrize("rule", ["poison 0 field163 999", "poison 0 field163 3", "spoil 0 field163"])
def test_a_field_that_spoils_a_call_costs_itself_only(driver, rule):
    """Whatever the driver makes of the whole call, the other fields are read."""
    driver.behave(HOPPER, rule)

    device = driver.message().devices[0]

    assert len(of(device, "link_transmit_bytes_total")) == 18
    assert len(of(device, "link_up")) == 18
    assert of(device, "links_errors_total") == {"replay": 0.0, "recovery": 0.0}


def test_the_source_of_bytes_does_not_change(driver):
    """A failure of the one field is a gap, not a change to another that counts otherwise."""
    driver.behave(HOPPER)
    with hurried(driver) as line:
        line()
        driver.behave(HOPPER, "return 0 field138 999", "value 0 blackwell 1")
        device = until(line, lambda message: not of(message.devices[0], "link_transmit_bytes_total")).devices[0]

    assert of(device, "link_receive_bytes_total") == {}
    assert len(of(device, "link_up")) == 18


def test_a_link_that_goes_down_and_comes_back(driver):
    """A link that fails is 0 from the next reading on, and its counters stay; the others do not change."""
    driver.behave(HOPPER)
    with hurried(driver) as line:
        line()
        driver.behave(HOPPER, "value 3 link9 0")
        down = until(line, lambda message: of(message.devices[3], "link_up")["9"] == 0.0).devices
        driver.behave(HOPPER)
        until(line, lambda message: of(message.devices[3], "link_up")["9"] == 1.0)

    assert of(down[3], "link_up")["8"] == 1.0
    assert of(down[3], "link_transmit_bytes_total")["9"] == 8090 * KIB
    assert of(down[4], "link_up")["9"] == 1.0


def test_a_board_without_a_bridge_is_not_asked_for_counters(driver):
    """None of its links works, so all of them are told to be down and nothing is counted, nor shown later."""
    driver.behave("value * links 12", "value * plugged 0", "log")

    device = driver.message().devices[0]

    assert of(device, "link_up") == {str(link): 0.0 for link in range(12)}
    assert links(device) == {"link_up"}
    assert links(KnownLinks().settle(device)) == {"links_expected", "links_up"}


def test_a_new_process_does_not_forget_which_links_should_work(driver):
    """The link that took the reading process down with it is shown as down by the next one."""
    known = KnownLinks()
    driver.behave(HOPPER, "value 0 link17 0")
    known.settle(driver.message().devices[0])
    driver.behave(HOPPER, "value 0 link17 0", "value 0 link3 0")

    device = known.settle(driver.message().devices[0])

    assert of(device, "link_up") == {"3": 0.0}
    assert (device.values["links_expected",], device.values["links_up",]) == (17.0, 16.0)


def test_a_device_without_nvlink_has_no_series(driver):
    """Neither series nor failures, on a current driver and on an old one."""
    device = driver.message().devices[0]

    assert links(device) == set()
    assert device.failed == {}


def test_an_older_driver_is_read_as_well(tmp_path):
    """A driver from before Blackwell knows none of its fields."""
    old = Driver(compile_stub(tmp_path, "-DOLD_DRIVER"), tmp_path)
    old.behave("value * links 12", "value * no_state_field 1")

    device = old.message().devices[1]

    assert of(device, "link_transmit_bytes_total")["11"] == 6110 * KIB
    assert device.failed == {}


def test_a_failing_state_is_counted_and_costs_that_link(driver):
    """A link whose state cannot be read has no state; the others have."""
    driver.behave(HOPPER, "return 0 field165.4 999", "return 0 link_state 999")

    device = driver.message().devices[0]

    assert of(device, "link_up") == {str(link): 1.0 for link in range(18) if link != 4}
    assert device.failed == {"unknown": 1}


@pytest.mark.parametrize(("rules", "calls"), [((HOPPER,), 2), (BLACKWELL, 4), (("value * links 36", BLACKWELL[1]), 6)])
def test_all_links_take_few_calls(driver, rules, calls):
    """One call for all states, and one for all counters as long as they are not more than fit into it."""
    driver.rounds((0, "log"), (15, "log"))
    driver.rounds((0, "log", *rules), (15, "log", *rules))

    _, without, _, with_links = [step.count("fields") for step in driver.calls()]
    assert with_links - without == calls


def test_the_fields_are_those_of_the_binding():
    """Numbers and names go together as nvidia-ml-py has them."""
    import pynvml

    from trainvitals.devices.nvidia import nvlink

    count = "NVML_FI_DEV_NVLINK_COUNT_"
    names = {
        138: "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX",
        139: "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX",
        161: "NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY",
        162: "NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY",
        163: "NVML_FI_DEV_NVLINK_ERROR_DL_CRC",
        202: count + "XMIT_BYTES",
        204: count + "RCV_BYTES",
        206: count + "MALFORMED_PACKET_ERRORS",
        207: count + "BUFFER_OVERRUN_ERRORS",
        208: count + "RCV_ERRORS",
        209: count + "RCV_REMOTE_ERRORS",
        210: count + "RCV_GENERAL_ERRORS",
        211: count + "LOCAL_LINK_INTEGRITY_ERRORS",
        212: count + "XMIT_DISCARDS",
        214: count + "LINK_RECOVERY_FAILED_EVENTS",
        215: count + "LINK_RECOVERY_EVENTS",
        219: count + "EFFECTIVE_ERRORS",
        220: count + "EFFECTIVE_BER",
        221: count + "SYMBOL_ERRORS",
        222: count + "SYMBOL_BER",
    }
    known = {number: name for number, name in names.items() if hasattr(pynvml, name)}
    assert {number: getattr(pynvml, name) for number, name in known.items()} == {number: number for number in known}
    assert sorted(names) == sorted(nvlink._FIELDS)
    assert (pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT, pynvml.NVML_FI_DEV_NVLINK_GET_STATE) == (91, 165)
