"""The process that touches file systems, so that the exporter need not: ``python -I -S mount_worker.py``.

It takes a line per probe from standard input, runs each in a thread of its own and writes a line per answer to standard
output.  A thread that a dead server never lets go stays here, and no other is held up by it: the system calls leave the
interpreter's lock.  The process ends with its standard input.  It is run as a script, not as a module, and imports the
least that it can: 9 MiB of resident memory, half of it shared with the exporter.

    probe NUMBER MOUNT ACTIONS PATH         PATH in hexadecimal, ACTIONS of "s" (space), "r" (read) and "w" (write)
    NUMBER SECONDS TROUBLE SIZE AVAILABLE FILES FILES_FREE             the answer; "-" is what there is not
    ping NUMBER                             answered at once with NUMBER alone

TROUBLE is the name of an errno or one of the words below.
"""

from __future__ import annotations

import _thread
import errno
import os
import sys
import time

#: The mount point is a file, as /etc/hosts in a container.
FILE = "FILE"
#: The path leads to another mount, or nowhere.
HIDDEN = "HIDDEN"
#: What was read is not what was written.
DIFFERENT = "DIFFERENT"

_SIZE = 4096
#: Bytes of stack of a thread; the default is 8 MiB.
_STACK = 256 * 1024


class Trouble(Exception):  # noqa: N818  It is what the probe found.
    """A finding that is no error of the operating system."""


def measure(path: bytes, mount: int, actions: str) -> tuple[str, list[int | None]]:
    """Return the trouble, empty without any, and size, available bytes, inodes and free inodes; blocks as it likes."""
    space: list[int | None] = [None] * 4
    try:
        # This descriptor opens nothing: it needs no permission, and no answer of the server that is not asked for.
        folder = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if _mount_of(folder) not in {None, mount}:
                raise Trouble(HIDDEN)
            space = _space(os.fstatvfs(folder))
            if "r" in actions:
                _read(folder)
            if "w" in actions:
                _write(folder)
        finally:
            os.close(folder)
    except Trouble as trouble:
        return str(trouble), space
    except OSError as error:
        known = {errno.ENOTDIR: FILE, errno.ENOENT: HIDDEN}
        name = errno.errorcode.get(error.errno or 0, "EIO")
        return (name if space[0] is not None else known.get(error.errno or 0, name)), space
    return "", space


def _mount_of(folder: int) -> int | None:
    """Return the id of the mount that a descriptor is on, None where the kernel does not tell (proc(5), fdinfo)."""
    try:
        with open(f"/proc/self/fdinfo/{folder}", "rb") as file:
            for line in file.read(4096).split(b"\n"):
                if line.startswith(b"mnt_id:"):
                    return int(line[7:])
    except (OSError, ValueError):
        pass
    return None


def _space(answer: os.statvfs_result) -> list[int | None]:
    size, available = answer.f_blocks * answer.f_frsize, answer.f_bavail * answer.f_frsize
    # A server that has given away more than it has says a negative number, which arrives as a huge one.
    files, files_free = answer.f_files, answer.f_ffree
    return [
        size or None,
        available if size and available <= size else None,
        files or None,
        files_free if files and files_free <= files else None,
    ]


def _read(folder: int) -> None:
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        with os.scandir(descriptor) as entries:
            next(entries, None)
    finally:
        os.close(descriptor)


def _write(folder: int) -> None:
    # Many nodes write to one server.  Removed first: whatever others put in this place is not opened.
    name = f".trainvitals-probe-{os.uname().nodename}"
    data = os.urandom(_SIZE)
    _remove(name, folder)
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
        # Else it would be read from memory.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        if os.pread(descriptor, _SIZE, 0) != data:
            raise Trouble(DIFFERENT)
    finally:
        os.close(descriptor)
        _remove(name, folder)


def _remove(name: str, folder: int) -> None:
    try:  # noqa: SIM105  contextlib would be the largest import.
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass


def _answer(number: bytes, mount: int, actions: str, path: bytes) -> None:
    begun = time.perf_counter()
    try:
        trouble, space = measure(path, mount, actions)
    except BaseException as error:  # A thread that ends without an answer would look stuck for ever.
        trouble, space = type(error).__name__, [None] * 4
    seconds = time.perf_counter() - begun
    numbers = " ".join("-" if value is None else str(value) for value in space)
    _say(f"{number.decode()} {seconds:.6f} {trouble or '-'} {numbers}\n")


def _say(line: str) -> None:
    try:
        # So short a line arrives in one piece (pipe(7)).
        os.write(1, line.encode())
    except OSError:  # Nobody listens any more.
        os._exit(0)


def main() -> None:
    """Serve until standard input ends; whoever is stuck then is left to the kernel."""
    _thread.stack_size(_STACK)
    while line := sys.stdin.buffer.readline():
        word, number, *rest = line.split()
        if word == b"ping":
            _say(f"{number.decode()}\n")
            continue
        mount, actions, path = rest
        try:
            _thread.start_new_thread(_answer, (number, int(mount), actions.decode(), bytes.fromhex(path.decode())))
        except RuntimeError:  # The limit of processes.
            _say(f"{number.decode()} 0 EAGAIN - - - -\n")
    os._exit(0)


if __name__ == "__main__":
    main()
