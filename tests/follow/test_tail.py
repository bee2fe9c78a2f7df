"""The life of a log: nothing lost and nothing twice, whatever becomes of the file."""

from __future__ import annotations

import gzip
import os
import shutil

import pytest

from trainvitals.follow.opened import Position
from trainvitals.follow.tail import Begin, Tail

ALL = 1 << 30


def read(tail, limit=ALL, *, final=False):
    """Return what is new as text, with "|" where it begins anew."""
    return "".join("|" if isinstance(piece, Begin) else piece.decode() for piece in tail.read(limit, final=final))


def append(path, text):
    """Write to the end of a file."""
    with path.open("a") as file:
        file.write(text)


@pytest.fixture
def log(tmp_path):
    """Return the path of a log with three lines."""
    path = tmp_path / "train.log"
    path.write_text("one 1111\ntwo 2222\nthree 3333\n")
    return path


def test_what_is_appended_comes_once(log):
    """Each poll gives what was added since the last one."""
    tail = Tail(str(log))

    assert read(tail) == "one 1111\ntwo 2222\nthree 3333\n"
    assert read(tail) == ""
    append(log, "four\n")
    assert read(tail) == "four\n"


def test_the_limit_holds(log):
    """A poll reads no more bytes than it may, and the rest is known to be unread."""
    tail = Tail(str(log))

    assert read(tail, 10) == "one 1111\nt"
    assert tail.unread == 19
    assert read(tail) == "wo 2222\nthree 3333\n"


def test_renamed_and_begun_anew(log):
    """The last lines before the rename, and those that the program writes until it opens the new file, are read."""
    tail = Tail(str(log))
    read(tail)
    append(log, "four\n")
    old = log.rename(log.with_name("train.log.1"))
    log.write_text("five\n")

    assert read(tail) == "four\n"
    append(old, "late\n")
    assert read(tail) == "late\n|five\n"


def test_renamed_and_not_there_yet(log):
    """Until there is a new file, the old one is read on."""
    tail = Tail(str(log))
    read(tail)
    old = log.rename(log.with_name("train.log.1"))
    append(old, "four\n")

    assert read(tail) == "four\n"
    log.write_text("five\n")
    assert read(tail) + read(tail) == "|five\n"


def test_copied_and_truncated(log):
    """What was added before the copy is read from the copy."""
    tail = Tail(str(log))
    read(tail)
    append(log, "four\n")
    shutil.copy(log, log.with_name("train.log.1"))
    log.write_text("")
    append(log, "five\n")

    assert read(tail) == "four\n|five\n"


def test_copied_truncated_and_longer_than_before(log):
    """A file that grew past the old place is known by what stands before it."""
    tail = Tail(str(log))
    read(tail)
    shutil.copy(log, log.with_name("train.log.1"))
    log.write_text("other\n" * 20)

    assert read(tail) == "|" + "other\n" * 20


def test_rotated_twice_between_two_polls(log):
    """A file that came and went is read as well."""
    tail = Tail(str(log))
    read(tail)
    log.rename(log.with_name("train.log.2"))
    between = log.with_name("train.log.1")
    between.write_text("between\n")
    os.utime(between, ns=(2_000_000_000 * 10**9, 2_000_000_000 * 10**9))
    log.write_text("new\n")

    assert read(tail, final=True) == "|between\n|new\n"


def test_written_again(log):
    """A file with other bytes before the place begins anew."""
    tail = Tail(str(log))
    read(tail)
    log.write_text("one 1111,\ntwo 2222,\nthree 3333,\nfour,\n")

    assert read(tail) == "|one 1111,\ntwo 2222,\nthree 3333,\nfour,\n"


def test_goes_on_after_a_restart(log):
    """A position leads to the place where the reading ended."""
    tail = Tail(str(log))
    read(tail, 9)
    tail = Tail(str(log), tail.position())

    assert read(tail) == "two 2222\nthree 3333\n"


