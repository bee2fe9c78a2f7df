"""InfiniBand, RoCE and Ethernet -> families."""

from __future__ import annotations

import os

from trainvitals.collect.base import Collector, NoData, Sink
from trainvitals.config import NetworkSettings
from trainvitals.host.ethernet import Ethernet, Interface
from trainvitals.host.infiniband import Infiniband, Port
from trainvitals.host.links import Choice
from trainvitals.host.sysfs import Sysfs


class NetworkCollector(Collector):
    """Shows the RDMA ports and the network interfaces of this node; ``root`` is the folder that they are read from."""

    name = "network"

    def __init__(self, infiniband: Infiniband, ethernet: Ethernet, root: str = "/sys") -> None:
        self._infiniband = infiniband
        self._ethernet = ethernet
        self._root = root

    @classmethod
    def from_settings(cls, settings: NetworkSettings) -> NetworkCollector:
        """Return a collector of the links below ``settings.sysfs``."""
        choice = Choice(
            exclude=settings.exclude,
            virtual_functions=settings.virtual_functions,
            expected=settings.expected_rate,
        )
        sysfs = Sysfs(settings.sysfs)
        return cls(Infiniband(sysfs, choice), Ethernet(sysfs, choice), settings.sysfs)

    def collect(self, sink: Sink) -> None:
        """Add both kinds; one that fails costs the other nothing and is raised at the end.

        Raises NoData when there is none of either, and FileNotFoundError when there is no folder to look into: a
        mistake in the settings is no node without a network.
        """
        failure: Exception | None = None
        found = 0
        for add in (self._add_interfaces, self._add_ports):
            try:
                found += add(sink)
            except Exception as error:  # What one kind makes of a strange /sys must not hide the other.
                failure = failure or error
        if found:
            sink.add("trainvitals_network_left_out", self._ethernet.left_out + self._infiniband.left_out)
        if failure is not None:
            raise failure
        if not found:
            if not os.path.isdir(self._root):
                raise FileNotFoundError(f"{self._root} (network.sysfs) is no folder")
            raise NoData

    def _add_interfaces(self, sink: Sink) -> int:
        interfaces = self._ethernet.interfaces()
        for interface in interfaces:
            _add_interface(sink, interface)
        return len(interfaces)

    def _add_ports(self, sink: Sink) -> int:
        ports = self._infiniband.ports()
        if ports:
            sink.add("trainvitals_infiniband_ports", len(ports))
        for port in ports:
            _add_port(sink, port)
        return len(ports)


def _add_port(sink: Sink, port: Port) -> None:
    key = (port.hca, port.port)
    details = port.details
    identity = (details.link_layer, details.interface, *details.place[:3])
    product = (details.hca_type, details.board_id, details.firmware)
    sink.add("trainvitals_infiniband_port_info", 1.0, *key, *identity, *product)
    sink.add("trainvitals_infiniband_port_up", port.up, *key)
    if port.state is not None:
        sink.add("trainvitals_infiniband_port_state", 1.0, *key, port.state)
    if port.physical_state is not None:
        sink.add("trainvitals_infiniband_port_physical_state", 1.0, *key, port.physical_state)
    sink.add("trainvitals_infiniband_rate_bytes_per_second", port.rate, *key)
    sink.add("trainvitals_infiniband_expected_rate_bytes_per_second", port.expected_rate, *key)
    for name, value in zip(_TRAFFIC, port.traffic, strict=True):
        sink.add(name, value, *key)
    sink.add("trainvitals_infiniband_transmit_wait_total", port.transmit_wait, *key)
    sink.add("trainvitals_infiniband_link_downed_total", port.link_downed, *key)
    sink.add("trainvitals_infiniband_flaps_total", port.flaps, *key)
    for kind, count in port.errors.items():
        sink.add("trainvitals_infiniband_errors_total", count, *key, kind)
    for kind, count in port.transport.items():
        sink.add("trainvitals_infiniband_transport_events_total", count, *key, kind)
    for kind in port.saturated:
        sink.add("trainvitals_infiniband_saturated", 1.0, *key, kind)


_TRAFFIC = (
    "trainvitals_infiniband_receive_bytes_total",
    "trainvitals_infiniband_transmit_bytes_total",
    "trainvitals_infiniband_receive_packets_total",
    "trainvitals_infiniband_transmit_packets_total",
)


def _add_interface(sink: Sink, interface: Interface) -> None:
    name, details = interface.name, interface.details
    sink.add("trainvitals_network_interface_info", 1.0, name, details.kind, details.master, *details.place[:3])
    sink.add("trainvitals_network_up", interface.up, name)
    sink.add("trainvitals_network_enabled", interface.enabled, name)
    if interface.state is not None:
        sink.add("trainvitals_network_state", 1.0, name, interface.state)
    sink.add("trainvitals_network_speed_bytes_per_second", interface.speed, name)
    sink.add("trainvitals_network_expected_speed_bytes_per_second", interface.expected_speed, name)
    sink.add("trainvitals_network_mtu_bytes", interface.mtu, name)
    sink.add("trainvitals_network_receive_bytes_total", interface.received, name)
    sink.add("trainvitals_network_transmit_bytes_total", interface.sent, name)
    for kind, count in interface.errors.items():
        sink.add("trainvitals_network_errors_total", count, name, kind)
    sink.add("trainvitals_network_carrier_changes_total", interface.carrier_changes, name)
    sink.add("trainvitals_network_carrier_downs_total", interface.carrier_downs, name)
