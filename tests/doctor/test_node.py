"""The checks of the kernel, the clock, the network, the file systems and the container."""

from __future__ import annotations

import os

import pytest
from tests.doctor.helpers import machine, only, outcomes

from trainvitals.doctor import container, kernel, network, storage
from trainvitals.doctor.base import Here, Outcome
from trainvitals.host import timesync
from trainvitals.host.mount_probe import Finding, State

RECORD = "6,1,1000000,-;NVRM: loading\n"


def test_a_kernel_log_that_can_be_read_is_fine(tmp_path):
    """XIDs and kills are seen."""
    assert only(kernel.log(machine(tmp_path, {"/dev/kmsg": RECORD}))).outcome is Outcome.OK


def test_without_a_kernel_log_the_drivers_tell(tmp_path):
    """In a container there is a way to have it."""
    assert only(kernel.log(machine(tmp_path))).action == ""
    inside = only(kernel.log(machine(tmp_path, {"/.dockerenv": ""})))
    assert inside.outcome is Outcome.ABSENT
    assert inside.action == "docker run --device=/dev/kmsg --cap-add=SYSLOG ..."


@pytest.mark.parametrize(
    ("files", "environ", "action"),
    [
        ({}, {}, "systemctl edit trainvitals-exporter  # [Service] AmbientCapabilities=CAP_SYSLOG"),
        ({"/run/.containerenv": ""}, {}, "docker run --device=/dev/kmsg --cap-add=SYSLOG ..."),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubectl patch daemonset trainvitals"),
    ],
)
def test_a_kernel_log_that_may_not_be_read_is_a_problem(tmp_path, monkeypatch, files, environ, action):
    """kernel.dmesg_restrict is named, and the capability asked for where the exporter runs."""
    here = machine(tmp_path, {"/dev/kmsg": RECORD, "/proc/sys/kernel/dmesg_restrict": "1\n", **files}, environ=environ)
    really = os.open

    def refuse(path, *arguments, **more):
        if str(path).endswith("kmsg"):
            raise PermissionError(1, "Operation not permitted", path)
        return really(path, *arguments, **more)

    monkeypatch.setattr(os, "open", refuse)

    result = only(kernel.log(here))

    assert result.outcome is Outcome.PROBLEM
    assert "kernel.dmesg_restrict is 1" in result.why
    assert result.action.startswith(action)


def test_pressure_is_absent_where_the_kernel_does_not_measure_it(tmp_path):
    """A kernel of Red Hat needs psi=1."""
    known = machine(tmp_path, {"/proc/pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"})

    assert only(kernel.pressure(known)).why == "measured for memory"
    missing = only(kernel.pressure(machine(tmp_path / "other")))
    assert (missing.outcome, missing.action) == (Outcome.ABSENT, "grubby --update-kernel=ALL --args=psi=1")


def test_a_clock_that_nobody_sets_is_a_problem(tmp_path):
    """The command fits the daemon that is installed."""
    adrift = timesync.Clock(synchronized=False, offset=0.0, max_error=16.0)

    assert only(kernel.clock(machine(tmp_path), lambda: adrift)).action == "timedatectl set-ntp true"
    chrony = machine(tmp_path, {"/etc/chrony.conf": ""})
    assert only(kernel.clock(chrony, lambda: adrift)).action == "systemctl enable --now chronyd"


def test_a_clock_that_is_set_is_fine(tmp_path):
    """Its bound is told in milliseconds."""
    right = timesync.Clock(synchronized=True, offset=0.0001, max_error=0.0127)

    assert only(kernel.clock(machine(tmp_path), lambda: right)).why == "synchronised, to within 13 ms"


def test_a_clock_that_may_not_be_asked_is_not_here(tmp_path):
    """A container may forbid it."""

    def forbidden():
        raise PermissionError(1, "Operation not permitted")

    assert only(kernel.clock(machine(tmp_path), forbidden)).outcome is Outcome.ABSENT


PORT = "/sys/class/infiniband/mlx5_0/ports/1/"


