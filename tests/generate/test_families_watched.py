"""Which alert watches each family about devices, links, storage, the node and its kernel, and why none does."""

from __future__ import annotations

from tests.generate.series import names_in

from trainvitals.generate import alerts_kernel
from trainvitals.generate.alerts import ALERTS
from trainvitals.host.kernel_kinds import KINDS
from trainvitals.metrics import FAMILIES, PREFIX

#: The collectors that show hardware and what it stands on.
HARDWARE = {"devices", "faults", "attribution", "host", "processes", "storage", "network", "kernel"}
#: Those that show runs and the monitoring itself.
OTHERS = {"ranks", "logs", "journal", "exporter", "notify"}

#: No alert asks for these families; each stands below its reason.
UNWATCHED = {
    "identity: what it is, whose it is, and how many there are": (
        "device_hardware_info device_mig_enabled device_mig_info device_processes device_process_memory_bytes "
        "device_slurm_job_info device_container_info rank_slurm_job_info rank_container_info host_cpus "
        "container_cpus host_filesystem_info infiniband_ports network_mtu_bytes rank_loader_workers"
    ),
    "how busy it is: both ends are usual in a good run": (
        "device_memory_activity_ratio device_graphics_activity_ratio device_sm_activity_ratio "
        "device_sm_occupancy_ratio device_tensor_activity_ratio device_pipe_activity_ratio "
        "device_memory_bandwidth_ratio device_mig_sm_activity_ratio device_mig_tensor_activity_ratio "
        "device_mig_memory_bandwidth_ratio device_performance_state device_clock_hertz device_clock_max_hertz "
        "device_energy_joules_total device_fan_ratio host_cpu_seconds_total host_load1 "
        "rank_process_cpu_seconds_total rank_process_threads rank_loader_cpu_seconds_total"
    ),
    "memory that frameworks take whole by design; without enough of it the run ends with a word": (
        "device_memory_used_bytes device_memory_total_bytes device_memory_reserved_bytes "
        "device_mig_memory_used_bytes device_mig_memory_total_bytes"
    ),
    "traffic: no amount of it is a fault": (
        "device_pcie_transmit_bytes_total device_pcie_receive_bytes_total device_pcie_transmit_bytes_per_second "
        "device_pcie_receive_bytes_per_second device_link_transmit_bytes_total device_link_receive_bytes_total "
        "device_links_transmit_bytes_per_second device_links_receive_bytes_per_second "
        "infiniband_receive_bytes_total infiniband_transmit_bytes_total infiniband_receive_packets_total "
        "infiniband_transmit_packets_total network_receive_bytes_total network_transmit_bytes_total "
        "host_nfs_read_bytes_total host_nfs_written_bytes_total host_disk_reads_total host_disk_read_bytes_total "
        "host_disk_read_time_seconds_total host_disk_writes_total host_disk_written_bytes_total "
        "host_disk_write_time_seconds_total host_disk_io_time_seconds_total"
    ),
    "a setting of the owner": "device_ecc_enabled device_power_limit_bound_watts",
    "the other half of TrainvitalsDeviceSlowed, which reads the state": "device_clock_limited_seconds_total",
    "what has been over the years; TrainvitalsDeviceSparesUsed says when it is too much": (
        "device_remapped_rows device_ecc_lifetime_errors_total"
    ),
    "says more in the text or runbook of the alert that is on": (
        "device_down_since_timestamp_seconds device_recovery_action_info device_missing_info device_link_up "
        "device_fault_info device_link_errors_total device_fabric_unhealthy_info device_pcie_errors_total "
        "infiniband_port_state infiniband_port_physical_state network_state host_filesystem_stuck_timestamp_seconds "
        "host_nfs_queue_seconds_total orphaned_loader_workers rank_cgroup_oom_kills_total"
    ),
    "no limit that the maker gives; errors and recoveries of the link are watched": "device_link_bit_error_ratio",
    "told by the time of the last one, as the counter has no series before the first": (
        "device_xid_errors_total device_fallen_off_bus_total nvswitch_sxid_errors_total"
    ),
    "comes with an XID, by which TrainvitalsDeviceFatalXid knows it": (
        "device_link_faults_total device_link_fault_last_timestamp_seconds"
    ),
    "TrainvitalsDeviceDown and TrainvitalsDeviceSourceHung tell of what lasts": (
        "device_source_restarts_total device_source_read_timestamp_seconds device_reads_failed_total"
    ),
    "more faults than could be shown: those that are, are alerts already": (
        "device_faults_lost_total faults_dropped_total"
    ),
    "tasks that wait for a while are usual; that all of them do is TrainvitalsMemoryPressure": (
        "host_pressure_some_seconds_total"
    ),
    "data sets that are mapped into memory count too": (
        "host_major_page_faults_total rank_process_major_page_faults_total"
    ),
    "short events that cost nothing; TrainvitalsCpuSlowed reads the time": "host_cpu_throttles_total",
    "the exporter's own container; those of ranks are rank_cgroup_*": (
        "container_memory_limit_bytes container_memory_used_bytes container_oom_kills_total "
        "container_cpu_throttled_seconds_total"
    ),
    "a cause of waiting for data, or of a stall, which have alerts": (
        "rank_cgroup_cpu_throttled_seconds_total rank_process_blocked rank_loader_blocked_workers"
    ),
    "a setting of the exporter, which `trainvitals doctor` explains": (
        "rank_process_visible kernel_log_readable host_filesystems_left_out network_left_out"
    ),
    "a longer time is a first sign only; TrainvitalsFilesystemStuck and TrainvitalsNfsSlow follow": (
        "host_filesystem_probe_duration_seconds host_filesystem_probe_timestamp_seconds"
    ),
    "TrainvitalsCollectorFailed tells of a probe that does not answer": "host_filesystem_probe_restarts_total",
    "congestion and repetitions: what is usual differs from network to network": (
        "infiniband_transmit_wait_total infiniband_transport_events_total"
    ),
    "a counter that is full is blind, not a fault": "infiniband_saturated",
    "counted as flaps, or as carrier downs, too": "infiniband_link_downed_total network_carrier_changes_total",
    "how far back the kernel's log goes": "kernel_log_oldest_timestamp_seconds kernel_log_records_lost_total",
}

