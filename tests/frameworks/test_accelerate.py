"""Accelerate, the real one: every loop is the same with the probe, and everything about it arrives."""

from __future__ import annotations

import glob
import json
import os
from pathlib import Path

import pytest
from tests.frameworks.scripts import TWICE, run_python
from tests.helpers import Node
from tests.probe.conftest import Recorded

from trainvitals import rankfile
from trainvitals.frameworks import accelerate as adapter
from trainvitals.frameworks import capture as capture_module

torch = pytest.importorskip("torch", reason="needs PyTorch")
accelerate = pytest.importorskip("accelerate", reason="needs Accelerate")

#: Accelerate warns of much that is none of ours.
pytestmark = pytest.mark.filterwarnings("ignore")
EXAMPLES = os.path.join(os.path.dirname(__file__), "../../examples")


class Counting(torch.nn.Module):
    """A model whose output is its input, and the norm of whose gradient is 3."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x):
        """Return the mean."""
        return 3 * self.weight.sum() - (3 * self.weight.sum()).detach() + x.mean()


class Loop:
    """What a program prepares, and its loop."""

    def __init__(self, *values, accumulate=1, size=1, optimizer=torch.optim.Adam, **settings):
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
        accelerate.state.GradientState._reset_state()
        self.accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=accumulate, **settings)
        model = Counting()
        optimizer = optimizer(model.parameters(), lr=0.5)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        data = torch.tensor([float(value) for value in values])
        loader = torch.utils.data.DataLoader(data, batch_size=size)
        prepared = self.accelerator.prepare(model, optimizer, scheduler, loader)
        self.model, self.optimizer, self.scheduler, self.loader = prepared

    def train(self, each=None):
        """Train one epoch; ``each(loop)`` is called after an optimizer step."""
        for batch in self.loader:
            with self.accelerator.accumulate(self.model):
                self.accelerator.backward(self.model(batch))
                if self.accelerator.sync_gradients:
                    self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.scheduler.step()
                self.optimizer.zero_grad()
                if each is not None and self.accelerator.sync_gradients:
                    each(self)
        return self


@pytest.fixture(autouse=True)
def anew(monkeypatch):
    """Let each test begin as a process does."""
    monkeypatch.setattr(adapter, "capture", capture_module.Capture())
    adapter.watch.__init__()
    adapter.install(accelerate)
    yield
    adapter.watch.__init__()


def events_of(found, kind):
    """Return the events of a kind, without their times."""
    events = [json.loads(line) for line in found.events]
    return [
        {name: event[name] for name in event if name not in {"time", "seconds", "kind", "lineage"}}
        for event in events
        if event["kind"] == kind
    ]


def losses(found):
    """Return number and loss of each step."""
    return [(step, values["loss"]) for step, values in found.steps if "loss" in values]


def test_the_example_is_the_same_bit_for_bit_and_arrives_whole(spool, tmp_path):
    """Weights and optimizer do not differ from a training before ours was loaded; with ours everything is recorded."""
    folders = [str(tmp_path / name) for name in ("without", "with")]
    run_python("-c", TWICE, os.path.join(EXAMPLES, "train_accelerate.py"), *folders, TRAINVITALS_DIR=str(spool))

    states = [torch.load(f"{folder}/epoch-1/optimizer.bin") for folder in folders]
    pairs = zip(states[0]["state"].values(), states[1]["state"].values(), strict=True)
    assert all(torch.equal(one[name], other[name]) for one, other in pairs for name in one)
    for name in ("last", "epoch-0", "epoch-1"):
        weights = [Path(folder, name, "model.safetensors").read_bytes() for folder in folders]
        assert weights[0] == weights[1]
    randomness = [torch.load(f"{folder}/epoch-1/random_states_0.pkl", weights_only=False) for folder in folders]
    assert torch.equal(*(each["torch_manual_seed"] for each in randomness))

    found = Recorded(str(spool))
    assert found.identity["framework"] == "accelerate"
    steps = [(step, values) for step, values in found.steps if "loss" in values]
    assert [step for step, _ in steps] == list(range(1, 21))
    assert all(set(values) == {"loss", "grad_norm", "learning_rate"} for _, values in steps)
    assert [values["learning_rate"] for _, values in steps[3:7]] == [0.01, 0.01, 0.005, 0.005]
    assert [(step, values) for step, values in found.steps if "loss" not in values] == [
        (10, {"epoch": 0.0}),
        (20, {"epoch": 1.0}),
    ]
    state = found.state
    assert (state.count, state.samples, state.dropped, state.errors) == (20, 160.0, 0, 0)
    assert state.flags == rankfile.FLAG_FINISHED
    evaluations = events_of(found, "evaluation")
    assert [(event["step"], event["name"], list(event["values"])) for event in evaluations] == [
        (10, "validation", ["loss"]),
        (20, "validation", ["loss"]),
    ]
    assert events_of(found, "checkpoint") == [
        {"step": step, "action": "save", "ok": True, "path": f"{folders[1]}/epoch-{epoch}"}
        for step, epoch in ((10, 0), (20, 1))
    ]
    spent = dict(zip(rankfile.PHASES, state.phase_seconds, strict=False))
    assert all(spent[phase] > 0 for phase in ("init", "train", "data", "evaluation", "checkpoint"))


def test_two_ranks_under_torchrun(spool, tmp_path):
    """Each tells of itself: half of the samples each, and the same steps."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    example = os.path.join(EXAMPLES, "train_accelerate.py")
    run_python(*torchrun, example, str(tmp_path / "out"), TRAINVITALS_DIR=str(spool))

    found = {}
    for path in glob.glob(f"{spool}/*{rankfile.RANK_SUFFIX}"):
        reader = rankfile.Reader(path)
        identity, _ = reader.read_text()
        state = reader.read_state()
        found[identity["rank"]] = (identity["local_rank"], identity["world_size"], state.count, state.samples)
        assert (state.errors, state.dropped, state.flags) == (0, 0, rankfile.FLAG_FINISHED)
        reader.close()
    assert found == {0: (0, 2, 10, 80.0), 1: (1, 2, 10, 80.0)}


