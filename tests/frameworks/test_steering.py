"""Orders to runs of frameworks, the real ones: they save, stop and change their learning rate behind the step."""

from __future__ import annotations

import json
import os
from itertools import pairwise

import pytest

from trainvitals import orders, rankfile
from trainvitals.frameworks import accelerate as accelerate_adapter
from trainvitals.frameworks import capture as capture_module
from trainvitals.frameworks import lightning as lightning_adapter
from trainvitals.frameworks import steering
from trainvitals.frameworks import transformers as transformers_adapter
from trainvitals.orders import Mail, Order
from trainvitals.probe import knobs
from trainvitals.probe import orders as probe_orders

torch = pytest.importorskip("torch", reason="needs PyTorch")
hf = pytest.importorskip("transformers", reason="needs transformers")
trainer_module = pytest.importorskip("transformers.trainer", reason="needs transformers")
pl = pytest.importorskip("lightning.pytorch", reason="needs Lightning")

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def give(probe, recorder, spool, monkeypatch):
    """Give a function that orders something for a step, decided already; the framework is watched afresh."""
    fresh = knobs.Knobs()
    for module in (probe_orders, steering):
        monkeypatch.setattr(module, "KNOBS", fresh)
    obedience = probe_orders.begin(recorder, str(spool))
    monkeypatch.setattr(probe, "_obedience", obedience)
    monkeypatch.setattr(probe, "_mail", obedience.mail.word)
    monkeypatch.setattr(probe, "_obeyed", 0)
    capture = capture_module.Capture()
    for module in (transformers_adapter, accelerate_adapter, lightning_adapter):
        monkeypatch.setattr(module, "capture", capture)
    mail = Mail(orders.path_of(str(spool), "test"), {os.getuid()}, write=True)

    def order(what, at, **values):
        given = mail.give(Order(number=0, run="test", what=what, at=at, values=values, by="somebody"))
        mail.decide(given.number, "do")

    yield order
    mail.close()


def said(spool):
    """Return what was said of each order at last: what, state, step."""
    (path,) = spool.glob(f"*{rankfile.EVENTS_SUFFIX}")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        (row["what"], row["state"], row["step"]) for row in rows if row["kind"] == "order" and row["state"] != "seen"
    ]


class Line(torch.nn.Module):
    """A model with one weight."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x, labels=None):
        """Return the loss, as the Trainer wants it."""
        del labels
        return {"loss": (self.weight * x.mean() - 1.0).pow(2).sum()}


class Ordering(hf.TrainerCallback):
    """Gives orders when the first step begins, and keeps the learning rate of each step."""

    def __init__(self, give):
        self.give, self.rates = give, {}

    def on_step_begin(self, _, state, *__, optimizer=None, **___):
        """Give the orders, once, and note the rate."""
        if state.global_step == 0:
            self.give()
        self.rates[state.global_step + 1] = optimizer.param_groups[0]["lr"]


def train_hf(tmp_path, orders_of_first_step, steps=10):
    """Train ten steps with a rate that falls in a line from 1.0."""
    transformers_adapter.install(trainer_module)
    given = Ordering(orders_of_first_step)
    args = hf.TrainingArguments(
        str(tmp_path / "out"),
        per_device_train_batch_size=1,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        learning_rate=1.0,
        save_strategy="no",
        max_steps=steps,
    )
    data = [{"x": torch.tensor(1.0), "labels": torch.tensor(0)} for _ in range(steps)]
    trainer = hf.Trainer(model=Line(), args=args, train_dataset=data, callbacks=[given])
    trainer.train()
    return trainer, given


def test_the_trainer_of_hugging_face_saves_and_stops_behind_the_step(give, spool, tmp_path):
    """With its own checkpoint, in its own folder."""

    def first():
        give("checkpoint", 3)
        give("stop", 5)

    trainer, _ = train_hf(tmp_path, first)

    assert trainer.state.global_step == 5
    assert os.listdir(tmp_path / "out") == ["checkpoint-3"]
    assert said(spool) == [("checkpoint", "done", 3), ("stop", "done", 5)]


def test_the_learning_rate_of_the_trainer_changes_and_its_schedule_goes_on_from_there(give, spool, tmp_path):
    """The rate of step 5 would be 0.6: set to 0.3, all that follow are half of what they were to be."""
    _, given = train_hf(tmp_path, lambda: give("set", 4, lr=0.3))

    assert said(spool) == [("set", "done", 4)]
    planned = {1: 1.0, 2: 0.9, 3: 0.8, 4: 0.7}
    assert {step: given.rates[step] for step in planned} == pytest.approx(planned)
    # Behind step 4 the scheduler has gone on to 0.6 when the order is obeyed.
    halved = {5: 0.3, 6: 0.25, 7: 0.2, 8: 0.15, 9: 0.1, 10: 0.05}
    assert {step: given.rates[step] for step in halved} == pytest.approx(halved)


class Module(pl.LightningModule):
    """One weight, and a rate that is halved at each step."""

    def __init__(self, give):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.give, self.rates = give, []

    def on_train_batch_start(self, _, index):
        """Give the orders, once, and note the rate."""
        if index == 0:
            self.give()
        self.rates.append(self.trainer.optimizers[0].param_groups[0]["lr"])

    def training_step(self, batch, _):
        """Return the loss."""
        return (self.weight * batch.mean() - 1.0).pow(2).sum()

    def configure_optimizers(self):
        """Return the optimizer and its schedule."""
        optimizer = torch.optim.SGD(self.parameters(), lr=1.0)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


def test_lightning_saves_stops_and_changes_its_rate_behind_the_step(give, spool, tmp_path):
    """A checkpoint that Lightning loads again, and a schedule that goes on from the new rate."""

    def first():
        give("set", 2, lr=0.8)
        give("checkpoint", 3)
        give("stop", 5)

    module = Module(first)
    trainer = pl.Trainer(
        accelerator="cpu",
        default_root_dir=tmp_path,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
        max_epochs=1,
        callbacks=[lightning_adapter.callback()],
    )
    trainer.fit(module, torch.utils.data.DataLoader(torch.ones(20, 2), batch_size=1))

    assert said(spool) == [("set", "done", 2), ("checkpoint", "done", 3), ("stop", "done", 5)]
    assert trainer.global_step == 5
    saved = torch.load(tmp_path / "ordered-step=3.ckpt", weights_only=False)
    assert saved["global_step"] == 3
    assert module.rates[:2] == [1.0, 0.5]
    assert module.rates[2] == 0.8
    assert [after / before for before, after in pairwise(module.rates[2:])] == [0.5, 0.5]
