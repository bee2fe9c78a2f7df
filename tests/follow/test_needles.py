"""Lines that may matter are found by the words in them."""

from __future__ import annotations

from trainvitals.follow.needles import lines, search
from trainvitals.follow.recent import LONGEST, MOST, Recent


def found(block: bytes, *needles: bytes) -> list[tuple[int, bytes]]:
    """Return the begins of the lines of a block that hold a needle, and the lines."""
    return lines(block, search(block, needles, ())[0])


def test_lines_are_found_with_their_places():
    """Each line that holds a needle comes once, in order, with the place where it begins."""
    block = b"begin\nstep 1 loss: 2.5\n\nsaved at loss: 7\nlossy\nsaved"

    assert found(block, b"loss: ", b"saved") == [(6, b"step 1 loss: 2.5"), (24, b"saved at loss: 7"), (47, b"saved")]
    assert found(b"nothing\nhere\n", b"loss: ", b"saved") == []
    assert found(b"", b"loss: ") == []
    assert found(block) == []


def test_words_that_overlap_are_all_found():
    """A word hides no other one: within it, across its end, or the same one again."""
    assert search(b"a loss is nan", (b"oss", b"is n"), (b"loss is", b"s", b"oss")) == ([3, 7], [4, 3, 5, 2, 8])
    assert search(b"aaa", (b"aa",), (b"aa",)) == ([0, 1], [0, 1])
    assert search(b"\xff\x80loss\xe6\x8d", (), (b"loss", b"\xe6\x8d")) == ([], [2, 6])


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
