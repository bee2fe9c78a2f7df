"""Devices that are left out, the kernel's log that tells of them, and what is waited for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from trainvitals.follow.errors import CAUSE
from trainvitals.host.kmsg import KernelLog
from trainvitals.probe.recorder import Recorder
from trainvitals.supervise import devices, resources
from trainvitals.supervise.attempt import Attempt
from trainvitals.supervise.cause import event_of
from trainvitals.supervise.kernel import Kernel, memory_events
from trainvitals.supervise.settings import Settings
from trainvitals.supervise.signals import Signals
from trainvitals.supervise.watch import Ranks

UUIDS = [f"GPU-0000000{number}-1111-2222-3333-444444444444" for number in range(4)]


@pytest.fixture
def driver(tmp_path):
    """Four devices as the driver lists them; the last one cannot be read any more."""
    for number, uuid in enumerate([*UUIDS[:3], "GPU-????????-????-????-????-????????????"]):
        folder = tmp_path / "gpus" / f"0000:0{number + 1}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t NVIDIA H100\nGPU UUID: \t {uuid}\nBus Type: PCIe\n")
    return devices.Roster(str(tmp_path / "gpus"))


def test_the_devices_of_the_driver(driver):
    """In the order of their addresses; one that is lost has no UUID."""
    assert [(gpu.address, gpu.uuid) for gpu in driver.present()] == [
        ("0000:01:00.0", UUIDS[0]),
        ("0000:02:00.0", UUIDS[1]),
        ("0000:03:00.0", UUIDS[2]),
        ("0000:04:00.0", ""),
    ]
    assert driver.uuid_of("0000:02:00") == UUIDS[1]
    assert driver.uuid_of("0000:09:00") == ""
    assert devices.Roster("/nowhere").present() == []


@pytest.mark.parametrize(
    ("visible", "excluded", "usable"),
    [
        (None, [], UUIDS[:3]),
        (None, [UUIDS[1]], [UUIDS[0], UUIDS[2]]),
        ("2,0", [], [UUIDS[2], UUIDS[0]]),
        ("2,0", [UUIDS[2]], [UUIDS[0]]),
        (UUIDS[1], [], [UUIDS[1]]),
        ("GPU-00000001", [], [UUIDS[1]]),
        ("", [], []),
        ("7,nonsense, 1", [], [UUIDS[1]]),
    ],
)
def test_usable_devices(driver, visible, excluded, usable):
    """What the environment allows, in its order, less what is left out."""
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}

    assert driver.usable(environ, excluded) == usable


@pytest.mark.parametrize(
    ("command", "asked", "changed"),
    [
        (["torchrun", "--nproc-per-node", "8", "x.py"], "8", ["torchrun", "--nproc-per-node", "7", "x.py"]),
        (["torchrun", "--nproc_per_node=gpu", "x.py"], "gpu", ["torchrun", "--nproc_per_node=7", "x.py"]),
        (["python", "x.py"], None, ["python", "x.py"]),
        (["torchrun", "--nproc-per-node"], None, ["torchrun", "--nproc-per-node"]),
    ],
)
def test_processes_per_node(command, asked, changed):
    """Both spellings of torchrun; a command without it stays as it is."""
    assert devices.processes_per_node(command) == asked
    assert devices.with_processes(command, 7) == changed


@pytest.mark.parametrize(
    ("asked", "usable", "span", "count"),
    [
        ("8", 8, None, 8),
        ("8", 7, None, None),
        ("8", 7, (6, 8), 7),
        ("8", 5, (6, 8), None),
        ("8", 8, (2, 6), 6),
        ("gpu", 3, None, 3),
        (None, 0, None, None),
    ],
)
def test_with_how_many_processes_a_run_goes_on(asked, usable, span, count):
    """As many as the command says, unless fewer will do."""
    assert resources.processes_now(asked, usable, span) == count


def test_room_for_another_checkpoint(tmp_path):
    """A tenth more than the newest, or a MiB; where nobody knows, it may be tried."""
    (tmp_path / "step_1").mkdir()
    (tmp_path / "step_1" / "a.pt").write_bytes(bytes(2_000_000))
    newest = str(tmp_path / "step_1")

    assert [resources.has_room("x", newest, lambda _, free=free: free) for free in (2_100_000, 2_300_000)] == [
        False,
        True,
    ]
    assert [resources.has_room("x", None, lambda _, free=free: free) for free in (1_000_000, 1_100_000)] == [
        False,
        True,
    ]
    assert resources.has_room("/nowhere/at/all", newest)


class Log:
    """The kernel's log, as it hands out one record per read."""

    def __init__(self, *messages):
        self.records = [f"4,{number},{number}000000,-;{text}\n".encode() for number, text in enumerate(messages)]

    def read(self, _):
        """Return the next record."""
        return self.records.pop(0) if self.records else None

    def close(self):
        """Do nothing."""


