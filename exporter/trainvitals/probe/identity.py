"""Who is this process: run, attempt, rank and world size, read from the environment that launchers set.

Every rank of a run must come to the same name without talking to another rank.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from trainvitals.probe.ranks import node_rank, ranks, whole_number

#: Letters of every language may stand in a name; what breaks labels, paths and queries may not.
_UNSAFE = re.compile(r"[^\w.-]+")
_LONGEST_NAME = 64

#: What batch systems call their jobs; an array of Slurm is one job.
_BATCH_SYSTEMS = (
    ("slurm", ("SLURM_ARRAY_JOB_ID", "SLURM_JOB_ID")),
    ("pbs", ("PBS_JOBID",)),
    ("lsf", ("LSB_JOBID",)),
    ("flux", ("FLUX_JOB_ID",)),
)
_PCI = ("pci_domain_id", "pci_bus_id", "pci_device_id")
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE)
#: Programs that run others, or none: ``-c``, a worker of Ray, a notebook.
_NO_PROGRAMS = frozenset({"", "-c", "c", "-m", "-", "default_worker", "ipykernel_launcher", "colab_kernel_launcher"})

#: Modules whose presence names the framework, the most specific first.
_FRAMEWORKS = (
    "torchtitan",
    "megatron",
    "deepspeed",
    "lightning",
    "pytorch_lightning",
    "accelerate",
    "transformers",
    "paddle",
    "mindspore",
    "keras",
    "jax",
    "torch",
)


def run_name(environ: Mapping[str, str], *, explicit: str | None = None, program: str = "") -> str:
    """Return the name of the run: explicit, then ``TRAINVITALS_RUN``, then what the launcher calls the job.

    Then the name of the program, the same on every rank and in every attempt.
    Last of all what is the same on every rank but another after each restart.
    """
    rendezvous = environ.get("TORCHELASTIC_RUN_ID", "")
    # torchrun's default --rdzv-id is the literal "none", and with --standalone a new random one at each start.
    is_name = rendezvous != "none" and not _UUID.fullmatch(rendezvous)
    main = _program_name(program)
    candidates = (
        explicit,
        environ.get("TRAINVITALS_RUN"),
        # First, for some platforms make a --rdzv-id of it and the number of the attempt.
        environ.get("JOBSET_NAME"),
        rendezvous if is_name else None,
        _batch_job(environ),
        _kubernetes_job(environ),
        # A worker of Ray runs Ray's own program.
        None if main in _NO_PROGRAMS else main,
        _ray_job(environ),
        rendezvous if rendezvous != "none" else None,
        _first_node(environ),
        main,
    )
    for candidate in candidates:
        name = _UNSAFE.sub("-", str(candidate or "")).strip("-.")[:_LONGEST_NAME]
        if name:
            return name
    return "run"


def _batch_job(environ: Mapping[str, str]) -> str | None:
    """Return the job of a batch system; all tasks of an array are one run, as where each goes on with the one before.

    Of PBS without the server behind the number, which the host's name may be part of.
    """
    for system, names in _BATCH_SYSTEMS:
        job = next((environ[name] for name in names if environ.get(name)), None)
        if job:
            return f"{system}-{re.split(r'[.[]', job)[0]}"
    return None


def _kubernetes_job(environ: Mapping[str, str]) -> str | None:
    """Return the name of a job of Kubernetes that the address of its first pod tells.

    JobSet (and Kubeflow's TrainJob): ``<jobset>-<part>-0-0.<jobset>``; Kubeflow's PyTorchJob: ``<job>-master-0``, where
    the master itself may see "localhost" and has its own name in ``HOSTNAME``.
    """
    if not environ.get("KUBERNETES_SERVICE_HOST"):
        return None
    first = environ.get("MASTER_ADDR") or environ.get("PET_MASTER_ADDR") or "localhost"
    host, _, domain = (environ.get("HOSTNAME", "") if first == "localhost" else first).partition(".")
    job = domain.partition(".")[0]
    if job and host.startswith(f"{job}-") and host.endswith("-0-0"):
        return job
    return host.removesuffix("-master-0") if host.endswith("-master-0") else None


def _ray_job(environ: Mapping[str, str]) -> str | None:
    job = environ.get("RAY_JOB_ID")
    return f"ray-{job}" if job else None


def _first_node(environ: Mapping[str, str]) -> str | None:
    """Return where the first rank is, for ranks on many nodes that nothing else names."""
    address, port = environ.get("MASTER_ADDR", ""), environ.get("MASTER_PORT", "")
    return f"{address}-{port}" if address and address != "localhost" and not address.startswith("127.") else None


def _program_name(program: str) -> str:
    """Return the name of a script, or of the package that ``python -m`` runs."""
    folder, name = os.path.split(program)
    return os.path.basename(folder) if name == "__main__.py" else os.path.splitext(name)[0]


def attempt(environ: Mapping[str, str]) -> int:
    """Return how often the launchers restarted this run.

    Each knows its own restarts only, so they add up; torchrun and NVIDIA's launcher on its base count the same ones.
    Of an array the tasks are counted and not how often each was requeued.
    """
    explicit = whole_number(environ.get("TRAINVITALS_ATTEMPT"))
    if explicit is not None:
        return explicit

    def number(name: str) -> int:
        return max(whole_number(environ.get(name)) or 0, 0)

    inner = max(number("TORCHELASTIC_RESTART_COUNT"), number("NVRX_CYCLE"))
    if environ.get("SLURM_ARRAY_JOB_ID"):
        outer = max(number("SLURM_ARRAY_TASK_ID") - number("SLURM_ARRAY_TASK_MIN"), 0)
    else:
        outer = number("SLURM_RESTART_COUNT")
    return inner + outer + number("JOBSET_RESTART_ATTEMPT")


def identify(environ: Mapping[str, str], *, run: str | None = None) -> dict[str, Any]:
    """Return the identity that goes into the rank file: plain strings and integers."""
    rank, local_rank, world_size = ranks(environ)
    main = sys.modules.get("__main__")
    program = getattr(main, "__file__", None) or (sys.argv[0] if sys.argv else "")
    node = node_rank(environ)
    return {
        "run": run_name(environ, explicit=run, program=program),
        "attempt": attempt(environ),
        "rank": rank,
        "local_rank": local_rank,
        **({} if node is None else {"node_rank": node}),
        "world_size": world_size,
        "framework": framework(),
        "pid": os.getpid(),
    }


def device(module: Any, environ: Mapping[str, str]) -> dict[str, str]:
    """Return ``device_uuid`` and ``pci_bus_id`` of this process's device, as far as the host knows them.

    ``module`` is that of a device with a context (``torch.cuda``, ``torch.xpu``, ``torch.npu``), or None: the question
    would make one.  Never raises and never waits: the properties of a device are known to the host.
    The uuid is written as the driver does: "GPU-...", or "MIG-..." where the process was given an instance; the
    address as the kernel does.  Other vendors' uuids stay what they are.
    """
    told = {}
    try:
        properties = module.get_device_properties(module.current_device())
        if all(isinstance(getattr(properties, name, None), int) for name in _PCI):
            domain, bus, slot = (getattr(properties, name) for name in _PCI)
            told["pci_bus_id"] = f"{domain:04x}:{bus:02x}:{slot:02x}.0"
        uuid = str(getattr(properties, "uuid", None) or "")[:64]
        if uuid:
            told["device_uuid"] = _spelled(uuid, environ) if module.__name__ == "torch.cuda" else uuid
    except Exception:  # An older torch, another accelerator behind the same name: then it is not known.
        return told
    return told


def _spelled(uuid: str, environ: Mapping[str, str]) -> str:
    """Return a uuid with the prefix of NVIDIA's driver; CUDA leaves it out, and has another for an instance."""
    if uuid.startswith(("GPU-", "MIG-")):
        return uuid
    visible = (environ.get(name, "") for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"))
    given = {entry.strip().lower() for text in visible for entry in text.split(",")}
    return f"MIG-{uuid}" if f"mig-{uuid.lower()}" in given else f"GPU-{uuid}"


def framework() -> str:
    """Return the most specific training framework that this process has imported, or "python"."""
    return next((name for name in _FRAMEWORKS if name in sys.modules), "python")
