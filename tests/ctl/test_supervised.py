"""What the supervisor is told of an order, and whose ranks a command speaks to."""

from __future__ import annotations

import os

import pytest

from trainvitals.ctl import supervised
from trainvitals.steer import steering
from trainvitals.steer.giving import NotDoneError
from trainvitals.steer.ranks import Rank
from trainvitals.supervise import wishes
from trainvitals.supervise.wishes import Wish


class Slow:
    """A giver that does not hear that its order was obeyed."""

    def __init__(self, *, is_under_way):
        self.is_under_way = is_under_way

    def give(self, *_):
        """Give up to wait."""
        raise NotDoneError("rank 0 has ended, or has not said in 60 s that it is done")


@pytest.mark.parametrize("is_under_way", [True, False])
def test_a_run_that_saves_for_longer_than_was_waited_is_released_all_the_same(tmp_path, monkeypatch, is_under_way):
    """Else it would stop as ordered, and its supervisor would think that it has finished."""
    monkeypatch.setattr(supervised.state, "holder", lambda _: 1)
    one = supervised.Supervised("test", str(tmp_path))
    with pytest.raises(NotDoneError):
        one.end(Slow(is_under_way=is_under_way), Wish(what="release", time=100.0))
    assert (wishes.take(str(tmp_path), now=101.0) is not None) == is_under_way


def test_a_stranger_cannot_join_a_run_to_keep_its_owner_from_it():
    """In a spool that all users share, anybody can write a file with the name of any run."""
    own, other = Rank("a.rank", "test", 0, os.getuid(), 1), Rank("b.rank", "test", 7, os.getuid() + 1, 9000)
    assert steering.own([own, other]) == [own]
    assert steering.own([other]) == [other]
