"""Keeps what an incident looked like, in a folder of its own: stacks, the last lines, the flight recorder's dumps.

Sizes are bounded, and of the folders the newest stay.  Nothing here may take longer than a restart is worth.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict

from trainvitals.probe import stacks
from trainvitals.supervise import processes
from trainvitals.supervise.cause import Failure
from trainvitals.supervise.watch import Rank

#: Bytes of one file, bytes of the dumps of all ranks, and folders.
_LARGEST, _LARGEST_DUMPS, FOLDERS = 1 << 20, 64 << 20, 20
_MOST_RANKS = 64
#: Seconds for py-spy on one process, for all of them, and for faulthandler to answer.
_ONE, _ALL, _ANSWER = 10.0, 60.0, 2.0
#: Variables that name where PyTorch dumps what its flight recorder holds; the rank is put behind it.
FLIGHT_RECORDER = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_BUFFERS = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
#: A pipe of each rank: whoever writes into it asks for a dump now.
_PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"


class Evidence:
    """The folder of one incident below ``parent``; it is made by the first file."""

    def __init__(self, parent: str, name: str, *, tool: str | None = None) -> None:
        self.folder = os.path.join(parent, name)
        self._parent = parent
        self._tool = shutil.which("py-spy") if tool is None else tool

    def write(self, name: str, data: bytes) -> None:
        """Keep the end of a text under a name; a full disk loses it."""
        with contextlib.suppress(OSError):
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            with open(os.path.join(self.folder, name), "wb") as file:
                file.write(data[-_LARGEST:])

    def keep_failure(self, failure: Failure, decided: Mapping[str, object]) -> None:
        """Keep what was found out, as JSON."""
        document = {**asdict(failure), **decided}
        self.write("incident.json", json.dumps(document, indent=1, default=str).encode())
        _keep_newest(self._parent)

    def keep_lines(self, lines: Iterable[bytes]) -> None:
        """Keep the last lines of the output."""
        self.write("output.txt", b"\n".join(lines) + b"\n")

    def keep_stacks(self, ranks: Sequence[Rank], answers: str) -> None:
        """Ask live ranks where they are: py-spy, else what the probe registered; files of that lie in ``answers``."""
        live = [rank for rank in ranks if rank.pid and processes.state(rank.pid)][:_MOST_RANKS]
        for rank in live:
            self.write(f"rank-{rank.number}.txt", self._stacks(rank, answers))

    def _stacks(self, rank: Rank, answers: str) -> bytes:
        pid = rank.pid or 0
        head = (
            f"rank {rank.number}, process {pid}, state {processes.state(pid)}, phase {rank.phase}, step {rank.step}\n"
        )
        head += f"kernel: {_read(f'/proc/{pid}/wchan') or '-'}\n\n"
        text = b""
        if self._tool:
            text = _py_spy(self._tool, pid)
        if not text:
            text = _ask(pid, os.path.join(answers, f"{pid}{stacks.ENDING}"))
        return head.encode() + (text or b"no stack: py-spy is not installed, or the process does not answer\n")

    def keep_dumps(self, environ: Mapping[str, str], since: float) -> None:
        """Keep the dumps of the flight recorder that were written since a wall time."""
        left = _LARGEST_DUMPS
        for prefix in {environ[name] for name in FLIGHT_RECORDER if environ.get(name)}:
            folder, begin = os.path.split(os.path.abspath(prefix))
            with contextlib.suppress(OSError):
                for name in sorted(os.listdir(folder)):
                    path = os.path.join(folder, name)
                    size = os.path.getsize(path)
                    if name.startswith(begin) and os.path.getmtime(path) >= since and 0 < size <= left:
                        left -= size
                        os.makedirs(self.folder, mode=0o700, exist_ok=True)
                        shutil.copyfile(path, os.path.join(self.folder, f"flight-recorder-{name[-80:]}"))


def ask_for_dumps(environ: Mapping[str, str], ranks: Iterable[Rank], sleep: Callable[[float], None]) -> None:
    """Ask PyTorch for dumps of the flight recorder, where its pipes are there, and give it a moment."""
    stem, asked = environ.get(_PIPE), False
    for rank in ranks if stem else ():
        with contextlib.suppress(OSError):
            path = f"{stem}{rank.number}.pipe"
            if stat.S_ISFIFO(os.stat(path).st_mode):
                descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                try:
                    asked = os.write(descriptor, b"1") > 0 or asked
                finally:
                    os.close(descriptor)
    if asked:
        sleep(_ANSWER)


def recorder_environment(environ: Mapping[str, str], folder: str) -> dict[str, str]:
    """Return where dumps shall go, where the flight recorder is switched on and nobody has said where."""
    wanted = any(environ.get(name, "0") not in {"", "0"} for name in _BUFFERS)
    if not wanted or any(environ.get(name) for name in FLIGHT_RECORDER):
        return {}
    return dict.fromkeys(FLIGHT_RECORDER, os.path.join(folder, "flight_recorder_"))


def _py_spy(tool: str, pid: int) -> bytes:
    try:
        # A stopped process cannot be paused once more.
        done = subprocess.run(
            [tool, "dump", "--nonblocking", "--pid", str(pid)], capture_output=True, timeout=_ONE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return done.stdout if done.returncode == 0 else b""


def _ask(pid: int, path: str) -> bytes:
    """Send the probe's signal to a process that has registered for it, and return what it answers."""
    try:
        before = os.path.getsize(path)
    except OSError:
        return b""  # Without a handler, the signal would end it.
    if processes.state(pid) in {"T", "t"}:
        return b"it is stopped, and cannot answer\n"
    processes.send(pid, stacks.SIGNAL)
    deadline = time.monotonic() + _ANSWER
    size, last = before, -1
    while time.monotonic() < deadline and (size == before or size != last):
        time.sleep(0.05)
        last, size = size, os.path.getsize(path)
    with open(path, "rb") as file:
        file.seek(before)
        return file.read(_LARGEST)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(256).strip()
    except OSError:
        return ""


def _keep_newest(parent: str) -> None:
    with contextlib.suppress(OSError):
        folders = [os.path.join(parent, name) for name in os.listdir(parent)]
        for old in sorted(folders, key=os.path.getmtime)[:-FOLDERS]:
            shutil.rmtree(old, ignore_errors=True)
