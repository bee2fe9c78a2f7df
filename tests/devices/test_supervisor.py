"""The supervisor: whatever the child does, latest() answers at once and nothing is left behind."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time

import pytest
from tests.devices.helpers import is_running, wait_until
from tests.fixtures.nvml.driver import uuid
from tests.held import held, new_since

from trainvitals.devices.backoff import Backoff
from trainvitals.devices.pci import Found
from trainvitals.devices.supervisor import Supervisor
from trainvitals.devices.wire import ABSENT, STALE
from trainvitals.telemetry import Fault

ONE_DEVICE = '{"devices":[{"index":0,"up":true,"uuid":"U","values":[["utilization_ratio",0.5]]}]}'


class Nowhere:
    """A bus that cannot be read, or one that a test sets."""

    def __init__(self, *addresses):
        self.found = Found(frozenset(addresses)) if addresses else None

    def look(self):
        """Return what the test has set."""
        return self.found


@pytest.fixture
def supervise(driver):
    """Return a function that starts a supervisor with short times; all are stopped after the test."""
    started = []

    def start(start_child=None, **settings):
        times = {
            "interval": 0.05,
            "hung_after": 60.0,
            "backoff": (0.05, 0.2),
            "retry": (60.0, 60.0),
            "retry_absent": 0.1,
            "bus": Nowhere(),
        } | settings
        started.append(Supervisor("nvidia", start_child=start_child or driver.spawn, **times))
        started[-1].start()
        return started[-1]

    yield start
    for one in started:
        one.stop()


def script(text):
    """Return a function that starts a child that runs ``text`` in place of the reading process."""
    return lambda *_: subprocess.Popen(
        [sys.executable, "-S", "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )


def scripts(*texts):
    """Return a function that starts one of ``texts`` after the other, and the last one again and again."""
    rest = list(texts)

    def start_child(*_):
        return script(rest.pop(0) if len(rest) > 1 else rest[0])()

    return start_child


def lines(*texts, then="time.sleep(600)"):
    """Return the text of a script that writes these lines and then does something else, nothing by default."""
    return "import time\n" + "".join(f"print({text!r}, flush=True)\n" for text in texts) + then


def reading(*indices, count=8):
    """Return the line of a reading of these devices, all of them up."""
    devices = [
        {"index": index, "up": True, "uuid": f"U{index}", "pci_bus_id": f"0000:0{index}:00.0"} for index in indices
    ]
    return json.dumps({"devices": devices, "count": count})


def at(index):
    """Return the line that announces a device."""
    return json.dumps({"at": index})


def forever(line):
    """Return the text of a script that writes a line again and again."""
    return f"import time\nwhile 1: print({line!r}, flush=True); time.sleep(0.05)"


class Unkillable(subprocess.Popen):
    """A process as it is inside a hung driver: SIGKILL has no effect until the driver lets it die."""

    dies = False

    def kill(self):
        """Do nothing, as the kernel does."""
        if self.dies:
            super().kill()

    def let_die(self):
        """Let it be killed, now if that was tried."""
        self.dies = True
        if self.stdout.closed:
            super().kill()


class Plan:
    """Starts scripts instead of reading processes: ``answers`` takes avoid and only and returns the text of one."""

    def __init__(self, answers, kind=subprocess.Popen):
        self.answers = answers
        self.kind = kind
        self.calls = []
        self.children = []

    def __call__(self, avoid, only):
        """Start one."""
        self.calls.append((sorted(avoid), only))
        self.children.append(self.kind([sys.executable, "-S", "-c", self.answers(avoid, only)], stdin=-1, stdout=-1))
        return self.children[-1]

    def alive(self):
        """Return how many have not ended."""
        return sum(child.poll() is None for child in self.children)


def states(source):
    """Return index and reason of every device; an empty reason for one that is up."""
    found = source.latest()
    return [(one.index, one.reason) for one in found.devices] if found else []


def is_up(source):
    """Whether the newest reading is up."""
    reading = source.latest()
    return reading is not None and reading.up


def is_down(source):
    """Whether the source exists and is down."""
    reading = source.latest()
    return reading is not None and not reading.up


def test_a_reading_is_shown_with_its_age(supervise):
    """A healthy driver gives eight devices that were read less than the time of a hang ago."""
    source = supervise()

    wait_until(lambda: is_up(source))
    reading = source.latest()

    assert [device.uuid for device in reading.devices] == [uuid(index) for index in range(8)]
    assert 0.0 <= reading.age < 60.05
    assert (reading.vendor, reading.restarts, reading.failed) == ("nvidia", 0, {})


def test_there_is_nothing_before_the_first_word(supervise):
    """Until the child has said what it found, the vendor does not exist: no alert while the exporter starts."""
    source = supervise(script("import time; time.sleep(600)"), hung_after=60.0)

    assert source.latest() is None


def test_one_device_that_hangs_does_not_take_the_others_along(supervise, driver):
    """The device that was announced hangs since then; the others are read again without it, and it is tried again."""
    source = supervise(hung_after=1.0, retry=(0.5, 1.0), wall=lambda: 5000.0 + time.monotonic())
    wait_until(lambda: is_up(source))

    before = 5000.0 + time.monotonic()
    driver.behave("hang 3 utilization")
    wait_until(driver.hung)
    hung_at = 5000.0 + time.monotonic()
    seen = set()

    def found():
        latest = source.latest()
        seen.update(one.index for one in latest.devices if not one.up)
        return latest.devices[3].reason == "hung" and latest.restarts >= 1 and latest.age < 0.5

    wait_until(found)
    assert seen == {3}
    now = source.latest()
    assert now.up
    assert [device.uuid for device in now.devices] == [uuid(index) for index in range(8)]
    assert before <= now.devices[3].down_since <= hung_at + 1
    assert now.devices[3].values == {}
    assert now.devices[5].values["utilization_ratio",] == 0.95
    since = now.devices[3].down_since
    # The scouts hang as well.
    wait_until(lambda: len(driver.hung()) >= 3)
    assert (source.latest().up, source.latest().restarts) == (True, 1)
    assert source.latest().devices[3].down_since == since
    assert source.latest().failed["hung"] >= 2

    driver.behave()
    wait_until(lambda: source.latest().devices[3].up)
    assert source.latest().devices[3].values["utilization_ratio",] == 0.93
    assert source.latest().restarts == 2
    wait_until(lambda: not any(is_running(pid) for pid in driver.hung()))


def test_a_device_that_hangs_from_the_start(supervise, driver):
    """It has only its number until it answers; the others are read."""
    driver.behave("hang 2 handle")
    source = supervise(hung_after=1.0, retry=(0.1, 0.1))
    wait_until(lambda: is_up(source))

    assert states(source) == [(0, ""), (1, ""), (2, "hung"), (3, ""), (4, ""), (5, ""), (6, ""), (7, "")]
    assert source.latest().devices[2].uuid == ""

    driver.behave()
    wait_until(lambda: source.latest().devices[2].up)
    assert source.latest().devices[2].uuid == uuid(2)
    assert len(source.latest().devices) == 8


def test_a_second_hang_before_a_reading_is_the_driver(supervise):
    """The first device hangs, the others are down with the driver; once a child reads the rest, these are back."""

    def answers(avoid, _):
        if not avoid:
            return lines(reading(0, 1, 2, 3, count=4), at(-1), at(0), at(1), at(2))
        if 1 not in avoid:
            return lines(at(-1), at(0), at(1))
        return forever(reading(0, 3, count=4))

    plan = Plan(answers)
    source = supervise(plan, hung_after=1.0, backoff=(1.0, 1.0))

    wait_until(lambda: states(source) == [(0, ""), (1, ""), (2, "hung"), (3, "")])
    assert source.latest().up
    wait_until(lambda: not source.latest().up)
    down = source.latest()
    assert states(source) == [(0, "driver"), (1, "driver"), (2, "hung"), (3, "driver")]
    assert (down.reason, down.up) == ("hung", False)
    since = [device.down_since for device in down.devices]
    assert since[2] < since[0]

    wait_until(lambda: states(source) == [(0, ""), (1, "hung"), (2, "hung"), (3, "")])
    assert source.latest().up
    assert [avoid for avoid, only in plan.calls if only is None] == [[], [2], [1, 2]]
    assert [device.down_since for device in source.latest().devices][1:3] == since[1:3]


@pytest.mark.parametrize("rule", ["hang * count", "hang * driver_version"])
def test_a_driver_that_hangs_as_a_whole(supervise, driver, rule):
    """When no device was announced, none is to blame: all are down with the driver, and come back with it."""
    source = supervise(hung_after=1.0)
    wait_until(lambda: is_up(source))

    # The version is asked only by a process that connects.
    driver.behave(*(["unloaded"] if "version" in rule else []))
    wait_until(lambda: "version" not in rule or is_down(source))
    driver.behave(rule)
    wait_until(lambda: is_down(source) and source.latest().reason == "hung")
    assert states(source) == [(index, "driver") for index in range(8)]
    wait_until(lambda: len(driver.hung()) >= 2)

    driver.behave()
    wait_until(lambda: is_up(source))
    assert states(source) == [(index, "") for index in range(8)]


def test_a_node_with_one_device_that_hangs(supervise, driver):
    """There is nobody to go on with: the device hangs and the source is down, until it answers."""
    driver.behave("count 1")
    source = supervise(hung_after=1.0)
    wait_until(lambda: is_up(source))

    driver.behave("count 1", "hang 0 utilization")
    wait_until(lambda: is_down(source))
    assert states(source) == [(0, "hung")]
    assert source.latest().reason == "hung"

    driver.behave("count 1")
    wait_until(lambda: is_up(source))
    assert states(source) == [(0, "")]


def test_when_most_devices_hang_it_is_the_driver(supervise, driver):
    """Three of four that hang are no three accidents: nothing is left alone, so that all come back at once."""
    driver.behave("count 4")
    source = supervise(hung_after=1.0, retry=(600.0, 600.0))
    wait_until(lambda: is_up(source))

    driver.behave("count 4", "hang * utilization")
    wait_until(lambda: is_down(source) and len(driver.hung()) >= 4)
    assert sorted(reason for _, reason in states(source)) == ["driver", "driver", "driver", "hung"]

    driver.behave("count 4")
    wait_until(lambda: is_up(source) and states(source) == [(0, ""), (1, ""), (2, ""), (3, "")])


def test_a_driver_that_hangs_from_the_start(supervise, driver):
    """A child that never says a word becomes a source that is down, without devices."""
    driver.behave("hang * init")
    source = supervise(hung_after=0.2)

    wait_until(lambda: is_down(source))

    assert source.latest().devices == ()
    assert source.latest().age is None


def test_a_child_that_cannot_be_killed_does_not_stop_the_others(supervise):
    """Beside one that is stuck in the kernel another reads on, but no scout is risked until it has gone."""

    def answers(avoid, only):
        if only is not None:
            return forever(reading(2, count=4))
        return forever(reading(0, 1, 3, count=4)) if avoid else lines(reading(0, 1, 2, 3, count=4), at(2))

    plan = Plan(answers, Unkillable)
    source = supervise(plan, hung_after=1.0, retry=(0.1, 0.1))
    wait_until(lambda: len(plan.calls) == 2 and states(source) == [(0, ""), (1, ""), (2, "hung"), (3, "")])
    wait_until(lambda: source.latest().age < 0.1)
    # Two seconds of readings: a scout would have been due twenty times.
    begun = time.monotonic()
    wait_until(lambda: time.monotonic() - begun > 2.0)
    assert plan.calls == [([], None), ([2], None)]
    assert source.latest().up

    plan.children[0].let_die()
    wait_until(lambda: ([], 2) in plan.calls)
    for child in plan.children:
        child.let_die()


def test_there_are_never_more_than_two(supervise):
    """When two are stuck there is no third; their devices are down; with the first that goes there is another."""
    plan = Plan(lambda avoid, _: lines(reading(0, 1, 2, 3, count=4), at(len(avoid))), Unkillable)
    source = supervise(plan, hung_after=0.5, retry=(0.1, 0.1))
    wait_until(lambda: source._crew.stuck == 2)
    begun = time.monotonic()
    wait_until(lambda: time.monotonic() - begun > 1.5)
    assert plan.alive() == len(plan.calls) == 2

    plan.children[0].let_die()
    wait_until(lambda: len(plan.children) == 3)
    assert plan.alive() == 2
    for child in plan.children:
        child.let_die()


def test_a_scout_makes_room_for_a_new_main_child(supervise):
    """With one stuck and a scout under way there would be three: the scout goes first."""

    def answers(avoid, only):
        if only is not None:
            return lines(at(only))
        if not avoid:
            return lines(reading(0, 1, 2, 3, count=4), at(2))
        return lines(*[reading(0, 1, 3, count=4)] * 3, at(3)) if 3 not in avoid else forever(reading(0, 1, count=4))

    plan = Plan(answers, Unkillable)
    plan_alive = []

    def start(avoid, only):
        child = plan(avoid, only)
        plan_alive.append(plan.alive())
        if only is not None or len(plan.calls) == 1:
            child.let_die()
        return child

    source = supervise(start, hung_after=1.0, retry=(0.5, 0.5))

    wait_until(lambda: states(source) == [(0, ""), (1, ""), (2, "hung"), (3, "hung")])
    assert max(plan_alive) == 2
    for child in plan.children:
        child.let_die()


def test_stop_does_not_wait_for_a_child_that_cannot_be_killed():
    """The exporter ends although a child stays in the driver."""
    text = f"import time\nprint('{ONE_DEVICE}', flush=True)\ntime.sleep(600)"
    pipe = subprocess.PIPE
    child = Unkillable([sys.executable, "-S", "-c", text], stdin=pipe, stdout=pipe)
    source = Supervisor("nvidia", interval=0.05, hung_after=60.0, start_child=lambda *_: child)
    source.start()
    wait_until(lambda: is_up(source))

    source.stop()

    assert child.poll() is None
    assert not [thread for thread in threading.enumerate() if thread.name == "devices-nvidia"]
    child.let_die()
    child.wait()


def test_a_machine_without_the_vendor_has_nothing_to_show(supervise):
    """Nothing found means no reading, and a rare question whether that has changed."""
    asked = []

    def start_child(*_):
        asked.append(1)
        if len(asked) < 3:
            return script(f'print(\'{{"absent":"no library"}}\', flush=True); raise SystemExit({ABSENT})')()
        return script(f"import time; print('{ONE_DEVICE}', flush=True); time.sleep(600)")()

    source = supervise(start_child, hung_after=60.0)

    wait_until(lambda: len(asked) == 2)
    assert source.latest() is None
    wait_until(lambda: is_up(source))
    assert source.latest().restarts == 0


def test_a_library_that_disappears_is_a_fault(supervise):
    """Where devices were seen, "no library" later means that they are down, not that they never were."""
    texts = [
        f"print('{ONE_DEVICE}', flush=True)",
        f'print(\'{{"absent":"no library"}}\', flush=True); raise SystemExit({ABSENT})',
    ]
    source = supervise(scripts(*texts))

    wait_until(lambda: is_down(source) and source.latest().restarts >= 2)

    assert [(device.uuid, device.up) for device in source.latest().devices] == [("U", False)]


def test_a_driver_that_goes_away_and_comes_back(supervise, driver):
    """Without a driver the source and its devices are down, counted by reason; the same child reads them again."""
    source = supervise()
    wait_until(lambda: is_up(source))

    driver.behave("unloaded")
    wait_until(lambda: is_down(source))
    reading = source.latest()
    assert [device.up for device in reading.devices] == [False] * 8
    assert reading.failed["uninitialized"] >= 1

    driver.behave()
    wait_until(lambda: is_up(source))
    assert source.latest().restarts == 0
    assert source.latest().devices[0].values["utilization_ratio",] == 0.9


def test_a_replaced_driver_gets_a_new_process(supervise):
    """A child that says that only a new process can help is replaced and counted."""
    texts = [
        f"print('{ONE_DEVICE}', flush=True); print('{{\"down\":\"mismatch\"}}', flush=True); raise SystemExit({STALE})",
        f"import time; print('{ONE_DEVICE}', flush=True); time.sleep(600)",
    ]
    source = supervise(scripts(*texts))

    wait_until(lambda: is_up(source) and source.latest().restarts == 1)

    assert source.latest().failed == {"mismatch": 1, "ended": 1}


def test_a_lost_device_keeps_its_series_across_a_restart(supervise, driver):
    """A new child cannot ask a lost device who it is; the supervisor remembers, and since when."""
    source = supervise(hung_after=1.0, retry=(0.1, 0.1))
    wait_until(lambda: is_up(source))

    driver.behave("return 2 handle 15", "return 2 utilization 15")
    wait_until(lambda: states(source)[2] == (2, "lost"))
    since = source.latest().devices[2].down_since
    driver.behave("return 2 handle 15", "hang 0 utilization")
    wait_until(driver.hung)
    driver.behave("return 2 handle 15")
    wait_until(lambda: source.latest().restarts >= 2 and source.latest().devices[0].up)

    devices = source.latest().devices
    assert [device.uuid for device in devices] == [uuid(index) for index in range(8)]
    assert [device.reason for device in devices] == ["", "", "lost", "", "", "", "", ""]
    assert devices[2].down_since == since
    assert source.latest().failed["gpu_is_lost"] >= 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("print('nonsense', flush=True); import time; time.sleep(600)", "invalid_line"),
        ("print('{\"devices\":[{}]}', flush=True); import time; time.sleep(600)", "invalid_line"),
        ("import sys\nwhile True: sys.stdout.write('x' * 65536)", "invalid_line"),
        ("raise SystemExit(1)", "ended"),
        ("import os; os.abort()", "ended"),
        ("print('{\"dev', end='', flush=True); import time; time.sleep(600)", "hung"),
    ],
    ids=["nonsense", "no device", "endless line", "failure", "crash", "torn line"],
)
def test_a_broken_child_is_replaced(supervise, text, reason):
    """Whatever a child writes instead of readings costs the source, and is tried again."""
    source = supervise(script(text), hung_after=0.2 if reason == "hung" else 60.0)

    wait_until(lambda: is_down(source) and source.latest().restarts >= 2)

    assert set(source.latest().failed) == {reason}


def test_a_child_that_cannot_be_started(supervise):
    """A full process table is a source that is down."""

    def start_child(*_):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    source = supervise(start_child)

    wait_until(lambda: is_down(source) and source.latest().restarts >= 2)

    assert set(source.latest().failed) == {"not_started"}


def test_restarts_are_spread_out(supervise, monkeypatch):
    """Pauses double up to the longest while children fail at once."""
    pauses = []

    def at_once(self):
        pauses.append(real(self))
        return float("-inf")

    real = Backoff.next
    monkeypatch.setattr(Backoff, "next", at_once)
    supervise(script("raise SystemExit(1)"), backoff=(1.0, 5.0))

    wait_until(lambda: len(pauses) >= 5)
    assert pauses[:5] == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_old_values_are_not_shown_even_if_the_thread_is_late(supervise):
    """A reading that is too old counts as none, whoever should have noticed."""
    now = 1000.0
    source = supervise(
        script(f"import time; print('{ONE_DEVICE}', flush=True); time.sleep(600)"),
        clock=lambda: now,
        wall=lambda: 6000.0 + now,
    )
    wait_until(lambda: is_up(source))
    assert source.latest().devices[0].values["utilization_ratio",] == 0.5

    now += 65.0
    assert source.latest().up
    now += 0.1
    reading = source.latest()

    assert (reading.up, reading.reason) == (False, "late")
    assert reading.age == pytest.approx(65.1)
    assert [(device.up, device.values, device.down_since) for device in reading.devices] == [(False, {}, 7000.0)]


def test_reasons_do_not_grow_without_bound(supervise):
    """A child that invents reasons fills one entry more than the limit."""
    device = '{"index":0,"up":true,"failed":{%s}}'
    text = (
        "import time\n"
        "for n in range(100):\n"
        f"    print('{{\"devices\":[' + '{device}' % f'\"reason{{n}}\":1' + ']}}', flush=True)\n"
        "time.sleep(600)"
    )
    source = supervise(script(text), hung_after=60.0)

    wait_until(lambda: is_up(source) and sum(source.latest().failed.values()) == 100)

    assert len(source.latest().failed) == 65
    assert source.latest().failed["other"] == 36


def test_a_reloaded_driver_is_read_whole(supervise, driver):
    """What hung under the driver before is not left alone under the next one."""
    source = supervise(hung_after=1.0, retry=(600.0, 600.0))
    wait_until(lambda: is_up(source))
    driver.behave("hang 3 utilization")
    wait_until(lambda: states(source)[3:4] == [(3, "hung")] and source.latest().restarts == 1)

    driver.behave("unloaded")
    wait_until(lambda: is_down(source))
    assert states(source) == [(index, "driver") for index in range(8)]
    driver.behave()

    wait_until(lambda: is_up(source) and states(source) == [(index, "") for index in range(8)])


def test_with_another_number_of_devices_all_are_read(supervise, driver):
    """An index means another device then, so none is left alone; the one that is gone is missing."""
    source = supervise(hung_after=1.0, retry=(600.0, 600.0))
    wait_until(lambda: is_up(source))
    driver.behave("hang 3 utilization")
    wait_until(lambda: states(source)[3:4] == [(3, "hung")] and is_up(source) and source.latest().restarts == 1)

    driver.behave("count 7")
    expected = [(0, ""), (1, ""), (2, ""), (3, ""), (4, ""), (5, ""), (6, ""), (7, "missing")]
    wait_until(lambda: states(source) == expected)
    assert (source.latest().expected, source.latest().missing) == (8, ("0000:21:00.0",))


def test_expected_devices_come_from_the_bus(supervise, driver):
    """An address on the bus that the driver never listed is named."""
    driver.behave("count 2")
    source = supervise(bus=Nowhere("0000:1a:00.0", "0000:1b:00.0", "0000:5e:00.0"))
    wait_until(lambda: is_up(source))

    assert (source.latest().expected, source.latest().missing) == (3, ("0000:5e:00.0",))


def test_without_a_library_the_devices_on_the_bus_are_expected(supervise):
    """Cards without a driver package are no fault of a driver, and yet not here; they are looked for more often."""
    absent = f'print(\'{{"absent":"no library"}}\', flush=True); raise SystemExit({ABSENT})'
    source = supervise(
        scripts(absent, absent, forever(ONE_DEVICE)), bus=Nowhere("0000:1a:00.0", "0000:1b:00.0"), retry_absent=9999.0
    )

    wait_until(lambda: source.latest() is not None)
    without = source.latest()
    assert (without.up, without.devices, without.expected, without.missing) == (None, (), 2, ())
    wait_until(lambda: is_up(source))


def test_a_driver_that_comes_late_is_found(supervise, driver):
    """An exporter that starts before the driver says so and reads the devices once it is there."""
    driver.behave("unloaded")
    source = supervise(bus=Nowhere(*(f"0000:{0x1A + index:02x}:00.0" for index in range(8))))
    wait_until(lambda: is_down(source))
    before = source.latest()
    assert (before.reason, before.devices, before.expected) == ("driver_not_loaded", (), 8)

    driver.behave()
    wait_until(lambda: is_up(source))
    assert (source.latest().reason, len(source.latest().devices), source.latest().restarts) == ("", 8, 0)


@pytest.mark.parametrize(
    ("rules", "reason", "devices"),
    [
        (["return * handle 17", "return * utilization 17"], "", "blocked"),
        (["return * count 17"], "blocked_by_operating_system", "blocked"),
        (["return * count 999"], "unknown", "unknown"),
        (["return * count 9"], "driver_not_loaded", "driver"),
        (["unloaded"], "uninitialized", "driver"),
    ],
    ids=["each device", "the driver", "unknown", "not loaded", "unloaded"],
)
def test_what_takes_all_devices_down_has_a_reason(supervise, driver, rules, reason, devices):
    """A container that lost its devices, and a driver that is gone, are told apart; both are over without a restart."""
    source = supervise()
    wait_until(lambda: is_up(source))
    driver.behave(*rules)

    wait_until(lambda: states(source) == [(index, devices) for index in range(8)])
    assert source.latest().reason in {reason, "driver_not_loaded" if reason == "uninitialized" else reason}
    assert source.latest().up is (not reason)

    driver.behave()
    wait_until(lambda: states(source) == [(index, "") for index in range(8)])
    assert source.latest().restarts == 0


def test_the_driver_is_let_go_of_while_a_file_is_there(supervise, driver, tmp_path):
    """While it exists no process of ours holds the driver and the devices are paused; then they are read again."""
    before = held()
    file = tmp_path / "pause"
    source = supervise(pause_file=str(file), hung_after=1.0)
    wait_until(lambda: is_up(source))
    driver.behave("hang 3 utilization")
    wait_until(lambda: states(source)[3:4] == [(3, "hung")] and is_up(source))

    file.touch()
    wait_until(lambda: held().children <= before.children)
    paused = source.latest()
    assert (paused.up, paused.reason) == (False, "paused")
    assert states(source) == [(index, "paused") for index in range(8)]
    assert "paused" not in paused.failed

    driver.behave()
    restarts = paused.restarts
    file.unlink()
    wait_until(lambda: is_up(source))
    # After a reset nothing hangs any more.
    assert states(source) == [(index, "") for index in range(8)]
    assert source.latest().restarts == restarts


def test_an_exporter_that_starts_paused_does_not_touch_the_driver(supervise, tmp_path):
    """With devices on the bus it says so, without it says nothing."""
    file = tmp_path / "pause"
    file.touch()
    plan = Plan(lambda *_: forever(ONE_DEVICE))
    source = supervise(plan, pause_file=str(file), bus=Nowhere("0000:1a:00.0"))
    nothing = supervise(plan, pause_file=str(file))

    wait_until(lambda: is_down(source))
    assert (source.latest().reason, source.latest().expected) == ("paused", 1)
    assert nothing.latest() is None
    assert plan.calls == []
    file.unlink()
    wait_until(lambda: is_up(source))


def test_faults_are_handed_on_once(supervise):
    """Each is taken by whoever asks first; those that nobody takes in time are counted."""
    fault = '{"devices":[],"count":0,"faults":[["0000:1a:00.0",31,1000.5,""],["0000:1b:00.0",79,1001.5,"fallen"]]}'
    source = supervise(script(lines(*[fault] * 600)))
    wait_until(lambda: is_up(source) and source.latest().faults_lost == 176)

    faults = source.faults()

    assert len(faults) == 1024
    assert faults[-1] == Fault("driver", "0000:1b:00.0", 79, 1001.5, "fallen")
    assert source.faults() == []


@pytest.mark.parametrize("rules", [(), ("hang 0 utilization",), ("unloaded",)], ids=["healthy", "hung", "no driver"])
def test_nothing_is_left_behind(driver, rules):
    """Descriptors, threads and processes are the same before and after, whatever the driver does."""
    driver.behave(*rules)
    before = held()

    for _ in range(3):
        source = Supervisor("nvidia", interval=0.05, hung_after=60.0, start_child=driver.spawn, bus=Nowhere())
        seen = len(driver.hung())
        source.start()
        wait_until(lambda source=source, seen=seen: source.latest() is not None or len(driver.hung()) > seen)
        source.stop()

    assert new_since(before) == []


def test_stop_is_safe_at_any_time(driver):
    """Stopping twice, or without a start, does nothing."""
    source = Supervisor("nvidia", start_child=driver.spawn)
    source.stop()
    source.start()
    source.stop()
    source.stop()

    assert source.latest() is None


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_whatever_children_do_there_are_two_at_most_and_all_comes_back(supervise, seed):
    """Children that hang anywhere, die, talk nonsense, vanish or cannot be killed: then good ones, and all is well."""
    chance = random.Random(seed)
    well = reading(0, 1, 2, 3, count=4)
    bad = [
        (well, at(2)),
        (at(-1), at(3)),
        (at(-1), at(0)),
        (well, at(-1)),
        (reading(0, 1, count=2), "a half li"),
        ("nonsense",),
        ('{"down":"unknown"}', well),
        ('{"absent":"no library"}',),
    ]
    ends = ["time.sleep(600)", "raise SystemExit(1)", f"raise SystemExit({ABSENT})", f"raise SystemExit({STALE})"]

    def answers(*_):
        return forever(well) if good else lines(*chance.choice(bad), then=chance.choices(ends, [5, 1, 1, 1])[0])

    good = False
    plan = Plan(answers, Unkillable)
    most = 0

    def start(avoid, only):
        nonlocal most
        child = plan(avoid, only)
        most = max(most, plan.alive())
        if good or chance.random() < 0.8:
            child.let_die()
        return child

    source = supervise(start, hung_after=0.3, retry=(0.1, 0.3), backoff=(0.01, 0.05))

    def enough():
        latest = source.latest()
        assert latest is None or len(latest.devices) <= 5
        if source._crew.stuck == 2:
            # The driver lets them go.
            for child in plan.children:
                child.let_die()
        return len(plan.calls) >= 15

    wait_until(enough, seconds=120.0)
    good = True
    for child in plan.children:
        child.let_die()
    wait_until(lambda: is_up(source) and states(source) == [(0, ""), (1, ""), (2, ""), (3, "")], seconds=60.0)
    assert most <= 2
