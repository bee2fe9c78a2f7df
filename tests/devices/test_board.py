"""What is known of a vendor's devices: times, whatever the clock of the node does."""

from __future__ import annotations

import pytest

from trainvitals.devices.board import Board
from trainvitals.telemetry import DeviceSample


class Clocks:
    """A time since the boot and a time of day that tests set."""

    def __init__(self):
        self.monotonic = 500.0
        self.wall = 1_000_500.0

    def wait(self, seconds):
        """Let time go by."""
        self.monotonic += seconds
        self.wall += seconds


@pytest.fixture
def clocks():
    """Both at their beginning."""
    return Clocks()


@pytest.fixture
def board(clocks):
    """A board with a device that was lost 10 s ago."""
    board = Board("nvidia", fresh=60.0, expected=None, clock=lambda: clocks.monotonic, wall=lambda: clocks.wall)
    device = DeviceSample(index=0, uuid="U", vendor="nvidia")
    board.read([device], 1, ())
    clocks.wait(5.0)
    board.read([device.down("lost")], 1, ())
    clocks.wait(10.0)
    return board


def down_since(board):
    """Return since when the device is down."""
    return board.latest().devices[0].down_since


@pytest.mark.parametrize("step", [-3600.0, 3600.0, -2.0])
def test_a_clock_that_is_set_takes_the_times_along(board, clocks, step):
    """A device that was lost 10 s ago was lost 10 s ago, although the time of day was an hour wrong then."""
    assert down_since(board) == 1_000_505.0
    clocks.wall += step

    assert down_since(board) == 1_000_505.0 + step
    assert board.latest().up
    assert board.latest().age == 10.0


def test_a_clock_that_drifts_does_not_move_the_times(board, clocks):
    """A series that changes a little with each scrape is none that stays."""
    for _ in range(9):
        clocks.wall += 0.1
        assert down_since(board) == 1_000_505.0
