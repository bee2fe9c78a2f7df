"""Megatron-LM, on a fake of its training module: :func:`tests.frameworks.fakes.megatron`."""

from __future__ import annotations

import json
import types

import pytest
from tests.frameworks import fakes

from trainvitals import rankfile
from trainvitals.frameworks import megatron as adapter
from trainvitals.frameworks.capture import Capture
from trainvitals.frameworks.guard import safe

torch = pytest.importorskip("torch", reason="needs PyTorch")


@pytest.fixture(autouse=True)
def _capture(probe, monkeypatch):
    """Count steps as at the start of a process."""
    del probe
    monkeypatch.setattr(adapter, "capture", Capture())


@pytest.fixture
def settings():
    """Give the arguments that ``get_args`` returns."""
    return types.SimpleNamespace(
        train_iters=500,
        consumed_train_samples=64,
        seq_length=1024,
        global_batch_size=64,
        world_size=16,
        multiple_validation_sets=False,
        save="/ckpt",
    )


@pytest.fixture
def training(settings):
    """Give the module, watched."""
    module = fakes.megatron(settings)
    adapter.install(module)
    return module


def iterate(training, iteration, losses, *, rate=0.5, skipped=0, norm=2.0):
    """Log one iteration, as ``train`` does."""
    return training.training_log(
        losses,
        {},
        rate,
        iteration,
        4096.0,
        True,
        skipped,
        norm,
        None,
        None,
        0,
        pg_collection=None,
        is_first_iteration=False,
    )


def events_of(found, kind):
    """Return the events of a kind."""
    return [event for event in map(json.loads, found.events) if event["kind"] == kind]


def test_iterations(training, settings, recorded):
    """Number, losses, learning rate and norm; samples and tokens are this rank's share of what all consumed."""
    assert iterate(training, 101, {"lm loss": torch.tensor(3.0), "mtp_1 loss": torch.tensor(4.0)}) is True
    settings.consumed_train_samples += 96
    iterate(training, 102, {"lm loss": torch.tensor(2.0)}, rate=0.25)

    assert recorded().steps == [
        (101, {"loss": 3.0, "mtp_1 loss": 4.0, "learning_rate": 0.5, "grad_norm": 2.0, "loss_scale": 4096.0}),
        (102, {"loss": 2.0, "learning_rate": 0.25, "grad_norm": 2.0, "loss_scale": 4096.0}),
    ]
    state = recorded().state
    assert (state.samples, state.tokens) == (4.0 + 6.0, 10.0 * 1024)
    assert (state.errors, training.said) == (0, [("log", 101), ("log", 102)])
    assert (recorded().identity["framework"], recorded().identity["target_steps"]) == ("megatron", 500)


def test_a_rank_without_the_last_stage_has_no_loss(training, recorded):
    """It has its steps all the same; None is absent."""
    iterate(training, 1, {}, rate=None, norm=None)

    assert recorded().steps == [(1, {"loss_scale": 4096.0})]


def test_what_the_log_omits_is_counted(training, recorded):
    """A loss that is NaN, and an iteration that was skipped."""
    iterate(training, 1, {"lm loss": torch.tensor(float("nan"))})
    iterate(training, 2, {"lm loss": torch.tensor(float("inf"))}, skipped=1)

    assert recorded().state.nonfinite == 1
    assert recorded().state.skipped == 1


def test_an_older_fork_has_a_parameter_more(settings, recorded):
    """Arguments are found by their names."""
    training = fakes.megatron(settings, old=True)
    adapter.install(training)

    training.training_log({"lm loss": torch.tensor(3.0)}, {}, 0.5, None, 7, 1.0, True, 0, 2.0, None, None)

    assert recorded().steps == [(7, {"loss": 3.0, "learning_rate": 0.5, "grad_norm": 2.0, "loss_scale": 1.0})]


