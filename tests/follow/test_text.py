"""Cleaning of lines, prefixes of ranks, times."""

from __future__ import annotations

import time

import pytest

from trainvitals.follow.text import clean, timestamp, timestamps, unprefixed


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"plain\n", b"plain\n"),
        (b"\x1b[31mstep: 5\x1b[0m  loss\x1b[38;2;180;60;0m 2\n", b"step: 5  loss 2\n"),
        (b"\x1b]0;a title\x07x\x1b]8;;http://x\x1b\\y\n", b"xy\n"),
        (b"10%\r20%\r\nend\r\n", b"10%\n20%\nend\n"),
        (b"1/5 a\b\b\b\b\b2/5 b\n", b"1/5 a\n2/5 b\n"),
        (b"\0\0\0after a hole\n", b"after a hole\n"),
    ],
)
def test_clean(raw, text):
    """Colours, titles and NULs go; every drawing of a bar is a line."""
    assert clean(raw) == text


@pytest.mark.parametrize(
    ("line", "rank", "rest"),
    [
        ("[rank12]: step: 7", 12, "step: 7"),
        ("[default3]:[Rank 0] x", 0, "x"),
        ("5: loss", 5, "loss"),
        ("slurm_procid 6 : {}", 6, "{}"),
        ("(TaskRunner pid=71) step:3", None, "step:3"),
        ("(RayTrainWorker pid=8, ip=10.0.0.4) 2: x", 2, "x"),
        ("iter 5: loss 2", None, "iter 5: loss 2"),
        ("2025-02-11 08:14:02 5: x", None, "2025-02-11 08:14:02 5: x"),
        ("[2025-02-11 08:14:02] x", None, "[2025-02-11 08:14:02] x"),
        ("", None, ""),
    ],
)
def test_prefixes(line, rank, rest):
    """Prefixes of launchers are cut off, one behind the other; what only looks like one stays."""
    assert unprefixed(line) == (rank, rest)


def test_times_with_an_offset():
    """A stamp that says its offset is the same everywhere."""
    assert timestamp("2024-04-06T02:59:36.250Z") == 1712372376.25
    assert timestamp("at 2024/04/06 04:59:36,5+02:00 x") == 1712372376.5
    assert timestamp("2024-04-05 22:29:36-0430") == 1712372376.0


def test_local_times():
    """A stamp without one is the local time of this machine."""
    expected = time.mktime((2024, 4, 6, 2, 59, 36, 0, 0, -1))
    assert timestamp("[2024-04-06 02:59:36,125] x") == expected + 0.125


@pytest.mark.parametrize("text", ["", "2024-13-40 02:59:36", "2024-04-06", "12:00:00", "2024-04-06 99:99:99"])
def test_what_is_no_time(text):
    """No stamp, and one that cannot be, are None."""
    assert timestamp(text) is None


@pytest.mark.parametrize(
    "stamps",
    [
        ["[2024-04-06T02:59:36.250Z] a", "[2024-04-06T03:00:01.125Z] a", "[2024-04-06T03:00:01.500Z] a"],
        ["2024-04-06 02:59:36,250", "2024-04-06 02:59:37,250", "2024-04-06 02:59:38,5"],
        ["2024-04-06 02:59:36", "no stamp at all here", "2024-04-06 02:59:38"],
        ["2024-04-06 02:59:36+02:00", "2024-04-06 02:59:36+03:00"],
        ["no stamp", "2024-04-06 02:59:38"],
        ["2024-04-06 02:59:36", "2024-04-06 02:59-37", "2024-14-06 02:59:36"],
        ["1. 2024-04-06 02:59:36", "\u0661. 2024-04-06 02:59:36"],
    ],
)
def test_times_of_several_texts(stamps):
    """Each text has the time that it has alone, whether they are alike or not."""
    assert timestamps(stamps) == [timestamp(text) for text in stamps]


@pytest.mark.parametrize("bars", [0, 5, 3000])
def test_line_ends_of_two_characters_behind_bars(bars):
    """They are one line end wherever they stand."""
    assert clean(b"\rx" * bars + b"one\r\ntwo\n\r\nthree\n") == b"\nx" * bars + b"one\ntwo\n\nthree\n"
