"""DeepSpeed, on a fake of its engine: :func:`tests.frameworks.fakes.deepspeed`."""

from __future__ import annotations

import json

import pytest
from tests.frameworks import fakes

from trainvitals.frameworks import deepspeed as adapter
from trainvitals.frameworks.capture import Capture, Source
from trainvitals.frameworks.guard import safe

torch = pytest.importorskip("torch", reason="needs PyTorch")


@pytest.fixture
def capture(probe, monkeypatch):
    """Give who counts the steps, as at the start of a process."""
    del probe
    monkeypatch.setattr(adapter, "_first", None)
    monkeypatch.setattr(adapter, "capture", Capture())
    return adapter.capture


def engine_of(**settings):
    """Return an engine that is watched."""
    plain, pipe = fakes.deepspeed(**settings)
    adapter.install(plain)
    adapter.install(pipe)
    return plain.DeepSpeedEngine()


def train(engine, losses):
    """Train with one micro-batch for each loss."""
    for loss in losses:
        engine.backward(engine.forward(torch.tensor(loss)))
        engine.step()


def test_steps_of_an_engine(capture, recorded):
    """Its own number, the learning rate before its scheduler, the norm that is there, a share of the batch."""
    engine = engine_of()
    train(engine, [3.0, 2.0])

    assert recorded().steps == [
        (1, {"loss": 3.0, "learning_rate": 0.5, "grad_norm": 2.0}),
        (2, {"loss": 2.0, "learning_rate": 0.25, "grad_norm": 2.0}),
    ]
    assert recorded().state.samples == 16.0
    assert recorded().identity["framework"] == "deepspeed"
    assert recorded().state.errors == 0
    assert capture.is_muted(Source.LOGGER)


def test_micro_batches_are_one_step(capture, recorded):
    """Between boundaries there is none; the loss is the mean."""
    train(engine_of(gradient_accumulation_steps=2), [1.0, 2.0, 5.0, 8.0])

    assert [(step, values["loss"]) for step, values in recorded().steps] == [(1, 1.5), (2, 6.5)]
    assert capture.is_muted(Source.OPTIMIZER)


def test_a_loss_that_the_program_has_divided(capture, recorded):
    """Then the parts are added up."""
    engine = engine_of(gradient_accumulation_steps=2)
    for loss in (0.5, 0.25):
        engine.backward(torch.tensor(loss), scale_wrt_gas=False)
        engine.step()

    assert [values["loss"] for _, values in recorded().steps] == [0.75]
    assert capture.is_muted(Source.OPTIMIZER)


def test_a_loss_that_the_program_makes_of_the_models_counts_alone(capture, recorded):
    """What ``backward`` gets takes the place of what ``forward`` has returned: a penalty may have been added."""
    engine = engine_of(gradient_accumulation_steps=2)
    for of_model, whole in ((1.0, 2.0), (4.0, 6.0)):
        engine.forward(torch.tensor(of_model))
        engine.backward(torch.tensor(whole))
        engine.step()

    assert [values["loss"] for _, values in recorded().steps] == [4.0]
    assert capture.is_muted(Source.OPTIMIZER)


def test_a_backward_that_passes_by_the_engine(capture, recorded):
    """loss.backward() is allowed: the loss is what the model returned while it trained, and no other output."""
    engine = engine_of(gradient_accumulation_steps=2)
    engine.training = False
    engine.forward(torch.tensor(100.0))
    engine.training = True
    for output in (torch.tensor(1.0), type("Output", (), {"loss": torch.tensor(2.0)})()):
        engine.forward(output)
        engine.step()
    engine.forward(torch.zeros(4, 2))
    engine.step()
    engine.step()

    assert [values.get("loss") for _, values in recorded().steps] == [1.5, None]
    assert capture.is_muted(Source.OPTIMIZER)


def test_a_step_that_the_scaler_skips(capture, recorded):
    """It is a step of its own, marked, without the norm that stands for an overflow."""
    train(engine_of(overflows=(2,)), [1.0, float("inf"), 3.0])

    assert recorded().state.skipped == 1
    assert recorded().state.nonfinite == 0
    assert [values.get("grad_norm") for _, values in recorded().steps] == [2.0, None, 2.0]
    assert capture.is_muted(Source.OPTIMIZER)


