"""The collector of InfiniBand, RoCE and Ethernet."""

from __future__ import annotations

import shutil
import subprocess
from types import SimpleNamespace

import pytest
from prometheus_client.exposition import generate_latest
from tests.held import held, new_since
from tests.host.sysfs_tables import Clock, Opener, plant, write

from trainvitals.collect.base import NoData, Sink, Tally
from trainvitals.collect.network import NetworkCollector
from trainvitals.config import NetworkSettings
from trainvitals.host.ethernet import Ethernet
from trainvitals.host.infiniband import Infiniband
from trainvitals.host.sysfs import Sysfs
from trainvitals.metrics import FAMILIES


def make(root):
    """Return a collector of a tree."""
    sysfs, clock = Sysfs(str(root), Opener(), Clock()), Clock()
    return NetworkCollector(Infiniband(sysfs, None, clock), Ethernet(sysfs, None, clock))


def collect(collector):
    """Return the series of one round by name and labels, and what was rejected."""
    tally = Tally()
    sink = Sink(tally, limit=20_000, collector="network")
    collector.collect(sink)
    samples = [sample for family in sink.families() for sample in family.samples]
    found = {(sample.name.removeprefix("trainvitals_"), *sample.labels.values()): sample.value for sample in samples}
    return found, tally.rejected


def test_every_reading_of_a_port_has_its_family(tmp_path):
    """An InfiniBand port becomes these series, and no others."""
    plant(tmp_path, "connectx7_infiniband", n=3)
    key = ("mlx5_3", "1")
    place = ("infiniband", "ib3", "0000:38:00.0", "1", "mlx5_core")

    assert collect(make(tmp_path)) == (
        {
            ("infiniband_ports",): 1,
            ("network_left_out",): 0,
            ("infiniband_port_info", *key, *place, "MT4129", "MT_0000000999", "28.40.1234"): 1,
            ("infiniband_port_up", *key): 1,
            ("infiniband_port_state", *key, "active"): 1,
            ("infiniband_port_physical_state", *key, "link_up"): 1,
            ("infiniband_rate_bytes_per_second", *key): 5e10,
            ("infiniband_expected_rate_bytes_per_second", *key): 5e10,
            ("infiniband_receive_bytes_total", *key): 40_000_000_012,
            ("infiniband_transmit_bytes_total", *key): 80_000_000_012,
            ("infiniband_receive_packets_total", *key): 50_000_003,
            ("infiniband_transmit_packets_total", *key): 70_000_003,
            ("infiniband_transmit_wait_total", *key): 123456,
            ("infiniband_link_downed_total", *key): 3,
            ("infiniband_flaps_total", *key): 0,
            ("infiniband_errors_total", *key, "excessive_buffer_overrun_errors"): 2,
            ("infiniband_errors_total", *key, "link_error_recovery"): 4,
            ("infiniband_errors_total", *key, "local_link_integrity_errors"): 5,
            ("infiniband_errors_total", *key, "port_rcv_errors"): 7,
            ("infiniband_errors_total", *key, "port_rcv_switch_relay_errors"): 8,
            ("infiniband_errors_total", *key, "port_xmit_discards"): 9,
            ("infiniband_errors_total", *key, "symbol_error"): 10,
            ("infiniband_transport_events_total", *key, "local_ack_timeout_err"): 11,
            ("infiniband_transport_events_total", *key, "out_of_buffer"): 12,
            ("infiniband_transport_events_total", *key, "out_of_sequence"): 13,
            ("infiniband_transport_events_total", *key, "packet_seq_err"): 14,
            ("infiniband_transport_events_total", *key, "req_transport_retries_exceeded"): 0,
            ("infiniband_transport_events_total", *key, "rnr_nak_retry_err"): 15,
        },
        {},
    )


