"""The collector of file systems and disks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.held import held, new_since

from trainvitals.collect.base import Sink, Tally
from trainvitals.collect.storage import StorageCollector
from trainvitals.config import StorageSettings
from trainvitals.host.disks import Disks
from trainvitals.host.mount_probe import Finding, State
from trainvitals.host.mounts import Choice, Mounts
from trainvitals.host.nfs_stats import NfsClient

FIXTURES = Path(__file__).parents[1] / "fixtures"
PREFIX = "trainvitals_host_"

MOUNTINFO = """\
27 1 8:1 / / rw - ext4 /dev/sda1 rw
33 27 0:40 / /home rw - nfs4 nas.example:/home rw
34 27 0:41 / /dav ro - fuse.davfs https://reader:secret@dav.example/data rw
35 27 8:2 / /etc/hosts rw - ext4 /dev/sda2 rw
36 27 8:2 / /checkpoints rw - ext4 /dev/sda2 rw
"""


class FakeProbe:
    """A probe that knows these states by mount point; others are good."""

    restarts = 3
    is_answering = True

    def __init__(self, **states):
        self.states = {f"/{name}": state for name, state in states.items()}
        self.asked = {}

    def ask(self, wanted):
        """Return the states, and note what was wanted."""
        self.asked = {mount.mountpoint: actions for mount, actions in wanted.items()}
        return {mount: self.states.get(mount.mountpoint, good()) for mount in wanted}


def good(**changes):
    """Return the state of a mount that answered 4 s ago, on a clock that says 100."""
    values = {"size": 1000, "available": 250, "files": 70, "files_free": 30, **changes}
    return State(finding=Finding(begun=95.5, finished=96.0, seconds=0.125, **values), stuck=False)


STUCK = State(stuck=True, since=60.5)
UNKNOWN = State()


@pytest.fixture
def node(tmp_path):
    """A node: its mounts, NFS statistics and disks are files."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "mountinfo").write_text(MOUNTINFO)
    shutil.copy(FIXTURES / "mounts" / "mountstats.txt", tmp_path / "self" / "mountstats")
    shutil.copy(FIXTURES / "disks" / "diskstats.txt", tmp_path / "diskstats")
    for name in ("nvme10n1", "sda"):
        (tmp_path / "block" / name / "device").mkdir(parents=True)
    return tmp_path


def collector(node, probe, **settings):
    """Return a collector of a node; the wall clock says 5000 when that of the probe says 100."""
    return StorageCollector(
        mounts=Mounts(str(node)),
        choice=Choice(limit=settings.pop("limit", 50)),
        probe=probe,
        nfs=NfsClient(str(node)),
        disks=Disks(proc=str(node), sysfs=str(node)),
        clock=lambda: 5000.0,
        monotonic=lambda: 100.0,
        **settings,
    )


def collect(made):
    """Return the series of one round without the prefix, and what it raised at the end."""
    sink = Sink(Tally(), limit=20_000, collector="storage")
    raised = None
    try:
        made.collect(sink)
    except OSError as error:
        raised = error
    samples = [sample for family in sink.families() for sample in family.samples]
    return {(s.name.removeprefix(PREFIX), *s.labels.values()): s.value for s in samples}, raised


def of(found, path):
    """Return the series of one mount point, by family."""
    return {key[0]: value for key, value in found.items() if path in key[1:2] and not key[0].endswith("_info")}


HEALTHY = {
    "filesystem_read_only": 0,
    "filesystem_stuck": 0,
    "filesystem_size_bytes": 1000,
    "filesystem_available_bytes": 250,
    "filesystem_files": 70,
    "filesystem_files_free": 30,
    "filesystem_probe_duration_seconds": 0.125,
    "filesystem_probe_timestamp_seconds": 4996,
}


def test_a_healthy_mount_has_all_its_series(node):
    """Space, inodes, whether it can be written, latency and age; the server on the info series only."""
    found, raised = collect(collector(node, FakeProbe()))

    assert (of(found, "/"), raised) == (HEALTHY, None)
    assert found["filesystem_info", "/home", "nfs4", "nas.example:/home"] == 1
    assert not [key for key in found if "nas.example:/home" in key and key[0] != "filesystem_info"]


def test_a_stuck_mount_keeps_no_old_values(node):
    """It is stuck since a time; the others and what the NFS client counts are as before."""
    found, raised = collect(collector(node, FakeProbe(home=STUCK)))

    nfs = {key: value for key, value in of(found, "/home").items() if key.startswith("nfs_")}
    assert of(found, "/home") == {
        "filesystem_read_only": 0,
        "filesystem_stuck": 1,
        "filesystem_stuck_timestamp_seconds": 4960.5,
        **nfs,
    }
    assert (of(found, "/"), len(nfs), raised) == (HEALTHY, 7, None)
    assert found["filesystem_info", "/home", "nfs4", "nas.example:/home"] == 1


def test_the_nfs_client_is_shown_per_mount(node):
    """Only of mounts that are shown; two that do not tell their bytes have none."""
    found, _ = collect(collector(node, FakeProbe()))

    assert {key: value for key, value in found.items() if key[0].startswith("nfs_")} == {
        ("nfs_operations_total", "/home"): 151,
        ("nfs_retransmissions_total", "/home"): 10,
        ("nfs_timeouts_total", "/home"): 3,
        ("nfs_queue_seconds_total", "/home"): 1.75,
        ("nfs_response_seconds_total", "/home"): pytest.approx(6.503),
        ("nfs_read_bytes_total", "/home"): 7000,
        ("nfs_written_bytes_total", "/home"): 9000,
    }