#: Complaints of the kernel that no alert asks for.
UNWATCHED_KINDS = {
    "oom_kill": "TrainvitalsOomKill counts what the kernel counts",
    "cgroup_oom_kill": "TrainvitalsOomKill counts what the kernel counts",
    "nfs_not_responding": "TrainvitalsNfsTimeouts and TrainvitalsFilesystemStuck name the mount",
    "nfs_ok": "good news",
    "link_down": "TrainvitalsNetworkInterfaceDown and TrainvitalsNetworkFlaps",
    "link_up": "good news",
    "nic_command_failed": "harmless by itself",
}


def watched():
    """Return the families that an alert asks for."""
    return {name for alert in ALERTS for name in names_in(alert.expr)} & set(FAMILIES)


def unwatched():
    """Return the families of the list."""
    return [PREFIX + name for names in UNWATCHED.values() for name in names.split()]


def test_every_collector_is_about_hardware_or_not():
    """A new one must be put on one side."""
    assert {family.source for family in FAMILIES.values()} == HARDWARE | OTHERS
    assert not HARDWARE & OTHERS


def test_every_family_is_watched_or_has_its_reason():
    """A fault that the exporter can see and nobody hears of is a gap; one in both lists is a wrong reason."""
    of_hardware = {name for name, family in FAMILIES.items() if family.source in HARDWARE}

    assert sorted(of_hardware - watched()) == sorted(unwatched())


def test_every_kind_of_complaint_of_the_kernel_is_watched_or_has_its_reason():
    """Each kind belongs to one alert, so that a complaint is one message."""
    groups = (
        alerts_kernel.DAMAGED,
        alerts_kernel.DISKS,
        alerts_kernel.HARDWARE,
        alerts_kernel.STUCK,
        alerts_kernel.NOTICES,
        alerts_kernel.CORRECTED,
    )
    found = [*(kind for group in groups for kind in group), *UNWATCHED_KINDS]

    assert sorted(kind.name for kind in KINDS) == sorted(found)


def test_reasons_name_alerts_that_exist():
    """A reason that points at an alert points at one."""
    names = {alert.name for alert in ALERTS}
    reasons = " ".join([*UNWATCHED, *UNWATCHED_KINDS.values()])

    assert {word.strip(",;.") for word in reasons.split() if word.startswith("Trainvitals")} <= names
