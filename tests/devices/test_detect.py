"""Vendors are known by the bus, and those that are not here are not started."""

from __future__ import annotations

import pytest

from trainvitals.collect.base import Sink, Tally
from trainvitals.collect.devices import DevicesCollector
from trainvitals.config import DeviceSettings
from trainvitals.devices.base import Reading
from trainvitals.devices.detect import Census, Counted, Detected
from trainvitals.devices.pci import Bus, Found, Match, census
from trainvitals.devices.vendors import COUNTED, VENDORS, matches


@pytest.fixture
def bus(tmp_path):
    """Return a function that puts a device on a bus in ``bus.root``."""

    def add(name, vendor, kind="0x120000", device="0x0001", driver=None):
        folder = tmp_path / "pci" / name
        folder.mkdir()
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "class").write_text(f"{kind}\n")
        (folder / "device").write_text(f"{device}\n")
        if driver:
            (folder / "driver").symlink_to(f"../../drivers/{driver}")

    (tmp_path / "pci").mkdir()
    add.root = str(tmp_path / "pci")
    return add


#: A card of each vendor as the bus shows it: number, class, device.
CARDS = {
    "nvidia": ("0x10de", "0x030200", "0x2330"),
    "ascend": ("0x19e5", "0x120000", "0xd801"),
    "amd": ("0x1002", "0x120000", "0x74a1"),
    "hygon": ("0x1d94", "0x0b4000", "0x6210"),
    "cambricon": ("0xcabc", "0x120000", "0x0370"),
    "moorethreads": ("0x1ed5", "0x030000", "0x0400"),
    "metax": ("0x9999", "0x038000", "0x4040"),
    "iluvatar": ("0x1e3e", "0x120000", "0x0002"),
    "kunlunxin": ("0x1d22", "0x078000", "0x2057"),
    "enflame": ("0x1e36", "0x120000", "0xc035"),
    "biren": ("0x1ee0", "0x120000", "0x0001"),
    "thead": ("0x1ded", "0x120000", "0x0001"),
    "gaudi": ("0x1da3", "0x120000", "0x1060"),
    "intel": ("0x8086", "0x038000", "0x0bd5"),
    "tpu": ("0x1ae0", "0x00ff00", "0x0063"),
    "tenstorrent": ("0x1e52", "0x120000", "0x401e"),
}


def test_every_vendor_has_its_number():
    """No vendor without a card here, and no card without a vendor."""
    assert set(CARDS) == set(matches())
    assert not set(VENDORS) & set(COUNTED)


def test_the_devices_of_all_vendors_are_counted_in_one_pass(bus):
    """Each card is of its vendor, and of no other."""
    for place, (vendor, kind, device) in enumerate(CARDS.values()):
        bus(f"0000:{place + 1:02x}:00.0", vendor, kind, device)

    found = census(matches(), bus.root)

    expected = {vendor: Found(frozenset({f"0000:{place + 1:02x}:00.0"})) for place, vendor in enumerate(CARDS)}
    assert found == expected


def test_other_functions_of_the_vendors_are_no_devices(bus):
    """Network cards, bridges, storage, sound, and the graphics in an Intel processor."""
    bus("0000:01:00.0", "0x19e5", "0x020000")
    bus("0000:02:00.0", "0x1002", "0x040300")
    bus("0000:03:00.0", "0x1d94", "0x060000")
    bus("0000:04:00.0", "0x1ae0", "0x020000", "0x0042")
    bus("0000:05:00.0", "0x1ded", "0x010802")
    bus("0000:06:00.0", "0x1da3", "0x020000")
    bus("0000:00:02.0", "0x8086", "0x030000")
    bus("0000:07:00.0", "0x8086", "0x0b4000")

    assert {vendor for vendor, found in census(matches(), bus.root).items() if found.here} == set()


class Source:
    """A source that remembers what was done with it."""

    def __init__(self):
        self.calls = []

    def start(self):
        """Remember."""
        self.calls.append("start")

    def latest(self):
        """Return a reading."""
        return Reading(vendor="x", up=True)

    def faults(self):
        """Return one."""
        return ["fault"]

    def stop(self):
        """Remember."""
        self.calls.append("stop")


