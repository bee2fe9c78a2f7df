"""Every device that was seen, and which should be here."""

from __future__ import annotations

from trainvitals.devices.pci import Found
from trainvitals.devices.roster import Inventory, forget, hang, inventory, merge, place, take_down
from trainvitals.telemetry import DeviceSample


def device(index, uuid=None, **more):
    """Return a device that is up, with a value of its own."""
    name = f"GPU-{index}" if uuid is None else uuid
    pci = more.pop("pci", f"0000:{0x1A + index:02x}:00.0" if name else "")
    return DeviceSample(
        index=index,
        uuid=name,
        vendor="nvidia",
        pci_bus_id=pci,
        values={("power_watts", "instant"): 100.0 + index},
        **more,
    )


def nameless(index, reason="lost"):
    """Return a device that is down and does not tell who it is."""
    return DeviceSample(index=index, uuid="", vendor="nvidia", up=False, reason=reason)


def shown(devices):
    """Return what matters of devices."""
    return [(one.index, one.uuid, one.reason, one.down_since) for one in devices]


def read(before, *now, avoided=(), moved=False, when=100.0):
    """Return the devices after a reading."""
    return merge(tuple(before), now, avoided=avoided, moved=moved, when=when)


def test_a_device_keeps_the_time_at_which_it_went_down():
    """The time stays while the reason changes, and begins anew after the device was well."""
    first = read([], device(0), device(1))
    lost = read(first, device(0), device(1).down("lost"), when=110.0)
    worse = read(lost, device(0), device(1).down("reset_required"), when=120.0)
    gone = take_down(worse, "driver", 130.0)
    back = read(gone, device(0), device(1), when=140.0)
    again = read(back, device(0), device(1).down("lost"), when=150.0)

    assert shown(first) == [(0, "GPU-0", "", None), (1, "GPU-1", "", None)]
    assert shown(lost)[1] == (1, "GPU-1", "lost", 110.0)
    assert shown(worse)[1] == (1, "GPU-1", "reset_required", 110.0)
    assert shown(gone) == [(0, "GPU-0", "driver", 130.0), (1, "GPU-1", "driver", 110.0)]
    assert shown(back) == shown(first)
    assert shown(again)[1] == (1, "GPU-1", "lost", 150.0)
    assert again[0].values == {("power_watts", "instant"): 100.0}


def test_a_device_without_a_name_is_the_one_that_was_there():
    """A new process cannot ask a lost device who it is; one that is up but lost its name for a moment stays it too."""
    before = read([], device(0), device(1), device(2))

    after = read(before, device(0), nameless(1), device(2, uuid=""))

    assert shown(after) == [(0, "GPU-0", "", None), (1, "GPU-1", "lost", 100.0), (2, "GPU-2", "", None)]
    assert after[1].pci_bus_id == "0000:1b:00.0"
    assert after[2].values == {("power_watts", "instant"): 102.0}


def test_a_device_that_is_no_longer_listed_is_missing():
    """When the driver forgets one and renumbers the rest, that one is named; it comes back under any number."""
    before = read([], *map(device, range(4)))

    after = read(
        before, device(0), device(1, "GPU-2", pci="0000:1c:00.0"), device(2, "GPU-3", pci="0000:1d:00.0"), moved=True
    )
    later = read(after, device(0), device(1), device(2), device(3), moved=True, when=200.0)

    assert shown(after) == [
        (0, "GPU-0", "", None),
        (1, "GPU-2", "", None),
        (1, "GPU-1", "missing", 100.0),
        (2, "GPU-3", "", None),
    ]
    assert all(one.up for one in later)
    assert [one.uuid for one in later] == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]


def test_a_missing_device_is_not_taken_for_another():
    """With the numbers moved, a nameless device is nobody that is known."""
    before = read([], device(0), device(1), device(2))

    after = read(before, device(0), nameless(1), moved=True)

    assert shown(after) == [
        (0, "GPU-0", "", None),
        (1, "", "lost", 100.0),
        (1, "GPU-1", "missing", 100.0),
        (2, "GPU-2", "missing", 100.0),
    ]
    # A nameless one that stays down keeps its time, and is not counted twice.
    assert shown(read(after, device(0), nameless(1), when=110.0)) == shown(after)


def test_another_board_in_its_place_ends_the_search():
    """A board that was replaced is not missed for ever."""
    before = read([], device(0), device(1))

    assert shown(read(before, device(0), device(1, "GPU-9"))) == [(0, "GPU-0", "", None), (1, "GPU-9", "", None)]


def test_one_that_a_virtual_machine_took_is_forgotten():
    """A device that was bound to vfio is missing on purpose."""
    before = read([], device(0), device(1))
    gone = read(before, device(0), moved=True)

    assert shown(forget(gone, {"0000:1b:00.0"})) == [(0, "GPU-0", "", None)]
    assert len(forget(gone, {"0000:1a:00.0"})) == 2


