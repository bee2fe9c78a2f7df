"""What the kernel's log says during an attempt: processes killed for memory, and devices with fatal errors.

Where the log may not be read (it takes root, or CAP_SYSLOG), the count of kills in the own control group still tells
of the memory limit of a job or container.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trainvitals.devices.nvidia.xids import describe
from trainvitals.follow.errors import CAUSE
from trainvitals.host.kernel_events import Parser
from trainvitals.host.kmsg import KernelLog
from trainvitals.supervise.cause import event_of
from trainvitals.telemetry import Event

#: Actions of the table of XIDs after which a device cannot be used before somebody has done them.
UNUSABLE = frozenset({"reset_gpu", "reboot_node", "replace_gpu", "run_diagnostics"})
_KILLED = re.compile(r"Kill(?:ed)? process (\d{1,10})")
_COUNT = re.compile(r"^oom_kill (\d{1,18})$", re.MULTILINE)


@dataclass(frozen=True)
class Fault:
    """A device that cannot be used any more: where it is (PCI address), since when, and what the kernel said."""

    address: str
    time: float
    text: str


class Kernel:
    """Reads the kernel's log from ``since`` (wall time) on; ``memory_events`` are files with counts of kills."""

    def __init__(
        self,
        log: KernelLog,
        *,
        since: float,
        memory_events: Iterable[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._log, self._since, self._clock = log, since, clock
        self._parser = Parser()
        self._memory_events = tuple(memory_events)
        self._kills = self._count_kills()
        self._killed: list[tuple[float, int, str]] = []
        self.faults: list[Fault] = []

    def poll(self) -> None:
        """Read what is new."""
        for record in self._log.poll():
            event = self._parser.parse(record.text)
            if event is None or record.time < self._since:
                continue
            if event.kind in {"oom_kill", "cgroup_oom_kill"}:
                found = _KILLED.search(record.text)
                self._killed.append((record.time, int(found[1]) if found else 0, record.text))
            elif event.kind == "fallen_off_bus":
                self.faults.append(Fault(event.place, record.time, record.text))
            elif event.kind == "xid":
                row = describe(event.code, event.text)
                if row.severity == "critical" and row.action in UNUSABLE:
                    self.faults.append(Fault(event.place, record.time, f"Xid {event.code}: {row.meaning}"))

    def events(self, pids: Iterable[int], *, was_killed: bool) -> list[Event]:
        """Return what explains an end: kills of these processes; ``was_killed`` says that one ended by SIGKILL."""
        known = set(pids)
        found = [
            event_of(CAUSE["host_out_of_memory"], text, time=moment, pid=pid)
            for moment, pid, text in self._killed
            if pid in known
        ]
        kills = self._count_kills()
        if was_killed and not found and kills > self._kills:
            text = f"the memory limit of the control group was reached: {kills - self._kills} kills"
            found.append(event_of(CAUSE["host_out_of_memory"], text, time=self._clock()))
        return found

    def _count_kills(self) -> int:
        total = 0
        for path in self._memory_events:
            with contextlib.suppress(OSError), open(path, encoding="ascii", errors="replace") as file:
                total += sum(int(count) for count in _COUNT.findall(file.read(4096)))
        return total

    def close(self) -> None:
        """Close the log."""
        self._log.close()


def memory_events(own: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> list[str]:
    """Return the file that counts the kills in the own control group (version 2); none where there is none."""
    try:
        with open(own, encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("0::"):
                    return [f"{root}{line[3:].strip().rstrip('/')}/memory.events"]
    except OSError:
        return []
    return []