def test_rdma_ports_are_counted(tmp_path):
    """One that is down can be read as well."""
    files = {
        PORT + "state": "4: ACTIVE\n",
        PORT + "rate": "400 Gb/sec (4X NDR)\n",
        PORT + "link_layer": "InfiniBand\n",
        PORT + "counters/port_rcv_data": "17\n",
        PORT + "counters/port_xmit_data": "19\n",
    }
    down = {path.replace("mlx5_0", "mlx5_1"): text for path, text in files.items()}
    down[PORT.replace("mlx5_0", "mlx5_1") + "state"] = "1: DOWN\n"

    result = only(network.rdma(machine(tmp_path, {**files, **down})))

    assert result.why == "2 ports, 1 of them active; their counters can be read"


def test_a_port_without_counters_or_state_is_named(tmp_path):
    """The one is the device's way, the other a problem."""
    files = {
        PORT + "state": "4: ACTIVE\n",
        PORT + "counters/port_rcv_data": "N/A (no PMA)\n",
        PORT.replace("mlx5_0", "mlx5_1") + "rate": "400 Gb/sec (4X NDR)\n",
    }

    assert {"mlx5_0/1": "not here", "mlx5_1/1": "problem"} == outcomes(network.rdma(machine(tmp_path, files)))


def test_no_rdma_device_is_no_fault(tmp_path):
    """Most nodes have none."""
    assert only(network.rdma(machine(tmp_path))).outcome is Outcome.ABSENT


MOUNTS = """\
20 1 8:1 / / rw - ext4 /dev/sda1 rw
21 20 0:50 / /home rw - nfs4 server:/home rw
22 20 0:51 / /data rw - nfs4 server:/data rw
23 20 0:52 / /mnt/old\\040one rw - nfs4 server:/old rw
"""


class Probe:
    """A probe that knows the states of mounts by their place."""

    def __init__(self, states):
        self.states = states
        self.running = 0

    def start(self):
        """Begin."""
        self.running += 1

    def ask(self, wanted, _):
        """Return what is known."""
        return {mount: self.states[mount.mountpoint] for mount in wanted}

    def stop(self):
        """End."""
        self.running -= 1


def test_stuck_and_stale_mounts_are_named(tmp_path):
    """Each with its own command; those that answer are counted."""
    good = Finding(begun=0.0, finished=0.1, seconds=0.1, size=10, available=5)
    stale = Finding(begun=0.0, finished=0.1, seconds=0.1, trouble="ESTALE")
    refused = Finding(begun=0.0, finished=0.1, seconds=0.1, trouble="EACCES")
    probe = Probe(
        {
            "/": State(finding=good, stuck=False),
            "/home": State(stuck=True, since=0.0),
            "/data": State(finding=refused, stuck=False),
            "/mnt/old one": State(finding=stale, stuck=False),
        }
    )
    here = machine(tmp_path, {"/proc/self/mountinfo": MOUNTS})

    results = list(storage.mounts(here, lambda: probe))

    assert {"": "ok", "/home": "problem", "/data": "problem", "/mnt/old one": "problem"} == outcomes(results)
    actions = {result.subject: result.action for result in results}
    assert actions["/mnt/old one"] == "umount -l '/mnt/old one' && mount '/mnt/old one'"
    assert actions["/home"].startswith("dmesg")
    assert actions["/data"] == "stat -f /data"
    assert probe.running == 0


def test_file_systems_of_this_machine_are_asked():
    """The real child asks the real root."""
    results = list(storage.mounts(Here()))

    assert "file systems answer" in {result.subject: result.why for result in results}[""]


def test_version_of_the_control_groups(tmp_path):
    """Both versions and none are told apart."""
    assert (
        only(container.cgroups(machine(tmp_path / "a", {"/sys/fs/cgroup/cgroup.controllers": ""}))).why == "version 2"
    )
    assert only(container.cgroups(machine(tmp_path / "b", {"/sys/fs/cgroup/memory/": ""}))).why.startswith("version 1")
    assert only(container.cgroups(machine(tmp_path / "c"))).outcome is Outcome.ABSENT


