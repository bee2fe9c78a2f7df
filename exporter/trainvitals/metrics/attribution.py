"""Families that map devices and ranks to the jobs that they belong to, and memory of devices to their ranks."""

from __future__ import annotations

from trainvitals.metrics.family import Family, rows

#: The numbers of an instance are empty for a device that is not split, and for who has it whole.
_DEVICE = ("device", "uuid", "gpu_instance", "compute_instance")
_RANK = ("run", "rank")
_JOB = ("slurm_job_id", "slurm_user")
_CONTAINER = ("pod_uid", "container_id", "runtime")

FAMILIES: tuple[Family, ...] = (
    *rows(
        "attribution",
        _RANK,
        (
            "rank_device_info",
            "gauge",
            "A live rank and a device that it computes on, by its probe, else by the processes that the driver names.",
            *_DEVICE,
        ),
        (
            "rank_slurm_job_info",
            "gauge",
            "A live rank and its Slurm job and step, from its control group; the user where a prolog told.",
            "slurm_job_id",
            "slurm_step_id",
            "slurm_user",
        ),
        ("rank_container_info", "gauge", "A live rank and its pod and container, from its control group.", *_CONTAINER),
    ),
    *rows(
        "attribution",
        _DEVICE,
        (
            "device_slurm_job_info",
            "gauge",
            "A device and a Slurm job that was given it (by the prolog's files) or computes on it (by control groups).",
            *_JOB,
        ),
        ("device_container_info", "gauge", "A device and a pod or container that computes on it.", *_CONTAINER),
    ),
    *rows(
        "attribution",
        ("device", "uuid"),
        (
            "device_process_memory_bytes",
            "gauge",
            "Memory of a device that a rank uses; processes that are no rank together under empty labels.",
            *_RANK,
        ),
        (
            "device_idle_seconds",
            "gauge",
            "For how long a device that a rank, a job or a process has did no work; absent where nobody has it.",
        ),
    ),
)
