"""torchtitan, on a fake of its modules: :class:`tests.frameworks.fakes.Torchtitan`."""

from __future__ import annotations

import json

import pytest
from tests.frameworks import fakes

from trainvitals import rankfile
from trainvitals.frameworks import torchtitan as adapter
from trainvitals.frameworks.capture import Capture
from trainvitals.frameworks.guard import Switch, safe


@pytest.fixture
def titan(probe, monkeypatch):
    """Give torchtitan, watched, with the structured logger's own door."""
    del probe
    titan = fakes.Torchtitan()
    watch, switch = adapter.Watch(), Switch()
    monkeypatch.setattr(adapter, "capture", Capture())
    monkeypatch.setattr(adapter, "_watch", watch)
    monkeypatch.setattr(adapter, "_switch", switch)
    monkeypatch.setattr(adapter, "_hear", safe(switch(watch.span)))
    monkeypatch.setattr(adapter, "when_imported", lambda *_: None)
    adapter.register(structured_logger=titan.logger, rank=0, source="training", output_dir="outputs")
    for module in (titan.metrics, titan.checkpoints, titan.trainer):
        adapter.install(module)
    yield titan
    titan.logger.handlers.clear()


def step(titan, number, *, logs=None, exhausted=False):
    """Make the spans of one step, as ``Trainer.train`` does."""
    titan.step = number
    with titan.span("step"):
        with titan.span("fetching_batch"):
            pass
        if exhausted:
            return
        with titan.span("fwd_bwd"):
            pass
        with titan.span("optim"):
            pass
        if logs is not None:
            logs()


def events_of(found, kind):
    """Return the events of a kind."""
    return [event for event in map(json.loads, found.events) if event["kind"] == kind]


def test_each_step_is_counted_and_some_are_logged(titan, recorded):
    """Every step on every rank; the numbers come with the steps that torchtitan logs."""
    processor = titan.metrics.MetricsProcessor()
    rates = {"n_tokens_seen": 8192, "lr/AdamW": 0.5, "lr/Muon": 0.25}
    step(titan, 1, logs=lambda: processor.log(1, 3.0, 3.5, 2.0, extra_metrics=rates))
    step(titan, 2)
    step(titan, 3, exhausted=True)

    numbers = {"loss": 3.0, "max_loss": 3.5, "grad_norm": 2.0, "learning_rate": 0.5}
    assert recorded().steps == [(1, {}), (1, {**numbers, "n_tokens_seen": 8192.0, "lr/Muon": 0.25}), (2, {})]
    assert recorded().state.tokens == 2048.0
    assert processor.ntokens_since_last_log == 0
    assert recorded().identity["framework"] == "torchtitan"
    spent = dict(zip(rankfile.PHASES, recorded().state.phase_seconds, strict=False))
    assert spent["data"] > 0.0
    assert recorded().state.phase == rankfile.PHASES.index("train")


def test_without_the_structured_logger_logged_steps_are_all(titan, recorded):
    """Then there is a step at each log."""
    processor = titan.metrics.MetricsProcessor()
    processor.log(10, 3.0, 3.5, grad_norm=2.0)
    processor.log(step=20, global_avg_loss=2.0, global_max_loss=2.5, grad_norm=1.0)

    assert [(number, values["loss"]) for number, values in recorded().steps] == [(10, 3.0), (20, 2.0)]
    assert recorded().state.tokens == 2048.0


def test_the_target_and_a_validation(titan, recorded):
    """The number of steps of the settings; the loss of a validation with what comes beside."""
    assert titan.trainer.Trainer().train() == "trained"
    with titan.span("eval"):
        titan.metrics.MetricsProcessor().log_validation(4.0, 100, extra_metrics={"accuracy": 0.5})

    assert recorded().identity["target_steps"] == 500
    (evaluation,) = events_of(recorded(), "evaluation")
    assert (evaluation["step"], evaluation["values"]) == (100, {"loss": 4.0, "accuracy": 0.5})
    assert recorded().state.phase_seconds[rankfile.PHASES.index("evaluation")] > 0.0


def test_checkpoints_that_were_written(titan, recorded):
    """The manager is asked at each step and says whether it wrote; a failure is told and goes on its way."""
    manager = titan.checkpoints.BaseCheckpointManager()
    assert manager.save(11) is False
    assert manager.save(12, last_step=True) is True
    with pytest.raises(OSError, match="disk is full"):
        manager.save(13)

    told = [(event["step"], event["ok"]) for event in events_of(recorded(), "checkpoint")]
    assert told == [(12, True), (13, False)]
    assert all(event["seconds"] >= 0.0 for event in events_of(recorded(), "checkpoint"))


def test_it_listens_once(titan, recorded):
    """Both doors together are one handler."""
    adapter.register(structured_logger=titan.logger)
    step(titan, 1)

    assert sum(isinstance(handler, adapter._Handler) for handler in titan.logger.handlers) == 1
    assert recorded().state.count == 1


@pytest.mark.parametrize("broken", ["span", "log", "saving", "saved", "save_failed"])
def test_an_error_of_ours_never_reaches_the_training(broken, titan, recorded, monkeypatch):
    """It is counted once, and everything runs as before."""

    def raises(*_, **__):
        raise RuntimeError("ours")

    fresh = fakes.Torchtitan()
    monkeypatch.setattr(adapter._watch, broken, raises)
    monkeypatch.setattr(adapter, "_hear", safe(adapter._switch(adapter._watch.span)))
    adapter.install(fresh.metrics)
    adapter.install(fresh.checkpoints)
    processor, manager = fresh.metrics.MetricsProcessor(), fresh.checkpoints.BaseCheckpointManager()
    for number in range(1, 4):
        step(titan, number, logs=lambda number=number: processor.log(number, 3.0, 3.5, 2.0))
        assert manager.save(number, last_step=True) is True
    with pytest.raises(OSError, match="disk is full"):
        manager.save(13)

    assert processor.ntokens_since_last_log == 0
    assert recorded().state.errors == 1


def test_a_factory_never_raises(titan, monkeypatch):
    """What a factory raises would end the training."""
    monkeypatch.setattr(adapter, "_listen", lambda _: 1 // 0)

    adapter.register(structured_logger=titan.logger, rank=0, source="training", output_dir="outputs")


def test_another_signature_mutes_the_adapter(titan, recorded):
    """A log without the loss is one error, however many follow."""
    logged = []
    module = fakes.module(
        "torchtitan.components.metrics",
        MetricsProcessor=type(
            "MetricsProcessor", (), {"log": lambda _, number: logged.append(number), "log_validation": print}
        ),
    )
    adapter.install(module)
    for number in range(5):
        module.MetricsProcessor().log(number)

    assert logged == [0, 1, 2, 3, 4]
    assert recorded().state.errors == 1
    assert titan.step is None