def test_evaluations(training, settings, recorded):
    """The validation, the test at the end, and several sets, each with its number."""
    result = {"lm loss": torch.tensor(4.0)}
    training.evaluate_and_print_results("iteration 10", None, result, [], 10, None, None, verbose=False)
    training.evaluate_and_print_results(
        "iteration 20 on test set", None, result, [], iteration=20, process_non_loss_data_func=None, config=None
    )
    settings.multiple_validation_sets = True
    training.evaluate_and_print_results(
        "iteration 30", None, [result, {"lm loss": torch.tensor(5.0)}], [], 30, None, None
    )
    training.evaluate_and_print_results("iteration 40", None, [{}], [], 40, None, None)

    assert [(event["name"], event["step"], event["values"]) for event in events_of(recorded(), "evaluation")] == [
        ("validation", 10, {"loss": 4.0}),
        ("test", 20, {"loss": 4.0}),
        ("validation-0", 30, {"loss": 4.0}),
        ("validation-1", 30, {"loss": 5.0}),
    ]
    assert recorded().state.phase_seconds[rankfile.PHASES.index("evaluation")] > 0.0


def test_checkpoints(training, recorded):
    """Timed; one that fails is told, and its exception goes on its way."""
    training.save_checkpoint_and_time(50, [], None, None, 0, {})
    with pytest.raises(OSError, match="disk is full"):
        training.save_checkpoint_and_time(
            iteration=60,
            model=None,
            optimizer=None,
            opt_param_scheduler=None,
            num_floating_point_operations_so_far=0,
            checkpointing_context={},
        )

    told = [(event["step"], event["path"], event["ok"]) for event in events_of(recorded(), "checkpoint")]
    assert told == [(50, "/ckpt", True), (60, "/ckpt", False)]


def test_marks_are_phases(training, recorded):
    """What is between the marks of fault tolerance counts as what they say; an end without a begin is nothing."""
    marks = training.ft_integration
    marks.on_checkpointing_end(is_async_finalization=True)
    marks.on_checkpointing_start()
    assert recorded().state.phase == rankfile.PHASES.index("checkpoint")
    marks.on_checkpointing_end(is_async_finalization=True)
    assert recorded().state.phase == rankfile.PHASES.index("init")
    marks.on_eval_step_start()
    marks.on_eval_step_start()
    assert recorded().state.phase == rankfile.PHASES.index("evaluation")
    marks.on_eval_step_end()

    assert recorded().state.phase == rankfile.PHASES.index("init")
    assert training.said == ["checkpointing", "eval", "eval"]


@pytest.mark.parametrize("broken", ["training_log", "before_evaluation", "evaluated", "saving", "begin", "end"])
def test_an_error_of_ours_never_reaches_the_training(broken, settings, recorded, monkeypatch):
    """It is counted once, and everything runs as before."""

    def raises(*_, **__):
        raise RuntimeError("ours")

    monkeypatch.setattr(adapter.Watch, broken, raises)
    training = fakes.megatron(settings)
    adapter.install(training)
    for iteration in range(3):
        assert iterate(training, iteration, {"lm loss": torch.tensor(3.0)}) is True
        training.evaluate_and_print_results(
            "iteration", None, {"lm loss": torch.tensor(4.0)}, [], iteration, None, None
        )
        training.save_checkpoint_and_time(iteration, [], None, None, 0, {})

    assert training.said.count("checkpointing") == 3
    assert recorded().state.errors == 1


def test_another_signature_mutes_the_adapter(settings, recorded):
    """A fork whose log has no iteration is one error, however many iterations follow."""
    training = fakes.megatron(settings)
    logged = []
    training.training_log = logged.append
    adapter.install(training)
    for _ in range(5):
        training.training_log({"lm loss": 3.0})

    assert len(logged) == 5
    assert recorded().state.errors == 1
    assert recorded().state.count == 0


def test_a_module_without_a_log_is_left_alone(settings, recorded):
    """Nothing is hung into a fork that we do not know; one without marks has its steps."""
    training = fakes.megatron(settings)
    del training.training_log
    safe(adapter.install)(training)
    assert recorded().state.errors == 1

    training = fakes.megatron(settings)
    del training.ft_integration
    adapter.install(training)
    iterate(training, 1, {"lm loss": 3.0})
    assert [step for step, _ in recorded().steps] == [1]