def test_the_inner_optimizers_calls_are_no_steps(capture, recorded):
    """ZeRO calls it for each group of parameters, also within the first step."""
    engine = engine_of()
    inner = type(engine)._take_model_step

    def counted(self, lr_kwargs):
        for _ in range(3):
            assert not capture.step(Source.OPTIMIZER)
        inner(self, lr_kwargs)

    type(engine)._take_model_step = counted
    train(engine, [3.0, 2.0])

    assert recorded().state.count == 2


def test_below_a_library_only_skipped_steps_are_told(capture, recorded):
    """Accelerate or Lightning count the steps; neither sees the overflow."""
    capture.step(Source.LIBRARY, 1, {"loss": 4.0})
    train(engine_of(overflows=(2,)), [1.0, 2.0])

    assert recorded().state.count == 1
    assert recorded().state.skipped == 1


def test_a_second_engine_is_trained_beside(capture, recorded):
    """An actor and its critic are one run: the first that makes a step counts."""
    actor, critic = engine_of(), engine_of()
    for loss in (3.0, 2.0):
        train(actor, [loss])
        train(critic, [9.0])

    assert [(step, values["loss"]) for step, values in recorded().steps] == [(1, 3.0), (2, 2.0)]
    assert capture.is_muted(Source.OPTIMIZER)


def test_a_pipeline_trains_by_the_batch(capture, recorded):
    """One call is a step and returns its loss."""
    _, pipe = fakes.deepspeed()
    adapter.install(pipe)
    engine = pipe.PipelineEngine()
    losses = iter([torch.tensor(3.0), torch.tensor(2.0)])

    assert engine.train_batch(data_iter=losses) == torch.tensor(3.0)
    engine.train_batch(losses)

    assert [(step, values["loss"]) for step, values in recorded().steps] == [(1, 3.0), (2, 2.0)]
    assert capture.is_muted(Source.OPTIMIZER)


def test_checkpoints(capture, recorded):
    """With the tag that DeepSpeed gives, and one that fails; what is returned and raised stays."""
    engine = engine_of()
    train(engine, [1.0])
    assert engine.save_checkpoint("/ckpt") is True
    assert engine.load_checkpoint("/ckpt", tag="best") == ("/ckpt", {})
    with pytest.raises(ValueError, match="non-empty"):
        engine.save_checkpoint("", tag="best")

    events = [json.loads(line) for line in recorded().events]
    told = [(event["action"], event["path"], event["ok"]) for event in events if event["kind"] == "checkpoint"]
    assert told == [("save", "/ckpt/global_step1", True), ("load", "/ckpt", True), ("save", "/best", False)]
    assert capture.is_muted(Source.OPTIMIZER)


@pytest.mark.parametrize(
    "broken", ["_state", "_norm", "_is_first", "_forward", "_backward", "_before_step", "_after_step", "_saving"]
)
def test_an_error_of_ours_never_reaches_the_training(broken, capture, recorded, monkeypatch):
    """It is counted once, and the engine trains and saves."""

    def raises(*_, **__):
        raise RuntimeError("ours")

    monkeypatch.setattr(adapter, broken, raises)
    engine = engine_of()
    train(engine, [3.0, 2.0, 1.0])
    engine.save_checkpoint("/ckpt")

    assert engine.global_steps == 3
    assert engine.saved == ["/ckpt"]
    assert recorded().state.errors == 1
    assert isinstance(capture, Capture)


def test_another_version_mutes_the_adapter(capture, recorded):
    """A method that is gone is one error, however many steps follow."""
    engine = engine_of()
    del type(engine).get_lr
    train(engine, [3.0, 2.0, 1.0])

    assert recorded().state.errors == 1
    assert recorded().state.count == 0
    assert isinstance(capture, Capture)


def test_a_method_that_is_gone_leaves_the_engine_alone(recorded, probe):
    """Nothing is hung into an engine that we do not know."""
    plain, _ = fakes.deepspeed()
    del plain.DeepSpeedEngine.load_checkpoint
    original = plain.DeepSpeedEngine.step

    safe(adapter.install)(plain)

    assert plain.DeepSpeedEngine.step is original
    assert recorded().state.errors == 1
    assert probe.is_recording()
