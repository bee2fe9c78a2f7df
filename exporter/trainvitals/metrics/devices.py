"""Families about accelerators: the same words for every vendor.

A reader names them without ``trainvitals_device_`` and hands over the labels after ``device`` and ``uuid`` in the order
given here (:meth:`trainvitals.telemetry.DeviceSample.set`).
"""

from __future__ import annotations

from trainvitals.metrics.family import Family, rows

_DEVICE = ("device", "uuid")
_MIG = ("gpu_instance", "compute_instance")

FAMILIES: tuple[Family, ...] = (
    *rows(
        "devices",
        _DEVICE,
        ("device_info", "gauge", "An accelerator of this node.", "vendor", "name", "pci_bus_id", "driver_version"),
        (
            "device_hardware_info",
            "gauge",
            "What identifies the board and its firmware; minor is the number in /dev/nvidiaN, which Slurm counts by.",
            "serial",
            "board",
            "firmware",
            "minor",
            "compute_capability",
        ),
        ("device_up", "gauge", "1 when the device answers, else 0."),
        (
            "device_down_info",
            "gauge",
            (
                "1 while the device does not answer, with the reason: lost, reset_required, hung, blocked, driver, "
                "missing, paused, implausible (it tells what no device can have) or unknown."
            ),
            "reason",
        ),
        (
            "device_down_since_timestamp_seconds",
            "gauge",
            "Since when the device does not answer; only while it does not.",
        ),
        (
            "device_health_state",
            "gauge",
            "1 for the state of health that the driver tells, else 0: ok, warning, critical.",
            "state",
        ),
        ("device_fault_info", "gauge", "1 while the device has a fault, by the code of its maker.", "code"),
        # How busy.
        ("device_utilization_ratio", "gauge", "Share of time in which at least one kernel ran; not how busy it was."),
        ("device_memory_activity_ratio", "gauge", "Share of time in which device memory was read or written."),
        ("device_graphics_activity_ratio", "gauge", "Share of time in which the compute or graphics engine was busy."),
        ("device_sm_activity_ratio", "gauge", "Share of the multiprocessors that had work, over time."),
        ("device_sm_occupancy_ratio", "gauge", "Resident warps of the multiprocessors, of those that fit."),
        ("device_tensor_activity_ratio", "gauge", "Share of time in which the tensor cores computed."),
        (
            "device_pipe_activity_ratio",
            "gauge",
            "Share of time in which a pipe computed outside of the tensor cores: fp64, fp32, fp16, int.",
            "pipe",
        ),
        ("device_memory_bandwidth_ratio", "gauge", "Bandwidth of device memory in use, of what it can do."),
        # Memory.
        ("device_memory_used_bytes", "gauge", "Device memory in use."),
        ("device_memory_total_bytes", "gauge", "Device memory in all."),
        ("device_memory_reserved_bytes", "gauge", "Device memory that the driver keeps for itself."),
        # Heat, power, clocks.
        (
            "device_temperature_celsius",
            "gauge",
            "Temperature by sensor: gpu (the chip), memory; on some devices also hotspot and core, of the chip.",
            "sensor",
        ),
        (
            "device_temperature_limit_celsius",
            "gauge",
            "Temperature at which something happens: slowdown, shutdown, gpu_max, memory_max.",
            "limit",
        ),
        (
            "device_temperature_margin_celsius",
            "gauge",
            "Degrees left until the device slows down; 0 or below while it does.",
        ),
        (
            "device_temperature_margin_limit_celsius",
            "gauge",
            (
                "Margin at which something happens, where the device counts by margins: slowdown, shutdown, gpu_max, "
                "memory_max."
            ),
            "limit",
        ),
        (
            "device_power_watts",
            "gauge",
            (
                "Power draw; kind is instant, average, or default where the driver chooses: on newer devices the mean "
                "of a second."
            ),
            "kind",
        ),
        ("device_power_limit_watts", "gauge", "Power limit in force."),
        ("device_power_limit_bound_watts", "gauge", "Limits that could be set: min, max, and default.", "bound"),
        ("device_energy_joules_total", "counter", "Energy used since the driver was loaded."),
        ("device_clock_hertz", "gauge", "Clock by domain: sm (what computes), memory.", "clock"),
        ("device_clock_max_hertz", "gauge", "Highest clock by domain.", "clock"),
        (
            "device_clock_limited",
            "gauge",
            (
                "1 while the clocks are held down for this reason, else 0: idle, application_clocks, sw_power_cap, "
                "hw_slowdown, sync_boost, sw_thermal, hw_thermal, hw_power_brake, display_clocks."
            ),
            "reason",
        ),
        (
            "device_clock_limited_seconds_total",
            "counter",
            (
                "Time with the clocks held down for this reason; thermal is sw_thermal and hw_thermal where they are "
                "not told apart."
            ),
            "reason",
        ),
        ("device_performance_state", "gauge", "Performance state: 0 is the fastest, 15 the slowest."),
        ("device_fan_ratio", "gauge", "Fan speed asked for, of the highest.", "fan"),
        # Memory errors and repairs.
        ("device_ecc_enabled", "gauge", "1 when memory errors are corrected, else 0."),
        (
            "device_ecc_errors_total",
            "counter",
            (
                "Memory errors since the driver was loaded: corrected, uncorrected, or on some devices deferred: found "
                "and in no result yet."
            ),
            "severity",
        ),
        (
            "device_ecc_lifetime_errors_total",
            "counter",
            "Memory errors over the life of the board: corrected or uncorrected.",
            "severity",
        ),
        (
            "device_ecc_sram_threshold_exceeded",
            "gauge",
            "1 when the board has had more errors in its SRAM than its maker allows, else 0.",
        ),
        ("device_remapped_rows", "gauge", "Memory rows replaced after errors: correctable, uncorrectable.", "cause"),
        ("device_row_remap_pending", "gauge", "1 while a row waits for a reset to be replaced, else 0."),
        ("device_row_remap_failed", "gauge", "1 when a row could not be replaced, else 0."),
        (
            "device_row_remap_banks",
            "gauge",
            "Memory banks by the spare rows that they have left: max, high, partial, low, none.",
            "spares",
        ),
        (
            "device_retired_pages",
            "gauge",
            "Memory pages taken out of use after errors, on older boards: corrected, uncorrected.",
            "cause",
        ),
        ("device_retired_pages_pending", "gauge", "1 while a page waits for a reset to be taken out of use, else 0."),
        ("device_repair_pending", "gauge", "1 while a repair waits for a reset: channel or tpc.", "kind"),
        (
            "device_recovery_needed",
            "gauge",
            "1 when the driver asks for an action before the device can be trusted again, else 0.",
        ),
        (
            "device_recovery_action_info",
            "gauge",
            (
                "The action that the driver asks for: gpu_reset, node_reboot, drain_p2p, drain_and_reset, "
                "recover_imex_domain, bus_reset, system_reboot, or unknown to the exporter."
            ),
            "action",
        ),
        # PCIe.
        ("device_pcie_generation", "gauge", "Generation of the PCIe link now; many devices lower it when idle."),
        ("device_pcie_max_generation", "gauge", "Highest generation of the PCIe link that device and slot can do."),
        ("device_pcie_width", "gauge", "Lanes of the PCIe link now."),
        ("device_pcie_max_width", "gauge", "Lanes of the PCIe link that device and slot can do."),
        (
            "device_pcie_transmit_bytes_total",
            "counter",
            (
                "Bytes from the device over PCIe since the exporter opened it; absent while they are too many for the "
                "device's counter of 32 bits."
            ),
        ),
        ("device_pcie_receive_bytes_total", "counter", "Bytes to the device over PCIe; as those from it."),
        (
            "device_pcie_transmit_bytes_per_second",
            "gauge",
            "Bytes from the device over PCIe, per second of the last round.",
        ),
        (
            "device_pcie_receive_bytes_per_second",
            "gauge",
            "Bytes to the device over PCIe, per second of the last round.",
        ),
        ("device_pcie_replays_total", "counter", "Packets that had to be sent again over PCIe."),
        (
            "device_pcie_errors_total",
            "counter",
            "Errors of the PCIe link by kind; a kind is shown once it happened.",
            "kind",
        ),
        # NVLink and the like.
        (
            "device_link_up",
            "gauge",
            "1 while a link to another device or switch works, else 0; shown once it had worked and then did not.",
            "link",
        ),
        ("device_links_up", "gauge", "Links to other devices or switches that work."),
        ("device_links_expected", "gauge", "Links that have worked since the exporter started."),
        ("device_link_transmit_bytes_total", "counter", "Bytes sent over a link.", "link"),
        ("device_link_receive_bytes_total", "counter", "Bytes received over a link.", "link"),
        ("device_links_transmit_bytes_per_second", "gauge", "Bytes sent over all links, per second of the last round."),
        (
            "device_links_receive_bytes_per_second",
            "gauge",
            "Bytes received over all links, per second of the last round.",
        ),
        ("device_links_errors_total", "counter", "Errors of all links by kind: replay, recovery, crc, ...", "kind"),
        (
            "device_link_errors_total",
            "counter",
            "Errors of one link by kind; a link and kind is shown once it happened.",
            "link",
            "kind",
        ),
        (
            "device_link_bit_error_ratio",
            "gauge",
            (
                "Bit error ratio of a link: effective is what correction left, symbol what it met; a link and kind is "
                "shown once a bit was wrong."
            ),
            "link",
            "kind",
        ),
        (
            "device_fabric_state",
            "gauge",
            "1 for the state of joining the fabric: not_started, in_progress, completed.",
            "state",
        ),
        ("device_fabric_failed", "gauge", "1 when joining the fabric failed, else 0."),
        (
            "device_fabric_unhealthy",
            "gauge",
            "1 when the fabric is not well, else 0; absent where the driver does not tell.",
        ),
        (
            "device_fabric_unhealthy_info",
            "gauge",
            (
                "1 while this aspect of the fabric is not well: degraded_bandwidth, route_recovery, route_unhealthy, "
                "access_timeout_recovery, incorrect_configuration, partition_missing, manager_disconnected, or summary."
            ),
            "aspect",
        ),
        # MIG.
        ("device_mig_enabled", "gauge", "1 when the device is split into instances (MIG), else 0."),
        ("device_mig_info", "gauge", "An instance of a split device (MIG).", *_MIG, "mig_uuid", "profile"),
        (
            "device_mig_memory_used_bytes",
            "gauge",
            "Memory of an instance in use; compute instances of one GPU instance share it.",
            *_MIG,
        ),
        ("device_mig_memory_total_bytes", "gauge", "Memory of an instance in all.", *_MIG),
        ("device_mig_sm_activity_ratio", "gauge", "As device_sm_activity_ratio, of one GPU instance.", "gpu_instance"),
        (
            "device_mig_tensor_activity_ratio",
            "gauge",
            "As device_tensor_activity_ratio, of one GPU instance.",
            "gpu_instance",
        ),
        (
            "device_mig_memory_bandwidth_ratio",
            "gauge",
            "As device_memory_bandwidth_ratio, of one GPU instance.",
            "gpu_instance",
        ),
        # Who uses it.
        ("device_processes", "gauge", "Processes that have memory on the device."),
    ),
    *rows(
        "devices",
        (),
        ("device_source_up", "gauge", "1 while the process that reads a vendor's devices answers, else 0.", "vendor"),
        ("device_source_restarts_total", "counter", "Restarts of the process that reads a vendor's devices.", "vendor"),
        ("device_source_read_timestamp_seconds", "gauge", "When a vendor's devices were last read.", "vendor"),
        (
            "devices_expected",
            "gauge",
            "Devices that should be here: those on the PCI bus, or as many as the settings say.",
            "vendor",
        ),
        ("devices_readable", "gauge", "Devices that answer.", "vendor"),
        (
            "device_missing_info",
            "gauge",
            "A device that is or was on the PCI bus, and that the driver does not list.",
            "vendor",
            "pci_bus_id",
        ),
        (
            "device_source_down_info",
            "gauge",
            (
                "1 while a vendor's devices cannot be read, with the reason: hung, late, paused, driver_not_loaded, "
                "lib_rm_version_mismatch, unknown, ..."
            ),
            "vendor",
            "reason",
        ),
        (
            "device_faults_lost_total",
            "counter",
            "Faults reported by the driver that came faster than they could be counted; shown once it happened.",
            "vendor",
        ),
        ("device_reads_failed_total", "counter", "Failed reads of a device field, by reason.", "reason"),
    ),
)
