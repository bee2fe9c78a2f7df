"""Families about InfiniBand, RoCE and Ethernet."""

from __future__ import annotations

from trainvitals.metrics.family import Family, rows

_PLACE = ("pci_bus_id", "numa_node", "driver")
_PORT = ("link_layer", "interface", *_PLACE, "hca_type", "board_id", "firmware")

_PORT_INFO = "An RDMA port (InfiniBand, RoCE, EFA, Omni-Path), its network interface and its place in the node."
_PHYSICAL_STATE = (
    "1 for the physical state that the port is in: polling is a cable without an answer, disabled is switched off; "
    "training, link_up, link_error_recovery and others."
)
_EXPECTED_RATE = (
    "Rate that the link should have: by the settings, else the highest seen since the exporter began or, if that is "
    "more, the rate of most ports of the same model here."
)
_WAIT = "Ticks in which there was something to send and no credit to send it: congestion (InfiniBand only)."
_DOWNED = "Times that the link failed to recover, as the hardware counts them: up to 255 on many devices."
_FLAPS = (
    "Times that the port went down since the exporter began: by its state between two reads, or by link_downed where "
    "that saw more."
)
_RARE = "Less usual kinds have a series once they are not zero."
_ERRORS = f"Errors of the link by kind, as the kernel names them. {_RARE}"
_TRANSPORT = (
    "Losses, repetitions, marks of congestion and errors of the RDMA transport by kind, as the driver names them. "
    f"{_RARE}"
)
_SATURATED = "1 for a counter that stands at the end of its range: it counts no further until it is cleared."

_INTERFACE_INFO = (
    "A network interface: kind is ethernet, infiniband, bond or, inside a container, virtual; master is the bond that "
    "it belongs to."
)
_EXPECTED_SPEED = "Speed that the link should have: by the settings, else the highest seen since the exporter began."
_NETWORK_ERRORS = (
    "Errors and dropped packets by kind, as the kernel names them; they overlap. Other kinds than rx_errors, "
    "tx_errors, rx_dropped and tx_dropped have a series once they are not zero."
)

FAMILIES: tuple[Family, ...] = (
    *rows(
        "network",
        (),
        ("infiniband_ports", "gauge", "RDMA ports that are shown."),
        ("network_left_out", "gauge", "RDMA ports and interfaces beyond 64 of each, which are not shown."),
    ),
    *rows(
        "network",
        ("hca", "port"),
        ("infiniband_port_info", "gauge", _PORT_INFO, *_PORT),
        ("infiniband_port_up", "gauge", "1 while the port is active, else 0."),
        ("infiniband_port_state", "gauge", "1 for the state that the port is in: down, init, armed, active.", "state"),
        ("infiniband_port_physical_state", "gauge", _PHYSICAL_STATE, "state"),
        ("infiniband_rate_bytes_per_second", "gauge", "Rate that the link is trained to; absent while it is down."),
        ("infiniband_expected_rate_bytes_per_second", "gauge", _EXPECTED_RATE),
        ("infiniband_receive_bytes_total", "counter", "Bytes received by RDMA; interfaces do not count them."),
        ("infiniband_transmit_bytes_total", "counter", "Bytes sent by RDMA; interfaces do not count them."),
        ("infiniband_receive_packets_total", "counter", "Packets received by RDMA."),
        ("infiniband_transmit_packets_total", "counter", "Packets sent by RDMA."),
        ("infiniband_transmit_wait_total", "counter", _WAIT),
        ("infiniband_link_downed_total", "counter", _DOWNED),
        ("infiniband_flaps_total", "counter", _FLAPS),
        ("infiniband_errors_total", "counter", _ERRORS, "kind"),
        ("infiniband_transport_events_total", "counter", _TRANSPORT, "kind"),
        ("infiniband_saturated", "gauge", _SATURATED, "kind"),
    ),
    *rows(
        "network",
        ("interface",),
        ("network_interface_info", "gauge", _INTERFACE_INFO, "kind", "master", *_PLACE),
        ("network_up", "gauge", "1 while the interface can carry traffic, else 0."),
        ("network_enabled", "gauge", "1 when the interface is switched on, whether it has a link or not, else 0."),
        ("network_state", "gauge", "1 for the operational state that the interface is in (RFC 2863).", "state"),
        ("network_speed_bytes_per_second", "gauge", "Speed of the link; absent while it is down or not known."),
        ("network_expected_speed_bytes_per_second", "gauge", _EXPECTED_SPEED),
        ("network_mtu_bytes", "gauge", "Largest packet."),
        ("network_receive_bytes_total", "counter", "Bytes received; those of a bond are its members'."),
        ("network_transmit_bytes_total", "counter", "Bytes sent; those of a bond are its members'."),
        ("network_errors_total", "counter", _NETWORK_ERRORS, "kind"),
        ("network_carrier_changes_total", "counter", "Times that the link came up or went down."),
        ("network_carrier_downs_total", "counter", "Times that the link went down."),
    ),
)
