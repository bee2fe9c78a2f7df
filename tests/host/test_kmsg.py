r"""The follower of the kernel's log: on files, on a pipe, and on a device that refuses."""

from __future__ import annotations

import errno
import os
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.held import held, new_since

from trainvitals.host.kmsg import KernelLog, Problem, Record

BOOT = 1_700_000_000.0


class Device:
    """A device that answers reads with these: a record, None for nothing new, an error number."""

    def __init__(self, *answers: bytes | int | None) -> None:
        self.answers = list(answers)
        self.closed = 0

    def read(self, _size: int, /) -> bytes | None:
        """Return the next answer; nothing new when there are no more."""
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, int):
            raise OSError(answer, os.strerror(answer))
        return answer

    def close(self) -> None:
        """Count it."""
        self.closed += 1


class Clock:
    """Seconds since boot, turned on by hand."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def monotonic(self) -> float:
        """Return the time since boot."""
        return self.now

    def wall(self) -> float:
        """Return the wall time."""
        return BOOT + self.now


def follow(device, clock: Clock | None = None, limit: int = 10_000) -> KernelLog:
    """Return a follower of this device."""
    clock = clock or Clock()
    return KernelLog("/dev/kmsg", limit=limit, opener=lambda _: device, clock=clock.wall, monotonic=clock.monotonic)


def refuse(number: int):
    """Return an opener that fails with this error."""

    def opener(path):
        raise OSError(number, os.strerror(number), path)

    return opener


def texts(records: list[Record]) -> list[str]:
    """Return the messages."""
    return [record.text for record in records]


def test_a_record_is_time_level_and_text():
    """Boot time plus microseconds; the priority without its facility."""
    log = follow(Device(b"4,7,250500000,-;NVRM: hello\n SUBSYSTEM=pci\n DEVICE=+pci:0000:05:00.0\n"))

    assert log.poll() == [Record(BOOT + 250.5, 4, "NVRM: hello")]
    assert log.oldest == BOOT + 250.5


def test_history_is_read_first_and_new_records_later():
    """Everything in the buffer, then what comes; nothing twice."""
    device = Device(b"6,0,1000000,-;one\n", b"6,1,2000000,-;two\n", None)
    log = follow(device)

    assert texts(log.poll()) == ["one", "two"]
    assert log.poll() == []
    device.answers = [b"6,2,3000000,-;three\n"]
    assert texts(log.poll()) == ["three"]


def test_only_the_kernel_itself_is_heard():
    """What user space writes has a facility other than 0; it is counted and not shown."""
    log = follow(Device(b"12,0,1,-;user\n", b"14,1,2,-;user\n", b"7,2,3,-;kernel\n", b"30,3,4,-;daemon\n"))

    assert texts(log.poll()) == ["kernel"]
    assert log.foreign == 3
    assert log.lost == 0


def test_overwritten_records_are_counted_and_do_not_end_it():
    """EPIPE says that some are lost, the sequence how many."""
    log = follow(Device(b"6,10,1,-;a\n", errno.EPIPE, b"6,25,2,-;b\n", b"6,26,3,-;c\n"))

    assert texts(log.poll()) == ["a", "b", "c"]
    assert log.lost == 14


def test_records_before_the_first_are_not_lost():
    """A long-lived node has overwritten its first records long before we came; ``oldest`` tells."""
    log = follow(Device(b"6,80000,900000000,-;a\n"))

    log.poll()

    assert (log.lost, log.oldest) == (0, BOOT + 900.0)


def test_a_record_that_the_kernel_refuses_is_skipped():
    """EINVAL: it does not fit."""
    log = follow(Device(b"6,1,1,-;a\n", errno.EINVAL, b"6,3,3,-;c\n"))

    assert texts(log.poll()) == ["a", "c"]
    assert log.lost == 1


def test_a_device_that_always_refuses_does_not_hold_the_round():
    """The number of attempts is bounded."""
    device = Device(*[errno.EPIPE] * 1000)

    assert follow(device, limit=10).poll() == []
    assert len(device.answers) == 980


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (rb"line\x0aline", "line\nline"),
        (rb"back\x5cslash", "back\\slash"),
        (rb"\xe6\xb8\xa9\xe5\xba\xa6", "\u6e29\u5ea6"),
        (rb"\xff\xfe", "\ufffd\ufffd"),
        (b"\xff raw", "\ufffd raw"),
        (rb"not an escape \xzz \x4", r"not an escape \xzz \x4"),
        (b"a;b,c", "a;b,c"),
        (b"", ""),
        (b"x" * 9000, "x" * 4096),
    ],
)
def test_text_is_unescaped_decoded_and_bounded(raw, text):
    """The kernel writes what is not printable as an escape; bytes that are no UTF-8 become a mark."""
    assert texts(follow(Device(b"6,1,1,-;" + raw + b"\n")).poll()) == [text]


def test_more_fields_in_the_prefix_are_skipped():
    """Kernels with CONFIG_PRINTK_CALLER name the caller; others may add more."""
    log = follow(Device(b"6,1,1,c,caller=T4411,new=1;a\n"))

    assert texts(log.poll()) == ["a"]


@pytest.mark.parametrize(
    "line",
    [
        b"no record at all",
        b";",
        b"6,1,1,-",
        b"x,1,1,-;a",
        b"-6,1,1,-;a",
        b"6," + b"1" * 400 + b",1,-;a",
        b"6,1," + b"9" * 400 + b",-;a",
        b"6,1,1," + b"f" * 1000 + b";a",
        b"\x00\xff\x00",
    ],
)
def test_what_is_no_record_is_counted(line):
    """And the next one is read."""
    log = follow(Device(line + b"\n", b"6,1,1,-;good\n"))

    assert texts(log.poll()) == ["good"]
    assert log.invalid == 1


@pytest.mark.no_cover
def test_a_flood_is_taken_in_portions_and_loses_nothing():
    """A round takes its limit; the others stay in the kernel's buffer."""
    log = follow(Device(*(b"6,%d,1,-;x\n" % number for number in range(100_000))), limit=4000)

    sizes = [len(log.poll()) for _ in range(26)]

    assert sizes == [4000] * 25 + [0]
    assert log.lost == 0