@pytest.mark.usefixtures("probe")
def test_accumulated_batches_are_one_step_with_their_mean(recorded):
    """Two batches of two are a step, and the last one of an epoch alone; the learning rate is the one used."""
    Loop(*range(10), accumulate=2, size=2).train()

    assert recorded().steps == [
        (1, {"loss": 1.5, "grad_norm": 3.0, "learning_rate": 0.5}),
        (2, {"loss": 5.5, "grad_norm": 3.0, "learning_rate": 0.25}),
        (3, {"loss": 8.5, "grad_norm": 1.5, "learning_rate": 0.125}),
    ]
    assert recorded().state.samples == 10.0


@pytest.mark.usefixtures("probe")
def test_a_loss_that_is_no_number_is_seen_by_the_exporter(recorded, spool):
    """The counter, the curve and the detector show it."""
    Loop(1, 2, float("nan"), 4, 5, 6, accumulate=2).train()

    assert [str(loss) for _, loss in losses(recorded())] == ["1.5", "nan", "5.5"]
    scrape = Node(spool).scrape()
    assert scrape['trainvitals_nonfinite_steps_total{rank="0",run="test"}'] == 1.0
    assert scrape['trainvitals_signal_ratio{run="test",signal="loss_nonfinite"}'] >= 1.0


