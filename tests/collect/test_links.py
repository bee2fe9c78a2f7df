"""Which links of a device should work."""

from __future__ import annotations

from dataclasses import replace

from trainvitals.collect.links import KnownLinks
from trainvitals.telemetry import DeviceSample


def device(uuid="GPU-1", **states):
    """Return a sample whose links have these states, each with some counters."""
    sample = DeviceSample(index=0, uuid=uuid, vendor="nvidia")
    sample.set("utilization_ratio", 0.5)
    for link, state in states.items():
        sample.set("link_up", state, link[1:])
        sample.set("link_transmit_bytes_total", 10.0 + state, link[1:])
    if states:
        sample.set("links_errors_total", 3.0, "replay")
    return sample


def test_a_link_that_never_worked_is_not_shown():
    """Of a board whose sockets are partly empty only the links in use are shown and expected."""
    assert KnownLinks().settle(device(_0=1.0, _1=0.0, _2=1.0)).values == {
        ("utilization_ratio",): 0.5,
        ("link_transmit_bytes_total", "0"): 11.0,
        ("link_transmit_bytes_total", "2"): 11.0,
        ("links_errors_total", "replay"): 3.0,
        ("links_expected",): 2.0,
        ("links_up",): 2.0,
    }


def test_a_link_that_broke_is_shown_from_then_on():
    """A link that breaks is shown with 0, whoever reads the device by then, and is expected still; then with 1."""
    links = KnownLinks()
    links.settle(device(_0=1.0, _1=1.0))

    later = links.settle(device(_0=1.0, _1=0.0)).values

    assert later["link_up", "1"] == 0.0
    assert ("link_up", "0") not in later
    assert later["link_transmit_bytes_total", "1"] == 10.0
    assert (later["links_expected",], later["links_up",]) == (2.0, 1.0)

    again = links.settle(device(_0=1.0, _1=1.0)).values

    assert again["link_up", "1"] == 1.0
    assert (again["links_expected",], again["links_up",]) == (2.0, 2.0)


def test_a_link_without_a_state_is_not_counted_as_down():
    """A state that could not be read costs the number of links that work, for that time."""
    links = KnownLinks()
    links.settle(device(_0=1.0, _1=1.0, _2=1.0))

    later = links.settle(device(_0=1.0, _2=1.0)).values

    assert later["links_expected",] == 3.0
    assert ("links_up",) not in later
    assert not [key for key in later if key[0] == "link_up"]


def test_a_board_without_a_link_in_use_expects_none():
    """Nothing about links is shown but that none is expected: on a machine that should have some, that is the sign."""
    assert KnownLinks().settle(device(_0=0.0, _1=0.0)).values == {
        ("utilization_ratio",): 0.5,
        ("links_expected",): 0.0,
        ("links_up",): 0.0,
    }


def test_devices_do_not_share_their_past():
    """A link that works on one device says nothing about another."""
    links = KnownLinks()
    links.settle(device("GPU-1", _0=1.0))

    assert links.settle(device("GPU-2", _0=0.0)).values["links_expected",] == 0.0


def test_devices_without_a_name_do_not_share_their_past():
    """What did not tell its UUID is known by its number."""
    links = KnownLinks()
    links.settle(device("", _0=1.0, _1=1.0))

    assert links.settle(replace(device("", _1=1.0), index=1)).values["links_expected",] == 1.0


def test_a_device_that_tells_no_state_is_left_alone():
    """Where a reader knows no state of links, or the device is down, nothing is added and nothing taken away."""
    sample = device()
    sample.set("link_errors_total", 2.0, "3", "replay")

    assert KnownLinks().settle(sample) is sample
    assert KnownLinks().settle(sample.down("lost")).values == {}


def test_the_past_of_a_device_survives_its_absence():
    """A device that was down for a while has the same links as before."""
    links = KnownLinks()
    links.settle(device(_0=1.0))
    links.settle(device().down("lost"))

    assert links.settle(device(_0=0.0)).values["link_up", "0"] == 0.0


def test_the_past_is_bounded():
    """Of thousands of UUIDs, which no node has, the oldest are forgotten."""
    links = KnownLinks()
    for number in range(3000):
        links.settle(device(f"GPU-{number}", _0=1.0))

    assert len(links._pasts) == 256
    assert links.settle(device("GPU-2999", _0=0.0)).values["links_expected",] == 1.0
    assert links.settle(device("GPU-0", _0=0.0)).values["links_expected",] == 0.0
