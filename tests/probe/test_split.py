"""The time of a step, parted without waiting: by a device that works later, and by what a framework measures."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest

from trainvitals import rankfile
from trainvitals.probe import phases, quick, split
from trainvitals.probe.recorder import Recorder

# A stand-in for a device and for the time ---------------------------------------------------------------------------


def waits(*_, **__):
    """Fail: this call would wait for the device."""
    raise AssertionError("a call that waits for the device")


class Clock:
    """The time, which only the test moves."""

    now = 1000.0

    def monotonic(self):
        """Return seconds."""
        return self.now


class Device:
    """A device with one queue: work takes its time, and begins when it is given and the work before is done."""

    def __init__(self, clock):
        self.clock = clock
        self.free_at = clock.now
        self.capturing = self.broken = False
        self.initialized = True
        self.events = []
        self.Event = lambda **options: Event(self, **options)

    def work(self, seconds):
        """Give it work, without waiting."""
        self.free_at = max(self.free_at, self.clock.now) + seconds

    def wait(self):
        """Wait for it, as ``loss.item()`` does."""
        self.clock.now = max(self.clock.now, self.free_at)

    def is_initialized(self):
        """Whether the program has made a context."""
        return self.initialized

    def is_current_stream_capturing(self):
        """Whether a graph is being captured."""
        return self.capturing

    synchronize = init = current_device = set_device = waits


class Event:
    """A mark in the queue."""

    def __init__(self, device, *, enable_timing):
        assert enable_timing
        self._device = device
        device.events.append(self)

    def record(self):
        """Take the place behind everything that waits now."""
        self._check()
        self.time = max(self._device.free_at, self._device.clock.now)

    def query(self):
        """Whether the device has come so far."""
        self._check()
        return self.time <= self._device.clock.now

    def elapsed_time(self, end):
        """Return milliseconds of the device's own clock; both must have passed."""
        assert self.query()
        assert end.query()
        return (end.time - self.time) * 1000.0

    def _check(self):
        assert not self._device.capturing, "an event during a capture"
        if self._device.broken:
            raise RuntimeError("device-side assert triggered")

    synchronize = wait = waits