def test_a_device_that_is_left_alone_hangs():
    """It has no values; the others of the reading have."""
    before = hang(read([], device(0), device(1), device(2)), 1, "nvidia", 90.0)

    after = read(before, device(0), device(2), avoided=[1], when=110.0)

    assert shown(after) == [(0, "GPU-0", "", None), (1, "GPU-1", "hung", 90.0), (2, "GPU-2", "", None)]
    assert after[1].values == {}


def test_a_device_that_hangs_before_it_was_ever_read_has_a_number():
    """Its index is all that is known."""
    first = hang((), 1, "nvidia", 90.0)

    after = read(first, device(0), avoided=[1], when=110.0)

    assert shown(after) == [(0, "GPU-0", "", None), (1, "", "hung", 90.0)]
    assert after[1].vendor == "nvidia"
    assert shown(read(after, device(0), device(1), when=120.0)) == [(0, "GPU-0", "", None), (1, "GPU-1", "", None)]


def test_one_that_hangs_is_not_missing_when_the_numbers_move():
    """Until the next process reads under the new numbers, it hangs; another one may be the missing one."""
    before = hang(read([], *map(device, range(4))), 3, "nvidia", 90.0)

    after = read(before, device(0), device(1), avoided=[3], moved=True)

    assert shown(after) == [
        (0, "GPU-0", "", None),
        (1, "GPU-1", "", None),
        (2, "GPU-2", "missing", 100.0),
        (3, "GPU-3", "hung", 90.0),
    ]


def test_a_driver_that_is_gone_takes_all_down_but_names_who_hangs():
    """Whoever is missing stays missing."""
    before = read(read([], *map(device, range(3))), device(0), device(1), moved=True)

    assert shown(take_down(before, "driver", 200.0, hung=[1])) == [
        (0, "GPU-0", "driver", 200.0),
        (1, "GPU-1", "hung", 200.0),
        (2, "GPU-2", "missing", 100.0),
    ]


def test_names_without_end_do_not_grow_the_exporter():
    """A driver that invents a new name in every reading leaves 64 of them."""
    devices = ()
    for number in range(200):
        devices = read(devices, device(0, f"GPU-{number}", pci=""), moved=True)

    assert len(devices) == 65


def found(*indices, taken=()):
    """Return a bus."""
    return Found(frozenset(f"0000:{0x1A + index:02x}:00.0" for index in indices), frozenset(taken))


def test_the_last_address_belongs_to_the_last_device():
    """A device that never told who it is gets the only address that is left, and none when there are two."""
    one = read([], device(0), nameless(1), device(2))

    assert place(one, found(0, 1, 2))[1].pci_bus_id == "0000:1b:00.0"
    assert place(one, found(0, 1, 2, 3))[1].pci_bus_id == ""
    assert place(one, found(0, 2))[1].pci_bus_id == ""
    assert place(one, None)[1].pci_bus_id == ""
    two = read([], nameless(0), nameless(1), device(2))
    assert [each.pci_bus_id for each in place(two, found(0, 1, 2))] == ["", "", "0000:1c:00.0"]


def stock(devices, bus, count, expected=None, listed=True):
    """Compare."""
    return inventory(tuple(devices), bus, count=count, expected=expected, listed=listed)


def test_what_is_on_the_bus_is_expected():
    """An address that the driver does not list is named."""
    assert stock([device(0), device(1)], found(0, 1), 2) == Inventory(2)
    assert stock([device(0), device(1)], found(0, 1, 5), 2) == Inventory(3, ("0000:1f:00.0",))


def test_what_was_seen_once_is_expected():
    """A card that vanishes from the bus too is named."""
    devices = read(read([], device(0), device(1)), device(0), moved=True)

    assert stock(devices, found(0), 1) == Inventory(2, ("0000:1b:00.0",))
    assert stock(devices, None, 1) == Inventory(2, ("0000:1b:00.0",))


def test_the_settings_win():
    """A number above the bus is missed without an address; a smaller one says that a card on the bus does not count."""
    assert stock([device(0)], found(0), 1, expected=8) == Inventory(8)
    assert stock([device(0)], found(0, 1), 1, expected=1) == Inventory(1)
    assert stock([], found(), 0, expected=2, listed=False) == Inventory(2)


def test_without_a_bus_and_without_a_device_nothing_is_known():
    """No guess; with a driver that lists some, these are expected."""
    assert stock([], None, 0) == Inventory()
    assert stock([], found(), 0) == Inventory(0)
    assert stock([device(0, pci=""), device(1, pci="")], None, 2) == Inventory(2)


def test_a_driver_that_does_not_answer_lists_nobody():
    """Then all are expected, and none is named as missing from its list."""
    assert stock([], found(0, 1), 0, listed=False) == Inventory(2)
    assert stock([device(0), device(1)], found(0, 1, 2), 2, listed=False) == Inventory(3)


def test_a_device_without_address_may_be_any_of_the_rest():
    """While one does not tell who it is, no address is said to be missing."""
    devices = read([], device(0), nameless(1))

    assert stock(devices, found(0, 1, 2), 2) == Inventory(3)
