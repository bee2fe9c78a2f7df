"""The messages of the kernel that mean something, in every known form, and those that only look so."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainvitals.host.kernel_events import KernelEvent, Parser
from trainvitals.host.kernel_kinds import DEVICE_KINDS, KINDS
from trainvitals.host.kmsg import KernelLog

FIXTURES = Path(__file__).parents[1] / "fixtures" / "kernel"
ROOT = Path(__file__).parents[2]

#: Kind, place and code of every event in xids.kmsg, in its order.
XIDS = [
    ("gpu_identity", "0000:1b:00.0", 0),
    ("xid", "0000:1b:00.0", 13),
    ("xid", "0000:1b:00.0", 13),
    ("xid", "0000:2a:00.0", 31),
    ("xid", "0000:2a:00.0", 31),
    ("xid", "0000:03:00.0", 32),
    ("xid", "0000:3d:00.0", 43),
    ("xid", "0000:3d:00.0", 45),
    ("xid", "0000:4e:00.0", 48),
    ("xid", "0000:4e:00.0", 63),
    ("xid", "0000:4e:00.0", 64),
    ("xid", "0000:5f:00.0", 62),
    ("xid", "0000:5f:00.0", 68),
    ("xid", "0000:5f:00.0", 69),
    ("xid", "0000:61:00.0", 74),
    ("xid", "0000:72:00.0", 79),
    ("fallen_off_bus", "0000:72:00.0", 0),
    ("xid", "0000:72:00.0", 154),
    ("xid", "0000:81:00.0", 92),
    ("xid", "0000:81:00.0", 94),
    ("xid", "0000:81:00.0", 95),
    ("xid", "0000:92:00.0", 109),
    ("xid", "0000:92:00.0", 119),
    ("xid", "0000:92:00.0", 120),
    ("xid", "0000:a3:00.0", 121),
    ("xid", "0000:a3:00.0", 136),
    ("xid", "0000:a3:00.0", 137),
    ("xid", "0000:a3:00.0", 140),
    ("xid", "0000:b4:00.0", 143),
    ("xid", "0009:01:00.0", 144),
    ("xid", "0009:01:00.0", 145),
    ("xid", "0009:01:00.0", 149),
    ("xid", "0009:01:00.0", 149),
    ("xid", "0009:01:00.0", 150),
    ("xid", "0000:c5:00.0", 171),
    ("xid", "0000:c5:00.0", 911),
    ("xid", "0000:c5:00.0", 46),
]

#: The same of node.kmsg.
NODE = [
    ("sxid", "0000:e6:00.0", 12028),
    ("sxid", "0000:e7:00.0", 20034),
    ("sxid", "0000:e7:00.0", 10006),
    ("fallen_off_bus", "0000:18:00.0", 0),
    ("fallen_off_bus", "0000:29:00.0", 0),
    ("fallen_off_bus", "0000:3a:00.0", 0),
    ("gpu_init_failed", "0000:4b:00.0", 0),
    ("gpu_driver_lost", "", 0),
    ("gpu_driver_mismatch", "", 0),
    ("gpu_rdma_error", "", 0),
    ("oom_kill", "", 0),
    ("cgroup_oom_kill", "", 0),
    ("cgroup_oom_kill", "", 0),
    ("hung_task", "", 0),
    ("soft_lockup", "", 0),
    ("hard_lockup", "", 0),
    ("rcu_stall", "", 0),
    ("kernel_bug", "", 0),
    ("nfs_not_responding", "store-1.example", 0),
    ("nfs_ok", "store-1.example", 0),
    ("nfs_not_responding", "store-2.example", 0),
    ("machine_check_corrected", "", 0),
    ("machine_check", "", 0),
    ("memory_corrected", "MC3", 0),
    ("memory_uncorrected", "MC1", 0),
    ("pcie_corrected", "0000:18:00.0", 0),
    ("pcie_uncorrected", "0000:1a:00.0", 0),
    ("pcie_contained", "0000:17:01.0", 0),
    ("pcie_removed", "0000:17:01.0", 0),
    ("nic_health", "0000:1a:00.0", 0),
    ("nic_cable", "0000:1a:00.0", 0),
    ("nic_command_failed", "0000:1a:00.0", 0),
    ("link_down", "ens1np0", 0),
    ("link_down", "eno2", 0),
    ("link_up", "eno3", 0),
    ("disk_error", "nvme2n1", 0),
    ("disk_error", "sdc", 0),
    ("nvme_error", "nvme2", 0),
    ("filesystem_error", "sdc1", 0),
    ("filesystem_read_only", "sdc1", 0),
    ("filesystem_error", "md0", 0),
    ("segfault", "libnccl.so.2", 0),
    ("segfault", "libtorch_cpu.so", 0),
    ("cpu_throttled", "", 0),
]


def parse_all(*texts: str) -> list[KernelEvent]:
    """Return the events of these messages."""
    parser = Parser()
    return [event for text in texts if (event := parser.parse(text)) is not None]


def events_of(name: str) -> list[KernelEvent]:
    """Return the events of a fixture, read as the device is read."""
    log = KernelLog(str(FIXTURES / name))
    found = parse_all(*(record.text for record in log.poll()))
    log.close()
    return found


@pytest.mark.parametrize(("name", "expected"), [("xids.kmsg", XIDS), ("node.kmsg", NODE)])
def test_every_known_form_is_found_at_its_place(name, expected):
    """Kind, place and code of all messages of a fixture, and nothing else in it."""
    assert expected == [(event.kind, event.place, event.code) for event in events_of(name)]


def test_the_fixture_holds_at_least_twenty_codes():
    """XIDs of more than 20 different codes, in all forms."""
    assert len({code for kind, _, code in XIDS if kind == "xid"}) == 32


def test_every_kind_has_a_message_in_the_fixtures():
    """A kind without an example would not be known to work."""
    seen = {kind for kind, _, _ in XIDS + NODE}

    assert {kind.name for kind in DEVICE_KINDS + KINDS} == seen


def test_names_of_kinds_are_unique():
    """One row per kind."""
    names = [kind.name for kind in DEVICE_KINDS + KINDS]

    assert len(names) == len(set(names))


def test_every_kind_is_documented():
    """docs/kernel.md has a row for each kind, with what it means and what to do."""
    page = (ROOT / "docs" / "kernel.md").read_text()

    for kind in KINDS:
        assert f"| `{kind.name}` | {kind.severity} | {kind.meaning} | {kind.action} |" in page


def test_the_text_of_an_xid_begins_after_the_code():
    """Process and message are kept for whoever decodes them."""
    (event,) = parse_all("NVRM: Xid (PCI:0000:05:00): 79, pid=12, name=python, GPU has fallen off the bus.")

    assert event.text == "pid=12, name=python, GPU has fallen off the bus."


def test_one_failure_of_a_switch_is_one_event():
    """The lines with severity and registers belong to the line before."""
    lines = ("Fatal, Link 28 LTSSM Fault Up", "Severity 1 Engine instance 28 Sub-engine instance 00", "Data {0x1, 0x2}")

    found = parse_all(*(f"nvidia-nvswitch0: SXid (PCI:0000:c2:00.0): 20034, {line}" for line in lines))

    assert found == [KernelEvent("sxid", "0000:c2:00.0", 20034, "Fatal, Link 28 LTSSM Fault Up")]


def test_three_lines_of_a_lost_gpu_may_have_others_between_them():
    """Other CPUs write in between."""
    found = parse_all(
        "NVRM: The NVIDIA GPU 0000:18:00.0",
        "usb 1-1: new high-speed USB device",
        "NVRM: (PCI ID: 10de:2901) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    )

    assert found == [KernelEvent("fallen_off_bus", "0000:18:00.0")]


def test_the_end_of_such_a_message_without_its_begin_is_nothing():
    """No GPU is made up."""
    between = ["usb 1-1: new high-speed USB device"] * 8

    last = "NVRM: fallen off the bus and is not responding to commands."

    assert parse_all(last) == []
    assert parse_all("NVRM: The NVIDIA GPU 0000:18:00.0", *between, last) == []


@pytest.mark.parametrize(
    "text",
    [
        # What a program can put into a message of the kernel: its name, at most 15 characters, and paths.
        "NVRM: Xid: 79,[4411]: segfault at 0 ip 0000000000000000 sp 00007ffc9a4d2240 error 14",
        "process '/tmp/NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus' started with executable stack",
        "audit: NVRM: Xid (PCI:0000:05:00): 79, x",
        # Cut off, or with numbers that no driver writes.
        "NVRM: Xid",
        "NVRM: Xid (PCI:0000:05:00",
        "NVRM: Xid (PCI:0000:05:00): ",
        "NVRM: Xid (PCI:0000:05:00): seventy-nine, x",
        f"NVRM: Xid (PCI:0000:05:00): {'7' * 400}, x",
        f"NVRM: Xid (PCI:{'0' * 400}:05:00): 79, x",
        "NVRM: Xid (PCI:zz:05:00): 79, x",
        "nvidia-nvswitch0: SXid (invalid): 12028, Fatal",
        f"nvidia-nvswitch0: SXid (PCI:0000:c2:00.0): {'1' * 400}, Fatal",
        "EDAC MC: Ver: 3.0.0",
        "Initializing XFRM netlink socket",
        "ACPI: PCI: Interrupt link LNKA configured for IRQ 11",
        "",
    ],
)
def test_what_only_looks_like_an_event_is_none(text):
    """Forged, cut off and harmless messages."""
    assert parse_all(text) == []


@pytest.mark.parametrize(
    "text",
    [
        # An empty drive of a virtual machine or a console.
        "blk_update_request: I/O error, dev fd0, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0",
        "I/O error, dev sr0, sector 0 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2",
        # What a disk need not be able to do.
        "blk_update_request: critical target error, dev sdc, sector 2056 op 0x3:(DISCARD) flags 0x4800 phys_seg 1",
        "critical target error, dev nvme0n1, sector 8 op 0x9:(WRITE_ZEROES) flags 0x800 phys_seg 0 prio class 2",
        # Programs with "ray" in their name, and others that only use Python or the driver.
        "Xarray[51]: segfault at 0 ip 0000000000000001 sp 00007ffc error 4 in libarray.so[7f10+100]",
        "traps: gst-tray[52] general protection fault ip:7f1 sp:7f2 error:0 in libgst.so[7f10+100]",
        "gnome-shell[53]: segfault at 0 ip 0000000000000001 sp 00007ffc error 4 in libpython3.10.so.1.0[7f10+100]",
        "Xorg[54]: segfault at 0 ip 0000000000000001 sp 00007ffc error 4 in libnvidia-glcore.so.550.54[7f10+100]",
    ],
)
def test_what_happens_on_healthy_nodes_is_no_event(text):
    """Empty drives, refused discards, and programs that are no training."""
    assert parse_all(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "I/O error, dev fdisk1, sector 8 op 0x0:(READ) flags 0x0",
        "I/O error, dev sdc, sector 8",
        "critical medium error, dev sdc, sector 4096 op 0x1:(WRITE) flags 0x0 phys_seg 1 prio class 0",
        "ray::train[51]: segfault at 0 ip 0000000000000001 sp 00007ffc error 4 in libc.so.6[7f10+100]",
        "raylet[51]: segfault at 0 ip 0000000000000001 sp 00007ffc error 4 in raylet[7f10+100]",
        "traps: python3.11[52] trap invalid opcode ip:7f1 sp:7f2 error:0 in libfoo.so[7f10+100]",
        "train.bin[52]: segfault at 0 ip 0000000000000001 sp 00007ffc error 4 in libcudart.so.12[7f10+100]",
    ],
)
def test_what_is_like_them_and_no_harmless_thing_is_an_event(text):
    """The exceptions are narrow."""
    assert [event.kind for event in parse_all(text)] in (["disk_error"], ["segfault"])


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("[Hardware Error]: System Fatal error.", "machine_check"),
        ("[Hardware Error]: Uncorrected, software restartable error.", "machine_check"),
        ("mce: [Hardware Error]: CPU 5: Machine Check: 0 Bank 7: be00000000800400", "machine_check"),
        ("mce: [Hardware Error]: CPU 5: Machine Check Exception: 5 Bank 7: 9c00000000800400", "machine_check"),
        ("mce: [Hardware Error]: Machine check events logged", "machine_check_corrected"),
        ("{2}[Hardware Error]: event severity: corrected", "machine_check_corrected"),
        ("{2}[Hardware Error]: event severity: fatal", "machine_check"),
    ],
)
def test_a_corrected_hardware_error_is_not_called_uncorrected(text, kind):
    """By bit 61 of the bank's status, by the words of AMD's driver and of the firmware; in doubt it is the milder."""
    assert [event.kind for event in parse_all(text)] == [kind]


def test_the_details_of_a_corrected_error_count_no_second_time():
    """It was counted as "events logged"."""
    first = "mce: [Hardware Error]: Machine check events logged"
    intel = "mce: [Hardware Error]: CPU 5: Machine Check: 0 Bank 7: 8c00004000010090"
    amd = "[Hardware Error]: Corrected error, no action required."
    amd_bank = (
        "[Hardware Error]: CPU:0 (17:1:1) MC15_STATUS[Over|CE|MiscV|AddrV|-|-|SyndV|CECC|-|-|-]: 0xdc2040000000011b"
    )

    assert [event.kind for event in parse_all(first, intel, amd, amd_bank)] == ["machine_check_corrected"]


@pytest.mark.no_cover
@settings(max_examples=500, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.text(max_size=300),
            st.sampled_from(
                ["NVRM: Xid (PCI:0000:05:00): ", "nvidia-nvswitch0: SXid (PCI:", "NVRM: The NVIDIA GPU ", "Link "]
            ),
            st.from_regex(r"NVRM: Xid \((PCI:)?[0-9a-f:.]{0,14}[^)]{0,9}\): \d{0,9}(, .*)?", fullmatch=True),
        ),
        max_size=8,
    )
)
def test_no_text_makes_it_raise(texts):
    """Whatever the messages, alone or put together."""
    for event in parse_all(*texts, "".join(texts)):
        assert 0 <= event.code < 1_000_000
        assert len(event.place) <= 64


def test_a_huge_message_takes_no_time():
    """No pattern goes back and forth over a long text."""
    words = "NVRM: GPU 0000:18:00.0 " + "Link " * 200_000 + "a(" * 200_000

    import time

    begun = time.process_time()
    parse_all(words, "python[1]: segfault at " + words, "mlx5_core 0000:1a:00.0: " + words)

    assert time.process_time() - begun < 5.0
