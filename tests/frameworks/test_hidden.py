"""Numbers that frameworks hide end in series: what a log leaves out, the exporter counts.

The Hugging Face Trainer's NaN is in test_transformers.py, Accelerate's in test_accelerate.py, and what the scaler of
plain PyTorch skips in test_pytorch.py.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.frameworks import fakes
from tests.frameworks.test_megatron import iterate
from tests.helpers import Node, run_trainer

from trainvitals.frameworks import deepspeed, megatron
from trainvitals.frameworks.capture import Capture

torch = pytest.importorskip("torch", reason="needs PyTorch")

#: What Megatron-LM's ``get_args`` returns.
SETTINGS = {
    "train_iters": 500,
    "consumed_train_samples": 64,
    "seq_length": 1024,
    "global_batch_size": 64,
    "world_size": 16,
    "multiple_validation_sets": False,
    "save": None,
}


def counted(spool, recorder=None):
    """Return skipped steps, steps that were not finite, and whether that is a finding."""
    if recorder is not None:
        recorder.writer.write_state()
    scrape = Node(spool).scrape()
    names = ("skipped_steps_total", "nonfinite_steps_total")
    counts = tuple(scrape[f'trainvitals_{name}{{rank="0",run="test"}}'] for name in names)
    return *counts, scrape['trainvitals_signal_ratio{run="test",signal="loss_nonfinite"}'] >= 1.0


def test_megatron_omits_a_loss_that_is_not_finite(probe, recorder, spool, monkeypatch):
    """A NaN is counted and found; that of an iteration that was skipped is the scaler's search and no finding."""
    del probe
    monkeypatch.setattr(megatron, "capture", Capture())
    training = fakes.megatron(SimpleNamespace(**SETTINGS))
    megatron.install(training)
    iterate(training, 1, {"lm loss": torch.tensor(2.0)})
    iterate(training, 2, {"lm loss": torch.tensor(float("inf"))}, skipped=1)
    assert counted(spool, recorder) == (1.0, 0.0, False)

    iterate(training, 3, {"lm loss": torch.tensor(float("nan"))})
    assert counted(spool, recorder) == (1.0, 1.0, True)


def test_deepspeed_skips_a_step_that_overflows(probe, recorder, spool, monkeypatch):
    """It is counted as skipped, and an infinite loss in it is no finding."""
    del probe
    monkeypatch.setattr(deepspeed, "_first", None)
    monkeypatch.setattr(deepspeed, "capture", Capture())
    plain, _ = fakes.deepspeed(overflows=(2,))
    deepspeed.install(plain)
    engine = plain.DeepSpeedEngine()
    for loss in (1.0, float("inf"), 3.0):
        engine.backward(engine.forward(torch.tensor(loss)))
        engine.step()

    assert counted(spool, recorder) == (1.0, 0.0, False)


LIGHTNING = """
    import warnings; warnings.simplefilter("ignore")
    import logging; logging.disable(logging.WARNING)
    import trainvitals; trainvitals.auto()
    import torch, lightning as L
    from lightning.pytorch.plugins import MixedPrecision

    class Model(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def training_step(self, batch, index):
            loss = (self.weight * batch).sum()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    class Half(MixedPrecision):
        def forward_context(self):
            return torch.autocast("cpu", enabled=False)

    data = [torch.tensor(value) for value in (1.0, float("inf"), 2.0, 3.0)]
    half = Half("16-mixed", "cpu", scaler=torch.amp.GradScaler("cpu", init_scale=8.0))
    loader = torch.utils.data.DataLoader(data, batch_size=1)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    L.Trainer(max_epochs=1, accelerator="cpu", plugins=[half], enable_model_summary=False, **quiet).fit(Model(), loader)
"""


def test_lightning_lets_its_scaler_skip_a_step(spool):
    """The scaler tells, for Lightning does not."""
    pytest.importorskip("lightning", reason="needs Lightning")
    done = run_trainer(LIGHTNING, spool)
    assert done.returncode == 0, done.stderr

    assert counted(spool) == (1.0, 0.0, False)
