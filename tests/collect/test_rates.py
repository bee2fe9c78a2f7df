"""What grew within the last minutes."""

from __future__ import annotations

from trainvitals.collect.rates import Window, Windows


def test_only_what_grew_within_the_window_counts():
    """After ten minutes at 1 a second and five at 3 a second, 300 seconds grew by 900."""
    window = Window(300.0)
    value = 0.0
    for second in range(0, 905, 5):
        value += 5.0 if second <= 600 else 15.0
        window.add(float(second), (value, 7.0))

    seconds, (grown, same) = window.grown()

    assert 290.0 <= seconds <= 300.0
    assert grown == seconds * 3.0
    assert same == 0.0


def test_one_reading_tells_no_growth():
    """Unless it is known where the counters began."""
    plain, begun = Window(300.0), Window(300.0, (0.0,))
    plain.add(10.0, (5.0,))
    begun.add(10.0, (5.0,))

    assert plain.grown() == (0.0, (0.0,))
    assert begun.grown() == (0.0, (5.0,))


def test_a_counter_that_falls_begins_anew():
    """A rank that was forgotten and is back does not go backwards."""
    window = Window(300.0)
    for second, value in ((0.0, 100.0), (20.0, 120.0), (40.0, 3.0), (60.0, 13.0)):
        window.add(second, (value,))

    assert window.grown() == (20.0, (10.0,))


def test_what_is_not_read_any_more_is_forgotten():
    """Ranks come and go."""
    windows = Windows(300.0)
    windows.add("a", 0.0, (1.0,))
    windows.add("b", 0.0, (1.0,))
    windows.forget()
    windows.add("a", 10.0, (5.0,))
    windows.forget()

    assert windows.add("a", 20.0, (6.0,)).grown() == (20.0, (5.0,))
    assert windows.add("b", 20.0, (6.0,)).grown() == (0.0, (0.0,))