@pytest.fixture
def clock(monkeypatch):
    """Give a clock that stands still."""
    clock = Clock()
    for module in (sys.modules[Recorder.__module__], phases, quick):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def device(monkeypatch, clock):
    """Give a device, behind the API that all devices share."""
    device = Device(clock)
    accelerator = SimpleNamespace(current_accelerator=lambda: SimpleNamespace(type="abacus"))
    torch = SimpleNamespace(
        Tensor=type("Tensor", (), {}), accelerator=accelerator, get_device_module={"abacus": device}.__getitem__
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    return device


class Loop:
    """A training loop on a stand-in: what the host does and gives the device in a step."""

    def __init__(self, recorder, clock, device=None):
        self.recorder, self.clock, self.device = recorder, clock, device
        recorder.phases._monotonic = clock.monotonic
        recorder.writer.state.phase_since = clock.now
        recorder.step(0, {"lr": 1.0})
        self.begun, self.before = clock.now, list(recorder.writer.state.phase_seconds)

    def data(self, seconds):
        """Wait for data."""
        self.phase("data", seconds)

    def phase(self, name, seconds):
        """Be in a phase."""
        self.recorder.begin_phase(name)
        self.clock.now += seconds
        self.recorder.end_phase()

    def launch(self, host, device):
        """Give the device work that keeps the host busy for ``host`` seconds."""
        for _ in range(10):
            if self.device is not None:
                self.device.work(device / 10)
            self.clock.now += host / 10

    def step(self):
        """End the step."""
        self.recorder.step(None, {"lr": 1.0})

    def shares(self):
        """Return the share of each phase since the start; together they are the whole time."""
        state = self.recorder.writer.state
        wall = self.clock.now - self.begun
        seconds = [now - before for now, before in zip(state.phase_seconds, self.before, strict=True)]
        # The current phase goes on, as the exporter sees it.
        seconds[state.phase] += self.clock.now - state.phase_since
        assert sum(seconds) == pytest.approx(wall, rel=1e-9)
        return {
            name: pytest.approx(part / wall, abs=0.015)
            for name, part in zip(rankfile.PHASES, seconds, strict=False)
            if abs(part) > 0.015 * wall
        }


@pytest.fixture
def loop(recorder, clock, device):
    """Give a loop on the device."""
    return Loop(recorder, clock, device)


# The device -------------------------------------------------------------------------------------------------------


def test_a_host_that_runs_ahead_leaves_all_time_to_the_device(loop):
    """The host launches for 2 ms what takes 10; its waits for data are hidden behind that, and are no waits."""
    for _ in range(200):
        loop.data(0.001)
        loop.launch(0.002, 0.010)
        loop.step()
        loop.clock.now = max(loop.clock.now, loop.device.free_at - 0.030)  # The queue is full.

    assert loop.shares() == {"device": 1.0}


def test_a_slow_loader_is_seen_beside_the_device(loop):
    """30 ms of data, 10 ms of work: three quarters of the time the device waits for data."""
    for _ in range(100):
        loop.data(0.030)
        loop.launch(0.002, 0.010)
        loop.device.wait()  # The program reads its loss.
        loop.step()

    assert loop.shares() == {"data": 0.75, "device": 0.25}


def test_a_wait_that_is_hidden_in_part(loop):
    """The device is 8 ms behind when the loader needs 12: only 4 ms of them are a wait."""
    for _ in range(200):
        loop.data(0.012)
        loop.launch(0.002, 0.010)
        loop.step()

    assert loop.shares() == {"data": 0.29, "device": 0.71}


def test_what_the_host_does_alone_stays_with_the_host(loop):
    """5 ms of logging between the step and the next batch, while the device has nothing to do."""
    for _ in range(100):
        loop.data(0.005)
        loop.launch(0.002, 0.010)
        loop.device.wait()
        loop.step()
        loop.clock.now += 0.005

    assert loop.shares() == {"data": 0.25, "device": 0.5, "train": 0.25}


def test_a_loop_that_tells_of_no_waits(loop):
    """Then all that lies between two steps is taken for the device's."""
    for _ in range(50):
        loop.launch(0.002, 0.010)
        loop.device.wait()
        loop.step()

    assert loop.shares() == {"device": 1.0}


def test_several_batches_in_one_step(loop):
    """With accumulated gradients, each wait is a wait."""
    for _ in range(50):
        for _ in range(4):
            loop.data(0.030)
            loop.launch(0.001, 0.010)
            loop.device.wait()
        loop.step()

    assert loop.shares() == {"data": 0.75, "device": 0.25}


def test_checkpoints_and_evaluations_keep_their_time(loop):
    """Although the device works in them as well."""
    for number in range(100):
        loop.data(0.001)
        loop.launch(0.002, 0.009)
        loop.device.wait()
        loop.step()
        if number % 10 == 9:
            loop.recorder.begin_phase("evaluation")
            loop.device.work(0.100)
            loop.device.wait()
            loop.recorder.end_phase()
            loop.phase("checkpoint", 0.050)

    assert loop.shares() == {"data": 0.04, "device": 0.36, "evaluation": 0.4, "checkpoint": 0.2}


def test_parts_of_a_step_that_the_program_marks_give_way_too(loop):
    """The host's forward and backward are the time of launching."""
    for _ in range(50):
        loop.data(0.010)
        for name in ("forward", "backward", "optimizer"):
            loop.recorder.begin_phase(name)
            loop.launch(0.001, 0.010)
            loop.recorder.end_phase()
        loop.device.wait()
        loop.step()

    assert loop.shares() == {"data": 0.25, "device": 0.75}


def test_no_phase_ever_shrinks(loop):
    """A counter that falls would be a restart to Prometheus."""
    seconds = loop.recorder.writer.state.phase_seconds
    for number in range(300):
        before = list(seconds)
        loop.data(0.001 * (number * 7 % 13))
        loop.launch(0.001 * (number * 5 % 11), 0.001 * (number * 3 % 17))
        if number % 7 == 0:
            loop.device.wait()
        loop.step()
        assert all(now >= earlier for now, earlier in zip(seconds, before, strict=True))


# The promises about the device --------------------------------------------------------------------------------------


def test_events_are_made_once(loop):
    """A pool: two for each span, and those of a span or two that are on their way."""
    for _ in range(500):
        loop.data(0.001)
        loop.launch(0.001, 0.002)
        loop.device.wait()
        loop.step()

    assert len(loop.device.events) <= 6


def test_nothing_is_recorded_or_asked_during_a_capture(loop):
    """A capture fails if it is; the stand-in fails then.  Afterwards all goes on."""
    for number in range(100):
        loop.device.capturing = number % 3 == 1
        loop.data(0.010)
        loop.launch(0.001, 0.010)
        loop.step()
        loop.device.wait()

    loop.device.capturing = False
    assert loop.recorder.writer.state.errors == 0
    assert loop.shares() == {"data": 0.5, "device": 0.32, "train": 0.18}


def test_a_device_that_hangs_costs_the_measurement(loop):
    """At most so many spans are on their way; the rest of the time stays with the host."""
    loop.device.work(1e6)
    for _ in range(1000):
        loop.data(0.001)
        loop.launch(0.009, 0.009)
        loop.step()

    assert len(loop.device.events) <= 2 * split.MAX_SPANS + 4
    assert loop.shares() == {"data": 0.1, "train": 0.9}


def test_a_device_that_fails_leaves_the_host(loop):
    """No error of ours, and no error of the program."""
    loop.device.broken = True
    for _ in range(10):
        loop.data(0.001)
        loop.launch(0.009, 0.009)
        loop.step()

    assert loop.shares() == {"data": 0.1, "train": 0.9}
    assert loop.recorder.writer.state.errors == 0


def test_another_thread_records_no_event(loop):
    """Its stream is not that of the training."""
    loop.recorder.step(1, {"lr": 1.0})
    count = len(loop.device.events)
    thread = threading.Thread(target=lambda: loop.data(0.5))
    thread.start()
    thread.join()

    assert len(loop.device.events) == count


def test_a_device_without_a_context_is_left_alone(recorder, clock, device):
    """The question alone would make one."""
    device.initialized = False
    loop = Loop(recorder, clock)
    loop.phase("train", 1.0)
    loop.step()

    assert device.events == []
    assert loop.shares() == {"train": 1.0}


@pytest.mark.parametrize("torch", [None, SimpleNamespace(), SimpleNamespace(accelerator=SimpleNamespace())])
def test_what_is_no_torch_has_no_device(torch):
    """None at all, and one that is being imported."""
    assert split.device_module(torch) is None


def test_an_older_torch_has_cuda():
    """Before PyTorch 2.6 there is no word for all devices."""
    cuda = SimpleNamespace(is_initialized=lambda: True)

    assert split.device_module(SimpleNamespace(cuda=cuda)) is cuda


# Communication ------------------------------------------------------------------------------------------------------


@pytest.fixture
def exposed(monkeypatch):
    """Give the seconds of a step that a framework has measured, and how often it was asked."""
    measured = SimpleNamespace(seconds=None, asked=0)

    def ask():
        measured.asked += 1
        if isinstance(measured.seconds, Exception):
            raise measured.seconds
        return measured.seconds

    monkeypatch.setattr(split, "exposed_communication", ask)
    return measured


def test_communication_leaves_the_host(recorder, clock, exposed):
    """Of 10 ms of a step, 4 are a wait for other ranks."""
    exposed.seconds = 0.004
    loop = Loop(recorder, clock)
    for _ in range(300):
        loop.data(0.001)
        loop.clock.now += 0.010
        loop.step()

    assert loop.shares() == {"data": 0.09, "train": 0.55, "communication": 0.36}
    assert exposed.asked == 13  # The first ten, and three in three hundred.


def test_communication_leaves_the_device(loop, exposed):
    """Where there is a device, it is the one that waits."""
    exposed.seconds = 0.004
    for _ in range(100):
        loop.data(0.010)
        loop.launch(0.002, 0.010)
        loop.device.wait()
        loop.step()

    assert loop.shares() == {"data": 0.5, "device": 0.3, "communication": 0.2}


def test_an_estimate_above_the_step_takes_the_step_and_no_more(recorder, clock, exposed):
    """A measurement of another step may be longer than this one."""
    exposed.seconds = 1.0
    loop = Loop(recorder, clock)
    for _ in range(10):
        loop.clock.now += 0.010
        loop.step()
    exposed.seconds = 0.0
    for _ in range(90):
        loop.clock.now += 0.010
        loop.step()
    for _ in range(100):
        loop.clock.now += 0.010
        loop.step()

    assert loop.shares() == {"communication": 0.5, "train": 0.5}


def test_a_framework_that_measures_otherwise(recorder, clock, exposed):
    """An error costs the measurement."""
    exposed.seconds = KeyError("backward_comm_time")
    loop = Loop(recorder, clock)
    for _ in range(20):
        loop.clock.now += 0.010
        loop.step()

    assert loop.shares() == {"train": 1.0}
    assert recorder.writer.state.errors == 0
    assert recorder.writer.state.count == 21