def test_process_ids_of_a_container_are_a_problem_beside_devices(tmp_path):
    """Drivers tell the ids of the node; without devices nothing is lost."""
    devices = {"/dev/nvidiactl": ""}
    docker = machine(tmp_path / "a", {**devices, "/.dockerenv": ""})
    pod = machine(tmp_path / "b", devices, environ={"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    bare = machine(tmp_path / "c")

    assert only(container.namespace(bare, lambda _: True)).outcome is Outcome.OK
    assert only(container.namespace(bare, lambda _: False)).outcome is Outcome.ABSENT
    in_docker = only(container.namespace(docker, lambda _: False))
    assert (in_docker.outcome, in_docker.action) == (Outcome.PROBLEM, "docker run --pid=host ...")
    assert "hostPID" in only(container.namespace(pod, lambda _: False)).action


def cgroup(files):
    """Return the files of a process in the group /a of version 2."""
    return {
        f"/proc/{os.getpid()}/cgroup": "0::/a\n",
        "/sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
        **{f"/sys/fs/cgroup/a/{name}": text for name, text in files.items()},
    }


def test_limits_that_starve_the_exporter_are_problems(tmp_path):
    """Less than 128 MiB or a tenth of a CPU."""
    memory = machine(tmp_path / "a", cgroup({"memory.max": "67108864\n", "memory.current": "1\n", "memory.stat": ""}))
    cpu = machine(tmp_path / "b", cgroup({"cpu.max": "5000 100000\n", "cpu.stat": "throttled_usec 0\n"}))
    roomy = machine(tmp_path / "c", cgroup({"cpu.max": "200000 100000\n", "cpu.stat": "throttled_usec 0\n"}))

    assert only(container.limits(memory)).why == "64 MiB of memory at most; the exporter needs 128"
    assert only(container.limits(cpu)).action == "systemctl set-property trainvitals-exporter CPUQuota=50%"
    assert only(container.limits(roomy)).why == "memory without a limit, 2 CPUs"


def test_kubernetes_is_found(tmp_path):
    """A pod, a node with a kubelet, and neither."""
    pod = machine(tmp_path / "a", environ={"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    node = machine(tmp_path / "b", {"/var/lib/kubelet/": ""})
    plain = machine(tmp_path / "c")

    assert ["ok", "ok", "not here"] == [only(container.kubernetes(each)).outcome.value for each in (pod, node, plain)]


def test_slurm_with_and_without_the_prolog(tmp_path):
    """Without it jobs are known by their groups, and how to have it is said."""
    bare = only(container.slurm(machine(tmp_path / "a", {"/etc/slurm/slurm.conf": ""})))
    full = machine(tmp_path / "b", {"/run/trainvitals/slurm/": ""})

    assert only(container.slurm(machine(tmp_path / "c"))).outcome is Outcome.ABSENT
    assert bare.outcome is Outcome.OK
    assert bare.action == "install -m 755 deploy/slurm/prolog.sh /etc/slurm/prolog.d/trainvitals.sh"
    found = only(container.slurm(full, owner=os.getuid()))
    assert found.why == "the prolog writes to /run/trainvitals/slurm; 0 jobs with GPUs run here"


def test_a_folder_of_the_prolog_that_anyone_may_write_is_a_problem(tmp_path):
    """A user could claim the devices of another."""
    here = machine(tmp_path, {"/run/trainvitals/slurm/": ""})
    (tmp_path / "run" / "trainvitals" / "slurm").chmod(0o777)

    result = only(container.slurm(here, owner=os.getuid()))

    assert result.outcome is Outcome.PROBLEM
    assert result.action == "chown root:root /run/trainvitals/slurm && chmod 755 /run/trainvitals/slurm"


@pytest.mark.parametrize(
    ("files", "environ", "kind"),
    [
        ({}, {}, ""),
        ({"/.dockerenv": ""}, {}, "Docker"),
        ({"/run/.containerenv": ""}, {}, "Podman"),
        ({"/.dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "Kubernetes"),
        ({f"/proc/{os.getpid()}/cgroup": f"0::/system.slice/docker-{'a1' * 32}.scope\n"}, {}, "a container"),
    ],
)
def test_containers_are_recognised(tmp_path, files, environ, kind):
    """By what those who make them leave."""
    assert container.inside(machine(tmp_path, files, environ=environ)) == kind
