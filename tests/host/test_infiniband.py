"""RDMA ports: InfiniBand, RoCE, EFA, Omni-Path, and whatever their files may hold."""

from __future__ import annotations

import errno
import os

import pytest
from tests.host.sysfs_tables import plant, uproot, write

from trainvitals.host.files import read_once
from trainvitals.host.infiniband import Infiniband
from trainvitals.host.links import Choice
from trainvitals.host.sysfs import Sysfs

GBIT = 125_000_000.0  # bytes per second


@pytest.fixture
def make(tmp_path, clock, opener):
    """Give readers of a tree."""

    def make(choice=None):
        return Infiniband(Sysfs(str(tmp_path), opener, clock), choice, clock)

    return make


def by_key(ports):
    """Return ports by name."""
    return {port.key: port for port in ports}


def port_file(root, n, name):
    """Return a file of a port."""
    return root / "class" / "infiniband" / f"mlx5_{n}" / "ports" / "1" / name


def test_an_infiniband_port_is_read_whole(tmp_path, make):
    """State, rate, place and product; data in bytes, received and sent apart; errors by kind."""
    plant(tmp_path, "connectx7_infiniband", n=3)

    (port,) = make().ports()

    assert (port.hca, port.port, port.state, port.physical_state, port.up) == ("mlx5_3", "1", "active", "link_up", True)
    assert (port.rate, port.expected_rate) == (400 * GBIT, 400 * GBIT)
    assert port.traffic == (40_000_000_012, 80_000_000_012, 50_000_003, 70_000_003)
    assert (port.transmit_wait, port.link_downed, port.flaps, port.saturated) == (123456, 3, 0, ())
    details = port.details
    assert (details.link_layer, details.interface) == ("infiniband", "ib3")
    assert details.place[:3] == ("0000:38:00.0", "1", "mlx5_core")
    assert (details.hca_type, details.board_id, details.firmware) == ("MT4129", "MT_0000000999", "28.40.1234")


def test_kinds_of_errors(tmp_path, make):
    """The usual kinds are always there, rare ones once they are not zero; what is no error is left out."""
    plant(tmp_path, "connectx7_infiniband", n=3)

    (port,) = make().ports()

    assert port.errors == {
        "symbol_error": 10,
        "link_error_recovery": 4,
        "port_rcv_errors": 7,
        "port_xmit_discards": 9,
        "local_link_integrity_errors": 5,
        "excessive_buffer_overrun_errors": 2,
        "port_rcv_switch_relay_errors": 8,
    }
    assert port.transport == {
        "local_ack_timeout_err": 11,
        "out_of_buffer": 12,
        "out_of_sequence": 13,
        "packet_seq_err": 14,
        "req_transport_retries_exceeded": 0,
        "rnr_nak_retry_err": 15,
    }


def test_a_roce_port_is_read_whole(tmp_path, make):
    """Congestion is always shown; errors of an InfiniBand link and its waiting only where they are not zero."""
    plant(tmp_path, "connectx7_roce", n=2)

    (port,) = make().ports()

    assert (port.details.link_layer, port.details.interface) == ("ethernet", "rail2")
    assert port.details.place[:3] == ("0000:2a:00.1", "", "mlx5_core")  # -1: no NUMA
    assert port.traffic == (1200, 1600, 31, 41)
    assert port.errors == {"port_rcv_errors": 0, "port_xmit_discards": 0}
    assert port.transmit_wait is None
    assert port.transport == {
        "np_cnp_sent": 51,
        "np_ecn_marked_roce_packets": 52,
        "out_of_sequence": 53,
        "packet_seq_err": 0,
        "local_ack_timeout_err": 54,
        "rnr_nak_retry_err": 0,
        "req_transport_retries_exceeded": 1,
        "roce_adp_retrans": 55,
        "rp_cnp_handled": 56,
        "rp_cnp_ignored": 57,
    }


