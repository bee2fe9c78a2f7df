"""What the kernel tells: its log, the pressure on the node, its clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trainvitals.doctor.base import Here, Result, absent, ok, problem
from trainvitals.doctor.container import inside
from trainvitals.host import timesync
from trainvitals.host.kmsg import KernelLog
from trainvitals.host.pressure import Pressure

_UNIT = "trainvitals-exporter"
_IN_CONTAINER = "docker run --device=/dev/kmsg --cap-add=SYSLOG ..."
#: systemd's program, and a file that only a node with chrony has.
_CHRONY = ("/etc/chrony.conf", "/etc/chrony/chrony.conf")


def log(here: Here) -> Iterator[Result]:
    """Check that the kernel's log can be read: XIDs, machine checks, killed processes."""
    path = here.settings.kernel.path
    kernel_log = KernelLog(here.path(path), limit=100)
    trouble = kernel_log.check()
    if trouble is None:
        kernel_log.poll()
        trouble = kernel_log.problem
        kernel_log.close()
    where = inside(here)
    if trouble is None:
        yield ok(f"{path} can be read: device errors and killed processes are seen from the boot on")
    elif trouble.reason == "missing":
        yield absent(f"there is no {path}: faults are known from the drivers alone", _IN_CONTAINER if where else "")
    elif trouble.reason == "permission":
        yield problem(f"{path} may not be read{_restriction(here)}: {trouble.fix}", _permission(where))
    else:
        yield problem(trouble.fix, f"head -n 1 {path}")


def _restriction(here: Here) -> str:
    return " (kernel.dmesg_restrict is 1)" if here.text("/proc/sys/kernel/dmesg_restrict") == "1" else ""


def _permission(where: str) -> str:
    if where == "Kubernetes":
        return """kubectl patch daemonset trainvitals --type=json -p '[{"op":"add","path":"/spec/template/spec/containers/0/securityContext","value":{"capabilities":{"add":["SYSLOG"]}}}]'"""  # noqa: E501
    if where:
        return _IN_CONTAINER
    return f"systemctl edit {_UNIT}  # [Service] AmbientCapabilities=CAP_SYSLOG"


def pressure(here: Here) -> Iterator[Result]:
    """Check that the kernel measures how long tasks wait (PSI)."""
    known = sorted(Pressure(here.path("/proc")).stalls())
    if known:
        yield ok(f"measured for {', '.join(known)}")
    else:
        yield absent("the kernel does not measure it (PSI)", "grubby --update-kernel=ALL --args=psi=1")


def clock(here: Here, read: Callable[[], timesync.Clock] = timesync.read) -> Iterator[Result]:
    """Check that the clock is set by a server: nodes are compared by their times."""
    try:
        state = read()
    except OSError as error:
        yield absent(f"the kernel may not be asked: {error.strerror}")
        return
    if state.synchronized:
        yield ok(f"synchronised, to within {state.max_error * 1000:.0f} ms")
        return
    chrony = any(here.exists(path) for path in _CHRONY)
    yield problem(
        "the clock is not synchronised: nodes cannot be compared, and times of events are wrong",
        "systemctl enable --now chronyd" if chrony else "timedatectl set-ntp true",
    )