def test_a_position_that_an_older_version_saved(log):
    """It says nothing of the file before, and leads to its place still."""
    tail = Tail(str(log))
    read(tail, 9)
    saved = list(tail.position())[:5]

    assert read(Tail(str(log), Position.of(saved))) == "two 2222\nthree 3333\n"


@pytest.mark.parametrize("is_copied", [False, True])
def test_goes_on_after_a_restart_in_a_file_that_was_rotated_meanwhile(log, is_copied):
    """The rest of the old file is found beside the new one, by its inode or by its contents."""
    tail = Tail(str(log))
    read(tail, 9)
    position = tail.position()
    tail.close()
    if is_copied:
        shutil.copy(log, log.with_name("train.log.1"))
        log.write_text("new\n")
    else:
        log.rename(log.with_name("train.log.1"))
        log.write_text("new\n")

    assert read(Tail(str(log), position)) == "two 2222\nthree 3333\n|new\n"


def test_a_rest_that_was_compressed_is_found(log):
    """A rotated log that was compressed while the exporter was down is read from its archive."""
    tail = Tail(str(log))
    read(tail, 9)
    position = tail.position()
    with gzip.open(log.with_name("train.log.1.gz"), "wb") as file:
        file.write(log.read_bytes())
    log.unlink()
    log.write_text("new\n")

    assert read(Tail(str(log), position)) == "two 2222\nthree 3333\n|new\n"


def test_closed_and_opened_again(log):
    """A file that was closed because it was at rest goes on when it grows."""
    tail = Tail(str(log))
    read(tail)
    tail.close()

    assert read(tail) == ""
    append(log, "four\n")
    assert read(tail) == "four\n"


def test_closed_in_the_middle(log):
    """A file that was closed with something unread goes on without having grown."""
    tail = Tail(str(log))
    read(tail, 9)
    tail.close()

    assert read(tail) == "two 2222\nthree 3333\n"


def test_an_archive_is_its_text(tmp_path):
    """A log compressed by gzip is read as text, whatever it is called, piece by piece."""
    path = tmp_path / "train.log.gz"
    path.write_bytes(gzip.compress(b"alpha\n") + gzip.compress(b"beta\n"))
    tail = Tail(str(path))

    assert read(tail, 3) == "alp"
    position = tail.position()
    assert read(tail) == "ha\nbeta\n"
    assert tail.unread == 0
    assert read(Tail(str(path), position)) == "ha\nbeta\n"


def test_a_damaged_archive_is_an_error(tmp_path):
    """It is no end of the log that could be mistaken for one."""
    path = tmp_path / "train.log.gz"
    path.write_bytes(gzip.compress(os.urandom(1 << 12))[:-20])

    with pytest.raises(EOFError):
        read(Tail(str(path)))


def test_no_regular_file_is_an_error(tmp_path):
    """A pipe does not block, and a folder is none."""
    os.mkfifo(tmp_path / "pipe")

    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(OSError, match="regular"):
            read(Tail(str(path)))


def test_copied_and_emptied_before_anything_was_read(log):
    """A file whose begin was seen, and that was copied and emptied before its turn came, is read from the copy."""
    tail = Tail(str(log))
    read(tail)
    log.rename(log.with_name("train.log.1"))
    log.write_text("four\nfive\n")
    read(tail)
    assert read(tail, 0) == ""
    shutil.copy(log, log.with_name("train.log.2"))
    os.truncate(log, 0)
    append(log, "six\n")

    assert read(tail) == "|four\nfive\n|six\n"


def test_copied_twice_and_renamed_before_anybody_looked(log):
    """Each of the files that came and went between two polls is read once, in their order."""
    tail = Tail(str(log))
    read(tail)
    append(log, "four\n")
    stamp = log.stat().st_mtime_ns
    for number, text in ((1, "five\n"), (2, "six\n")):
        copy = log.with_name(f"train.log.{number}")
        shutil.copy(log, copy)
        os.utime(copy, ns=(stamp + number, stamp + number))
        log.write_text(text)
    os.utime(log, ns=(stamp + 3, stamp + 3))
    log.rename(log.with_name("train.log.3"))
    log.write_text("seven\n")

    found = read(tail)
    found += read(tail) + read(tail)

    assert found.replace("|", "") == "four\nfive\nsix\nseven\n"