def test_a_device_without_counters_has_those_of_its_hardware(tmp_path, make):
    """bnxt_re and EFA have no folder of counters; their bytes are bytes."""
    plant(tmp_path, "others")

    ports = by_key(make().ports())

    broadcom, amazon = ports["bnxt_re0/1"], ports["rdmap0s31/1"]
    assert broadcom.traffic == (7100, 7200, 71, 72)
    assert (broadcom.errors, broadcom.link_downed) == ({}, None)
    assert broadcom.transport == {"to_retransmits": 0, "seq_err_naks_rcvd": 73, "missing_resp": 74}
    assert broadcom.details.place[:3] == ("0000:c1:00.0", "0", "bnxt_en")
    assert (broadcom.details.board_id, broadcom.details.interface) == ("", "")
    assert amazon.traffic == (8100, 8200, None, None)
    assert amazon.transport == {"rx_drops": 0, "retrans_timeout_events": 83, "unresponsive_remote_events": 84}
    assert (amazon.details.link_layer, amazon.details.place[:3]) == ("unknown", ("", "", ""))


def test_omni_path_counts_flits(tmp_path, make):
    """Its words have 8 bytes; a physical state without a name is unknown, and the rate of a dead link no rate."""
    plant(tmp_path, "others")

    port = by_key(make().ports())["hfi1_0/1"]

    assert port.traffic == (8000, 16000, None, None)
    assert (port.state, port.physical_state, port.up) == ("down", "unknown", False)
    assert (port.rate, port.expected_rate) == (None, None)
    assert (port.link_downed, port.transport) == (1, {})


def test_two_ports_of_a_function_have_an_interface_each(tmp_path, make):
    """The number of the port tells which; "N/A (no PMA)" costs the series of its file."""
    plant(tmp_path, "others")

    ports = by_key(make().ports())

    assert [ports[f"mlx4_0/{n}"].details.interface for n in (1, 2)] == ["ens5", "ens5d1"]
    assert ports["mlx4_0/1"].traffic == (None, 2000, None, None)
    assert ports["mlx4_0/1"].errors == {}
    assert ports["mlx4_0/1"].rate == 2.5 * GBIT
    assert (ports["mlx4_0/2"].physical_state, ports["mlx4_0/2"].rate) == ("disabled", None)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"N/A (no PMA)\n",
        b"-1\n",
        b"0x10\n",
        b"1e9\n",
        b"12 34\n",
        b"\xff\xfe\x00\n",
        "\u0661\u0662\n".encode(),  # digits, but not of ASCII
        b"18446744073709551615\n",
        b"18446744073709551616\n",
        b"9" * 4096,
        b"\x00" * 8,
    ],
)
def test_what_is_no_number_costs_its_own_series(tmp_path, make, content):
    """One file with nonsense: its value is absent, all others are what they were."""
    plant(tmp_path, "connectx7_infiniband", n=3)
    (before,) = make().ports()
    write(port_file(tmp_path, 3, "counters/port_rcv_data"), content)
    write(port_file(tmp_path, 3, "counters/symbol_error"), content)
    write(port_file(tmp_path, 3, "hw_counters/packet_seq_err"), content)

    (port,) = make().ports()

    assert port.traffic == (None, *before.traffic[1:])
    assert port.errors.keys() == before.errors.keys() - {"symbol_error"}
    assert port.transport.keys() == before.transport.keys() - {"packet_seq_err"}
    assert (port.rate, port.link_downed) == (before.rate, before.link_downed)


@pytest.mark.parametrize("name", ["state", "phys_state", "rate", "link_layer"])
@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"ACTIVE\n", b"Gb/sec\n", b"0 Gb/sec (4X)\n", b"9" * 4096])
def test_texts_may_hold_anything(tmp_path, make, name, content):
    """A text that cannot be understood is absent; the port stays."""
    plant(tmp_path, "connectx7_infiniband", n=3)
    write(port_file(tmp_path, 3, name), content)

    (port,) = make().ports()

    assert port.traffic[0] == 40_000_000_012
    assert port.state == (None if name == "state" else "active")
    assert port.physical_state == (None if name == "phys_state" else "link_up")
    assert port.rate == (None if name in {"state", "rate"} else 400 * GBIT)


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.ENODEV, errno.EINVAL, errno.EIO, errno.ETIMEDOUT])
def test_a_file_that_cannot_be_read_costs_its_own_series(tmp_path, make, opener, number):
    """Whatever the error, the others are there."""
    plant(tmp_path, "connectx7_infiniband", n=3)
    opener.fail = {"counters/VL15_dropped": number, "counters/port_xmit_data": number, "/fw_ver": number}

    (port,) = make().ports()

    assert port.traffic == (40_000_000_012, None, 50_000_003, 70_000_003)
    assert (port.details.firmware, port.details.board_id) == ("", "MT_0000000999")
    assert len(port.errors) == 7


