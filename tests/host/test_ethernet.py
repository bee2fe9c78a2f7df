"""Network interfaces: which are shown, and whatever their files may hold."""

from __future__ import annotations

import errno
import os

import pytest
from tests.host.sysfs_tables import plant, uproot, write

from trainvitals.host.ethernet import Ethernet
from trainvitals.host.links import Choice
from trainvitals.host.sysfs import Sysfs

GBIT = 125_000_000.0  # bytes per second


@pytest.fixture
def make(tmp_path, clock, opener):
    """Give readers of a tree."""

    def make(choice=None):
        return Ethernet(Sysfs(str(tmp_path), opener, clock), choice, clock)

    return make


def by_name(interfaces):
    """Return interfaces by name."""
    return {interface.name: interface for interface in interfaces}


def test_an_interface_is_read_whole(tmp_path, make):
    """State, speed, place; received and sent apart; rare kinds of errors once they are not zero."""
    plant(tmp_path, "connectx7_roce", n=2)

    (rail,) = make().interfaces()

    assert (rail.name, rail.details.kind, rail.details.master) == ("rail2", "ethernet", "")
    assert rail.details.place[:3] == ("0000:2a:00.1", "", "mlx5_core")
    assert (rail.enabled, rail.state, rail.up) == (True, "up", True)
    assert (rail.speed, rail.expected_speed, rail.mtu) == (400 * GBIT, 400 * GBIT, 9000)
    assert (rail.carrier_changes, rail.carrier_downs) == (5, 2)
    assert (rail.received, rail.sent) == (6100, 6200)
    assert rail.errors == {"rx_errors": 63, "tx_errors": 0, "rx_dropped": 64, "tx_dropped": 0, "rx_crc_errors": 65}


def test_only_links_that_leave_the_machine_are_shown(tmp_path, make):
    """No loopback, virtual function, representor, tunnel, container or empty bond; no file that is no interface."""
    plant(tmp_path, "interfaces")

    kinds = {name: interface.details.kind for name, interface in by_name(make().interfaces()).items()}

    assert kinds == {
        "bond0": "bond",
        "eno1": "ethernet",
        "eno2": "ethernet",
        "eno3": "ethernet",
        "eno4": "ethernet",
        "ib0": "infiniband",
    }


def test_virtual_functions_on_demand(tmp_path, make):
    """A setting shows them, and the ports of the switch in the card."""
    plant(tmp_path, "interfaces")

    assert {"vf0", "rep0"} <= by_name(make(Choice(virtual_functions=True)).interfaces()).keys()


def test_a_bond_counts_nothing_twice(tmp_path, make):
    """It has a state and a speed; bytes and errors are those of its members, which name it."""
    plant(tmp_path, "interfaces")

    found = by_name(make().interfaces())

    bond = found["bond0"]
    assert (bond.state, bond.speed, bond.received, bond.sent, bond.errors) == ("up", 25 * GBIT, None, None, {})
    assert (found["eno1"].received, found["eno2"].sent) == (1100, 2200)
    assert [found[name].details.master for name in ("eno1", "eno2", "eno3")] == ["bond0", "bond0", ""]
    assert sum(interface.received or 0 for interface in found.values()) == 1100 + 2100 + 4100


def test_states(tmp_path, make):
    """Up, down, switched off, and one whose driver never says: there the carrier decides."""
    plant(tmp_path, "interfaces")

    found = by_name(make().interfaces())

    states = {name: (one.enabled, one.state, one.up, one.speed) for name, one in found.items() if name != "bond0"}
    assert states == {
        "eno1": (True, "up", True, 25 * GBIT),
        "eno2": (True, "down", False, None),
        "eno3": (False, "down", False, None),
        "eno4": (True, "unknown", True, None),
        "ib0": (True, "up", True, 400 * GBIT),
    }


def test_a_carrier_that_cannot_be_read_says_nothing(tmp_path, make, opener):
    """Neither the driver nor the carrier: whether the link is up is not known, and so absent."""
    plant(tmp_path, "interfaces")
    opener.fail = {"/eno4/carrier": errno.EINVAL}

    assert by_name(make().interfaces())["eno4"].up is None


def test_the_speed_of_a_dead_link_is_not_asked(tmp_path, make, opener):
    """The kernel answers EINVAL, and takes a lock of the whole network for it."""
    plant(tmp_path, "interfaces")

    make().interfaces()

    asked = {path.split("/")[-2] for path in opener.opened if path.endswith("/speed")}
    assert asked == {"bond0", "eno1", "eno4", "ib0"}


@pytest.mark.parametrize(
    "content", [b"", b"-1\n", b"0\n", b"65535\n", b"4294967295\n", b"9" * 4096, b"\xff\xfe", b"fast\n"]
)
def test_a_speed_that_is_none(tmp_path, make, content):
    """Drivers write "unknown" in many ways."""
    plant(tmp_path, "connectx7_roce", n=2)
    write(tmp_path / "class/net/rail2/speed", content)

    (rail,) = make().interfaces()

    assert (rail.speed, rail.expected_speed, rail.received) == (None, None, 6100)


