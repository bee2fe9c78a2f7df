"""Lines that may matter are found by their shapes, in bounded memory."""

from __future__ import annotations

import random

from trainvitals.follow.needles import Needles
from trainvitals.follow.recent import LONGEST, MOST, Recent
from trainvitals.follow.text import Shapes


def found(needles: Needles, block: bytes) -> list[tuple[int, bytes]]:
    """Return the places and lines of a block that hold a needle."""
    return needles.lines(block, Shapes(block))


def test_lines_are_found_with_their_places():
    """Each line that holds a needle comes once, in order, with the place where it begins."""
    needles = Needles((b"loss: ", b"saved"))
    block = b"begin\nstep 1 loss: 2.5\n\nsaved at loss: 7\nlossy\nsaved"

    for _ in range(2):
        assert found(needles, block) == [(6, b"step 1 loss: 2.5"), (24, b"saved at loss: 7"), (47, b"saved")]
    assert found(needles, b"nothing\nhere\n") == []


def test_numbers_and_blanks_stand_for_each_other():
    """A needle is searched as a shape: what differs in digits, blanks and points only is found, too."""
    assert found(Needles((b"of 10",)), b"1 of 25\n1 of all\n1,of.75\n") == [(0, b"1 of 25"), (17, b"1,of.75")]


def test_a_text_of_which_no_line_comes_again_is_searched_all_the_same():
    """More shapes than are remembered, and lines that are longer than those, cost no line."""
    chance = random.Random(5)
    needles = Needles((b"loss",))
    letters = "abcdefghijklmnoprtuvwxyz"
    for _ in range(6):
        lines = []
        for _ in range(8000):
            word = "".join(
                chance.choices(letters, k=chance.choice((6, 6, 6, 6, 2000 if chance.random() < 0.01 else 7)))
            )
            lines.append((word + chance.choice(("", "", " loss 2.5"))).encode())
        got = [line for _, line in found(needles, b"\n".join(lines))]
        assert got == [line for line in lines if b"loss" in line]


def test_what_comes_again_stays():
    """Of many strings those are forgotten that do not come again; long ones are not kept at all."""
    recent = Recent()
    recent.add({b"again"})
    for number in range(20):
        some = {b"%d/%d" % (number, i) for i in range(3000)} | {b"again"}
        new = recent.new(some)
        assert b"again" not in new
        assert len(new) == 3000
        recent.add(new)
        assert len(recent) <= MOST
    recent.add({b"x" * (LONGEST + 1)})
    assert recent.new({b"x" * (LONGEST + 1), b"0/1"}) == {b"x" * (LONGEST + 1), b"0/1"}
