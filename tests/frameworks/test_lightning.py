"""Lightning, the real one: every training is the same with the probe, and everything about it arrives."""

from __future__ import annotations

import glob
import json
import os
import pickle
import subprocess
import sys
from importlib import metadata

import pytest
from tests.probe.conftest import Recorded

from trainvitals import rankfile
from trainvitals.frameworks import capture as capture_module
from trainvitals.frameworks import lightning as adapter

torch = pytest.importorskip("torch", reason="needs PyTorch")
pl = pytest.importorskip("lightning.pytorch", reason="needs Lightning")

#: Lightning warns of loaders without workers, of missing loggers and more.
pytestmark = pytest.mark.filterwarnings("ignore")
EXAMPLE = os.path.join(os.path.dirname(__file__), "../../examples/train_lightning.py")


def module_of(package, **overrides):
    """Return a module whose loss at batch n of an epoch is n, and whose only weight moves by the learning rate."""

    class Counting(package.LightningModule):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def training_step(self, _, index):
            return self.weight.sum() - self.weight.sum().detach() + float(index)

        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=0.5)
            return [optimizer], [{"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5), "interval": "step"}]

    for name, value in overrides.items():
        setattr(Counting, name, value)
    return Counting()


def loader(batches=8, size=3):
    """Return batches of this size."""
    return torch.utils.data.DataLoader(torch.zeros(batches * size, 2), batch_size=size)


@pytest.fixture
def fit(tmp_path, monkeypatch, probe):
    """Give a function that trains a module with a Trainer of these settings and returns it; ours is called first."""
    del probe
    monkeypatch.setattr(adapter, "capture", capture_module.Capture())
    monkeypatch.setattr(adapter, "_running", None)

    def run(module, *, batches=8, validation=None, path=None, package=pl, **settings):
        quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "max_epochs": 1}
        quiet |= {"accelerator": "cpu", "default_root_dir": tmp_path, "enable_checkpointing": False}
        trainer = package.Trainer(**quiet | settings)
        trainer.fit(module, loader(batches), validation, ckpt_path=path, weights_only=False)
        return trainer

    return run


def events_of(found, kind):
    """Return the events of a kind, without their times."""
    events = [json.loads(line) for line in found.events]
    return [
        {name: event[name] for name in event if name not in {"time", "seconds"}}
        for event in events
        if event["kind"] == kind
    ]


def run_script(script, *arguments, **environment):
    """Run a training in a process of its own."""
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", **environment}
    done = subprocess.run(
        [sys.executable, script, *arguments], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def test_the_example_is_the_same_bit_for_bit_and_arrives_whole(spool, tmp_path):
    """Weights and the optimizer's state do not differ; the entry point alone was enough to record everything."""
    for name, disabled in (("with", "0"), ("without", "1")):
        run_script(EXAMPLE, str(tmp_path / name), TRAINVITALS_DIR=str(spool), TRAINVITALS_DISABLE=disabled)

    first, second = (torch.load(tmp_path / name / "last.ckpt", weights_only=False) for name in ("with", "without"))
    assert first["state_dict"].keys() == second["state_dict"].keys()
    assert all(torch.equal(first["state_dict"][name], second["state_dict"][name]) for name in first["state_dict"])
    states = [each["optimizer_states"][0]["state"][0]["exp_avg"] for each in (first, second)]
    assert torch.equal(*states)
    assert first["callbacks"].keys() == second["callbacks"].keys()

    found = Recorded(str(spool))
    assert (found.identity["framework"], found.identity["target_steps"]) == ("lightning", 16)
    assert [step for step, _ in found.steps] == list(range(1, 17))
    assert all(set(values) == {"loss", "train_loss", "learning_rate", "grad_norm"} for _, values in found.steps)
    assert [values["learning_rate"] for _, values in found.steps[:5]] == [0.01, 0.01, 0.01, 0.01, 0.005]
    assert all(values["loss"] == values["train_loss"] for _, values in found.steps)
    state = found.state
    assert (state.count, state.samples, state.dropped, state.errors) == (16, 256.0, 0, 0)
    assert state.flags == rankfile.FLAG_FINISHED
    evaluations = events_of(found, "evaluation")
    assert [(event["step"], event["name"], list(event["values"])) for event in evaluations] == [
        (8, "validation", ["loss"]),
        (16, "validation", ["loss"]),
    ]
    saved = [
        (event["step"], event["action"], event["ok"], os.path.basename(event["path"]))
        for event in events_of(found, "checkpoint")
    ]
    assert saved == [
        (8, "save", True, "epoch=0-step=8.ckpt"),
        (16, "save", True, "epoch=1-step=16.ckpt"),
        (16, "save", True, "last.ckpt"),
    ]
    spent = dict(zip(rankfile.PHASES, state.phase_seconds, strict=False))
    assert all(spent[phase] > 0 for phase in ("init", "train", "data", "evaluation", "checkpoint"))


def test_two_processes_are_two_ranks(spool, tmp_path):
    """Lightning's own launcher sets no RANK; the Trainer knows it."""
    script = tmp_path / "two.py"
    script.write_text(
        "import lightning.pytorch as pl, sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "import train_lightning as example\n"
        "trainer = pl.Trainer(accelerator='cpu', devices=2, strategy='ddp', logger=False, max_epochs=1,\n"
        "    enable_progress_bar=False, enable_checkpointing=False, default_root_dir=sys.argv[2])\n"
        "trainer.fit(example.Regression(), example.loader(1), example.loader(2))\n"
    )
    run_script(str(script), os.path.dirname(EXAMPLE), str(tmp_path), TRAINVITALS_DIR=str(spool))

    found = {}
    for path in glob.glob(f"{spool}/*{rankfile.RANK_SUFFIX}"):
        reader = rankfile.Reader(path)
        identity, _ = reader.read_text()
        found[identity["rank"]] = (identity["local_rank"], identity["world_size"], reader.read_state().count)
        reader.close()
    assert found == {0: (0, 2, 4), 1: (1, 2, 4)}


def test_accumulated_batches_are_one_step_with_their_mean(fit, recorded):
    """Four batches of losses 0, 1, 2 and 3; the last two of the epoch are a step of their own."""
    fit(module_of(pl), batches=6, accumulate_grad_batches=4)

    assert recorded().steps == [(1, {"loss": 1.5, "learning_rate": 0.5}), (2, {"loss": 4.5, "learning_rate": 0.25})]
    assert recorded().state.samples == 18.0
    assert recorded().identity["target_steps"] == 2


def test_a_module_that_steps_two_optimizers_keeps_lightnings_numbers(fit, recorded):
    """Lightning counts each optimizer; a batch is one step, the learning rate that of the first."""

    def configure(self):
        return [torch.optim.SGD(self.parameters(), lr=0.5), torch.optim.SGD(self.parameters(), lr=0.125)]

    def step(self, _, index):
        for optimizer in self.optimizers():
            optimizer.zero_grad()
            loss = self.weight.sum() + index
            self.manual_backward(loss - self.weight.sum().detach())
            optimizer.step()
        return {"loss": torch.tensor(float(index))}

    module = module_of(pl, configure_optimizers=configure, training_step=step, automatic_optimization=False)
    fit(module, batches=3)

    assert recorded().steps == [
        (number, {"loss": index, "learning_rate": 0.5}) for number, index in ((2, 0.0), (4, 1.0), (6, 2.0))
    ]
    assert "target_steps" not in recorded().identity


def test_what_the_user_logs_arrives_under_its_name(fit, recorded):
    """Known quantities get our names; what is logged between batches belongs to the step before."""

    def step(self, _, index):
        self.log("lr-Adam", 0.75)
        self.log_dict({"grad_2.0_norm_total": 5.0, "train/accuracy": torch.tensor(0.5)}, on_step=True, on_epoch=True)
        self.log("tokens", 1000.0 * index)
        return None if index == 1 else self.weight.sum() * 0 + 2.0

    def end(self):
        self.log("of_the_epoch", 3.0)

    fit(module_of(pl, training_step=step, on_train_epoch_end=end), batches=2)

    logged = {"learning_rate": 0.5, "grad_norm": 5.0, "train/accuracy": 0.5}
    assert recorded().steps == [
        (1, {**logged, "logged_tokens": 0.0, "loss": 2.0}),
        (2, {**logged, "logged_tokens": 1000.0, "learning_rate": 0.25}),
        (2, {"of_the_epoch": 3.0}),
    ]
    assert recorded().state.tokens == 0.0


def test_evaluations_report_what_they_log(fit, recorded):
    """Two loaders keep apart, training's values are not among them, the check before a training is none."""

    def step(self, _, index, dataloader_idx):
        self.log("val_loss", float(index + 10 * dataloader_idx))
        self.log("val_accuracy", 0.25)

    def train(self, _, __):
        self.log("train_loss", 1.0, on_epoch=True)
        return self.weight.sum() * 0

    module = module_of(pl, validation_step=step, training_step=train)
    fit(module, batches=2, validation=[loader(2), loader(4)], num_sanity_val_steps=1)

    assert events_of(recorded(), "evaluation") == [
        {
            "kind": "evaluation",
            "name": "validation",
            "step": 2,
            "values": {
                "loss/dataloader_idx_0": 0.5,
                "accuracy/dataloader_idx_0": 0.25,
                "loss/dataloader_idx_1": 11.5,
                "accuracy/dataloader_idx_1": 0.25,
            },
        }
    ]
    assert recorded().state.phase == rankfile.PHASES.index("train")


def test_a_test_is_a_split_of_its_own(fit, recorded):
    """And a validation outside of a training counts as one."""

    def step(self, _, __):
        self.log("test_loss", 4.0)

    module = module_of(pl, test_step=step)
    trainer = fit(module, batches=1)
    trainer.test(module, loader(2), verbose=False)

    assert [(event["name"], event["values"]) for event in events_of(recorded(), "evaluation")] == [
        ("test", {"loss": 4.0})
    ]


def test_what_a_training_is_made_of_is_told_and_changes_only_with_it(fit, recorded, tmp_path):
    """The same again tells nothing new, whatever its folder; then the hyperparameters and settings that are others."""

    def module(**hyperparameters):
        made = module_of(pl)
        made.save_hyperparameters(hyperparameters)
        return made

    fit(module(lr=0.5, log_dir="runs/1"), default_root_dir=tmp_path / "1")
    fit(module(lr=0.5, log_dir="runs/2"), default_root_dir=tmp_path / "2")
    fit(module(lr=0.25, log_dir="runs/2"), accumulate_grad_batches=2)

    told = {subject: [] for subject in ("config", "model", "dataset")}
    for event in events_of(recorded(), "lineage"):
        told[event["subject"]].append(event["values"])
    first, second = told["config"]
    assert {name: (first[name], second[name]) for name in first if first[name] != second[name]} == {
        "lr": ("0.5", "0.25"),
        "trainer.accumulate_grad_batches": ("1", "2"),
    }
    assert (first["trainer.batch_size"], first["trainer.precision"], first["trainer.optimizers"]) == (
        "3",
        "32-true",
        "SGD",
    )
    assert "log_dir" not in first
    assert told["model"] == [
        {"class": told["model"][0]["class"], "parameters": "1", "trainable": "1", "precision": "torch.float32"}
    ]
    assert told["dataset"][0]["length"] == "24"
    assert len(told["dataset"]) == 1


def test_a_training_goes_on_where_its_checkpoint_was(fit, recorded, tmp_path):
    """The first step after a resume has the next number, and a second training starts a new segment."""
    trainer = fit(module_of(pl), batches=3)
    trainer.save_checkpoint(tmp_path / "three.ckpt")
    fit(module_of(pl), batches=3, max_epochs=2, path=tmp_path / "three.ckpt")
    fit(module_of(pl), batches=2)

    assert [step for step, _ in recorded().steps] == [1, 2, 3, 4, 5, 6, 1, 2]
    assert recorded().identity["target_steps"] == 2


def test_an_endless_loader_has_the_target_it_was_given(fit, recorded):
    """The number of batches is not known: the limit of steps is the target."""

    class Endless(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(lambda: torch.zeros(2), None)

    trainer = fit(
        module_of(pl, train_dataloader=lambda _: torch.utils.data.DataLoader(Endless())), batches=1, max_steps=1
    )
    assert trainer.global_step == 1
    assert recorded().identity["target_steps"] == 1


def test_an_error_of_the_training_is_told_and_goes_on_its_way(fit, recorded):
    """The user sees the very same exception; its phases are closed; Ctrl-C is an interruption."""
    error = ValueError("a bad batch")

    def step(self, _, index):
        if index == 2:
            raise error
        return self.weight.sum()

    with pytest.raises(ValueError, match="a bad batch") as raised:
        fit(module_of(pl, training_step=step))
    assert raised.value is error
    assert events_of(recorded(), "exception") == [
        {"kind": "exception", "message": "a bad batch", "step": 2, "type": "ValueError"}
    ]

    error = KeyboardInterrupt()
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        fit(module_of(pl, training_step=step))
    assert [event["type"] for event in events_of(recorded(), "interrupted")] == ["KeyboardInterrupt"]
    assert recorded().state.errors == 0


def test_an_error_within_an_evaluation_ends_its_phase(fit, recorded):
    """The time after it is not evaluation's."""

    def step(*_):
        raise ValueError("no data")

    with pytest.raises(ValueError, match="no data"):
        fit(module_of(pl, validation_step=step), validation=loader(1), num_sanity_val_steps=0)
    assert recorded().state.phase == rankfile.PHASES.index("train")


def test_a_checkpoint_that_fails_is_told(fit, recorded, monkeypatch):
    """A full disk is the user's to see, and ours to record."""
    trainer = fit(module_of(pl), batches=1)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trainer.strategy, "save_checkpoint", full)
    with pytest.raises(OSError, match="No space left"):
        trainer.save_checkpoint("some/where.ckpt")

    expected = {"action": "save", "error": "OSError", "kind": "checkpoint", "ok": False, "step": 1}
    # It says which data, model and settings it would have held.
    lineage = events_of(recorded(), "lineage")[-1]["lineage"]
    assert events_of(recorded(), "checkpoint") == [{**expected, "path": "some/where.ckpt", "lineage": lineage}]


def test_several_doors_count_once(fit, recorded, monkeypatch):
    """The entry point, auto() and a callback in the list are one watch; so is a class derived from the Trainer."""
    original = pl.Trainer.__init__
    monkeypatch.setattr(pl.Trainer, "__init__", original)
    adapter.install(sys.modules["lightning.pytorch.trainer.trainer"])

    class Mine(pl.Trainer):
        pass

    package = type("package", (), {"Trainer": Mine})
    fit(module_of(pl), batches=2, package=package, callbacks=[adapter.callback()])

    assert [step for step, _ in recorded().steps] == [1, 2]


def test_without_its_entry_point_auto_is_enough(fit, recorded, monkeypatch):
    """Where the package's metadata is missing, the wrapped Trainer adds the callback, before those that save."""
    connector = sys.modules["lightning.pytorch.trainer.connectors.callback_connector"]
    monkeypatch.setattr(connector, "_load_external_callbacks", lambda _: [])
    monkeypatch.setattr(pl.Trainer, "__init__", pl.Trainer.__init__)
    adapter.install(sys.modules["lightning.pytorch.trainer.trainer"])

    trainer = fit(module_of(pl), batches=2, enable_checkpointing=True)

    assert [step for step, _ in recorded().steps if _] == [1, 2]
    assert type(trainer.callbacks[0]).__name__ == "Trainvitals"


def test_the_old_name_of_the_package_is_watched_too(fit, recorded):
    """It asks for callbacks under a group of its own, and its Trainer takes its own callbacks only."""
    old = pytest.importorskip("pytorch_lightning", reason="needs pytorch_lightning")

    trainer = fit(module_of(old), batches=2, package=old)

    assert [step for step, _ in recorded().steps] == [1, 2]
    (ours,) = [each for each in trainer.callbacks if type(each).__name__ == "Trainvitals"]
    assert isinstance(ours, old.Callback)
    assert not isinstance(ours, pl.Callback)


def test_both_groups_are_in_the_metadata(monkeypatch):
    """The functions behind them return one callback, and none with TRAINVITALS_DISABLE=1 or after an error of ours."""
    for group in ("lightning.pytorch.callbacks_factory", "pytorch_lightning.callbacks_factory"):
        (point,) = [point for point in metadata.entry_points(group=group) if point.name == "trainvitals"]
        assert point.load() in {adapter.new_package, adapter.old_package}
    assert len(adapter.new_package()) == 1

    monkeypatch.setattr(adapter, "callback", lambda _: 1 // 0)
    assert adapter.new_package() == adapter.old_package() == []
    monkeypatch.undo()
    monkeypatch.setenv("TRAINVITALS_DISABLE", "1")
    assert adapter.new_package() == adapter.old_package() == []


def test_the_callback_survives_a_spawn():
    """A spawned process gets it by pickle; its class has no name to be found by."""
    copy = pickle.loads(pickle.dumps(adapter.callback("lightning.pytorch")))

    assert isinstance(copy, pl.Callback)
    assert copy.state_dict() == {}


BROKEN = (
    *(f"Watch.{name}" for name in adapter._HOOKS),
    "Watch.logged",
    "Watch.is_loading",
    "_wrap",
    "_target_steps",
    "_saving",
)


@pytest.mark.parametrize("broken", BROKEN)
def test_an_error_of_ours_never_reaches_the_training(broken, fit, monkeypatch, tmp_path):
    """Whatever of ours raises, the training, its evaluation and its checkpoint end as they would."""

    def raises(*_, **__):
        raise RuntimeError("ours")

    def step(self, *_):
        self.log("val_loss", 1.0)

    owner, _, name = broken.rpartition(".")
    monkeypatch.setattr(adapter.Watch if owner else adapter, name, raises)
    module = module_of(pl, validation_step=step, test_step=step)
    trainer = fit(module, batches=3, validation=loader(1))
    trainer.save_checkpoint(tmp_path / "end.ckpt")
    trainer.test(module, loader(1), verbose=False)

    assert module.weight.tolist() == [-0.875]
    assert (tmp_path / "end.ckpt").exists()


@pytest.mark.usefixtures("probe")
def test_another_lightning_costs_a_count(recorded, monkeypatch):
    """Where a module that we look for is gone, what it would tell is missing; the callback's hooks go on."""
    monkeypatch.delitem(sys.modules, "lightning.pytorch.loops.fetchers")
    made = adapter.callback("lightning.pytorch")
    trainer = pl.Trainer(logger=False, accelerator="cpu", enable_checkpointing=False, callbacks=[made])

    made.setup(trainer, module_of(pl), stage="fit")

    assert recorded().state.errors == 1