def test_a_refused_counter_is_left_alone_for_an_hour(tmp_path, make, clock, opener):
    """Each attempt would put a line into the kernel's log; after an hour it is tried once more."""
    plant(tmp_path, "connectx7_infiniband", n=3)
    opener.fail = {"counters/VL15_dropped": errno.EINVAL}
    infiniband = make()

    def attempts():
        opener.opened.clear()
        (port,) = infiniband.ports()
        assert port.traffic[0] == 40_000_000_012
        return sum(path.endswith("VL15_dropped") for path in opener.opened)

    assert attempts() == 1
    clock.now += 3599.0
    assert attempts() == 0
    clock.now += 1.0
    assert attempts() == 1
    assert attempts() == 0


def test_a_counter_that_could_be_read_before_is_tried_sooner(tmp_path, make, clock, opener):
    """A device that is resetting refuses too: the first time it is left alone for a minute, then for an hour."""
    plant(tmp_path, "connectx7_infiniband", n=3)
    infiniband = make()
    infiniband.ports()
    opener.fail = {"/symbol_error": errno.EINVAL}

    assert "symbol_error" not in infiniband.ports()[0].errors
    opener.fail = {}
    clock.now += 59.0
    assert "symbol_error" not in infiniband.ports()[0].errors
    clock.now += 1.0
    assert infiniband.ports()[0].errors["symbol_error"] == 10


def test_state_and_rate_are_asked_again_at_once(tmp_path, make, opener):
    """Only counters are left alone; a state that could not be read is news in the next round."""
    plant(tmp_path, "connectx7_infiniband", n=3)
    opener.fail = {"/state": errno.EINVAL, "/rate": errno.EINVAL}
    infiniband = make()

    assert infiniband.ports()[0].up is None
    opener.fail = {}
    assert (infiniband.ports()[0].up, infiniband.ports()[0].rate) == (True, 400 * GBIT)


def test_of_an_excluded_device_no_file_is_opened(tmp_path, make, opener):
    """Reading it is what the user wants to avoid."""
    plant(tmp_path, "connectx7_infiniband", n=3)
    plant(tmp_path, "connectx7_infiniband", n=4)

    ports = make(Choice(exclude=["mlx5_[4-9]", "eth*"])).ports()

    assert [port.hca for port in ports] == ["mlx5_3"]
    assert not [path for path in opener.opened if "mlx5_4" in path]


def test_virtual_functions_are_left_out(tmp_path, make):
    """A card may have dozens of them; a setting shows them."""
    plant(tmp_path, "connectx7_infiniband", n=3)
    os.symlink("../0000:38:00.7", tmp_path / "devices" / "0000:38:00.0" / "physfn")

    assert make().ports() == []
    assert [port.hca for port in make(Choice(virtual_functions=True)).ports()] == ["mlx5_3"]


def test_counters_at_the_end_of_their_range_are_named(tmp_path, make):
    """They saturate: the errors stay as they are, traffic and waiting that move no more are absent."""
    plant(tmp_path, "connectx7_infiniband", n=3)
    for name, value in {
        "link_downed": 255,
        "excessive_buffer_overrun_errors": 15,
        "port_xmit_discards": 65535,
        "port_xmit_wait": 4294967295,
        "port_rcv_data": 4294967295,
        "symbol_error": 65534,
    }.items():
        write(port_file(tmp_path, 3, f"counters/{name}"), str(value))

    (port,) = make().ports()

    assert port.saturated == (
        "excessive_buffer_overrun_errors",
        "link_downed",
        "port_rcv_data",
        "port_xmit_discards",
        "port_xmit_wait",
    )
    assert (port.link_downed, port.errors["port_xmit_discards"], port.transmit_wait) == (255, 65535, None)
    assert port.traffic == (None, 80_000_000_012, 50_000_003, 70_000_003)


