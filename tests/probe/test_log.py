"""Values that become known after their step."""

from __future__ import annotations


def test_values_are_added_to_the_last_step(probe, recorded):
    """A loss that a framework tells after the step gets the number of that step, and is no step of its own."""
    probe.step(10, tokens=8)
    probe.log({"loss": 0.5}, learning_rate=0.25)
    probe.step(11, loss=0.125)

    found = recorded()
    assert found.steps == [(10, {}), (10, {"loss": 0.5, "learning_rate": 0.25}), (11, {"loss": 0.125})]
    assert [record.count for record in found.records] == [1, 1, 2]
    assert (found.state.count, found.state.tokens, found.state.errors) == (2, 8.0, 0)


def test_before_the_first_step_they_wait_for_it(probe, recorded):
    """What is told too early is told with the first step."""
    probe.log(learning_rate=0.5)
    probe.step(0, loss=2.0)

    assert recorded().steps == [(0, {"learning_rate": 0.5, "loss": 2.0})]


def test_a_late_loss_that_is_no_number_counts(probe, recorded):
    """A NaN that comes late is a step whose loss was NaN."""
    probe.step(3)
    probe.log(loss=float("nan"))

    assert recorded().state.nonfinite == 1


def test_nonsense_costs_nothing(probe, recorded):
    """What is no mapping or no number is dropped and counted."""
    probe.step(0, loss=1.0)
    probe.log(["loss"])
    probe.log(loss="much")
    probe.log()

    found = recorded()
    assert found.steps == [(0, {"loss": 1.0})]
    assert (found.state.dropped, found.state.errors) == (2, 0)
