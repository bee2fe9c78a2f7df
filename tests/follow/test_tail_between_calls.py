"""Whatever becomes of a log between any two of the reader's calls to the system, nothing is lost and nothing twice."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import os
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.follow import beside, opened, tail
from trainvitals.follow.opened import Position
from trainvitals.follow.tail import Begin, Tail

#: What a writer and its log rotation do, one after the other: see :class:`Writer`.
COPIED = "line copy half whole empty"
RENAMED = "line rename line create"
PACKED = "pack packed remove"
LIVES = {
    "copied": f"{COPIED} line",
    "copied twice": f"{COPIED} {COPIED} line",
    "copied three times": f"{COPIED} {COPIED} {COPIED} line",
    "copied with little in it": f"copy whole empty piece rest {COPIED} piece rest",
    "copied in the middle of a line": f"piece copy whole empty rest {COPIED} line",
    "renamed": f"{RENAMED} line",
    "renamed twice": f"{RENAMED} {RENAMED} line",
    "renamed, then copied": f"{RENAMED} {COPIED} line",
    "copied, then renamed": f"{COPIED} {RENAMED} line",
    "copied and packed": f"{COPIED} {PACKED} line",
    "copied and packed twice": f"{COPIED} {PACKED} {COPIED} {PACKED} line",
    "renamed and packed": f"{RENAMED} line {PACKED} line",
    "all of it": f"{COPIED} {RENAMED} {RENAMED} {COPIED} {PACKED} line",
}
#: About as many calls as a poll makes at a rotation.
MOST_CALLS = 24


class Writer:
    """A program that writes a log, and its rotation.  Each action is one change of the file system, with its time."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "train.log")
        self.said = ""
        self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115
        self._now = 10**18
        self._lines = self._count = 0
        self._aside = ""
        self.line()

    def close(self):
        """Give the file back."""
        self._file.close()

    def line(self):
        """Write a whole line."""
        self.piece()
        self.rest()

    def piece(self):
        """Write the begin of a line."""
        self._write(f"iter {self._lines}")

    def rest(self):
        """Write the end of a line that was begun."""
        self._write(": loss 2.5000, time 250.00ms, mfu 30.00%\n")
        self._lines += 1

    def copy(self):
        """Begin a copy: it is empty."""
        self._put_aside()
        open(self._aside, "wb").close()
        self._stamp(self._aside)

    def half(self):
        """Copy half of what is there."""
        self._copy(2)

    def whole(self):
        """Copy all that is there."""
        self._copy(1)

    def empty(self):
        """Empty the log, in place."""
        self._file.truncate(0)
        self._stamp(self._file.fileno())

    def rename(self):
        """Put the log aside; what is written goes there still."""
        self._put_aside()
        os.rename(self.path, self._aside)

    def create(self):
        """Begin a new file where the log was."""
        self._file.close()
        self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115
        self._stamp(self.path)

    def pack(self):
        """Begin to compress what was put aside last."""
        self._pack(2)

    def packed(self):
        """Compress the rest of it, and give the archive its time."""
        self._pack(1)
        changed = os.stat(self._aside).st_mtime_ns
        os.utime(f"{self._aside}.gz", ns=(changed, changed))

    def remove(self):
        """Remove what was compressed."""
        os.unlink(self._aside)

    def _write(self, text):
        self._file.write(text.encode())
        self.said += text
        self._stamp(self._file.fileno())

    def _put_aside(self):
        self._count += 1
        self._aside = f"{self.path}.{self._count}"

    def _copy(self, part):
        with open(self.path, "rb") as source, open(self._aside, "r+b") as copy:
            text = source.read()
            copy.write(text[: len(text) // part])
        self._stamp(self._aside)

    def _pack(self, part):
        with open(self._aside, "rb") as source, open(f"{self._aside}.gz", "wb") as archive:
            text = gzip.compress(source.read(), mtime=0)
            archive.write(text[: len(text) // part])

    def _stamp(self, file):
        # The clock of a file system may not go on between two of these.
        self._now += 10**9
        os.utime(file, ns=(self._now, self._now))


class Calls:
    """Stands for the module ``os``: lets something happen before each call that looks at files."""

    def __init__(self, happen):
        self._happen = happen

    def __getattr__(self, name):
        known = getattr(os, name)
        if name not in {"stat", "open", "fstat", "pread", "scandir"}:
            return known

        def call(*arguments):
            self._happen()
            result = known(*arguments)
            return self._entries(result) if name == "scandir" else result

        return call

    @contextlib.contextmanager
    def _entries(self, entries):
        with entries:
            yield (_Entry(entry, self._happen) for entry in entries)


class _Entry:
    def __init__(self, entry, happen):
        self._entry, self._happen = entry, happen
        self.name, self.is_symlink = entry.name, entry.is_symlink

    def stat(self):
        self._happen()
        return self._entry.stat()


def live(folder, life, gaps, restarts=()):
    """Return what was read of a log and what its program wrote.

    Before each action of the writer, the reader makes so many calls; after these polls it is started again.
    """
    writer = Writer(folder)
    todo = list(zip(life.split(), gaps, strict=True))
    left = todo[0][1]

    def happen():
        nonlocal left
        while todo and not left:
            getattr(writer, todo.pop(0)[0])()
            left = todo[0][1] if todo else 0
        left -= bool(todo)

    found = b""
    reader = Tail(writer.path)
    found += b"".join(piece for piece in reader.read(1 << 30) if not isinstance(piece, Begin))
    with pytest.MonkeyPatch.context() as patch:
        for module in (tail, opened, beside):
            patch.setattr(module, "os", Calls(happen))
        more = 4
        for poll in itertools.count(1):
            try:
                for piece in reader.read(1 << 30):
                    found += b"" if isinstance(piece, Begin) else piece
                if poll in restarts:
                    position = json.loads(json.dumps(reader.position()))
                    reader.close()
                    reader = Tail(writer.path, Position.of(position))
                    if reader.open():
                        for _ in reader.again(1 << 20):
                            pass
            except FileNotFoundError:
                pass
            except (OSError, EOFError, zlib.error):
                # An archive that is not whole yet: as the reader of a log does it.
                reader.close()
            more -= not todo
            if not more:
                break
    reader.close()
    writer.close()
    for name in os.listdir(folder):
        os.unlink(os.path.join(folder, name))
    return found.decode(), writer.said


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return an empty folder; it is empty again after each life."""
    return str(tmp_path_factory.mktemp("lives"))


@pytest.mark.parametrize("restarts", [(), (1,)])
@pytest.mark.parametrize("life", ["copied", "renamed", "renamed, then copied", "copied and packed"])
def test_a_pause_before_each_action(folder, life, restarts):
    """The rotation goes on at any call, all of it at once before and all of it at once behind."""
    actions = len(LIVES[life].split())
    for place in range(actions):
        for calls in range(MOST_CALLS):
            gaps = [calls if action == place else 0 for action in range(actions)]
            found, said = live(folder, LIVES[life], gaps, restarts)
            assert found == said, (place, calls)


@pytest.mark.parametrize("calls", range(MOST_CALLS))
def test_emptied_while_it_is_opened_after_a_restart(folder, calls):
    """A copy is read once, whenever its original is emptied: also after the original was opened, and its begin seen."""
    found, said = live(folder, COPIED + " line", [0, 0, 0, 0, calls, 0], restarts=(1,))

    assert found == said


@given(data=st.data())
def test_any_pauses(folder, data):
    """Each action comes before any call, and the reader is started again after any polls."""
    life = LIVES[data.draw(st.sampled_from(sorted(LIVES)))]
    actions = len(life.split())
    gaps = data.draw(st.lists(st.integers(0, 2 * MOST_CALLS), min_size=actions, max_size=actions))
    restarts = data.draw(st.sets(st.integers(1, 12)))

    found, said = live(folder, life, gaps, restarts)

    assert found == said