@pytest.mark.parametrize("read_before", [0, 29])
def test_emptied_and_longer_again_while_it_is_read(log, read_before):
    """A file that is emptied after it was looked at is not read in the middle of what was written since."""
    tail = Tail(str(log))
    assert len(read(tail, read_before)) == read_before
    append(log, "four\n" * 300_000)
    pieces = tail.read(ALL)
    first = next(pieces)
    shutil.copy(log, log.with_name("train.log.1"))
    log.write_text("five\n" * 400_000)

    rest = b"".join(b"|" if isinstance(piece, Begin) else piece for piece in pieces)

    old = b"one 1111\ntwo 2222\nthree 3333\n"[read_before:] + b"four\n" * 300_000
    assert first + rest == old + b"|" + b"five\n" * 400_000


@pytest.mark.parametrize("begin", ["", "five\n", "five\n" * 20])
def test_emptied_while_it_is_read_again(log, begin):
    """What was read before a restart is read again from a copy, and what follows is read on from its end."""
    tail = Tail(str(log))
    read(tail, 24)
    tail = Tail(str(log), tail.position())
    assert tail.open()
    shutil.copy(log, log.with_name("train.log.1"))
    log.write_text(begin)

    assert b"".join(tail.again(12)) == b"three "
    assert read(tail) == "3333\n|" + begin


def test_emptied_without_a_copy_while_it_is_read_again(log):
    """What was read before a restart and is nowhere any more is not read again, and the log begins anew."""
    tail = Tail(str(log))
    read(tail, 24)
    tail = Tail(str(log), tail.position())
    assert tail.open()
    log.write_text("five\n")

    assert b"".join(tail.again(12)) == b""
    assert read(tail) == "|five\n"


@pytest.mark.parametrize(("size", "text"), [(0, ""), (5, ""), (6, "three "), (14, "three "), (15, "two 2222\nthree ")])
def test_what_was_read_is_read_again_from_the_begin_of_a_line(log, size, text):
    """However many bytes, what comes begins with a line, and reading goes on where it ended."""
    tail = Tail(str(log))
    read(tail, 24)

    assert b"".join(tail.again(size)).decode() == text
    assert read(tail) == "3333\n"


def test_a_copy_whose_original_is_not_emptied_yet_comes_once(log):
    """Renamed once, then copied: the copy and the new file say the same until the new one is emptied."""
    tail = Tail(str(log))
    read(tail)
    old = log.rename(log.with_name("train.log.1"))
    os.utime(old, (1.0, 1.0))
    log.write_text("four 4444\nfive 5555\n")
    shutil.copy(log, log.with_name("train.log.2"))

    assert read(tail) + read(tail) == "|four 4444\nfive 5555\n"
    append(log, "six\n")
    assert read(tail) == "six\n"
    log.write_text("")
    read(tail)
    append(log, "seven\n")
    assert read(tail).removeprefix("|") == "seven\n"


def test_parts_of_a_log_that_begin_and_end_alike_are_told_apart_after_a_restart(tmp_path):
    """A table of one width, rotated at the same length: the part before is no copy of the one that was read."""
    log = tmp_path / "train.log"
    head, end = "epoch loss\n" * 8, "100%|#####| 8/8\n" * 8
    parts = [f"{head}{number:08d}\n{end}" for number in range(3)]
    log.write_text(parts[0])
    tail = Tail(str(log))
    assert read(tail) == parts[0]
    shutil.copy(log, tmp_path / "train.log.1")
    os.truncate(log, 0)
    assert read(tail) == "|"
    append(log, parts[1])
    assert read(tail) == parts[1]
    position = tail.position()
    tail.close()
    shutil.copy(log, tmp_path / "train.log.2")
    os.truncate(log, 0)
    again = Tail(str(log), position)
    assert read(again) == "|"
    append(log, parts[2])
    assert read(again) == parts[2]