def test_a_link_that_trains_down_shows_as_a_pair(tmp_path, make):
    """From 400 to 100 Gb/s, and later down: the expected speed stays."""
    plant(tmp_path, "connectx7_roce", n=2)
    ethernet = make()
    ethernet.interfaces()
    write(tmp_path / "class/net/rail2/speed", "100000")
    (slow,) = ethernet.interfaces()
    write(tmp_path / "class/net/rail2/operstate", "down")
    (down,) = ethernet.interfaces()

    assert (slow.speed, slow.expected_speed) == (100 * GBIT, 400 * GBIT)
    assert (down.up, down.speed, down.expected_speed) == (False, None, 400 * GBIT)


def test_settings_say_what_is_expected(tmp_path, make):
    """An interface that never was at its speed shows too; its neighbours do not count."""
    for n in (1, 2, 3, 4):
        plant(tmp_path, "connectx7_roce", n=n)
    write(tmp_path / "class/net/rail1/speed", "100000")
    write(tmp_path / "class/net/rail2/speed", "100000")

    found = make(Choice(expected={"rail1": 400.0})).interfaces()

    assert [(one.speed / GBIT, one.expected_speed / GBIT) for one in found] == [
        (100, 400),
        (100, 100),
        (400, 400),
        (400, 400),
    ]


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.ENODEV, errno.EINVAL, errno.EIO])
@pytest.mark.parametrize("name", ["flags", "operstate", "mtu", "statistics/tx_bytes", "carrier_down_count"])
def test_a_file_that_cannot_be_read_costs_its_own_series(tmp_path, make, opener, name, number):
    """Kernels before 4.16 have no carrier_down_count, for one."""
    plant(tmp_path, "connectx7_roce", n=2)
    opener.fail = {name: number}

    (rail,) = make().interfaces()

    assert rail.received == 6100
    assert (rail.enabled is None) == (name == "flags")
    assert (rail.up is None, rail.state is None) == ((name == "operstate"),) * 2
    assert (rail.mtu is None) == (name == "mtu")
    assert (rail.sent is None) == (name == "statistics/tx_bytes")
    assert (rail.carrier_downs is None) == (name == "carrier_down_count")


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"UP AND RUNNING\n", b"0xzz\n", b"9" * 4096])
def test_texts_may_hold_anything(tmp_path, make, content):
    """A text that cannot be understood is absent; the interface stays."""
    plant(tmp_path, "connectx7_roce", n=2)
    for name in ("operstate", "flags", "mtu", "statistics/rx_bytes"):
        write(tmp_path / "class/net/rail2" / name, content)

    (rail,) = make().interfaces()

    assert (rail.state, rail.up, rail.mtu, rail.received, rail.sent) == (None, None, None, None, 6200)


def test_of_an_excluded_interface_no_file_is_opened(tmp_path, make, opener):
    """Patterns are those of the shell."""
    plant(tmp_path, "interfaces")

    names = by_name(make(Choice(exclude=["eno[34]", "ib*"])).interfaces()).keys()

    assert names == {"bond0", "eno1", "eno2"}
    assert not [path for path in opener.opened if "/eno3/" in path or "/ib0/" in path]


def test_inside_a_container_the_way_out_is_shown(tmp_path, make):
    """There is no interface with a device; the loopback and what leads further in are left out."""
    for name, kind in {"lo": 772, "eth0": 1, "docker0": 1, "veth1": 1, "tun0": 65534}.items():
        write(tmp_path / "class/net" / name / "type", f"{kind}\n")
        write(tmp_path / "class/net" / name / "statistics/rx_bytes", "12\n")

    (eth0,) = make().interfaces()

    assert (eth0.name, eth0.details.kind, eth0.received, eth0.sent) == ("eth0", "virtual", 12, None)


def test_interfaces_come_and_go(tmp_path, make):
    """One that appears later is shown, one that leaves is not."""
    plant(tmp_path, "connectx7_roce", n=2)
    ethernet = make()
    assert [one.name for one in ethernet.interfaces()] == ["rail2"]
    plant(tmp_path, "connectx7_roce", n=1)
    assert [one.name for one in ethernet.interfaces()] == ["rail1", "rail2"]
    uproot(tmp_path / "class/net/rail2")
    assert [one.name for one in ethernet.interfaces()] == ["rail1"]


def test_names_that_are_no_utf8(tmp_path, make):
    """A name is bytes to the kernel."""
    folder = os.fsencode(tmp_path / "class/net") + b"/et\xffh0"
    os.makedirs(folder)
    with open(folder + b"/type", "w") as file:
        file.write("1\n")

    assert [one.name for one in make().interfaces()] == ["et\udcffh0"]


def test_this_machine_can_be_read():
    """Against the real /sys nothing fails, and the loopback is not among what is shown."""
    assert "lo" not in by_name(Ethernet().interfaces())
