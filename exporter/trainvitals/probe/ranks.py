"""Which rank a process is, on which node: read from the variables of launchers, each of which has its own."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

#: (rank, local rank, world size) as each launcher calls them, in the order of trust.  Those that Slurm may have started
#: come before it: a rank of theirs has inherited what Slurm told the one process that it started on the node.
_TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
_RANK_VARIABLES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
    ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),
    ("RANK_ID", "DEVICE_ID", "RANK_SIZE"),  # msrun, Ascend
    ("PADDLE_TRAINER_ID", "PADDLE_RANK_IN_NODE", "PADDLE_TRAINERS_NUM"),
)
#: Beyond is no number of a rank, an attempt or a node.
_LARGEST = 1 << 53
#: The number of the node as each launcher calls it, in the order of trust.
_NODE_VARIABLES = (
    "GROUP_RANK",  # torchrun
    "SLURM_NODEID",
    "PET_NODE_RANK",
    "NODE_RANK",
    "JOB_COMPLETION_INDEX",  # Kubernetes
)


def ranks(environ: Mapping[str, str]) -> tuple[int, int, int]:
    """Return rank, local rank and size of the world."""
    told = _told_by(environ, _TORCHRUN)
    if told is not None:
        return told
    # Hydra (MPICH, Intel MPI) tells the local rank; Slurm, which tells PMI_RANK as well, has another name for it.
    hydra = _told_by(environ, ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE")) if "MPI_LOCALRANKID" in environ else None
    others = (_told_by(environ, names) for names in _RANK_VARIABLES)
    told = hydra or next((other for other in others if other is not None), None)
    group = _process_group(sys.modules.get("torch"))
    if group is not None and (told is None or told[0] != group[0]):
        # A program that starts its ranks itself, within one task of Slurm: they know better.
        return group[0], group[0], group[1]
    if told is not None:
        return told
    # Lightning tells the processes that it starts no more than this; on the first node that is enough.
    local = whole_number(environ.get("LOCAL_RANK"))
    if local is not None and local > 0 and node_rank(environ) in (None, 0):
        return local, local, max(whole_number(environ.get("WORLD_SIZE")) or 1, local + 1)
    return 0, 0, max(whole_number(environ.get("WORLD_SIZE")) or 1, 1) if local == 0 else 1


def _told_by(environ: Mapping[str, str], names: tuple[str, str, str]) -> tuple[int, int, int] | None:
    rank, local_rank, world_size = (whole_number(environ.get(name)) for name in names)
    # Some launchers say -1 for "not set".
    if rank is None or rank < 0:
        return None
    return rank, max(local_rank or 0, 0), max(world_size or 1, 1)


def _process_group(torch: Any) -> tuple[int, int] | None:
    """Return rank and size of the default process group, for ranks that no launcher but the program itself started."""
    try:
        group = torch.distributed
        return (int(group.get_rank()), int(group.get_world_size())) if group.is_initialized() else None
    except Exception:  # No torch, or one that was built without it.
        return None


def node_rank(environ: Mapping[str, str]) -> int | None:
    """Return the number of the node, where a launcher tells it."""
    numbers = (whole_number(environ.get(name)) for name in _NODE_VARIABLES)
    return next((number for number in numbers if number is not None and number >= 0), None)


def whole_number(text: str | None) -> int | None:
    """Return the number in a variable, or None where there is none that can be one of a rank."""
    try:
        number = int(text) if text is not None else None
    except ValueError:
        return None
    return number if number is not None and abs(number) <= _LARGEST else None