def test_disks_have_their_counters(node):
    """Reads and writes with bytes and times, and the time in which there was something to do."""
    found, _ = collect(collector(node, FakeProbe()))

    assert {key[0]: value for key, value in found.items() if key[1:] == ("nvme10n1",)} == {
        "disk_reads_total": 300,
        "disk_read_bytes_total": 1_024_000,
        "disk_read_time_seconds_total": 0.45,
        "disk_writes_total": 70,
        "disk_written_bytes_total": 2_048_000,
        "disk_write_time_seconds_total": 0.91,
        "disk_io_time_seconds_total": 0.777,
    }
    assert {key[1] for key in found if key[0].startswith("disk_")} == {"nvme10n1", "sda"}


def test_an_error_is_shown_while_it_lasts(node):
    """With what is known all the same."""
    found, _ = collect(collector(node, FakeProbe(home=good(trouble="EACCES"))))

    assert found["filesystem_probe_error_info", "/home", "EACCES"] == 1
    assert found["filesystem_size_bytes", "/home"] == 1000
    assert [key for key in found if key[0] == "filesystem_probe_error_info"] == [
        ("filesystem_probe_error_info", "/home", "EACCES")
    ]


def test_what_is_not_known_yet_is_absent(node):
    """Before the first answer a mount has no series at all."""
    found, _ = collect(collector(node, FakeProbe(home=UNKNOWN)))

    assert not [key for key in found if "/home" in key]


def test_a_file_makes_room_for_a_folder_of_its_file_system(node):
    """A container's /etc/hosts is no mount of interest; the folder beside it is shown from the next round on."""
    made = collector(node, FakeProbe(**{"etc/hosts": good(trouble="FILE")}))

    first, _ = collect(made)
    second, _ = collect(made)
    third, _ = collect(made)

    assert not of(first, "/etc/hosts")
    assert (of(second, "/checkpoints"), of(third, "/checkpoints")) == (HEALTHY, HEALTHY)
    assert not of(second, "/etc/hosts")


def test_a_hidden_mount_is_shown_when_it_is_seen_again(node):
    """What lay over it was unmounted."""
    probe = FakeProbe(home=good(trouble="HIDDEN"))
    made = collector(node, probe)

    assert not of(collect(made)[0], "/home")
    probe.states = {}
    assert of(collect(made)[0], "/home")["filesystem_size_bytes"] == 1000


def test_a_mount_that_is_gone_has_no_series(node):
    """And one that comes has them."""
    made = collector(node, FakeProbe())
    assert of(collect(made)[0], "/home")

    (node / "self" / "mountinfo").write_text("27 1 8:1 / / rw - ext4 /dev/sda1 rw\n40 27 0:9 / /new rw - ceph m:/ rw\n")
    found, _ = collect(made)

    assert not of(found, "/home")
    assert of(found, "/new") == HEALTHY


def test_only_what_was_asked_for_is_read_and_written(node):
    """A read-only mount is never written to."""
    probe = FakeProbe()
    collect(collector(node, probe, read=("/h*",), write=("/home", "/dav")))

    assert probe.asked == {"/": "s", "/dav": "s", "/etc/hosts": "s", "/home": "srw"}


def test_passwords_stay_here(node):
    """Neither label nor value has them."""
    found, _ = collect(collector(node, FakeProbe()))

    assert found["filesystem_info", "/dav", "fuse.davfs", "https://dav.example/data"] == 1
    assert "secret" not in repr(found)


def test_what_is_beyond_the_limit_is_counted(node):
    """And so are the restarts of the probing process."""
    found, _ = collect(collector(node, FakeProbe(), limit=2))

    assert found["filesystems_left_out",] == 2
    assert found["filesystem_probe_restarts_total",] == 3
    assert of(found, "/") == HEALTHY


def test_a_probe_that_does_not_answer_is_a_failure(node):
    """The collector does not look healthy; disks are shown all the same."""
    probe = FakeProbe(**dict.fromkeys(("", "home", "dav", "etc/hosts"), UNKNOWN))
    probe.is_answering = False

    found, raised = collect(collector(node, probe))

    assert str(raised) == "the process that probes file systems does not answer"
    assert not [key for key in found if key[0].startswith("filesystem_") and len(key) > 1]
    assert ("disk_reads_total", "sda") in found


@pytest.mark.parametrize(
    ("file", "lost"),
    [("self/mountinfo", "filesystem"), ("self/mountstats", "nfs"), ("diskstats", "disk")],
)
def test_a_part_that_fails_costs_itself(node, file, lost):
    """The others keep their series, and the failure is raised at the end."""
    (node / file).unlink()

    found, raised = collect(collector(node, FakeProbe()))

    kinds = {key[0].partition("_")[0] for key in found if len(key) > 1}
    assert isinstance(raised, FileNotFoundError)
    # The NFS client is shown for mounts that are known.
    assert kinds == {"filesystem", "nfs", "disk"} - {lost} - ({"nfs"} if lost == "filesystem" else set())


def test_rounds_on_this_machine_leave_nothing_behind():
    """Descriptors, threads and processes are the same before, during and after 50 rounds."""
    before = held()
    made = StorageCollector.from_settings(StorageSettings(interval=1.0))
    made.start()
    collect(made)
    during = held()

    for _ in range(50):
        found, raised = collect(made)

    assert (raised, new_since(during)) == (None, [])
    made.stop()
    assert new_since(before) == []
    assert found["filesystem_size_bytes", "/"] > 0
