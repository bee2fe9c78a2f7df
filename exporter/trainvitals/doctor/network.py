"""RDMA ports: InfiniBand, RoCE and the like."""

from __future__ import annotations

from collections.abc import Iterator

from trainvitals.doctor.base import Here, Result, absent, ok, problem
from trainvitals.host.infiniband import Infiniband, Port
from trainvitals.host.links import Choice
from trainvitals.host.sysfs import Sysfs

_FOLDER = "/sys/class/infiniband"


def rdma(here: Here) -> Iterator[Result]:
    """Check that the counters of every port can be read."""
    reader = Infiniband(Sysfs(here.path(here.settings.network.sysfs)), Choice(here.settings.network.exclude))
    try:
        ports = reader.ports()
    except OSError as error:
        yield problem(f"{_FOLDER}: {error.strerror}", f"ls -l {_FOLDER}")
        return
    if not ports:
        yield absent("no RDMA device on this node")
        return
    silent = [port for port in ports if port.state is None]
    bare = [port for port in ports if port.state is not None and _has_no_counters(port)]
    active = sum(port.up is True for port in ports)
    if len(silent) + len(bare) < len(ports):
        yield ok(f"{len(ports)} ports, {active} of them active; their counters can be read")
    for port in silent:
        yield problem("its state cannot be read", f"cat {_FOLDER}/{port.hca}/ports/{port.port}/state", port.key)
    for port in bare:
        yield absent("the device shows no counters of traffic", subject=port.key)


def _has_no_counters(port: Port) -> bool:
    return all(value is None for value in port.traffic)
