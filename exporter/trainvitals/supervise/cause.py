"""Why an attempt ended: one cause out of all that was seen of it.

What was seen becomes events of one kind, whatever it was seen in, and the followers' rule says which of them explains
the others (:func:`trainvitals.follow.errors.root_cause`): errors in the output, exceptions that ranks recorded, the
error file of torchelastic, kills and XIDs in the kernel's log, the exit code.  What the supervisor itself has found
(a hang, losses that are no numbers, a lost device) needs no such rule: it ended the attempt for it.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trainvitals.follow.errors import CAUSE, root_cause
from trainvitals.follow.errors.base import Cause
from trainvitals.follow.errors.table import cause_of
from trainvitals.supervise.watch import Rank, Ranks, Silence
from trainvitals.telemetry import Event

#: Causes that are none of the table: what the supervisor finds itself.
HANG, NONFINITE, LOST_DEVICE, UNKNOWN = "hang", "loss_nonfinite", "lost_device", "unknown"
_CATEGORIES = {HANG: "resource", NONFINITE: "parameter", LOST_DEVICE: "resource"}
#: Signals that end a process, as the table of errors calls that.
_SIGNALS: dict[int, str] = {
    signal.SIGKILL: "process_killed",
    signal.SIGSEGV: "segfault",
    signal.SIGBUS: "shared_memory_full",
    signal.SIGABRT: "aborted",
    signal.SIGTERM: "terminated",
    signal.SIGINT: "interrupted",
}
_LARGEST_ERROR_FILE = 1 << 20
_LONGEST_TEXT = 300
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+")


@dataclass(frozen=True)
class Failure:
    """Why an attempt ended, and where the run was.  What is not known is None or empty.

    ``step`` is the last step that was made, ``onset`` the first of the steps whose loss is no number, ``data`` what
    the failure is about in the data (a file), ``devices`` the UUIDs of devices that must be left out, ``signature``
    is the same for two failures that are alike.
    """

    cause: str
    category: str
    text: str
    action: str = ""
    rank: int | None = None
    pid: int | None = None
    step: int | None = None
    onset: int | None = None
    data: str = ""
    devices: tuple[str, ...] = ()
    exit_code: int | None = None
    detected: float = 0.0
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def signature(self) -> str:
        """What two failures have in common that are the same: the cause and its words, without numbers."""
        words = _NUMBER.sub("#", str(self.fields.get("text", "")))[:120] if self.category != "resource" else ""
        return "|".join((self.cause, self.data, words, *self.devices))


def of_hang(silence: Silence, ranks: Ranks) -> Failure:
    """Return the failure that a hang is."""
    rank = silence.rank
    who = f"rank {rank.number} {silence.why}" if rank is not None else "no rank stands out"
    return Failure(
        cause=HANG,
        category=_CATEGORIES[HANG],
        text=f"no step for {silence.seconds:.0f} s (phase {silence.phase}): {who}",
        action="Read the stacks in the folder of the incident; when it comes again, check that node and its links.",
        rank=None if rank is None else rank.number,
        pid=None if rank is None else rank.pid,
        step=ranks.step(),
    )


def of_nonfinite(rank: Rank, ranks: Ranks) -> Failure:
    """Return the failure that losses are which are no numbers."""
    return Failure(
        cause=NONFINITE,
        category=_CATEGORIES[NONFINITE],
        text=f"the loss is no number since step {rank.onset} (rank {rank.number})",
        action="Look at the batches of that step first; then lower the learning rate, or clip gradients.",
        rank=rank.number,
        pid=rank.pid,
        step=ranks.step(),
        onset=ranks.onset(),
    )


def of_device(rank: Rank | None, uuid: str, what: str, ranks: Ranks) -> Failure:
    """Return the failure that a device is which cannot be used any more."""
    who = "" if rank is None else f" (rank {rank.number})"
    return Failure(
        cause=LOST_DEVICE,
        category=_CATEGORIES[LOST_DEVICE],
        text=f"device {uuid}{who}: {what}",
        action="Reset the device or reboot the node; the run goes on without it where it may.",
        rank=None if rank is None else rank.number,
        pid=None if rank is None else rank.pid,
        step=ranks.step(),
        devices=(uuid,),
    )


def of_full_disk(failure: Failure, folder: str, ranks: Ranks) -> Failure:
    """Return a failure as what it is where a save failed and there is no room: PyTorch hides the error of the system.

    ``torch.save`` on a full disk says "unexpected pos 64 vs 0", or "iostream error".
    """
    rank = ranks.failed_save()
    if rank is None or failure.cause not in {"exception", UNKNOWN, "process_killed", "aborted"}:
        return failure
    row = CAUSE["disk_full"]
    text = f"rank {rank.number}: disk_full: no room in {folder}; the save said: {failure.fields.get('text', '')}"
    return replace(
        failure,
        cause=row.name,
        category=row.category,
        action=row.action,
        rank=rank.number,
        text=text[:_LONGEST_TEXT],
    )


def detected(failure: Failure, moment: float) -> Failure:
    """Return a failure with the time when it was found."""
    return replace(failure, detected=moment)


def find(
    exit_code: int,
    ranks: Ranks,
    *,
    output: Iterable[Event] = (),
    kernel: Iterable[Event] = (),
    error_file: str = "",
) -> Failure:
    """Return why an attempt ended that ended by itself; ``exit_code`` is 128 and the number for a signal."""
    told = _of_ranks(ranks)
    events = [*kernel, *told, *_of_error_file(error_file), *output]
    root = root_cause(events, newest_step=-1)
    if root is None or root.fields["level"] > CAUSE["process_killed"].level:
        # Nothing in the output says more than how the command ended.
        root = _better(root, _of_exit(exit_code))
    root = root or _of_silent_end(ranks)
    rank = _rank_of(root, events, ranks)
    step = ranks.step()
    if root is None:
        text = f"exit code {exit_code}, and nothing says why"
        return Failure(UNKNOWN, "resource", text, rank=rank, step=step, exit_code=exit_code)
    fields = root.fields
    cause = str(fields["cause"])
    return Failure(
        cause=cause,
        category=str(fields["category"]),
        text=_sentence(cause, rank, fields),
        action=str(fields.get("action", "")),
        rank=rank,
        pid=fields.get("pid"),
        step=step,
        onset=ranks.onset(),
        data=str(fields.get("file", "")) if fields["category"] == "data" else "",
        exit_code=exit_code,
        fields=dict(fields),
    )


def event_of(cause: Cause, text: str, *, time: float = 0.0, **more: object) -> Event:
    """Return an event as the reader of logs makes them."""
    known = {name: value for name, value in more.items() if value is not None}
    fields = {
        "cause": cause.name,
        "category": cause.category,
        "level": int(cause.level),
        "text": " ".join(text.split())[:_LONGEST_TEXT],
        "action": cause.action,
        **known,
    }
    return Event(time, "log_error", -1, fields)


def _of_ranks(ranks: Ranks) -> list[Event]:
    """Return the exceptions that ranks recorded before they ended."""
    found = []
    for rank in ranks:
        for event in rank.events:
            if event.kind in {"exception", "interrupted"}:
                text = f"{event.fields.get('type', 'Exception')}: {event.fields.get('message', '')}"
                found.append(_of_text(text, event.time, rank.number))
            elif event.kind == "data_error" and rank.status == "failed":
                place = event.fields.get("file") or event.fields.get("sample") or event.fields.get("ids")
                text = f"{event.fields.get('message') or event.fields.get('error') or 'a batch cannot be read'}"
                found.append(event_of(CAUSE["index_damaged"], text, time=event.time, rank=rank.number, file=place))
    return found


def _of_text(text: str, time: float, rank: int | None) -> Event:
    """Return what the last line of a traceback tells."""
    cause, details = cause_of(text) or (CAUSE["exception"], {})
    return event_of(cause, text, time=time, rank=rank, file=details.get("file"))


def _of_error_file(path: str) -> list[Event]:
    """Return what torchelastic wrote: of a rank whose program is decorated with ``record``, or of its agent."""
    try:
        if not path or os.path.getsize(path) > _LARGEST_ERROR_FILE:
            return []
        with open(path, encoding="utf-8", errors="replace") as file:
            message = json.load(file)["message"]
        text = message if isinstance(message, str) else str(message["message"])
        told = {} if isinstance(message, str) else dict(message.get("extraInfo") or {})
        moment = float(told.get("timestamp") or 0.0)
    except (OSError, ValueError, TypeError, KeyError):
        return []
    # The agent's own exception only tells that a rank failed, with a table of which.
    return [] if "ChildFailedError" in text else [_of_text(text.strip().splitlines()[-1], moment, None)]


def _of_exit(code: int) -> Event | None:
    """Return what an exit code tells: a signal above 128."""
    name = _SIGNALS.get(code - 128)
    return None if name is None else event_of(CAUSE[name], f"ended by signal {code - 128}", signal=code - 128)


def _of_silent_end(ranks: Ranks) -> Event | None:
    """Return that one rank was gone before all others, without a word of its own: then it was mostly killed."""
    rank = ranks.first_gone()
    text = "ended without a word"
    return None if rank is None else event_of(CAUSE["process_killed"], text, rank=rank.number, pid=rank.pid)


def _better(one: Event | None, other: Event | None) -> Event | None:
    if one is None or other is None:
        return one or other
    return other if other.fields["level"] < one.fields["level"] else one


def _rank_of(root: Event | None, events: Sequence[Event], ranks: Ranks) -> int | None:
    """Return the rank that began it: what the cause says of it, else who said the same, else who died first."""
    told = None if root is None else _told_rank(root, events, ranks)
    if told is not None:
        return told
    launcher = [event for event in events if event.fields.get("cause") == "child_failed" and "rank" in event.fields]
    if launcher:
        return int(launcher[0].fields["rank"])
    died = ranks.first_gone()
    if died is not None:
        return died.number
    found = list(ranks)
    return found[0].number if len(found) == 1 and found[0].identity.world_size == 1 else None


def _told_rank(root: Event, events: Sequence[Event], ranks: Ranks) -> int | None:
    """Return the rank that an event names: by its number, its process, its place on the node, or in another's words."""
    if isinstance(root.fields.get("rank"), int):
        return int(root.fields["rank"])
    pid, local = root.fields.get("pid"), root.fields.get("local_rank")
    for rank in ranks:
        if (pid is not None and rank.pid == pid) or (local is not None and rank.identity.local_rank == local):
            return rank.number
    for event in events:
        if event.fields.get("cause") == root.fields["cause"] and isinstance(event.fields.get("rank"), int):
            return int(event.fields["rank"])
    return None


def _sentence(cause: str, rank: int | None, fields: dict[str, Any]) -> str:
    who = "" if rank is None else f"rank {rank}: "
    return f"{who}{cause}: {fields.get('text', '')}"[:_LONGEST_TEXT]