def kernel(*messages, files=(), since=0.0):
    """Read messages that were written in the first seconds since the boot, which was at 1000."""
    log = Log(*messages)
    source = KernelLog("x", opener=lambda _: log, clock=lambda: 1100.0, monotonic=lambda: 100.0)
    found = Kernel(source, since=since, memory_events=files, clock=lambda: 1100.0)
    found.poll()
    return found


def test_devices_with_fatal_errors():
    """What takes a reset, and what fell off the bus; not what a program did wrong."""
    found = kernel(
        "NVRM: Xid (PCI:0000:05:00): 31, pid=7, name=python, MMU Fault",
        "NVRM: Xid (PCI:0000:06:00): 119, pid=7, name=python, Timeout waiting for RPC from GSP",
        "NVRM: GPU at PCI:0000:07:00: GPU has fallen off the bus.",
    )

    assert [fault.address[:10] for fault in found.faults] == ["0000:06:00", "0000:07:00"]
    assert found.faults[0].text.startswith("Xid 119: ")


def test_what_was_before_the_attempt_does_not_count():
    """The node may have been repaired since."""
    message = "NVRM: Xid (PCI:0000:06:00): 119, pid=7, name=python, Timeout"

    assert kernel(message, since=1050.0).faults == []


def test_a_process_that_was_killed_for_memory():
    """It is ours by its id; others' are none of our business."""
    found = kernel("Out of memory: Killed process 4711 (python) total-vm:1kB")

    assert [event.fields["cause"] for event in found.events([4711], was_killed=True)] == ["host_out_of_memory"]
    assert found.events([12], was_killed=True) == []


def test_a_memory_limit_without_the_kernel_log(tmp_path):
    """The control group counts its kills, and everybody may read that."""
    own, events = tmp_path / "cgroup", tmp_path / "memory.events"
    own.write_text("0::/\n")
    events.write_text("low 0\noom 2\noom_kill 2\n")
    found = kernel(files=memory_events(str(own), str(tmp_path)))

    assert found.events([], was_killed=True) == []
    events.write_text("low 0\noom 3\noom_kill 3\n")
    assert found.events([], was_killed=False) == []
    (event,) = found.events([], was_killed=True)
    assert event.fields["cause"] == "host_out_of_memory"
    assert event.fields["text"] == "the memory limit of the control group was reached: 1 kills"


@pytest.mark.parametrize(
    ("uuid", "cause", "devices_left_out"),
    [
        (UUIDS[1], "process_killed", (UUIDS[1],)),
        (UUIDS[0], "process_killed", ()),
        ("", "process_killed", ()),
        ("", "cuda_error", (UUIDS[1],)),
    ],
)
def test_a_lost_device_is_ours_if_a_rank_had_it(driver, spool, uuid, cause, devices_left_out):
    """Another job's device is none of our business; unless nobody knows, and the failure speaks of devices."""
    recorder = Recorder(str(spool), {"run": "test", "rank": 3, "world_size": 4, "attempt": 0})
    recorder.identify(device_uuid=uuid or None)
    ranks = Ranks(str(spool), "test", 0)
    ranks.poll()
    output = [event_of(CAUSE[cause], "what the log says")]
    attempt = Attempt(
        SimpleNamespace(poll=lambda: 1, end=lambda _: None, pid=1),
        SimpleNamespace(events=output, pump=lambda: None),
        ranks,
        kernel("NVRM: Xid (PCI:0000:02:00): 79, pid=7, name=python, GPU has fallen off the bus."),
        settings=Settings(name="test", command=("x",), spool=str(spool), folder="/nowhere"),
        roster=driver,
        error_file="",
        on_look=lambda: None,
        before_kill=lambda _: None,
    )

    failure = attempt.watch(Signals()).failure
    recorder.finish("ok")

    assert failure.devices == devices_left_out
    assert failure.cause == ("lost_device" if devices_left_out else cause)
    if uuid and devices_left_out:
        assert (failure.rank, failure.text) == (
            3,
            f"device {UUIDS[1]} (rank 3): Xid 79: GPU has fallen off the bus",
        )
