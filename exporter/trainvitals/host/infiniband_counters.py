"""Counters of RDMA ports: which are read, how far they count, and which are always shown.

Sources: the kernel's Documentation/ABI/stable/sysfs-class-infiniband for meaning and units,
drivers/infiniband/core/sysfs.c for the widths, and the drivers' tables of names for hw_counters (mlx5/counters.c,
bnxt_re/hw_counters.c, efa_verbs.c).
"""

from __future__ import annotations

from typing import NamedTuple

#: Where the counters of PortCounters stop: they saturate and do not wrap, and stay there until someone clears them.
#: Their widths in bits are 4, 8, 16 and 32.
_CEILINGS = {
    "symbol_error": 2**16 - 1,
    "link_error_recovery": 2**8 - 1,
    "link_downed": 2**8 - 1,
    "port_rcv_errors": 2**16 - 1,
    "port_rcv_remote_physical_errors": 2**16 - 1,
    "port_rcv_switch_relay_errors": 2**16 - 1,
    "port_xmit_discards": 2**16 - 1,
    "port_xmit_constraint_errors": 2**8 - 1,
    "port_rcv_constraint_errors": 2**8 - 1,
    "local_link_integrity_errors": 2**4 - 1,
    "excessive_buffer_overrun_errors": 2**4 - 1,
    "VL15_dropped": 2**16 - 1,
    "port_xmit_wait": 2**32 - 1,
    "port_xmit_data": 2**32 - 1,
    "port_rcv_data": 2**32 - 1,
    "port_xmit_packets": 2**32 - 1,
    "port_rcv_packets": 2**32 - 1,
}
_TRAFFIC = ("port_rcv_data", "port_xmit_data", "port_rcv_packets", "port_xmit_packets")
#: The same in hw_counters, in bytes, where there is no folder of counters (bnxt_re, EFA).
_OTHER_TRAFFIC = ("rx_bytes", "tx_bytes", "rx_pkts", "tx_pkts")
#: Errors of the link, always shown: on InfiniBand, and elsewhere only the two that mean something there.
_LINK_ERRORS = (
    "symbol_error",
    "link_error_recovery",
    "port_rcv_errors",
    "port_xmit_discards",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
)
_ETHERNET_ERRORS = ("port_rcv_errors", "port_xmit_discards")
#: Errors that are shown once they are not zero.
_RARE_ERRORS = (
    "VL15_dropped",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_rcv_constraint_errors",
)
#: What the transport had to repeat or slow down, always shown where the driver has it.
_TRANSPORT = (
    *("out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err"),
    "req_transport_retries_exceeded",
    *("oos_drop_count", "seq_err_naks_rcvd", "to_retransmits", "rnr_naks_rcvd", "max_retry_exceeded"),  # bnxt_re
    *("rx_drops", "retrans_pkts", "retrans_timeout_events"),  # EFA
)
#: The same for networks that control congestion by marks: RoCE.
_CONGESTION = ("np_cnp_sent", "rp_cnp_handled", "np_ecn_marked_roce_packets", "roce_adp_retrans")
#: Shown once they are not zero.
_RARE_TRANSPORT = (
    *("duplicate_request", "implied_nak_seq_err", "out_of_buffer", "rx_icrc_encapsulated", "rp_cnp_ignored"),
    *("req_cqe_error", "resp_cqe_error", "req_rnr_retries_exceeded", "roce_adp_retrans_to"),
    *("roce_slow_restart", "roce_slow_restart_cnps", "roce_slow_restart_trans"),
    *("req_remote_access_errors", "req_remote_invalid_request"),
    *("resp_remote_access_errors", "resp_local_length_error"),
    *("rx_roce_errors", "rx_roce_discards", "rx_out_of_buffer", "dup_req", "missing_resp", "bad_resp_err"),  # bnxt_re
    *("unrecoverable_err", "local_qp_op_err", "remote_access_err", "remote_op_err", "remote_invalid_req_err"),
    *("unresponsive_remote_events", "impaired_remote_conn_events", "rdma_read_wr_err", "rdma_write_wr_err"),  # EFA
)


class Traffic(NamedTuple):
    """Bytes and packets of a port; what could not be read is None."""

    received: int | None = None
    sent: int | None = None
    received_packets: int | None = None
    sent_packets: int | None = None


def counters_of(link_layer: str) -> set[str]:
    """Return the names in the folder counters that are read."""
    names = set(_CEILINGS)
    return names if link_layer == "infiniband" else names - {"port_xmit_wait"}  # Credits are InfiniBand's.


def hw_counters_of() -> set[str]:
    """Return the names in the folder hw_counters that are read."""
    return {*_TRANSPORT, *_CONGESTION, *_RARE_TRANSPORT, *_OTHER_TRAFFIC}


def errors(counters: dict[str, int], link_layer: str) -> dict[str, int]:
    """Return the errors that are shown, by kind."""
    if link_layer == "infiniband":
        return _chosen(counters, _LINK_ERRORS, _RARE_ERRORS)
    return _chosen(counters, _ETHERNET_ERRORS, (*_LINK_ERRORS, *_RARE_ERRORS))


def transport(hw_counters: dict[str, int], link_layer: str) -> dict[str, int]:
    """Return the events of the transport that are shown, by kind."""
    if link_layer == "infiniband":
        return _chosen(hw_counters, _TRANSPORT, _RARE_TRANSPORT)
    return _chosen(hw_counters, (*_TRANSPORT, *_CONGESTION), _RARE_TRANSPORT)


def _chosen(counters: dict[str, int], always: tuple[str, ...], rare: tuple[str, ...]) -> dict[str, int]:
    return {name: value for name, value in sorted(counters.items()) if name in always or (value and name in rare)}


def traffic(counters: dict[str, int], hw_counters: dict[str, int], driver: str) -> Traffic:
    """Return bytes and packets.

    The unit of data is a word of 4 bytes by the specification.  The driver of Omni-Path passes on flits of 8
    (hfi1/mad.c, pma_get_opa_port_dctrs).
    """
    word = 8 if driver == "hfi1" else 4
    values: list[int | None] = []
    for name, other in zip(_TRAFFIC, _OTHER_TRAFFIC, strict=True):
        if name in counters:
            value = moving(counters, name)
            values.append(value * word if value is not None and name.endswith("_data") else value)
        else:
            values.append(hw_counters.get(other))
    return Traffic(*values)


def moving(counters: dict[str, int], name: str) -> int | None:
    """Return a counter that is of use only while it moves; None at the end of its range."""
    value = counters.get(name)
    return None if value == _CEILINGS[name] else value


def saturated(counters: dict[str, int]) -> tuple[str, ...]:
    """Return the names of the counters that stand at the end of their range."""
    return tuple(sorted(name for name, value in counters.items() if value == _CEILINGS[name]))
