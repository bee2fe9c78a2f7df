"""The process that touches file systems."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from tests.held import held, new_since

from trainvitals.host import mount_worker
from trainvitals.host.mount_worker import measure


def mount_of(path):
    """Return the id of the mount that a folder is on."""
    folder = os.open(path, os.O_PATH)
    try:
        return mount_worker._mount_of(folder)
    finally:
        os.close(folder)


def probe(path, actions="s"):
    """Measure a folder of this machine."""
    return measure(os.fsencode(path), mount_of(path), actions)


def answer(**changes):
    """Return what statvfs says."""
    values = {"f_blocks": 1000, "f_bavail": 250, "f_frsize": 4096, "f_files": 70, "f_ffree": 30}
    return SimpleNamespace(**{**values, **changes})


def test_space_and_inodes_are_those_of_the_system(tmp_path):
    """The same as statvfs says of the path."""
    trouble, (size, _, files, _) = probe(tmp_path)
    space = os.statvfs(tmp_path)

    assert ("", space.f_blocks * space.f_frsize, space.f_files) == (trouble, size, files)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, [4_096_000, 1_024_000, 70, 30]),
        ({"f_blocks": 0, "f_bavail": 0}, [None, None, 70, 30]),
        ({"f_files": 0, "f_ffree": 0}, [4_096_000, 1_024_000, None, None]),
        ({"f_bavail": 2**64 - 5}, [4_096_000, None, 70, 30]),
        ({"f_ffree": 2**64 - 1}, [4_096_000, 1_024_000, 70, None]),
        ({"f_bavail": 0, "f_ffree": 0}, [4_096_000, 0, 70, 0]),
    ],
)
def test_what_a_file_system_does_not_know_is_absent(monkeypatch, tmp_path, changes, found):
    """No blocks, no inodes, or a negative number in disguise: no value; a full one is zero."""
    monkeypatch.setattr(os, "fstatvfs", lambda _: answer(**changes))

    assert probe(tmp_path) == ("", found)


@pytest.mark.parametrize(
    "code", [errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.EACCES, errno.ETIMEDOUT, errno.ENOSYS, errno.EHOSTDOWN]
)
def test_an_error_is_named(monkeypatch, tmp_path, code):
    """By the name of its errno."""

    def fail(_):
        raise OSError(code, "no")

    monkeypatch.setattr(os, "fstatvfs", fail)

    assert probe(tmp_path) == (errno.errorcode[code], [None] * 4)


def test_an_error_without_a_name_is_an_error_all_the_same(monkeypatch, tmp_path):
    """Some file systems invent numbers."""

    def fail(_):
        raise OSError(4711, "what")

    monkeypatch.setattr(os, "fstatvfs", fail)

    assert probe(tmp_path) == ("EIO", [None] * 4)


def test_a_file_a_hidden_mount_and_one_that_is_gone_are_told(tmp_path):
    """They are no troubles of a file system."""
    (tmp_path / "hosts").write_text("")

    assert measure(os.fsencode(tmp_path / "hosts"), mount_of(tmp_path), "s") == ("FILE", [None] * 4)
    assert measure(os.fsencode(tmp_path), mount_of(tmp_path) + 100_000, "s") == ("HIDDEN", [None] * 4)
    assert measure(os.fsencode(tmp_path / "gone"), 1, "s") == ("HIDDEN", [None] * 4)


def test_where_the_kernel_does_not_tell_the_mount_the_path_is_believed(monkeypatch, tmp_path):
    """Without /proc in a container."""
    monkeypatch.setattr(mount_worker, "_mount_of", lambda _: None)

    assert measure(os.fsencode(tmp_path), 4711, "s")[0] == ""


def test_writing_leaves_nothing(tmp_path):
    """The file is written, read and removed."""
    assert probe(tmp_path, "srw")[0] == ""
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["file", "symlink", "hardlink", "fifo"])
def test_what_others_put_in_the_place_of_the_file_is_not_opened(tmp_path, kind):
    """A top folder may belong to everybody; what a link leads to keeps its content."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    place = tmp_path / f".trainvitals-probe-{os.uname().nodename}"
    {
        "file": lambda: place.write_text("left behind"),
        "symlink": lambda: place.symlink_to(victim),
        "hardlink": lambda: os.link(victim, place),
        "fifo": lambda: os.mkfifo(place),
    }[kind]()

    assert probe(tmp_path, "sw")[0] == ""
    assert (victim.read_text(), os.listdir(tmp_path)) == ("precious", ["victim"])