@pytest.mark.usefixtures("probe")
def test_a_step_that_the_scaler_skips_is_counted(recorded):
    """A real scaler, which finds an infinite gradient: the loss is then its normal search for a scale."""
    loop = Loop(1, 2, 3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    raw = loop.optimizer.optimizer
    optimizer = accelerate.optimizer.AcceleratedOptimizer(raw, scaler=scaler)
    loop.accelerator.scaler = scaler
    for number in (1.0, float("inf"), 3.0):
        loss = loop.model(torch.tensor(1.0)) + loop.model.weight.sum() * (0.0 if number < 9 else number)
        loop.accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()

    assert [step for step, values in recorded().steps if "skipped" in values] == [2]
    assert (recorded().state.skipped, recorded().state.nonfinite) == (1, 0)


@pytest.mark.usefixtures("probe")
def test_several_optimizers_are_one_step(recorded):
    """A GAN: the loss is that of the optimizer that comes first; one that is left for another goes on."""
    loop = Loop(1)
    second = loop.accelerator.prepare(torch.optim.SGD(loop.model.parameters(), lr=0.25))

    def learn(optimizer, number):
        loop.accelerator.backward(loop.model(torch.tensor(float(number))))
        optimizer.step()

    for number in range(3):
        learn(loop.optimizer, number)
        learn(second, 10 + number)
    for number in (21, 22):
        learn(second, number)

    assert recorded().steps == [
        (1, {"loss": 0.0, "learning_rate": 0.5}),
        (2, {"loss": 1.0, "learning_rate": 0.5}),
        (3, {"loss": 2.0, "learning_rate": 0.5}),
        (4, {"loss": 21.0, "learning_rate": 0.25}),
        (5, {"loss": 22.0, "learning_rate": 0.25}),
    ]


@pytest.mark.usefixtures("probe")
def test_what_is_logged_arrives(recorded):
    """Results of evaluations as such; what the step knows itself is not told again, and amounts are not added up."""

    def log(loop):
        logged = {"loss": 9.0, "lr": 9.0, "train_loss": 9.0, "accuracy": 0.5, "tokens": 100, "step": 1, "note": "text"}
        loop.accelerator.log({**logged, "val/accuracy": 0.25}, step=77)

    Loop(1).train(log)

    assert recorded().steps == [
        (1, {"loss": 1.0, "grad_norm": 3.0, "learning_rate": 0.5}),
        (1, {"lr": 9.0, "train_loss": 9.0, "accuracy": 0.5, "logged_tokens": 100.0}),
    ]
    assert recorded().state.tokens == 0.0
    assert events_of(recorded(), "evaluation") == [{"step": 1, "name": "validation", "values": {"accuracy": 0.25}}]


@pytest.mark.usefixtures("probe")
def test_a_second_training_loses_no_step(recorded):
    """Its optimizer is another one, and not one that steps in turns with the first."""
    loops = [Loop(1, 2).train(), Loop(3, 4, 5).train()]

    assert losses(recorded()) == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0), (5, 5.0)]
    assert len(loops) == 2


@pytest.mark.usefixtures("probe")
def test_what_a_loop_is_made_of_is_told_once_and_changes_only_with_it(recorded):
    """The same loop again tells nothing new, under another name of its run; another size of batches is what changed."""
    for run, size, rate in (("a", 2, 0.5), ("b", 2, 0.5), ("c", 3, 0.25)):
        adapter.watch.__init__()
        loop = Loop(*range(6), size=size)
        loop.accelerator.init_trackers("project", config={"lr": rate, "run_name": run})
        loop.accelerator.prepare(torch.utils.data.DataLoader([1], batch_size=7))
        loop.train()

    told = [event for event in events_of(recorded(), "lineage") if event["subject"] in {"config", "model"}]
    assert [(event["subject"], event["step"]) for event in told] == [("config", 1), ("model", 1), ("config", 1)]
    own = {"mixed_precision": "no", "distributed_type": "NO", "gradient_accumulation_steps": "1", "optimizer": "Adam"}
    rows = {f"accelerate.{name}": text for name, text in own.items()}
    assert told[0]["values"] == {**rows, "lr": "0.5", "accelerate.batch_sizes": "2, 7"}
    assert told[2]["values"] == {**rows, "lr": "0.25", "accelerate.batch_sizes": "3, 7"}
    expected = {"class": "Counting", "parameters": "1", "trainable": "1", "precision": "torch.float32"}
    assert told[1]["values"] == expected


@pytest.mark.usefixtures("probe")
def test_the_tracker_is_a_door(recorded):
    """``log_with=[tracker()]`` is enough; what is logged arrives once, and the settings are recorded."""
    loop = Loop(1, log_with=[adapter.tracker()])
    loop.accelerator.init_trackers("project", config={"width": 8})
    loop.train(lambda loop: loop.accelerator.log({"accuracy": 0.5}))
    loop.accelerator.end_training()

    assert recorded().steps[1:] == [(1, {"accuracy": 0.5})]
    (told,) = (event["values"] for event in events_of(recorded(), "lineage") if event["subject"] == "config")
    assert told["width"] == "8"


@pytest.mark.usefixtures("probe")
def test_checkpoints_are_told_and_steps_go_on_from_them(recorded, tmp_path):
    """A loop that loads one goes on with the number that the optimizer knows; a save that fails is told as well."""
    Loop(1, 2, 3).train().accelerator.save_state(str(tmp_path / "three"))
    adapter.watch.__init__()
    loop = Loop(4)
    loop.accelerator.load_state(str(tmp_path / "three"))
    loop.train()
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        loop.accelerator.save_state(str(tmp_path / "file"))

    assert losses(recorded()) == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]
    assert events_of(recorded(), "checkpoint") == [
        {"step": 3, "action": "save", "ok": True, "path": str(tmp_path / "three")},
        {"step": 0, "action": "load", "ok": True, "path": str(tmp_path / "three")},
        {"step": 4, "action": "save", "ok": False, "path": str(tmp_path / "file"), "error": "FileExistsError"},
    ]


