"""Every check, in the order of the report.  A new one is one function in the file of its subject and one row here."""

from __future__ import annotations

from trainvitals.doctor import (
    amd,
    ascend,
    container,
    devices,
    hygon,
    kernel,
    logs,
    network,
    nvidia,
    settings,
    software,
    spool,
    storage,
    told,
)
from trainvitals.doctor.base import Check, Group

#: What to do about the devices of a vendor of :data:`trainvitals.devices.vendors.VENDORS`.
ADVICE: dict[str, devices.Advice] = {
    "nvidia": nvidia.ADVICE,
    "ascend": ascend.ADVICE,
    "amd": amd.ADVICE,
    "hygon": hygon.ADVICE,
    **told.ADVICE,
}

GROUPS: tuple[Group, ...] = (
    Group(
        "Exporter",
        (
            Check("software", "versions of Trainvitals and Python", software.python),
            Check("libraries", "the libraries of the exporter", software.libraries),
            Check("settings", "the file, and which values come from where", settings.settings),
            Check("variables", "environment variables that nothing reads", settings.variables),
            Check("web configuration", "TLS and users", settings.web_config),
            Check("port", "free, or ours already", settings.port),
            Check("simulated devices", "whether devices are shown that do not exist", settings.simulated),
        ),
    ),
    Group(
        "Training",
        (
            Check("spool", "folders of rank files: there, in memory, open to users", spool.folders),
            Check("shared memory", "size of /dev/shm, and whether a container shares it", spool.shared_memory),
            Check("probe", "whether a training can record a step", spool.probe),
            Check("ranks", "those that the exporter shows now", spool.ranks),
            Check("logs", "each source: there, readable, of a known format; its newest step", logs.sources),
            Check("positions", "whether it can be remembered how far logs were read", logs.positions),
        ),
    ),
    Group(
        "Devices",
        tuple(
            Check(
                advice.title,
                "each one, its signals, and those that are missing",
                devices.check(name, advice),
            )
            for name, advice in ADVICE.items()
        ),
    ),
    Group(
        "NVIDIA",
        (
            Check("package", "nvidia-ml-py, and packages that take its name", nvidia.package),
            Check("library", "libnvidia-ml, and whether it fits the driver", nvidia.library),
            Check("driver", "whether the driver is loaded", nvidia.driver),
            Check("device nodes", "whether this user may open them", nvidia.nodes),
            Check("persistence mode", "whether idle devices stay initialised", nvidia.persistence),
        ),
    ),
    Group(
        "Node",
        (
            Check("kernel log", "XIDs, machine checks, killed processes", kernel.log),
            Check("pressure", "waiting for CPU, memory and disks (PSI)", kernel.pressure),
            Check("clock", "whether it is synchronised", kernel.clock),
            Check("RDMA ports", "InfiniBand, RoCE and their counters", network.rdma),
            Check("file systems", "whether each answers; stuck ones by name", storage.mounts),
            Check("control groups", "their version", container.cgroups),
            Check("limits", "CPU and memory of the exporter", container.limits),
            Check("process ids", "those of the node, or of a container", container.namespace),
            Check("Kubernetes", "pod or node", container.kubernetes),
            Check("Slurm", "jobs and their devices", container.slurm),
        ),
    ),
    Group("Programs for `trainvitals up`", (Check("program", "Prometheus, Alertmanager, Grafana", software.bundle),)),
)