def test_every_reading_of_an_interface_has_its_family(tmp_path):
    """The interface of a RoCE port becomes these series besides those of the port."""
    plant(tmp_path, "connectx7_roce", n=2)

    found, rejected = collect(make(tmp_path))

    assert {key: value for key, value in found.items() if key[0].startswith("network_")} == {
        ("network_left_out",): 0,
        ("network_interface_info", "rail2", "ethernet", "", "0000:2a:00.1", "", "mlx5_core"): 1,
        ("network_up", "rail2"): 1,
        ("network_enabled", "rail2"): 1,
        ("network_state", "rail2", "up"): 1,
        ("network_speed_bytes_per_second", "rail2"): 5e10,
        ("network_expected_speed_bytes_per_second", "rail2"): 5e10,
        ("network_mtu_bytes", "rail2"): 9000,
        ("network_receive_bytes_total", "rail2"): 6100,
        ("network_transmit_bytes_total", "rail2"): 6200,
        ("network_errors_total", "rail2", "rx_errors"): 63,
        ("network_errors_total", "rail2", "tx_errors"): 0,
        ("network_errors_total", "rail2", "rx_dropped"): 64,
        ("network_errors_total", "rail2", "tx_dropped"): 0,
        ("network_errors_total", "rail2", "rx_crc_errors"): 65,
        ("network_carrier_changes_total", "rail2"): 5,
        ("network_carrier_downs_total", "rail2"): 2,
    }
    assert rejected == {}


def test_every_family_is_shown(tmp_path):
    """Each row of the catalogue comes from one of the trees."""
    for n in (1, 2):
        plant(tmp_path, "connectx7_infiniband", n=n)
        plant(tmp_path, "connectx7_roce", n=n)
    write(tmp_path / "class/infiniband/mlx5_1/ports/1/counters/symbol_error", "65535")

    names = {"trainvitals_" + key[0] for key in collect(make(tmp_path))[0]}

    assert names == {family.name for family in FAMILIES.values() if family.source == "network"}


def test_the_names_pass_the_lint_of_prometheus(tmp_path):
    """`promtool check metrics` has nothing to say about ports and interfaces."""
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed")
    plant(tmp_path, "connectx7_roce", n=2)
    plant(tmp_path, "connectx7_infiniband", n=3)
    write(tmp_path / "class/infiniband/mlx5_3/ports/1/counters/link_downed", "255")
    sink = Sink(Tally(), limit=20_000, collector="network")
    make(tmp_path).collect(sink)
    text = generate_latest(SimpleNamespace(collect=sink.families))

    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)

    assert (0, b"") == (done.returncode, done.stderr + done.stdout)


def test_counters_at_their_end_are_told(tmp_path):
    """A counter that stands still has a series that says so, and nothing is counted as an impossible value."""
    plant(tmp_path, "connectx7_infiniband", n=3)
    write(tmp_path / "class/infiniband/mlx5_3/ports/1/counters/link_downed", "255")
    write(tmp_path / "class/infiniband/mlx5_3/ports/1/counters/port_xmit_wait", "4294967295")

    found, rejected = collect(make(tmp_path))

    saturated = {key[3]: value for key, value in found.items() if key[0] == "infiniband_saturated"}
    assert saturated == {"link_downed": 1, "port_xmit_wait": 1}
    assert found["infiniband_link_downed_total", "mlx5_3", "1"] == 255
    assert ("infiniband_transmit_wait_total", "mlx5_3", "1") not in found
    assert rejected == {}


def test_what_is_not_known_is_absent(tmp_path):
    """An empty port: its info and its flaps, and no zero for what was not read."""
    (tmp_path / "class/infiniband/mlx5_0/ports/1").mkdir(parents=True)

    assert collect(make(tmp_path))[0] == {
        ("infiniband_ports",): 1,
        ("network_left_out",): 0,
        ("infiniband_port_info", "mlx5_0", "1", *[""] * 8): 1,
        ("infiniband_flaps_total", "mlx5_0", "1"): 0,
    }