def test_a_file_and_a_pipe_are_read_like_the_device(tmp_path):
    """Several records and parts of them in one read."""
    path = tmp_path / "kmsg"
    path.write_bytes(b"6,1,1,-;a\n6,2,2,-;b")
    log = KernelLog(str(path))

    assert texts(log.poll()) == ["a"]
    with path.open("ab") as file:
        file.write(b"cd\n SUBSYSTEM=x\n6,3,3,-;e\n")
    assert texts(log.poll()) == ["bcd", "e"]
    log.close()

    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)
    log = KernelLog(fifo)
    assert log.poll() == []  # Opens without a writer.
    writer = os.open(fifo, os.O_WRONLY)
    os.write(writer, b"6,1,1,-;x\n6,2,")
    assert texts(log.poll()) == ["x"]
    os.write(writer, b"2,-;y\n")
    assert texts(log.poll()) == ["y"]
    os.close(writer)
    log.close()


def test_a_line_of_a_megabyte_is_dropped(tmp_path):
    """It is counted once, and what follows it is read."""
    path = tmp_path / "kmsg"
    path.write_bytes(b"6,1,1,-;" + b"x" * 1_000_000 + b"\n6,2,2,-;after\n")
    log = KernelLog(str(path))

    assert texts(log.poll()) == ["after"]
    assert log.invalid == 1
    log.close()


def test_a_missing_log_is_a_reason_with_a_fix(tmp_path):
    """As in a container; it is read as soon as it is there."""
    path = tmp_path / "kmsg"
    log = KernelLog(str(path))

    assert log.poll() == []
    assert log.problem == log.check()
    assert log.problem is not None
    assert log.problem.reason == "missing"
    assert "mount it from the node" in log.problem.fix
    path.write_bytes(b"6,1,1,-;a\n")
    assert texts(log.poll()) == ["a"]
    assert (log.problem, log.check()) == (None, None)
    log.close()


