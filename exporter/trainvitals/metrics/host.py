"""Families about the node itself."""

from __future__ import annotations

from trainvitals.metrics.family import Family, rows

FAMILIES: tuple[Family, ...] = (
    *rows(
        "host",
        (),
        ("host_cpu_seconds_total", "counter", "CPU time by mode, summed over all CPUs.", "mode"),
        ("host_cpus", "gauge", "Logical CPUs."),
        ("host_load1", "gauge", "Load average over one minute."),
        ("host_memory_total_bytes", "gauge", "Memory in all."),
        ("host_memory_available_bytes", "gauge", "Memory that can be had without swapping."),
        ("host_swap_used_bytes", "gauge", "Swap in use."),
        ("host_boot_timestamp_seconds", "gauge", "When the node booted."),
    ),
    *rows(
        "host",
        (),
        ("host_pressure_some_seconds_total", "counter", "Time in which some tasks waited for a resource.", "resource"),
        (
            "host_pressure_full_seconds_total",
            "counter",
            "Time in which all tasks that were not idle waited for a resource at once.",
            "resource",
        ),
        ("host_oom_kills_total", "counter", "Processes that the kernel killed for want of memory, in any group."),
        ("host_major_page_faults_total", "counter", "Pages of memory that had to be read from a disk."),
        ("host_cpu_throttles_total", "counter", "Times that cores, or packages, were slowed by heat, summed.", "scope"),
        (
            "host_cpu_throttled_seconds_total",
            "counter",
            "Time for which cores, or packages, were slowed by heat, summed.",
            "scope",
        ),
        ("host_clock_synchronized", "gauge", "1 while a time service vouches for the clock of the node, else 0."),
        (
            "host_clock_offset_seconds",
            "gauge",
            "What the kernel still has to correct of the clock; near 0 where a service such as chrony steers itself.",
        ),
        (
            "host_clock_max_error_seconds",
            "gauge",
            "By how much the clock may be wrong, as the time service told the kernel; it grows while none does.",
        ),
        ("container_memory_limit_bytes", "gauge", "Limit of the container that the exporter is in; absent on a host."),
        (
            "container_memory_used_bytes",
            "gauge",
            "Memory in use in that container, without file pages that the kernel gives back first.",
        ),
        ("container_oom_kills_total", "counter", "Processes killed for want of memory in that container."),
        ("container_cpus", "gauge", "CPUs that the quota of that container allows."),
        ("container_cpu_throttled_seconds_total", "counter", "Time for which that quota held the container back."),
    ),
    *rows(
        "processes",
        ("run", "rank"),
        (
            "rank_process_visible",
            "gauge",
            "1 when the process of a live rank can be read, else 0: in a container, share the process ids of the host.",
        ),
        ("rank_process_cpu_seconds_total", "counter", "CPU time of the training process, its workers left out."),
        ("rank_process_resident_memory_bytes", "gauge", "Memory of the training process."),
        ("rank_process_threads", "gauge", "Threads of the training process."),
        ("rank_process_major_page_faults_total", "counter", "Pages that the process had to wait for from a disk."),
        (
            "rank_process_blocked",
            "gauge",
            "1 while the main thread waits inside the kernel for a disk, a file system or a driver (state D), else 0.",
        ),
        ("rank_process_descriptors_ratio", "gauge", "Open descriptors over the limit of the process."),
        ("rank_loader_workers", "gauge", "Data-loader workers: children that run the training's program still."),
        ("rank_loader_blocked_workers", "gauge", "Workers that wait inside the kernel (state D)."),
        ("rank_loader_cpu_seconds_total", "counter", "CPU time of all workers, those that ended included."),
        ("rank_loader_resident_memory_bytes", "gauge", "Memory of the workers; what they share counts in each."),
        ("rank_cgroup_memory_limit_bytes", "gauge", "Tightest memory limit that holds for the process: its job's."),
        ("rank_cgroup_memory_used_bytes", "gauge", "Memory in use in the group with that limit."),
        ("rank_cgroup_oom_kills_total", "counter", "Processes killed for want of memory in that group."),
        ("rank_cgroup_cpu_throttled_seconds_total", "counter", "Time for which a CPU quota held the group back."),
    ),
    *rows(
        "processes",
        (),
        ("orphaned_loader_workers", "gauge", "Workers that live on although their training process is gone."),
        ("orphaned_loader_resident_memory_bytes", "gauge", "Memory that they hold."),
    ),
)
