"""What a program logs anyway: real TensorBoard, tensorboardX and W&B, and fakes of MLflow and SwanLab."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from tests.frameworks import fakes
from tests.frameworks.scripts import run_python
from tests.probe.conftest import Recorded

from trainvitals.frameworks import loggers as adapter
from trainvitals.frameworks.capture import Capture, Source
from trainvitals.frameworks.loggers import MOST_NAMES, Loggers

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def capture(monkeypatch):
    """Give who counts the steps, as at the start of a process."""
    capture = Capture()
    monkeypatch.setattr(adapter, "capture", capture)
    return capture


@pytest.fixture
def loggers(probe, capture, monkeypatch):
    """Give what all loggers of a process tell to."""
    del probe, capture
    loggers = Loggers()
    loggers._flushes_at_exit = True
    monkeypatch.setattr(adapter, "loggers", loggers)
    return loggers


def evaluations(found):
    """Return the evaluations that were recorded."""
    events = [json.loads(line) for line in found.events]
    return [(event["name"], event["step"], event["values"]) for event in events if event["kind"] == "evaluation"]


def test_one_call_with_everything(loggers, recorded):
    """Known names become ours, others stay, and what is no number is nothing."""
    loggers.take({"train/loss": 2.0, "lr": 0.5, "accuracy": 0.25, "text": "x", "done": True, "picture": object()}, 10)
    loggers.take({"train/loss": 1.0, "tokens": 4096}, 20)

    assert recorded().steps == [
        (10, {"loss": 2.0, "learning_rate": 0.5, "accuracy": 0.25}),
        (20, {"loss": 1.0, "logged_tokens": 4096.0}),
    ]
    assert recorded().state.tokens == 0.0
    assert recorded().state.dropped == 0


def test_one_call_for_each_value(loggers, recorded):
    """The first known value of a number is the step, the others are added to it."""
    for number, loss in ((10, 2.0), (20, 1.0)):
        loggers.take({"Loss/train": loss}, number, whole=False)
        loggers.take({"lr": 0.5}, number, whole=False)
        loggers.take({"accuracy": 0.25}, number, whole=False)

    assert recorded().state.count == 2
    assert [step for step, _ in recorded().steps] == [10, 10, 10, 20, 20, 20]


def test_values_that_count_otherwise_are_no_steps(loggers, recorded):
    """An accuracy by the epoch between losses by the step starts no new segment."""
    loggers.take({"loss": 2.0}, 1000)
    loggers.take({"epoch_accuracy": 0.5}, 3)
    loggers.take({"learning_rate": 0.5}, 3)
    loggers.take({"loss": 1.0}, 1001)

    assert recorded().steps == [
        (1000, {"loss": 2.0}),
        (1000, {"epoch_accuracy": 0.5}),
        (1000, {"learning_rate": 0.5}),
        (1001, {"loss": 1.0}),
    ]
    assert recorded().state.count == 2


def test_a_better_clock_takes_over(loggers, recorded):
    """The learning rate tells of steps until a loss does."""
    loggers.take({"lr": 0.5}, 1, whole=False)
    loggers.take({"lr": 0.5}, 2, whole=False)
    loggers.take({"loss": 2.0}, 2, whole=False)
    loggers.take({"lr": 0.5}, 3, whole=False)
    loggers.take({"loss": 1.0}, 3, whole=False)

    assert recorded().state.count == 3
    assert recorded().steps[-1] == (3, {"loss": 1.0})


def test_without_a_number_each_loss_is_a_step(loggers, recorded):
    """And a number among the values is one."""
    loggers.take({"loss": 2.0})
    loggers.take({"loss": 1.0})
    loggers.take({"train/global_step": 40, "loss": 0.5}, 7)

    assert recorded().steps == [(0, {"loss": 2.0}), (1, {"loss": 1.0}), (40, {"loss": 0.5})]


def test_evaluations_are_told_whole(loggers, recorded):
    """Results that come one by one are one evaluation; the next call of another kind completes it."""
    loggers.take({"loss": 2.0}, 1)
    loggers.take({"val/loss": 3.0}, 1, whole=False)
    loggers.take({"val/accuracy": 0.5}, 1, whole=False)
    assert evaluations(recorded()) == []
    loggers.take({"loss": 1.0}, 2)
    loggers.take({"test_loss": 4.0, "eval/loss": 5.0}, 2)

    assert evaluations(recorded()) == [
        ("validation", 1, {"loss": 3.0, "accuracy": 0.5}),
        ("test", 2, {"loss": 4.0}),
        ("validation", 2, {"loss": 5.0}),
    ]


def test_an_evaluation_in_the_call_of_a_step_is_one_of_that_step(loggers, recorded):
    """Also without a number: it belongs to the step beside it, not to the one before."""
    loggers.take({"val/loss": 3.0, "loss": 2.0})
    loggers.take({"val/loss": 1.5, "loss": 1.0})

    assert evaluations(recorded()) == [("validation", 0, {"loss": 3.0}), ("validation", 1, {"loss": 1.5})]


def test_the_call_that_begins_the_recording_is_taken_whole(spool):
    """The first call of all holds a loss and an evaluation: neither is lost."""
    script = (
        "from trainvitals.frameworks.loggers import loggers\n"
        "loggers.take({'val/loss': 3.0, 'loss': 2.0})\n"
        "loggers.take({'val/loss': 1.5, 'loss': 1.0})\n"
    )
    run_python("-c", script, TRAINVITALS_DIR=str(spool))

    assert [values for _, _, values in evaluations(Recorded(str(spool)))] == [{"loss": 3.0}, {"loss": 1.5}]


def test_an_array_of_one_number_is_one(loggers, recorded):
    """As TensorBoard takes it; one of several numbers is none."""
    numpy = pytest.importorskip("numpy", reason="needs NumPy")
    loggers.take({"loss": numpy.array([2.5]), "lr": numpy.float32(0.5), "two": numpy.array([1.0, 2.0])}, numpy.int64(3))

    assert recorded().steps == [(3, {"loss": 2.5, "learning_rate": 0.5})]


def test_who_knows_the_loss_better_is_not_contradicted(loggers, capture, recorded):
    """Below a framework, a logger adds what nobody else tells, and not what the framework writes a second time."""
    capture.step(Source.FRAMEWORK, 5, {"loss": 2.0})
    loggers.take({"train/loss": 9.0, "train/epoch": 1.0, "reward": 0.5, "val_loss": 8.0}, 4)

    assert recorded().steps == [(5, {"loss": 2.0}), (5, {"reward": 0.5})]
    assert evaluations(recorded()) == []


def test_beside_the_programs_own_steps_all_but_the_loss_is_taken(loggers, capture, recorded):
    """A program that calls trainvitals.step and logs an evaluation elsewhere keeps both."""
    capture.step(Source.USER, 5, {"loss": 2.0})
    loggers.take({"train/loss": 9.0, "train/accuracy": 0.5, "val_loss": 8.0}, 5)

    assert recorded().steps == [(5, {"loss": 2.0}), (5, {"train/accuracy": 0.5})]
    assert evaluations(recorded()) == [("validation", 5, {"loss": 8.0})]


def test_names_are_bounded(loggers, recorded):
    """The table has room left for those who come later; what is known is always taken."""
    loggers.take({f"weight/{index}": 1.0 for index in range(500)} | {"loss": 2.0}, 1)

    assert len(recorded().names) == MOST_NAMES + 1
    assert "loss" in recorded().names


def test_a_tensor_is_not_read(loggers, monkeypatch):
    """It goes to the recorder as it is, also as a number of a step, where it is none."""
    taken = []
    monkeypatch.setattr(adapter.capture, "step", lambda *arguments: taken.append(arguments) or True)

    class Tensor:
        def numel(self):
            return 1

        def __float__(self):
            raise AssertionError("read")

        __int__ = __index__ = item = __float__

    tensor = Tensor()
    loggers.take({"loss": tensor}, tensor)

    assert taken == [(Source.LOGGER, None, {"loss": tensor})]


@pytest.mark.parametrize("name", ["torch.utils.tensorboard.writer", "tensorboardX.writer"])
def test_a_real_writer_of_tensorboard(name, loggers, recorded, tmp_path, monkeypatch):
    """Scalars arrive, the files are written as before."""
    pytest.importorskip("tensorboard", reason="needs TensorBoard")
    module = pytest.importorskip(name, reason=f"needs {name}")
    for method in ("add_scalar", "add_scalars", "flush", "close"):
        monkeypatch.setattr(module.SummaryWriter, method, getattr(module.SummaryWriter, method))
    adapter.install(module)

    writer = module.SummaryWriter(str(tmp_path))
    for step in range(3):
        writer.add_scalar("train/loss", 3.0 - step, step)
        writer.add_scalar(tag="lr", scalar_value=0.5, global_step=step)
    writer.add_scalars("accuracy", {"easy": 0.5, "hard": 0.25}, 2)
    writer.add_scalar("val/loss", 4.0, 2)
    writer.close()

    assert recorded().state.count == 3
    assert recorded().steps[:2] == [(0, {"loss": 3.0}), (0, {"learning_rate": 0.5})]
    assert recorded().steps[-1] == (2, {"accuracy/easy": 0.5, "accuracy/hard": 0.25})
    assert evaluations(recorded()) == [("validation", 2, {"loss": 4.0})]
    assert recorded().state.errors == 0
    assert any(os.path.getsize(path) > 100 for path in tmp_path.iterdir() if path.is_file())
    assert loggers is adapter.loggers


def test_a_real_run_of_wandb(spool, tmp_path):
    """Offline, in a process of its own: wandb.log is bound when the run begins, and is heard nevertheless."""
    pytest.importorskip("wandb", reason="needs Weights & Biases")
    script = (
        "import trainvitals\n"
        "trainvitals.auto()\n"
        "import wandb\n"
        "settings = wandb.Settings(console='off', x_disable_stats=True)\n"
        "run = wandb.init(project='test', mode='offline', settings=settings)\n"
        "for step in range(3):\n"
        "    wandb.log({'train/loss': 3.0 - step, 'lr': 0.5, 'table': 'text'}, step=10 * step)\n"
        "run.log({'val/loss': 4.0, 'val/accuracy': 0.5}, step=20)\n"
        "run.finish()\n"
    )
    environment = {**os.environ, "TRAINVITALS_DIR": str(spool), "WANDB_DIR": str(tmp_path), "WANDB_SILENT": "true"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr

    found = Recorded(str(spool))
    assert found.steps == [(10 * step, {"loss": 3.0 - step, "learning_rate": 0.5}) for step in range(3)]
    assert evaluations(found) == [("validation", 20, {"loss": 4.0, "accuracy": 0.5})]
    assert found.state.errors == 0


def test_mlflow(loggers, recorded):
    """Single metrics and many at once; what the library returns stays."""
    module = fakes.mlflow()
    adapter.install(module)

    module.log_metric("train_loss", 2.0, step=1)
    assert module.log_metrics({"train_loss": 1.0, "val_loss": 4.0}, 2) == "operations"

    assert recorded().steps == [(1, {"loss": 2.0}), (2, {"loss": 1.0})]
    assert evaluations(recorded()) == [("validation", 2, {"loss": 4.0})]
    assert len(module.written) == 2
    assert loggers is adapter.loggers


def test_swanlab(loggers, recorded):
    """A step may be left out; then each loss is one."""
    module = fakes.swanlab()
    adapter.install(module)

    module.log({"train/loss": 2.0, "acc": 0.5}, step=3)
    module.log(data={"train/loss": 1.0})

    assert recorded().steps == [(3, {"loss": 2.0, "acc": 0.5}), (4, {"loss": 1.0})]
    assert loggers is adapter.loggers


def test_an_error_of_ours_does_not_reach_who_logs(loggers, recorded, monkeypatch):
    """It is counted once; the logger writes what it is given."""
    monkeypatch.setattr(loggers, "take", lambda *_, **__: 1 // 0)
    module = fakes.mlflow()
    adapter.install(module)

    for step in range(5):
        module.log_metric("loss", 1.0, step)

    assert len(module.written) == 5
    assert recorded().state.errors == 1


def test_another_signature_mutes_the_adapter(loggers, recorded):
    """A logger that calls its arguments otherwise is not heard, and works."""
    module = fakes.mlflow()
    module.log_metric = lambda *, name, amount: module.written.append((name, amount))
    adapter.install(module)

    for _ in range(5):
        module.log_metric(name="loss", amount=1.0)

    assert len(module.written) == 5
    assert recorded().state.errors == 1
    assert loggers is adapter.loggers