def test_another_device_in_its_place_is_no_log():
    """Containers have /dev/null or their console there; a console would lose what is typed."""
    master, slave = os.openpty()
    before = held()

    for path in ("/dev/null", os.ttyname(slave)):
        problem = KernelLog(path).check()
        assert problem is not None
        assert problem.reason == "missing"

    assert new_since(before) == []
    os.close(master)
    os.close(slave)


@pytest.mark.parametrize("number", [errno.EPERM, errno.EACCES])
def test_a_missing_right_is_a_reason_with_a_fix(number):
    """dmesg_restrict, or a container without the device."""
    log = KernelLog("/dev/kmsg", opener=refuse(number))

    assert log.poll() == []
    assert log.problem is not None
    assert log.problem.reason == "permission"
    assert "CAP_SYSLOG" in log.problem.fix


def test_another_error_is_told_as_it_is():
    """Neither missing nor forbidden."""
    log = KernelLog("/dev/kmsg", opener=refuse(errno.EIO))

    assert log.check() == Problem("error", "/dev/kmsg: Input/output error")


def test_a_log_that_breaks_is_opened_again_and_nothing_is_read_twice():
    """A new descriptor begins at the start of the buffer; what was read is skipped."""
    first = Device(b"6,1,1,-;a\n", b"6,2,2,-;b\n", errno.EIO)
    second = Device(b"6,1,1,-;a\n", b"6,2,2,-;b\n", b"6,3,3,-;c\n")
    devices = [first, second]
    log = KernelLog("/dev/kmsg", opener=lambda _: devices.pop(0))

    assert texts(log.poll()) == ["a", "b"]
    assert log.problem == Problem("error", "/dev/kmsg: Input/output error")
    assert texts(log.poll()) == ["c"]
    assert (log.problem, log.lost, first.closed) == (None, 0, 1)


def test_the_kernels_clock_may_drift_and_new_records_are_still_in_time():
    """After weeks the kernel's clock is 30 s behind; a record that comes now lies between two polls."""
    clock = Clock(now=5_000_000.0)
    device = Device(b"6,1,4999900000000,-;old\n", None)
    log = follow(device, clock)
    assert [record.time for record in log.poll()] == [BOOT + 4_999_900.0]

    clock.now += 5.0
    device.answers = [b"6,2,4999973000000,-;new\n", None]

    assert [record.time for record in log.poll()] == [BOOT + 5_000_000.0]
    clock.now += 5.0
    device.answers = [b"6,3,4999980500000,-;next\n"]
    # 7.5 s after the one before by the kernel's clock.
    assert [record.time for record in log.poll()] == [BOOT + 5_000_007.5]


def test_no_record_is_from_the_future():
    """A clock that is ahead, or a number without sense, is cut to now."""
    clock = Clock(now=100.0)
    log = follow(Device(b"6,1,160000000,-;a\n", b"6,2,9999999999999999999,-;b\n", b"6,3,90000000,-;c\n"), clock)

    assert [record.time for record in log.poll()] == [BOOT + 100.0, BOOT + 100.0, BOOT + 90.0]


def test_closing_leaves_no_descriptor(tmp_path):
    """Nor does the check."""
    path = tmp_path / "kmsg"
    path.write_bytes(b"6,1,1,-;a\n")
    before = held()

    for _ in range(5):
        log = KernelLog(str(path))
        log.poll()
        log.check()
        log.close()
        log.close()

    assert new_since(before) == []


@pytest.mark.no_cover
@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.one_of(st.binary(max_size=200), st.sampled_from([b"6,1,1,-;", b"\n", b"4,2", b" \\x"])), max_size=12)
)
def test_no_bytes_make_it_raise(parts):
    """Whatever comes, however it is cut."""
    log = follow(Device(*(part for part in parts if part)))

    for record in log.poll():
        assert 0 <= record.level <= 7
        assert record.time <= BOOT + 1000.0


def test_the_log_of_this_machine_can_be_read():
    """Against the real device, where there is one and it may be read."""
    log = KernelLog()
    problem = log.check()
    if problem is not None:
        pytest.skip(problem.fix)

    records = log.poll()
    log.close()

    assert log.invalid == 0
    assert all(0 < record.time <= time.time() + 1.0 for record in records)