def test_a_port_that_trains_down_shows_as_a_pair(tmp_path, make):
    """From 400 to 200 Gb/s: the rate falls, the expected rate stays; the sole port of its kind needs no neighbours."""
    plant(tmp_path, "connectx7_infiniband", n=3)
    infiniband = make()
    infiniband.ports()
    write(port_file(tmp_path, 3, "rate"), "200 Gb/sec (2X NDR)\n")

    (port,) = infiniband.ports()

    assert (port.rate, port.expected_rate) == (200 * GBIT, 400 * GBIT)


def test_a_port_that_is_down_keeps_its_expected_rate(tmp_path, make):
    """What the kernel says of the rate of a dead link is left out."""
    plant(tmp_path, "connectx7_infiniband", n=3)
    infiniband = make()
    infiniband.ports()
    write(port_file(tmp_path, 3, "state"), "1: DOWN\n")
    write(port_file(tmp_path, 3, "rate"), "10 Gb/sec (4X SDR)\n")

    (port,) = infiniband.ports()

    assert (port.up, port.rate, port.expected_rate) == (False, None, 400 * GBIT)


def test_a_port_that_was_slow_from_the_start_shows_next_to_its_like(tmp_path, make):
    """The rate of most ports of the same card and link layer counts, and that of no other."""
    for n in range(1, 5):
        plant(tmp_path, "connectx7_infiniband", n=n)
    plant(tmp_path, "connectx7_roce", n=9)
    write(port_file(tmp_path, 2, "rate"), "100 Gb/sec (1X NDR)\n")
    write(port_file(tmp_path, 4, "rate"), "200 Gb/sec (4X HDR)\n")
    write(tmp_path / "devices/0000:48:00.0/modalias", "pci:v000015B3d0000101Bsv000015B3sd00000006bc02sc07i00")
    write(tmp_path / "devices/0000:9a:00.1/modalias", (tmp_path / "devices/0000:18:00.0/modalias").read_text())
    write(tmp_path / "class/infiniband/roce_9/ports/1/rate", "200 Gb/sec (4X HDR)\n")

    ports = by_key(make().ports())

    assert {key: (port.rate / GBIT, port.expected_rate / GBIT) for key, port in ports.items()} == {
        "mlx5_1/1": (400, 400),
        "mlx5_2/1": (100, 400),
        "mlx5_3/1": (400, 400),
        "mlx5_4/1": (200, 200),
        "roce_9/1": (200, 200),
    }


def test_half_of_the_ports_are_no_majority(tmp_path, make):
    """Two of four at 200: nobody can say who is right."""
    for n in range(1, 5):
        plant(tmp_path, "connectx7_infiniband", n=n)
    for n in (3, 4):
        write(port_file(tmp_path, n, "rate"), "200 Gb/sec (2X NDR)\n")

    assert [port.expected_rate / GBIT for port in make().ports()] == [400, 400, 200, 200]


def test_settings_say_what_is_expected(tmp_path, make):
    """They win over what was seen, also when they are lower; the first pattern that matches counts."""
    for n in (1, 2):
        plant(tmp_path, "connectx7_infiniband", n=n)
    choice = Choice(expected={"mlx5_2": 200.0, "mlx5_*": 800.0})

    ports = make(choice).ports()

    assert [(port.rate / GBIT, port.expected_rate / GBIT) for port in ports] == [(400, 800), (400, 200)]


def test_flaps_are_counted_by_state_and_by_counter(tmp_path, make):
    """The exporter saw the link go down once, the counter two times: two and not three."""
    plant(tmp_path, "connectx7_infiniband", n=3)
    infiniband = make()

    def step(state, downed):
        write(port_file(tmp_path, 3, "state"), state)
        write(port_file(tmp_path, 3, "counters/link_downed"), str(downed))
        return infiniband.ports()[0].flaps

    assert step("4: ACTIVE", 3) == 0  # What was before the exporter is not counted.
    assert step("1: DOWN", 4) == 1
    assert step("2: INIT", 4) == 1
    assert step("4: ACTIVE", 4) == 1
    assert step("4: ACTIVE", 5) == 2  # Down and up between two rounds.
    assert step("4: ACTIVE", 0) == 2  # The counter was cleared.
    assert step("4: ACTIVE", 1) == 3