def test_without_a_network_there_is_no_data(tmp_path):
    """Neither kind: nothing, and no failure."""
    with pytest.raises(NoData):
        collect(make(tmp_path))


def test_a_folder_that_is_not_there_is_a_failure(tmp_path):
    """As the host's /sys that was not mounted into a container, or a mistake in the path."""
    collector = NetworkCollector.from_settings(NetworkSettings(sysfs=str(tmp_path / "host" / "sys")))

    with pytest.raises(FileNotFoundError, match=r"host/sys \(network\.sysfs\) is no folder"):
        collect(collector)


def test_one_kind_that_fails_leaves_the_other(tmp_path):
    """The interfaces are shown; the failure is raised at the end, so that the collector does not look healthy."""
    plant(tmp_path, "connectx7_roce", n=2)
    collector = make(tmp_path)

    def fail():
        raise PermissionError(13, "no")

    collector._infiniband.ports = fail
    sink = Sink(Tally(), limit=20_000, collector="network")

    with pytest.raises(PermissionError):
        collector.collect(sink)
    assert {family.name for family in sink.families()} >= {"trainvitals_network_up"}


def test_a_node_of_eight_ports_keeps_to_its_budget(tmp_path):
    """Eight InfiniBand ports, eight RoCE ports with their interfaces: about 25 series a port, 16 an interface."""
    for n in range(1, 9):
        plant(tmp_path, "connectx7_infiniband", n=n)
    infiniband = len(collect(make(tmp_path))[0])
    for n in range(1, 9):
        plant(tmp_path, "connectx7_roce", n=n)
    both = len(collect(make(tmp_path))[0])

    assert infiniband <= 8 * 27 + 2
    assert both - infiniband <= 8 * (25 + 16)


def test_links_beyond_the_limit_are_counted(tmp_path):
    """64 ports and 64 interfaces are shown, the first by name; the others cost no series."""
    for number in range(66):
        write(tmp_path / f"class/infiniband/mlx5_{number}/ports/1/state", "4: ACTIVE\n")
    for number in range(67):
        write(tmp_path / f"class/net/eth{number}/type", "1\n")
        write(tmp_path / f"class/net/eth{number}/device/class", "0x020000\n")

    found, _ = collect(make(tmp_path))

    assert found["infiniband_ports",] == 64
    assert found["network_left_out",] == 2 + 3
    assert len([key for key in found if key[0] == "network_interface_info"]) == 64
    assert ("network_interface_info", "eth9", "ethernet", "", "", "", "") not in found


def test_settings_reach_the_readers(tmp_path):
    """Another /sys, what is excluded, what is expected, and virtual functions."""
    plant(tmp_path, "connectx7_infiniband", n=3)
    plant(tmp_path, "connectx7_roce", n=2)
    plant(tmp_path, "interfaces")
    settings = NetworkSettings(
        sysfs=str(tmp_path),
        exclude=("eno*", "roce_?"),
        expected_rate={"mlx5_3": 800, "ra*": 100},
        virtual_functions=True,
    )

    found, _ = collect(NetworkCollector.from_settings(settings))

    rates = {key[1]: value for key, value in found.items() if "_expected_" in key[0]}
    assert rates == {"mlx5_3": 1e11, "rail2": 1.25e10, "ib0": 5e10, "bond0": 25 * 1.25e8}
    assert {key[1] for key in found if key[0] == "network_up"} == {"bond0", "ib0", "rail2", "rep0", "vf0"}


def test_rounds_leave_nothing_behind(tmp_path):
    """Descriptors and threads are the same before and after 50 rounds, refused files and all."""
    plant(tmp_path, "connectx7_infiniband", n=3)
    plant(tmp_path, "others")
    collector = make(tmp_path)
    collect(collector)
    before = held()

    for _ in range(50):
        collect(collector)

    assert new_since(before) == []
