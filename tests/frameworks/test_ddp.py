"""The wait for the gradients of other ranks, as DDP has measured it."""

from __future__ import annotations

import gc

import pytest

from trainvitals.frameworks.ddp import Communication
from trainvitals.probe import split


class Model:
    """A model that DDP has wrapped; times are in nanoseconds."""

    def __init__(self, **data):
        self.data = data

    def _get_ddp_logging_data(self):
        return self.data


@pytest.fixture
def communication(monkeypatch):
    """Give what watches, and leave the module as it was."""
    monkeypatch.setattr(split, "exposed_communication", None)
    return Communication()


def measured(iteration, together, overlap):
    """Return what DDP says after a measured iteration."""
    return {
        "iteration": iteration,
        "backward_comm_time": together,
        "backward_compute_comm_overlap_time": overlap,
    }


def test_what_is_not_hidden_behind_computing(communication):
    """7 ms on their way, 2 of them beside the backward pass; the recorder learns whom to ask."""
    model = Model(**measured(3, 7_000_000, 2_000_000))
    communication.watch(None, model)

    assert split.exposed_communication() == pytest.approx(0.005)


def test_one_odd_measurement_does_not_speak_for_the_others(communication):
    """The median of the last five; one that was read before is not a new one."""
    model = Model()
    communication.watch(None, model)
    assert communication.exposed() is None
    for iteration, milliseconds in enumerate((1, 1, 1, 50, 4, 4, 6)):
        model.data = measured(iteration, milliseconds * 1_000_000, 0)
        for _ in range(9):
            found = communication.exposed()

    assert found == pytest.approx(0.004)


def test_several_models_add_up_and_one_that_is_gone_does_not(communication):
    """A generator and a discriminator; later neither."""
    models = [Model(**measured(1, 3_000_000, 1_000_000)), Model(**measured(1, 1_000_000, 5_000_000))]
    for model in models:
        communication.watch(None, model)
    assert communication.exposed() == pytest.approx(0.002)

    models.clear()
    del model
    gc.collect()
    assert communication.exposed() is None


def test_a_model_that_is_not_trained_any_more_has_no_part(communication):
    """A second training in the process, while the model of the first is still there; then one without DDP."""
    first, second = Model(**measured(10, 9_000_000, 0)), Model(**measured(0, 0, 0))
    communication.watch(None, first)
    assert communication.exposed() == pytest.approx(0.009)

    communication.watch(None, second)
    for iteration in range(100, 2600, 100):
        second.data = measured(iteration, 3_000_000, 1_000_000)
        found = communication.exposed()
    assert found == pytest.approx(0.002)

    assert [communication.exposed() for _ in range(10)] == [pytest.approx(0.002)] * 9 + [None]
    second.data = measured(2600, 5_000_000, 0)
    assert communication.exposed() == pytest.approx(0.005)


def test_models_that_are_gone_are_forgotten(communication):
    """A program that wraps a model again and again keeps nothing of ours."""
    for _ in range(100):
        communication.watch(None, Model(**measured(1, 1, 0)))
    gc.collect()
    communication.exposed()

    assert communication._models == []
