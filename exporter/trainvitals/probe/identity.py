"""Who is this process: run, attempt, rank and world size, read from the environment that launchers set.

Every rank of a run must come to the same name without talking to another rank.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Any

#: Letters of every language may stand in a name; what breaks labels, paths and queries may not.
_UNSAFE = re.compile(r"[^\w.-]+")
_LONGEST_NAME = 64

#: (rank, local rank, world size) as each launcher calls them, in the order of trust.
_RANK_VARIABLES = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),  # torchrun
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),
    ("RANK_ID", "DEVICE_ID", "RANK_SIZE"),  # msrun, Ascend
    ("PADDLE_TRAINER_ID", "PADDLE_RANK_IN_NODE", "PADDLE_TRAINERS_NUM"),
)

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

    The last resort is the name of the program, the same on every rank and in every attempt.
    """
    rendezvous = environ.get("TORCHELASTIC_RUN_ID", "")
    slurm = environ.get("SLURM_ARRAY_JOB_ID") or environ.get("SLURM_JOB_ID")
    candidates = (
        explicit,
        environ.get("TRAINVITALS_RUN"),
        # torchrun's default --rdzv-id is the literal "none": not a name.
        rendezvous if rendezvous != "none" else None,
        f"slurm-{slurm}" if slurm else None,
        environ.get("RAY_JOB_ID"),
        _program_name(program),
    )
    for candidate in candidates:
        name = _UNSAFE.sub("-", str(candidate or "")).strip("-.")[:_LONGEST_NAME]
        if name:
            return name
    return "run"


def _program_name(program: str) -> str:
    """Return the name of a script, or of the package that ``python -m`` runs."""
    folder, name = os.path.split(program)
    return os.path.basename(folder) if name == "__main__.py" else os.path.splitext(name)[0]


def attempt(environ: Mapping[str, str]) -> int:
    """Return how often the launcher restarted this run."""
    explicit = _integer(environ.get("TRAINVITALS_ATTEMPT"))
    if explicit is not None:
        return explicit
    counters = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT", "NVRX_CYCLE")
    return sum(_integer(environ.get(name)) or 0 for name in counters)


def identify(environ: Mapping[str, str], *, run: str | None = None) -> dict[str, Any]:
    """Return the identity that goes into the rank file: plain strings and integers."""
    rank, local_rank, world_size = 0, 0, 1
    for names in _RANK_VARIABLES:
        value = _integer(environ.get(names[0]))
        # Some launchers say -1 for "not set".
        if value is not None and value >= 0:
            rank = value
            local_rank = max(_integer(environ.get(names[1])) or 0, 0)
            world_size = max(_integer(environ.get(names[2])) or 1, 1)
            break
    else:
        rank, world_size = _process_group(sys.modules.get("torch")) or (rank, world_size)
        local_rank = rank
    main = sys.modules.get("__main__")
    program = getattr(main, "__file__", None) or (sys.argv[0] if sys.argv else "")
    return {
        "run": run_name(environ, explicit=run, program=program),
        "attempt": attempt(environ),
        "rank": rank,
        "local_rank": local_rank,
        "world_size": world_size,
        "framework": framework(),
        "pid": os.getpid(),
    }


def _process_group(torch: Any) -> tuple[int, int] | None:
    """Return rank and size of the default process group, for ranks that no launcher but the program itself started."""
    try:
        group = torch.distributed
        return (int(group.get_rank()), int(group.get_world_size())) if group.is_initialized() else None
    except Exception:  # No torch, or one that was built without it.
        return None


def device_uuid(torch: Any) -> str | None:
    """Return the uuid of this process's device as its driver writes it ("GPU-..."), or None.

    ``torch`` is the module, or None.  Asks only where the training has a device context already: the question would
    make one.  Never raises and never waits: the properties of a device are known to the host.
    """
    try:
        if torch is None or not torch.cuda.is_initialized():
            return None
        uuid = torch.cuda.get_device_properties(torch.cuda.current_device()).uuid
    except Exception:  # An older torch, another accelerator behind the same name: then it is not known.
        return None
    return str(uuid) if str(uuid).startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


def framework() -> str:
    """Return the most specific training framework that this process has imported, or "python"."""
    return next((name for name in _FRAMEWORKS if name in sys.modules), "python")


def _integer(text: str | None) -> int | None:
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None
