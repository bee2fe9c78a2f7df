"""Small files of the kernel."""

from __future__ import annotations

import errno
import os

import pytest
from tests.held import held, new_since
from tests.host.trees import failing

from trainvitals.host import files


def test_a_file_is_read_whole_and_no_further_than_the_limit(tmp_path):
    """Also one that the kernel would hand out in pieces."""
    (tmp_path / "file").write_bytes(b"x" * 5000)

    assert len(files.read_file(str(tmp_path / "file"))) == 5000
    assert files.read_file(str(tmp_path / "file"), limit=7) == b"x" * 7
    assert len(files.read_file("/proc/kallsyms", limit=9000)) == 9000


def test_a_file_of_sysfs_is_read_once(tmp_path, monkeypatch):
    """One call, whatever comes: behind the file may be a command to a device."""
    (tmp_path / "counter").write_bytes(b"7" * 5000)
    reads = []
    real = os.read
    monkeypatch.setattr(files.os, "read", lambda *arguments: reads.append(arguments) or real(*arguments))

    assert files.read_once(str(tmp_path / "counter")) == b"7" * 4096
    assert len(reads) == 1


@pytest.mark.parametrize(
    "number",
    [errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV, errno.EINVAL, errno.EACCES, errno.EPERM, errno.ESRCH],
)
def test_what_the_kernel_does_not_have_or_show_is_absent(number):
    """None, and no error."""
    assert files.optional("/any", failing(number)) is None


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_what_fails_is_an_error(number):
    """A source that is there and cannot be read must not look like one that is missing."""
    with pytest.raises(OSError, match="injected"):
        files.optional("/any", failing(number))


def test_a_pipe_does_not_stop_the_reader(tmp_path):
    """Nobody writes into it: it is empty."""
    os.mkfifo(tmp_path / "pipe")
    before = held()

    assert files.optional(str(tmp_path / "pipe")) == ""
    assert new_since(before) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12\n", 12),
        (" 7 ", 7),
        ("0", 0),
        ("18446744073709551615", 2**64 - 1),
        ("9" * 21, None),
        ("-1", None),
        ("max\n", None),
        ("N/A", None),
        ("1.5", None),
        ("", None),
        (None, None),
        ("\u0664\u0662", None),
    ],
)
def test_a_number_is_a_whole_one_that_is_not_negative(text, expected):
    """All else is no number, digits of other scripts included."""
    assert files.number(text) == expected


def test_a_table_keeps_the_lines_that_it_understands():
    """Others cost themselves."""
    assert files.table("oom 3\noom_kill 2\n\nbroken\nlow max\nhigh 1 2\nhigh -1\n") == {"oom": 3, "oom_kill": 2}
    assert files.table(None) == {}