@pytest.mark.usefixtures("probe")
def test_a_checkpoint_that_accelerate_names_has_its_path(recorded, tmp_path):
    """With ``automatic_checkpoint_naming`` there is no path in the call."""
    settings = accelerate.utils.ProjectConfiguration(str(tmp_path), automatic_checkpoint_naming=True)
    Loop(1, project_config=settings, optimizer=torch.optim.SGD).train().accelerator.save_state()

    (event,) = events_of(recorded(), "checkpoint")
    assert event["path"] == str(tmp_path / "checkpoints" / "checkpoint_0")
    assert os.path.exists(event["path"])


@pytest.mark.usefixtures("probe")
def test_a_loader_stays_what_it_is(recorded):
    """Its batches, its length, a loop that is left early, one that fails, and what programs ask of its iterator."""
    loop = Loop(1, 2, 3, 4)

    assert [batch.item() for batch in loop.loader] == [1.0, 2.0, 3.0, 4.0]
    assert len(loop.loader) == 4
    assert isinstance(loop.loader, torch.utils.data.DataLoader)
    batches = iter(loop.loader)
    assert iter(batches) is batches
    assert next(batches).item() == 1.0
    batches.close()
    with pytest.raises(StopIteration):
        next(batches)
    skipping = loop.accelerator.skip_first_batches(loop.loader, 3)
    assert [batch.item() for batch in skipping] == [4.0]
    assert recorded().state.phase == rankfile.PHASES.index("init")
    assert recorded().state.phase_seconds[rankfile.PHASES.index("data")] > 0


@pytest.mark.usefixtures("probe")
def test_a_program_that_only_evaluates_is_no_training(recorded):
    """Without an optimizer there are no phases of a training."""
    accelerator = accelerate.Accelerator(cpu=True)
    loader = accelerator.prepare(torch.utils.data.DataLoader(torch.zeros(3)))

    assert len(list(loader)) == 3
    accelerator.log({"val_loss": 1.0})
    assert recorded().state.phase_seconds[rankfile.PHASES.index("data")] == 0
    assert events_of(recorded(), "evaluation") == []


@pytest.mark.usefixtures("probe")
def test_it_is_silent_below_a_framework(recorded, tmp_path):
    """The Hugging Face Trainer owns the steps; so does a program with calls of its own."""
    adapter.capture.claim(capture_module.Source.FRAMEWORK)
    loop = Loop(1, 2).train(lambda loop: loop.accelerator.log({"accuracy": 1.0}))
    loop.accelerator.save_state(str(tmp_path / "state"))

    assert recorded().steps == []
    assert recorded().events == []


BROKEN = (
    *(f"Watch.{name}" for name in ("prepare", "take_batch", "take_loss", "keep_grad_norm", "step", "log", "is_silent")),
    "Losses.add",
    "Losses.take_mean",
    "_steps_done",
    "batch_size",
    "names.result",
    "capture.step",
    "capture.log",
    "capture.is_muted",
    "probe.checkpoint",
    "probe.phase",
)


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.usefixtures("probe")
def test_an_error_of_ours_never_reaches_the_loop(broken, monkeypatch, tmp_path, recorded):
    """Whatever of ours raises, the loop and its checkpoint end as they would."""

    def raises(*_, **__):
        raise RuntimeError("ours")

    owner, _, name = broken.rpartition(".")
    monkeypatch.setattr(getattr(adapter, owner) if owner else adapter, name, raises)
    loop = Loop(1, 2, 3, 4, accumulate=2, optimizer=torch.optim.SGD)
    loop.train(lambda loop: loop.accelerator.log({"accuracy": 1.0}))
    loop.accelerator.save_state(str(tmp_path / "state"))
    loop.accelerator.load_state(str(tmp_path / "state"))

    assert loop.model.weight.item() == pytest.approx(-0.75)
    assert loop.accelerator.step == 0
    assert recorded().state.errors > 0
