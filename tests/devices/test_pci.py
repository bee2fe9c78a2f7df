"""What should be here, as the PCI bus tells it."""

from __future__ import annotations

import os

import pytest

from trainvitals.devices import pci
from trainvitals.devices.pci import Bus, Found, Match, look
from trainvitals.devices.vendors import VENDORS

NVIDIA = VENDORS["nvidia"].pci


@pytest.fixture
def bus(tmp_path):
    """Return a function that puts a device on a bus; ``bus.root`` and ``bus.proc`` are the folders."""

    def add(name, vendor="0x10de", kind="0x030200", driver=None, virtual=False):
        folder = tmp_path / "pci" / name
        folder.mkdir()
        if vendor is not None:
            (folder / "vendor").write_text(f"{vendor}\n")
        if kind is not None:
            (folder / "class").write_text(f"{kind}\n")
        if driver:
            (folder / "driver").symlink_to(f"../../drivers/{driver}")
        if virtual:
            (folder / "physfn").symlink_to("../0000:1a:00.0")
        # Whoever opens this has touched the device.
        os.mkfifo(folder / "config")

    (tmp_path / "pci").mkdir()
    (tmp_path / "proc").mkdir()
    add.root = str(tmp_path / "pci")
    add.proc = str(tmp_path / "proc")

    def give(*names):
        for name in names:
            (tmp_path / "proc" / "driver" / "nvidia" / "gpus" / name).mkdir(parents=True)

    add.give = give
    return add


def test_devices_are_known_by_vendor_and_class(bus):
    """3D controllers and VGA cards of the vendor count; its audio, USB and bridge functions do not, nor do others."""
    bus("0000:1a:00.0", kind="0x030200", driver="nvidia")
    bus("0000:1b:00.0", kind="0x030000", driver="nvidia")
    bus("0000:1c:00.0", kind="0x030200")
    bus("0000:1b:00.1", kind="0x040300")
    bus("0000:1b:00.2", kind="0x0c0330")
    bus("0000:05:00.0", kind="0x068000", driver="nvidia-nvswitch")
    bus("0000:02:00.0", vendor="0x1002")
    bus("0000:03:00.0", vendor="0x102b", kind="0x030000")

    assert look(NVIDIA, bus.root) == Found(frozenset({"0000:1a:00.0", "0000:1b:00.0", "0000:1c:00.0"}))


@pytest.mark.parametrize("driver", ["vfio-pci", "pci-stub", "nvgrace_gpu_vfio_pci", "xen-pciback"])
def test_a_device_of_a_virtual_machine_is_not_expected(bus, driver):
    """What is bound to a driver that passes devices on cannot be read here."""
    bus("0000:1a:00.0", driver="nvidia")
    bus("0000:1b:00.0", driver=driver)

    assert look(NVIDIA, bus.root) == Found(frozenset({"0000:1a:00.0"}), taken=frozenset({"0000:1b:00.0"}))


def test_virtual_functions_are_not_expected(bus):
    """The parts of a shared card that go to virtual machines are no devices of this node."""
    bus("0000:1a:00.0", driver="nvidia")
    bus("0000:1a:00.4", driver="nvidia", virtual=True)

    assert look(NVIDIA, bus.root).here == {"0000:1a:00.0"}


def test_damaged_entries_cost_themselves(bus):
    """Missing files, text that is no number and names that are no addresses are left out."""
    bus("0000:1a:00.0")
    bus("0000:1b:00.0", vendor=None)
    bus("0000:1c:00.0", kind=None)
    bus("0000:1d:00.0", vendor="")
    bus("0000:1e:00.0", kind="\x00\xff")
    bus("lost+found")

    assert look(NVIDIA, bus.root).here == {"0000:1a:00.0"}


def test_addresses_are_spelled_as_the_kernel_does(bus):
    """A domain beyond 16 bits, as virtual machines of Azure have, keeps its digits."""
    bus("10000:01:00.0")
    bus("0001:00:00.0")

    assert look(NVIDIA, bus.root).here == {"10000:01:00.0", "0001:00:00.0"}


def test_config_space_is_never_read(bus, monkeypatch):
    """Only the files vendor and class are opened: a device that fell off the bus is not touched."""
    bus("0000:1a:00.0")
    opened = []
    real = open

    def spy(path, *args, **more):
        opened.append(os.path.basename(path))
        return real(path, *args, **more)

    monkeypatch.setattr("builtins.open", spy)
    look(NVIDIA, bus.root)

    assert set(opened) == {"vendor", "class"}


def test_without_a_bus_nothing_is_expected(bus):
    """A machine that has no such folder cannot tell."""
    assert Bus(NVIDIA, root=bus.root + "/none", environ={}, proc=bus.proc).look() is None
    with pytest.raises(FileNotFoundError):
        look(NVIDIA, bus.root + "/none")


@pytest.fixture
def eight(bus):
    """A bus with eight devices, and a function that returns what a container with these variables expects."""
    for index in range(8):
        bus(f"0000:{0x1A + index:02x}:00.0", driver="nvidia")
    bus.expects = lambda **environ: Bus(NVIDIA, root=bus.root, environ=environ, proc=bus.proc).look()
    return bus


def test_a_host_expects_all(eight):
    """On a host the bus says it; a listing of the driver that forgets one does not hide it."""
    eight.give(*(f"0000:{0x1A + index:02x}:00.0" for index in range(7)))

    assert len(eight.expects().here) == 8
    assert len(eight.expects(NVIDIA_VISIBLE_DEVICES="all").here) == 8


def test_a_container_expects_what_it_was_given(eight):
    """A container sees the bus of its host; it does not cry for devices of its neighbours."""
    eight.give("0000:1c:00.0", "0000:1f:00.0")

    assert eight.expects(NVIDIA_VISIBLE_DEVICES="2,5").here == {"0000:1c:00.0", "0000:1f:00.0"}


def test_a_mount_over_the_drivers_folder_is_a_container(eight, monkeypatch):
    """The container toolkit hides the devices of others behind a mount, whatever the variables say."""
    eight.give("0000:1c:00.0")
    monkeypatch.setattr(pci.os.path, "ismount", lambda path: path == f"{eight.proc}/driver/nvidia")

    assert eight.expects().here == {"0000:1c:00.0"}
    assert eight.expects(NVIDIA_VISIBLE_DEVICES="all").here == {"0000:1c:00.0"}


@pytest.mark.parametrize("visible", ["2,5", "GPU-1", "none", "void"])
def test_a_container_that_cannot_tell_expects_nothing(eight, visible):
    """With a part of the devices, and a /proc that is the host's, only the driver knows: no guess."""
    assert eight.expects(NVIDIA_VISIBLE_DEVICES=visible) is None
    eight.give(*(f"0000:{0x1A + index:02x}:00.0" for index in range(8)))
    assert eight.expects(NVIDIA_VISIBLE_DEVICES=visible) is None


def test_a_vendor_without_a_listing(eight):
    """Another vendor needs a number and its classes."""
    assert len(Bus(Match(0x10DE), root=eight.root, environ={}, proc=eight.proc).look().here) == 8
    assert Bus(Match(0x1002, (0x1200,)), root=eight.root, environ={}, proc=eight.proc).look() == Found(frozenset())