def test_flaps_are_counted_without_a_counter(tmp_path, make):
    """A counter at its end, or none, leaves the state; an unreadable state is no flap."""
    plant(tmp_path, "connectx7_infiniband", n=3)
    write(port_file(tmp_path, 3, "counters/link_downed"), "255")
    infiniband = make()
    flaps = []
    for state in ("4: ACTIVE", "1: DOWN", "4: ACTIVE", "", "4: ACTIVE", "", "3: ARMED"):
        write(port_file(tmp_path, 3, "state"), state)
        flaps.append(infiniband.ports()[0].flaps)

    assert flaps == [0, 1, 1, 1, 1, 1, 2]


def test_devices_come_and_go(tmp_path, make):
    """One that appears later is shown, one that leaves is not, and one that returns has not flapped."""
    plant(tmp_path, "connectx7_infiniband", n=3)
    infiniband = make()
    assert [port.hca for port in infiniband.ports()] == ["mlx5_3"]
    plant(tmp_path, "connectx7_infiniband", n=4)
    assert [port.hca for port in infiniband.ports()] == ["mlx5_3", "mlx5_4"]
    uproot(tmp_path / "class/infiniband/mlx5_3")
    assert [port.hca for port in infiniband.ports()] == ["mlx5_4"]
    uproot(tmp_path / "devices/0000:38:00.0")
    plant(tmp_path, "connectx7_infiniband", n=3)
    write(port_file(tmp_path, 3, "state"), "2: INIT")
    assert [(port.hca, port.flaps) for port in infiniband.ports()] == [("mlx5_3", 0), ("mlx5_4", 0)]


def test_a_folder_may_vanish_while_it_is_read(tmp_path, clock):
    """A device that leaves in the middle of a round costs its own values."""
    for n in (3, 4):
        plant(tmp_path, "connectx7_infiniband", n=n)

    def read(path):
        if path.endswith("mlx5_3/ports/1/counters/link_downed"):
            uproot(tmp_path / "class/infiniband/mlx5_3")
        return read_once(path)

    ports = by_key(Infiniband(Sysfs(str(tmp_path), read, clock), None, clock).ports())

    assert (ports["mlx5_3/1"].traffic, ports["mlx5_3/1"].rate) == ((None, None, None, None), None)
    assert ports["mlx5_4/1"].traffic == (40_000_000_016, 80_000_000_016, 50_000_004, 70_000_004)


def test_names_of_any_kind(tmp_path, make):
    """Names that are no UTF-8, files among the devices and ports that are no numbers."""
    plant(tmp_path, "connectx7_infiniband", n=3)
    folder = os.fsencode(tmp_path / "class/infiniband")
    os.makedirs(os.path.join(folder, b"mlx\xff", b"ports", b"1"))
    write(tmp_path / "class/infiniband/abi_version", "1")
    write(tmp_path / "class/infiniband/mlx5_3/ports/one/state", "4: ACTIVE")

    assert [(port.hca, port.port) for port in make().ports()] == [("mlx5_3", "1"), ("mlx\udcff", "1")]


def test_without_infiniband_there_is_nothing(make):
    """No folder: no port and no failure."""
    assert make().ports() == []


def test_a_folder_that_cannot_be_read_is_a_failure(tmp_path, make, monkeypatch):
    """To say that there is none would be a lie."""
    (tmp_path / "class/infiniband").mkdir(parents=True)

    def listdir(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(os, "listdir", listdir)

    with pytest.raises(PermissionError):
        make().ports()


def test_details_are_read_once_a_minute(tmp_path, make, clock, opener):
    """Firmware and place are not asked in every round, and a change still shows."""
    plant(tmp_path, "connectx7_infiniband", n=3)
    infiniband = make()
    infiniband.ports()
    write(tmp_path / "class/infiniband/mlx5_3/fw_ver", "28.41.0001")
    opener.opened.clear()

    clock.now += 59.0
    assert infiniband.ports()[0].details.firmware == "28.40.1234"
    assert not [path for path in opener.opened if path.endswith("fw_ver")]
    clock.now += 1.0
    assert infiniband.ports()[0].details.firmware == "28.41.0001"
