"""The supervisor: whatever the child does, latest() answers at once and nothing is left behind."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from tests.devices.helpers import children, descriptors, is_running, wait_until
from tests.fixtures.nvml.driver import uuid

from trainvitals.devices.supervisor import Supervisor
from trainvitals.devices.wire import ABSENT, STALE

ONE_DEVICE = '{"devices":[{"index":0,"up":true,"uuid":"U","values":[["utilization_ratio",0.5]]}]}'


@pytest.fixture
def supervise(driver):
    """Return a function that starts a supervisor with short times; all are stopped after the test."""
    started = []

    def start(start_child=None, **settings):
        times = {"interval": 0.05, "hung_after": 60.0, "backoff": (0.05, 0.2), "retry_absent": 0.1} | settings
        started.append(Supervisor("nvidia", start_child=start_child or driver.spawn, **times))
        started[-1].start()
        return started[-1]

    yield start
    for one in started:
        one.stop()


def script(text):
    """Return a function that starts a child that runs ``text`` in place of the reading process."""
    return lambda: subprocess.Popen(
        [sys.executable, "-S", "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )


def scripts(*texts):
    """Return a function that starts one of ``texts`` after the other, and the last one again and again."""
    rest = list(texts)

    def start_child():
        return script(rest.pop(0) if len(rest) > 1 else rest[0])()

    return start_child


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


def test_a_call_that_never_returns(supervise, driver):
    """The child is replaced, its devices stay known but down and without values, and come back with the driver."""
    source = supervise(hung_after=1.0)
    wait_until(lambda: is_up(source))

    driver.behave("hang 3 utilization")
    wait_until(driver.hung)
    # The call does not return, latest() does: it shows the last values until the silence is too long.
    wait_until(lambda: is_down(source))
    reading = source.latest()
    assert [device.uuid for device in reading.devices] == [uuid(index) for index in range(8)]
    assert not any(device.up for device in reading.devices)
    assert all(device.values == {} for device in reading.devices)
    wait_until(lambda: len(driver.hung()) >= 2)
    assert source.latest().failed["hung"] >= 1

    driver.behave()
    wait_until(lambda: is_up(source))
    assert source.latest().restarts >= 2
    assert source.latest().devices[3].values["utilization_ratio",] == 0.93
    assert not any(is_running(pid) for pid in driver.hung())


def test_a_driver_that_hangs_from_the_start(supervise, driver):
    """A child that never says a word becomes a source that is down, without devices."""
    driver.behave("hang * init")
    source = supervise(hung_after=0.2)

    wait_until(lambda: is_down(source))

    assert source.latest().devices == ()
    assert source.latest().age is None


class Unkillable(subprocess.Popen):
    """A process as it is inside a hung driver: SIGKILL has no effect until ``released``."""

    released = False

    def kill(self):
        """Do nothing, as the kernel does."""
        if self.released:
            super().kill()


def test_a_child_that_cannot_be_killed_is_the_last_one(supervise):
    """While a killed child stays, no other is started; when it is gone there is a new one."""
    started = []

    def start_child():
        assert not any(child.poll() is None for child in started)
        text = f"import time\nprint('{ONE_DEVICE}', flush=True)\ntime.sleep(600)"
        pipe = subprocess.PIPE
        started.append(Unkillable([sys.executable, "-S", "-c", text], stdin=pipe, stdout=pipe))
        return started[-1]

    source = supervise(start_child, hung_after=1.0)
    wait_until(lambda: source._stuck is not None)
    reading = source.latest()
    assert not reading.up
    assert [device.uuid for device in reading.devices] == ["U"]
    assert len(started) == 1

    started[0].released = True
    started[0].kill()
    wait_until(lambda: len(started) == 2)
    for child in started:
        child.released = True


def test_stop_does_not_wait_for_a_child_that_cannot_be_killed():
    """The exporter ends although a child stays in the driver."""
    text = f"import time\nprint('{ONE_DEVICE}', flush=True)\ntime.sleep(600)"
    pipe = subprocess.PIPE
    child = Unkillable([sys.executable, "-S", "-c", text], stdin=pipe, stdout=pipe)
    source = Supervisor("nvidia", interval=0.05, hung_after=60.0, start_child=lambda: child)
    source.start()
    wait_until(lambda: is_up(source))

    source.stop()

    assert child.poll() is None
    assert not [thread for thread in threading.enumerate() if thread.name == "devices-nvidia"]
    child.released = True
    child.kill()
    child.wait()


def test_a_machine_without_the_vendor_has_nothing_to_show(supervise):
    """Nothing found means no reading, and a rare question whether that has changed."""
    asked = []

    def start_child():
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
    """A new child cannot ask a lost device who it is; the supervisor remembers."""
    source = supervise(hung_after=1.0)
    wait_until(lambda: is_up(source))

    driver.behave("return 2 handle 15", "hang 0 utilization")
    wait_until(driver.hung)
    driver.behave("return 2 handle 15")
    wait_until(lambda: is_up(source) and source.latest().restarts >= 1)

    devices = source.latest().devices
    assert [device.uuid for device in devices] == [uuid(index) for index in range(8)]
    assert [device.up for device in devices] == [True, True, False, True, True, True, True, True]
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

    def start_child():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    source = supervise(start_child)

    wait_until(lambda: is_down(source) and source.latest().restarts >= 2)

    assert set(source.latest().failed) == {"not_started"}


def test_restarts_are_spread_out(supervise, monkeypatch):
    """Pauses double up to the longest while children fail at once."""
    pauses = []
    real_sleep = Supervisor._sleep

    def sleep(self, seconds):
        pauses.append(seconds)
        real_sleep(self, 0.0)

    monkeypatch.setattr(Supervisor, "_sleep", sleep)
    supervise(script("raise SystemExit(1)"), backoff=(1.0, 5.0))

    wait_until(lambda: len(pauses) >= 5)
    assert pauses[:5] == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_old_values_are_not_shown_even_if_the_thread_is_late(supervise):
    """A reading that is too old counts as none, whoever should have noticed."""
    now = 1000.0
    source = supervise(script(f"import time; print('{ONE_DEVICE}', flush=True); time.sleep(600)"), clock=lambda: now)
    wait_until(lambda: is_up(source))
    assert source.latest().devices[0].values["utilization_ratio",] == 0.5

    now += 60.1
    reading = source.latest()

    assert not reading.up
    assert reading.age == pytest.approx(60.1)
    assert [(device.up, device.values) for device in reading.devices] == [(False, {})]


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


@pytest.mark.parametrize("rules", [(), ("hang 0 utilization",), ("unloaded",)], ids=["healthy", "hung", "no driver"])
def test_nothing_is_left_behind(driver, rules):
    """Descriptors, threads and processes are the same before and after, whatever the driver does."""
    driver.behave(*rules)
    before = (descriptors(), threading.active_count(), children())

    for _ in range(3):
        source = Supervisor("nvidia", interval=0.05, hung_after=60.0, start_child=driver.spawn)
        seen = len(driver.hung())
        source.start()
        wait_until(lambda source=source, seen=seen: source.latest() is not None or len(driver.hung()) > seen)
        source.stop()

    assert (descriptors(), threading.active_count(), children()) == before


def test_stop_is_safe_at_any_time(driver):
    """Stopping twice, or without a start, does nothing."""
    source = Supervisor("nvidia", start_child=driver.spawn)
    source.stop()
    source.start()
    source.stop()
    source.stop()

    assert source.latest() is None