def test_a_failed_write_keeps_the_space(tmp_path):
    """A folder in the place of the file: an error, and the size is known."""
    (tmp_path / f".trainvitals-probe-{os.uname().nodename}").mkdir()

    trouble, space = probe(tmp_path, "sw")

    assert trouble in {"EISDIR", "EPERM"}
    assert space[0] is not None


@pytest.mark.parametrize("call", ["open", "scandir", "write", "fsync", "pread"])
def test_an_error_while_reading_or_writing_leaks_nothing(monkeypatch, tmp_path, call):
    """Whichever call fails, descriptors are closed and the file is removed."""
    before = held()
    mount, real = mount_of(tmp_path), getattr(os, call)

    def fail(*arguments, **named):
        if call == "open" and "dir_fd" not in named:
            return real(*arguments, **named)
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, call, fail)
    trouble, space = measure(os.fsencode(tmp_path), mount, "srw")
    monkeypatch.undo()

    assert (trouble, space[0] is not None) == ("ENOSPC", True)
    assert (new_since(before), os.listdir(tmp_path)) == ([], [])


def test_other_data_than_was_written_is_trouble(monkeypatch, tmp_path):
    """A store that loses writes."""
    monkeypatch.setattr(os, "pread", lambda *_: bytes(4096))

    trouble, space = probe(tmp_path, "sw")

    assert (trouble, space[0] is not None, os.listdir(tmp_path)) == ("DIFFERENT", True, [])


@pytest.fixture
def worker():
    """The process itself, as the exporter starts it."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-B", mount_worker.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    yield process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def ask(process, line):
    """Send a line, return the answer's words."""
    process.stdin.write(f"{line}\n".encode())
    process.stdin.flush()
    return process.stdout.readline().decode().split()


def test_the_process_speaks_its_protocol(worker, tmp_path):
    """A ping is answered with its number, a probe with what was found, a path may hold anything."""
    folder = tmp_path / "a b\nc\udce9"
    folder.mkdir()
    number, seconds, trouble, *space = ask(worker, f"probe 5 {mount_of(folder)} s {os.fsencode(folder).hex()}")

    assert ask(worker, "ping 4") == ["4"]
    assert (number, trouble, len(space)) == ("5", "-", 4)
    assert 0 <= float(seconds) < 60
    assert ask(worker, f"probe 6 1 s {b'/nowhere'.hex()}")[2:] == ["HIDDEN", "-", "-", "-", "-"]


def test_the_process_ends_with_its_input(worker):
    """When the exporter is killed it does not stay."""
    worker.stdin.close()

    assert worker.wait(20) == 0


def test_the_process_ends_quietly_when_nobody_listens(tmp_path):
    """An answer that comes after the exporter's end is no error."""
    command = [sys.executable, "-I", "-S", "-B", mount_worker.__file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        process.stdin.write(f"probe 1 {mount_of(tmp_path)} s {os.fsencode(tmp_path).hex()}\n".encode())
        process.stdin.flush()

        assert (process.wait(20), process.stderr.read()) == (0, b"")


def test_the_process_imports_little():
    """It runs beside every training: no package of ours, no library, not even threading or re."""
    script = f"import sys; exec(open({mount_worker.__file__!r}).read(), {{'__name__': 'x'}}); print(*sys.modules)"

    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=True)

    assert not {"threading", "re", "json", "subprocess", "trainvitals", "psutil"} & set(done.stdout.split())
