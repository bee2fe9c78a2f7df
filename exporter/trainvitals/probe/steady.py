"""What differs at each start although nobody changed it: moments, ports, ranks, names of temporary folders.

In a table that is compared between attempts and between ranks, these would be a change each time.  What tells which
data or which model is used keeps its dates: those are versions.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping

from trainvitals.probe.private import words_of

#: Names that each process, node or start has a value of its own for, or that say where a run goes on.
_OWN = frozenset(
    {"local_rank", "node_rank", "global_rank", "machine_rank", "process_index", "local_process_index"}
    | {"master_addr", "main_process_ip", "dist_url", "init_method", "rdzv_endpoint", "rdzv_id", "node_ip", "host_ip"}
    | {"nccl_comm_id", "start_epoch", "start_step", "start_iter", "start_iteration", "initial_step", "iteration"}
    | {"consumed_train_samples", "consumed_valid_samples"}
)
_OWN_WORDS = frozenset({"pid", "ppid", "port", "hostname", "nodename", "hostid"})
_RESUME_WORDS = frozenset({"resume", "resuming", "resumed"})
#: In a program of PyTorch, beside "world_size"; alone they may be a rank of LoRA and a number of devices.
_OWN_BESIDE_WORLD_SIZE = frozenset({"rank", "gpu"})
_TIME_WORDS = frozenset({"time", "timestamp", "date", "started", "start", "created", "launched", "now"})

_INPUT = frozenset("data dataset datasets corpus model tokenizer pretrained weights".split())  # noqa: SIM905
_OUTPUT = frozenset(
    "output outputs out log logs logging save run exp experiment work workdir result results tensorboard wandb"  # noqa: SIM905
    " checkpoint checkpoints ckpt tmp temp cache dump trace profile".split()
)
_DD, _MM = "(?:0[1-9]|[12][0-9]|3[01])", "(?:0[1-9]|1[0-2])"
_DATE = rf"(?:20\d\d([-_./]?){_MM}\1{_DD}|{_DD}([-_.]){_MM}\2(?:20)\d\d)"
_CLOCK = r"(?:[01]\d|2[0-3])(?:[-_:.h]?[0-5]\d(?:[-_:.m]?[0-5]\d(?:[.,]\d{1,9})?)?)?(?:Z|[+-]\d\d:?\d\d)?"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\d\d[-_]\d\d[-_:]\d\d[-_:]\d\d"
_MOMENT = re.compile(rf"(?<!\d)(?:{_DATE}[-_T./: ]{{0,2}}{_CLOCK}|{_MONTH})(?![\dA-Za-z])")
_DAY = re.compile(rf"(?<!\d){_DATE}(?!\d)")
#: Seconds since 1970 as they have been since 2017, or thousandths and so on of them.
_EPOCH = re.compile(r"(?<![\d.])1[5-9]\d{8}(?:\.\d+|\d{3}|\d{6}|\d{9})?(?!\d)")
_UUID = re.compile(r"(?<![0-9A-Fa-f])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![0-9A-Fa-f])")
#: As :mod:`tempfile` calls them.
_TEMPORARY = re.compile(r"(?<![A-Za-z0-9])tmp[a-z0-9_]{8}(?![A-Za-z0-9_])")
_ADDRESS = re.compile(r"\b0x[0-9a-f]{8,16}\b")
_DEVICE = re.compile(r"(cuda|npu|xpu|hpu|musa|mlu|gcu|sdaa):\d+")
_JOBS = ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID")
#: A process id below may as well be a number of something else, and so may a name of a host without a digit.
_LEAST_PID = 1000
_LEAST_EPOCH = 1e9


def is_own(name: str, beside: Collection[object] = ()) -> bool:
    """Whether a value differs at each start, or on each rank, by what it is; ``beside`` are the names beside it."""
    words = words_of(name)
    if not words:
        return False
    joined = "_".join(words)
    return (
        joined in _OWN
        or words[-1] in _OWN_WORDS
        or not _RESUME_WORDS.isdisjoint(words)
        or (joined in _OWN_BESIDE_WORLD_SIZE and "world_size" in beside)
    )


def is_moment(name: str, value: float) -> bool:
    """Whether a number is a moment, by its name and its size."""
    return value >= _LEAST_EPOCH and not _TIME_WORDS.isdisjoint(words_of(name))


class Steady:
    """Puts what a word is for in the place of what differs at each start.  ``environ`` is the environment."""

    def __init__(self, environ: Mapping[str, str], pid: int, host: str) -> None:
        jobs = {re.split(r"[.\[]", environ.get(name, ""))[0] for name in _JOBS}
        numbers = "|".join(sorted(job for job in jobs if job.isdigit() and len(job) > 2))
        self._job = re.compile(rf"(?<!\d)(?:{numbers})(?!\d)") if numbers else None
        self._pid = re.compile(rf"(?<!\d){pid}(?!\d)") if pid >= _LEAST_PID else None
        hosts = [name for name in (host, host.partition(".")[0]) if any(map(str.isdigit, name))]
        joined = "|".join(map(re.escape, hosts))
        self._host = re.compile(rf"(?<![A-Za-z0-9])(?:{joined})(?![A-Za-z0-9])") if hosts else None

    @classmethod
    def of_this_process(cls) -> Steady:
        """Return one for this process."""
        return cls(os.environ, os.getpid(), os.uname().nodename)

    def text(self, name: str, text: str) -> str:
        """Return the text of a row with this name as it is at each start."""
        words = frozenset(words_of(name))
        is_output = not words.isdisjoint(_OUTPUT)
        text = _ADDRESS.sub("<address>", _TEMPORARY.sub("<temporary>", text))
        device = _DEVICE.fullmatch(text)
        if device is not None:
            return device[1]
        if not is_output and not words.isdisjoint(_INPUT):
            return text
        text = _UUID.sub("<uuid>", _MOMENT.sub("<time>", text))
        if self._job is not None:
            text = self._job.sub("<job>", text)
        if is_output:
            text = _EPOCH.sub("<time>", _DAY.sub("<time>", text))
            for pattern, word in ((self._pid, "<pid>"), (self._host, "<host>")):
                text = text if pattern is None else pattern.sub(word, text)
        return text
