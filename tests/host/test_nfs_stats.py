"""What the kernel's NFS client counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainvitals.host.nfs_stats import NfsClient, NfsStats, parse

FOUND = parse((Path(__file__).parents[1] / "fixtures" / "mounts" / "mountstats.txt").read_bytes())


def test_all_requests_of_a_mount_are_summed():
    """Requests, those sent again, timeouts, times in seconds and the server's bytes."""
    assert FOUND["/home"] == NfsStats(
        operations=151,
        retransmissions=10,
        timeouts=3,
        queue_seconds=1.75,
        response_seconds=6.503,
        read_bytes=7000,
        written_bytes=9000,
    )


def test_of_mounts_over_each_other_the_last_is_seen():
    """The older format works too; odd and short lines cost themselves, and fewer sent than asked is no minus."""
    assert FOUND["/stacked"] == NfsStats(operations=12, response_seconds=0.024)


def test_only_nfs_mounts_are_found():
    """A mount of another type over one of NFS hides it; blanks in a name are undone."""
    assert list(FOUND) == ["/home", "/stacked", "/with blank", "/nothing"]
    assert FOUND["/with blank"] == NfsStats()


def test_a_missing_file_is_an_error(tmp_path):
    """As in a kernel without NFS."""
    with pytest.raises(FileNotFoundError):
        NfsClient(str(tmp_path)).read()


@pytest.mark.parametrize("text", [b"", b"\n\n", b"\xff\x00\n", b"device x mounted on\n", b"\tbytes: 1\n", b"device a"])
def test_nonsense_is_nothing(text):
    """Whatever the file holds, there is an answer."""
    assert parse(text) == {}


def test_this_machine_can_be_read():
    """The file of the real kernel."""
    assert isinstance(NfsClient().read(), dict)