def detected(bus, now=(0.0,)):
    """Return a source of cards with the number 0x1234, and what was made of it."""
    made = []
    counted = Census({"x": Match(0x1234, (0x1200,))}, bus.root, lambda: now[-1])

    def make():
        made.append(Source())
        return made[-1]

    return Detected("x", counted, make), made


def test_a_vendor_that_is_not_here_is_never_made(bus):
    """It costs a look at the bus."""
    bus("0000:01:00.0", "0x19e5")
    source, made = detected(bus)

    source.start()

    assert (source.latest(), list(source.faults()), made) == (None, [], [])
    source.stop()


def test_a_vendor_that_is_here_is_started_once(bus):
    """And stopped with the rest."""
    bus("0000:01:00.0", "0x1234")
    source, made = detected(bus)

    source.start()

    assert source.latest().vendor == source.latest().vendor == "x"
    assert source.faults() == ["fault"]
    source.stop()
    assert source.latest() is None
    assert [one.calls for one in made] == [["start", "stop"]]


def test_a_card_that_comes_later_is_found(bus):
    """The bus is looked at again after a minute, and not before."""
    now = [0.0]
    source, made = detected(bus, now)
    source.start()
    bus("0000:01:00.0", "0x1234", driver="vfio-pci")

    now.append(59.0)
    assert source.latest() is None
    now.append(61.0)
    assert source.latest() is not None
    assert len(made) == 1


def test_a_machine_without_a_bus_has_no_vendor(bus):
    """Nothing fails."""
    assert not Census(matches(), bus.root + "/none").has("ascend")


def series(settings):
    """Return what the collector shows with these settings."""
    collector = DevicesCollector.from_settings(settings)
    sink = Sink(Tally(), limit=1000, collector="devices")
    collector.collect(sink)
    return {
        (sample.name, *sample.labels.values()): sample.value for family in sink.families() for sample in family.samples
    }


def test_devices_that_nobody_reads_are_counted(bus, monkeypatch):
    """They are expected, but nobody says that they do not answer: no alert comes of that."""
    bus("0000:41:00.0", "0x1e52")
    bus("0000:81:00.0", "0x1e52")
    monkeypatch.setenv("TRAINVITALS_PCI_DEVICES", bus.root)

    assert series(DeviceSettings()) == {("trainvitals_devices_expected", "tenstorrent"): 2.0}


def test_a_container_with_a_part_of_the_devices_expects_none(bus):
    """It sees the bus of its host, and cannot tell which of them are its own."""
    bus("0000:41:00.0", "0x1e52")
    match = COUNTED["tenstorrent"]
    counted = Census(matches(), bus.root)

    own = Counted("tenstorrent", counted, Bus(match, root=bus.root, environ={}))
    part = Counted("tenstorrent", counted, Bus(match, root=bus.root, environ={"TT_VISIBLE_DEVICES": "0"}))

    assert own.latest().expected == 1
    assert part.latest() is None


@pytest.mark.parametrize(
    ("cards", "nvidia", "ascend"),
    [((), 8.0, None), (("0x10de",), 8.0, None), (("0x19e5",), None, 8.0), (("0x10de", "0x19e5"), 8.0, 8.0)],
)
def test_the_expected_number_is_of_the_kind_of_device_that_is_here(bus, monkeypatch, cards, nvidia, ascend):
    """A node of NPUs does not miss eight GPUs; where nothing is found, they are NVIDIA's as ever."""
    for place, vendor in enumerate(cards):
        bus(f"0000:{place + 1:02x}:00.0", vendor, "0x030200")
    monkeypatch.setenv("TRAINVITALS_PCI_DEVICES", bus.root)
    made = {}

    class Supervised(Source):
        def __init__(self, vendor, *, expected, **_):
            super().__init__()
            made[vendor] = expected

    monkeypatch.setattr("trainvitals.collect.devices.Supervisor", Supervised)
    DevicesCollector.from_settings(DeviceSettings(expected=8)).start()

    assert (made.get("nvidia"), made.get("ascend")) == (nvidia, ascend)
