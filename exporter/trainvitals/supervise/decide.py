"""What to do after a failure: a table from causes to policies, and rules over what happened before.  Pure.

In the order of the rules: what nobody can help by starting again ends the run; so does the same failure at the same
step twice, a row of attempts without progress, and more restarts than were allowed.  Else the policy of the cause
says whether to start again, to wait first, or to go back behind the first bad step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from trainvitals.supervise import cause
from trainvitals.supervise.settings import Limits

Policy = Literal["restart", "roll_back", "wait_space", "wait_devices", "stop"]
Action = Literal["restart", "roll_back", "wait_space", "wait_devices", "stop"]

#: docs/run.md has this table in words; a test holds it against the table of errors.
POLICIES: dict[str, Policy] = {
    # Found by the supervisor.
    cause.HANG: "restart",
    cause.NONFINITE: "roll_back",
    cause.LOST_DEVICE: "wait_devices",
    cause.UNKNOWN: "restart",
    # Devices.
    "device_memory_retried": "restart",
    "device_out_of_memory": "restart",
    "device_memory_taken": "restart",
    "device_memory_error": "wait_devices",
    "xid_hardware": "wait_devices",
    "xid_program": "restart",
    "xid_other": "restart",
    "device_lost": "wait_devices",
    "nvswitch_error": "restart",
    "device_memory_unmapped": "restart",
    "device_assert": "restart",
    "device_illegal_access": "restart",
    "no_such_device": "wait_devices",
    "software_mismatch": "stop",
    "device_library_failed": "restart",
    "cuda_error": "restart",
    "npu_error": "restart",
    "npu_task_failed": "restart",
    # The node.
    "shared_memory_full": "restart",
    "host_out_of_memory": "restart",
    "worker_terminated": "restart",
    "worker_killed": "restart",
    "disk_full": "wait_space",
    "quota_exceeded": "wait_space",
    "filesystem_read_only": "stop",
    "filesystem_failed": "restart",
    "permission_denied": "stop",
    "too_many_files": "restart",
    "segfault": "restart",
    "hung_task": "restart",
    "kernel_panic": "restart",
    "process_killed": "restart",
    # Launchers and schedulers.  What stops a job from outside also tells the supervisor, if it means the run.
    "time_limit": "restart",
    "preempted": "restart",
    "node_failed": "restart",
    "evicted": "restart",
    "job_cancelled": "restart",
    "interrupted": "restart",
    "terminated": "restart",
    "peers_stopped": "restart",
    "child_failed": "restart",
    "task_exited": "restart",
    "actor_died": "restart",
    "subprocess_failed": "restart",
    "aborted": "restart",
    # Data.
    "image_unreadable": "restart",
    "archive_unreadable": "restart",
    "table_unreadable": "restart",
    "text_undecodable": "restart",
    "checkpoint_unreadable": "restart",
    "tokenizer_unreadable": "stop",
    "index_damaged": "restart",
    "file_missing": "restart",
    # Collectives.
    "collective_mismatch": "restart",
    "collective_missing_ranks": "restart",
    "collective_timeout": "restart",
    "collective_link_error": "restart",
    "network_connect_failed": "restart",
    "port_in_use": "restart",
    "rendezvous_failed": "restart",
    "peer_lost": "restart",
    "nccl_failed": "restart",
    "nccl_warning": "restart",
    "connection_lost": "restart",
    # The program.
    "loss_scale_minimum": "roll_back",
    "loss_scale_overflow": "restart",
    "nan_detected": "roll_back",
    "import_failed": "stop",
    "state_mismatch": "stop",
    "arguments_wrong": "stop",
    "exception": "restart",
}
#: Pauses double up to this many seconds.
LONGEST_PAUSE = 300.0


@dataclass(frozen=True)
class Past:
    """A failure as it is remembered.

    ``signature`` is that of :class:`trainvitals.supervise.cause.Failure`; ``step`` the last one made, ``onset`` the
    first with a loss that is no number, ``resumed`` the step that the attempt began at, ``progress`` whether a newer
    checkpoint can be loaded than after the failure before (without checkpoints: whether a further step was made).
    """

    cause: str
    signature: str
    step: int | None = None
    onset: int | None = None
    resumed: int | None = None
    progress: bool = False
    data: str = ""
    category: str = "resource"


@dataclass(frozen=True)
class Decision:
    """What to do: ``pause`` in seconds before, ``before`` the step that a checkpoint must be older than, and why."""

    action: Action
    why: str
    pause: float = 0.0
    before: int | None = None


def decide(past: Sequence[Past], limits: Limits, restarts: int) -> Decision:
    """Decide after the last of the failures of a run; ``restarts`` is how many there have been."""
    now = past[-1]
    policy = POLICIES.get(now.cause, "restart")
    idle = _attempts_without_progress(past)
    end = _end(past, limits, restarts, policy, idle)
    if end:
        return Decision("stop", end)
    pause = 0.0 if idle == 0 else min(limits.pause * 2.0 ** (idle - 1), LONGEST_PAUSE)
    if policy == "roll_back" and now.onset is not None:
        before, why = _before(past)
        return Decision("roll_back", why, pause, before)
    if policy == "wait_space":
        return Decision("wait_space", f"{now.cause}: there must be room first", pause)
    if policy == "wait_devices":
        return Decision("wait_devices", f"{now.cause}: there must be devices first", pause)
    return Decision("restart", "it may not come again", pause, now.onset)


def _end(past: Sequence[Past], limits: Limits, restarts: int, policy: Policy, idle: int) -> str:
    """Say why the run ends here, or nothing."""
    if policy == "stop":
        return f"{past[-1].cause}: another attempt would fail the same way"
    again = _again(past)
    if again:
        return again
    if idle >= limits.no_progress:
        return f"{idle} attempts in a row without progress"
    return f"no restart is left of {limits.max_restarts}" if restarts >= limits.max_restarts else ""


def _again(past: Sequence[Past]) -> str:
    """Say that the same failure came at the same step before, or nothing."""
    now = past[-1]
    place = now.onset if now.onset is not None else now.step
    if place is None and now.category == "resource":
        return ""  # Before the first step, networks and nodes get more than one chance.
    for earlier in past[:-1]:
        if earlier.signature != now.signature:
            continue
        if place == (earlier.onset if earlier.onset is not None else earlier.step):
            if now.onset is not None and _was_poisoned(earlier):
                continue
            where = "before the first step" if place is None else f"at step {place}"
            data = f"; the data there: {now.data}" if now.data else ""
            return f"the same failure {where} twice ({now.cause}): it is no accident{data}"
    return ""


def _was_poisoned(failure: Past) -> bool:
    """Whether the checkpoint itself was bad: the first step behind it had a loss that is no number."""
    return failure.onset is not None and failure.resumed is not None and failure.onset <= failure.resumed + 1


def _before(past: Sequence[Past]) -> tuple[int, str]:
    """Return the step that the checkpoint to go back to must be older than, and why."""
    now = past[-1]
    onset = now.onset or 0
    if _was_poisoned(now) and now.resumed is not None:
        return now.resumed, f"the loss is no number from the first step behind the checkpoint of step {now.resumed} on"
    return onset, f"the loss is no number since step {onset}: back to a checkpoint before it"


def _attempts_without_progress(past: Sequence[Past]) -> int:
    """Return how many of the last failures in a row came without progress."""
    count = 0
    for failure in reversed(past):
        if failure.progress:
            break
        count += 1
    return count
