"""The Hugging Face Trainer, the real one: every training is the same with the probe, and all about it arrives."""

from __future__ import annotations

import copy
import gc
import glob
import json
import os
import pickle
import weakref
from pathlib import Path

import pytest
from tests.frameworks.scripts import TWICE, run_python
from tests.helpers import Node
from tests.probe.conftest import Recorded

from trainvitals import rankfile
from trainvitals.frameworks import accelerate as library
from trainvitals.frameworks import capture as capture_module
from trainvitals.frameworks import loggers
from trainvitals.frameworks import transformers as adapter

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("accelerate", reason="needs Accelerate")
hf = pytest.importorskip("transformers", reason="needs transformers")
trainer_module = pytest.importorskip("transformers.trainer", reason="needs transformers")

#: transformers and Accelerate warn of much that is none of ours.
pytestmark = pytest.mark.filterwarnings("ignore")
EXAMPLES = os.path.join(os.path.dirname(__file__), "../../examples")


class Counting(torch.nn.Module):
    """A model whose loss is the mean of its input, and the norm of whose gradient is 3."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x, labels=None):
        """Return the loss, as the Trainer wants it."""
        del labels
        return {"loss": 3 * self.weight.sum() - (3 * self.weight.sum()).detach() + x.mean()}


class InOrder(hf.Trainer):
    """A Trainer that does not shuffle."""

    def _get_train_sampler(self, *_):
        return torch.utils.data.SequentialSampler(self.train_dataset)


def numbers(*values):
    """Return a data set with these numbers."""
    return [{"x": torch.tensor(float(value)), "labels": torch.tensor(0)} for value in values]


@pytest.fixture(autouse=True)
def anew(monkeypatch):
    """Let each test begin as a process does, with all doors open."""
    capture = capture_module.Capture()
    monkeypatch.setattr(adapter, "capture", capture)
    monkeypatch.setattr(library, "capture", capture)
    library.watch.__init__()
    monkeypatch.setattr(adapter._Training, "_rest", None)
    adapter.install(trainer_module)
    yield
    library.watch.__init__()


@pytest.fixture
def make(tmp_path, probe):
    """Give a function that makes a trainer; one number is one micro-batch."""
    del probe

    def build(kind=InOrder, *, data=None, evaluation=None, model=None, callbacks=None, **settings):
        quiet = {"per_device_train_batch_size": 1, "use_cpu": True, "report_to": [], "disable_tqdm": True}
        quiet |= {"learning_rate": 0.5, "save_strategy": "no", "num_train_epochs": 1, "logging_steps": 1000}
        folder = settings.pop("output_dir", str(tmp_path / "out"))
        args = hf.TrainingArguments(folder, **quiet | settings)
        data = numbers(1, 2, 3, 4) if data is None else data
        model = Counting() if model is None else model
        return kind(model=model, args=args, train_dataset=data, eval_dataset=evaluation, callbacks=callbacks)

    return build


def events_of(found, kind):
    """Return the events of a kind, without their times."""
    events = [json.loads(line) for line in found.events]
    kept = [
        {name: event[name] for name in event if name not in {"time", "seconds", "kind", "lineage"}} for event in events
    ]
    return [fields for fields, event in zip(kept, events, strict=True) if event["kind"] == kind]


def losses(found):
    """Return number and loss of each step."""
    return [(step, values["loss"]) for step, values in found.steps if "loss" in values]


def test_the_example_is_the_same_bit_for_bit_and_arrives_whole(spool, tmp_path):
    """Weights and optimizer do not differ from a training before ours was loaded; with ours everything is recorded."""
    folders = [str(tmp_path / name) for name in ("without", "with")]
    run_python("-c", TWICE, os.path.join(EXAMPLES, "train_huggingface.py"), *folders, TRAINVITALS_DIR=str(spool))

    states = [torch.load(f"{folder}/checkpoint-20/optimizer.pt") for folder in folders]
    pairs = zip(states[0]["state"].values(), states[1]["state"].values(), strict=True)
    assert all(torch.equal(one[name], other[name]) for one, other in pairs for name in one)
    weights = [Path(folder, "last/model.safetensors").read_bytes() for folder in folders]
    assert weights[0] == weights[1]
    logs = [json.loads(Path(folder, "checkpoint-20/trainer_state.json").read_text()) for folder in folders]
    assert logs[0]["stateful_callbacks"] == logs[1]["stateful_callbacks"]
    logged = [[entry for entry in log["log_history"] if "loss" in entry] for log in logs]
    assert logged[0] == logged[1]

    found = Recorded(str(spool))
    assert (found.identity["framework"], found.identity["target_steps"]) == ("transformers", 20)
    assert [step for step, _ in found.steps] == list(range(1, 21))
    assert all(set(values) == {"loss", "grad_norm", "learning_rate", "epoch"} for _, values in found.steps)
    # What the Trainer logs of five steps is the mean of their losses, and grad norm and learning rate of the last.
    for entry in logged[1]:
        steps = dict(found.steps)
        last = entry["step"]
        mean = sum(steps[number]["loss"] for number in range(last - 4, last + 1)) / 5
        assert mean == pytest.approx(entry["loss"], rel=1e-6)
        assert steps[last]["grad_norm"] == pytest.approx(entry["grad_norm"], rel=1e-6)
        assert steps[last]["learning_rate"] == entry["learning_rate"]
    state = found.state
    assert (state.samples, state.tokens, state.dropped, state.errors) == (160.0, 2560.0, 0, 0)
    assert state.flags == rankfile.FLAG_FINISHED
    evaluations = events_of(found, "evaluation")
    assert [(event["step"], event["name"], list(event["values"])) for event in evaluations] == [
        (10, "validation", ["loss"]),
        (20, "validation", ["loss"]),
    ]
    assert events_of(found, "checkpoint") == [
        {"step": step, "action": "save", "ok": True, "path": f"{folders[1]}/checkpoint-{step}"} for step in (10, 20)
    ]
    spent = dict(zip(rankfile.PHASES, state.phase_seconds, strict=False))
    assert all(spent[phase] > 0 for phase in ("init", "train", "data", "evaluation", "checkpoint", "other"))


def test_two_ranks_under_torchrun(spool, tmp_path):
    """Each tells of itself: its own losses, half of the samples, and the same steps."""
    script = tmp_path / "two.py"
    script.write_text(
        "import os, sys; sys.path.insert(0, sys.argv[1])\n"
        "import train_huggingface as example, trainvitals\n"
        "trainvitals.auto()\n"
        "example.main(sys.argv[2])\n"
    )
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    run_python(*torchrun, str(script), EXAMPLES, str(tmp_path / "out"), TRAINVITALS_DIR=str(spool))

    found = {}
    for path in glob.glob(f"{spool}/*{rankfile.RANK_SUFFIX}"):
        reader = rankfile.Reader(path)
        identity, _ = reader.read_text()
        state = reader.read_state()
        found[identity["rank"]] = (identity["local_rank"], identity["world_size"], state.count, state.samples)
        assert (state.errors, state.dropped, state.flags) == (0, 0, rankfile.FLAG_FINISHED)
        reader.close()
    assert found == {0: (0, 2, 20, 160.0), 1: (1, 2, 20, 160.0)}


def test_accumulated_batches_are_one_step_with_their_mean(make, recorded):
    """Four steps of two micro-batches, whose losses nobody logs in between; the learning rate is the one used."""
    make(data=numbers(1, 2, 3, 4, 5, 6, 7, 8), gradient_accumulation_steps=2, logging_steps=3).train()

    assert recorded().steps == [
        (1, {"loss": 1.5, "grad_norm": 3.0, "learning_rate": 0.5, "epoch": 0.25}),
        (2, {"loss": 3.5, "grad_norm": 3.0, "learning_rate": 0.375, "epoch": 0.5}),
        (3, {"loss": 5.5, "grad_norm": 3.0, "learning_rate": 0.25, "epoch": 0.75}),
        (4, {"loss": 7.5, "grad_norm": 3.0, "learning_rate": 0.125, "epoch": 1.0}),
    ]
    assert (recorded().state.samples, recorded().identity["target_steps"]) == (8.0, 4)


def test_fewer_batches_at_the_end_of_an_epoch_are_a_step(make, recorded):
    """Their mean is over as many as there were."""
    make(data=numbers(1, 2, 6), gradient_accumulation_steps=2).train()

    assert losses(recorded()) == [(1, 1.5), (2, 6.0)]


def test_a_loss_by_the_number_of_items_is_added_up(make, recorded):
    """Models that divide by the items of all micro-batches: 1 of one label and 2 + 3 of two are 6 / 3, not 1.75."""

    class Items(Counting):
        def forward(self, x, labels=None, num_items_in_batch=None, **kwargs):
            del x, kwargs
            zero = 3 * self.weight.sum() - (3 * self.weight.sum()).detach()
            return {"loss": zero + labels[labels != -100].sum() / num_items_in_batch}

    rows = [[1, -100], [2, 3]]
    data = [{"x": torch.tensor(0.0), "labels": torch.tensor(row)} for row in rows]
    make(model=Items(), data=data, gradient_accumulation_steps=2).train()

    assert losses(recorded()) == [(1, 2.0)]


def test_a_loss_that_the_trainer_hides_is_seen_by_the_exporter(make, recorded, spool):
    """The log shows a finite mean; the counter, the curve and the detector show the step that was not."""
    trainer = make(data=numbers(1, 2, float("nan"), 4, 5, 6), gradient_accumulation_steps=2, logging_steps=1)
    trainer.train()

    assert all(entry["loss"] == entry["loss"] for entry in trainer.state.log_history if "loss" in entry)
    assert [str(loss) for _, loss in losses(recorded())] == ["1.5", "nan", "5.5"]
    scrape = Node(spool).scrape()
    assert scrape['trainvitals_nonfinite_steps_total{rank="0",run="test"}'] == 1.0
    assert scrape['trainvitals_signal_ratio{run="test",signal="loss_nonfinite"}'] >= 1.0
    assert scrape['trainvitals_loss{rank="0",run="test"}'] == 5.5
    assert scrape['trainvitals_step{rank="0",run="test"}'] == 3.0
    assert scrape['trainvitals_target_steps{rank="0",run="test"}'] == 3.0


def test_a_step_that_the_scaler_skips_is_counted(make, recorded, monkeypatch):
    """Accelerate has asked the scaler; an infinite loss is then its normal search for a scale."""
    trainer = make(data=numbers(1, float("inf"), 3))
    skipped = iter([False, True, False])
    # The Trainer asks before we do.
    answers = [answer for answer in skipped for _ in range(2)]
    monkeypatch.setattr(
        type(trainer.accelerator), "optimizer_step_was_skipped", property(lambda _: answers.pop(0)), raising=True
    )
    trainer.train()

    assert [step for step, values in recorded().steps if "skipped" in values] == [2]
    assert (recorded().state.skipped, recorded().state.nonfinite) == (1, 0)


def test_tokens_are_counted_by_shape_or_as_the_trainer_does(make, recorded):
    """Without its option all ids count; with it, its own count: here without the padding."""

    class Text(Counting):
        def forward(self, input_ids, attention_mask=None, labels=None):
            del attention_mask
            return super().forward(input_ids.float(), labels)

    def text(*mask):
        fields = {"input_ids": torch.ones(4, dtype=torch.long), "attention_mask": torch.tensor(mask)}
        return [{**fields, "labels": torch.tensor(0)}] * 2

    make(model=Text(), data=text(1, 1, 1, 0)).train()
    assert (recorded().state.tokens, recorded().state.samples) == (8.0, 2.0)
    make(model=Text(), data=text(1, 1, 1, 0), include_num_input_tokens_seen="non_padding").train()
    assert (recorded().state.tokens, recorded().state.samples) == (14.0, 4.0)


# Evaluations and checkpoints ----------------------------------------------------------------------------------------


def test_evaluations_bear_the_name_of_their_split(make, recorded):
    """Several sets, one for prediction, one before any step; how fast it went is no result."""
    sets = {"books": numbers(2), "code": numbers(4)}
    trainer = make(evaluation=sets, max_steps=2, eval_strategy="steps", eval_steps=2)
    trainer.evaluate(numbers(7))
    trainer.train()
    trainer.predict(numbers(5))

    assert events_of(recorded(), "evaluation") == [
        {"step": 0, "name": "validation", "values": {"loss": 7.0}},
        {"step": 2, "name": "books", "values": {"loss": 2.0}},
        {"step": 2, "name": "code", "values": {"loss": 4.0}},
        {"step": 2, "name": "test", "values": {"loss": 5.0}},
    ]
    assert recorded().state.phase_seconds[rankfile.PHASES.index("evaluation")] > 0
    assert [step for step, _ in recorded().steps] == [1, 2]


def test_what_a_library_adds_to_the_log_arrives_once(make, recorded):
    """TRL adds its means to what is logged, in training and in evaluation."""

    class Adding(InOrder):
        def log(self, logs, *args, **kwargs):
            prefix = "eval_" if "eval_loss" in logs else ""
            super().log({**logs, f"{prefix}reward": 0.25, "note": "text", "tokens": 9}, *args, **kwargs)

    trainer = make(Adding, data=numbers(1, 2), evaluation=numbers(3), logging_steps=2)
    trainer.train()
    trainer.evaluate()
    trainer.evaluate()

    assert recorded().steps[2:] == [(2, {"reward": 0.25, "logged_tokens": 9.0})] * 2
    assert recorded().state.tokens == 0.0
    assert [event["values"] for event in events_of(recorded(), "evaluation")] == [
        {"loss": 3.0, "reward": 0.25, "logged_tokens": 9.0}
    ] * 2


def test_what_goes_on_to_a_logger_arrives_once(make, recorded, monkeypatch):
    """The Trainer tells TensorBoard what it tells us; what the program itself writes there still counts."""
    writer = pytest.importorskip("torch.utils.tensorboard.writer", reason="needs TensorBoard")
    heard = loggers.Loggers()
    monkeypatch.setattr(loggers, "loggers", heard)
    monkeypatch.setattr(loggers, "capture", adapter.capture)
    loggers.install(writer)

    trainer = make(data=numbers(1, 2), evaluation=numbers(3), logging_steps=1, report_to=["tensorboard"])
    trainer.train()
    trainer.evaluate()
    heard.flush()

    assert [set(values) for _, values in recorded().steps] == [{"loss", "grad_norm", "learning_rate", "epoch"}] * 2
    assert events_of(recorded(), "evaluation") == [{"step": 2, "name": "validation", "values": {"loss": 3.0}}]
    with writer.SummaryWriter(trainer.args.output_dir) as own:
        own.add_scalar("gap", 0.5, 2)
    assert recorded().steps[2:] == [(2, {"gap": 0.5})]


def test_a_checkpoint_that_fails_is_told(make, recorded, monkeypatch):
    """A full disk is the user's to see, and ours to record; a subclass that calls its base saves once."""

    class Saving(InOrder):
        def _save_checkpoint(self, *args, **kwargs):
            super()._save_checkpoint(*args, **kwargs)

    make(data=numbers(1), save_strategy="steps", save_steps=1).train()
    trainer = make(Saving, data=numbers(1, 2), save_strategy="steps", save_steps=1)
    error = OSError(28, "No space left on device")
    monkeypatch.setattr(trainer, "_save", lambda *_, **__: (_ for _ in ()).throw(error))
    with pytest.raises(OSError, match="No space left") as raised:
        trainer.train()

    assert raised.value is error
    saved = {"step": 1, "action": "save", "path": os.path.join(trainer.args.output_dir, "checkpoint-1")}
    assert events_of(recorded(), "checkpoint") == [{**saved, "ok": True}, {**saved, "ok": False, "error": "OSError"}]


def test_a_training_goes_on_where_its_checkpoint_was(make, recorded):
    """The first step after a resume has the next number; the load is recorded."""
    data = numbers(1, 2, 3, 4)
    make(data=data, save_strategy="steps", save_steps=2, max_steps=2).train()
    make(data=data, max_steps=4).train(resume_from_checkpoint=True)

    assert losses(recorded()) == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]
    assert [event["action"] for event in events_of(recorded(), "checkpoint")] == ["save", "load"]
    assert recorded().identity["target_steps"] == 4


# Trainings that are not one straight line ---------------------------------------------------------------------------


def lineage_of(found, subject):
    """Return the tables of a subject that were told."""
    return [event["values"] for event in events_of(found, "lineage") if event["subject"] == subject]


def test_arguments_model_and_data_are_told_and_change_only_with_them(make, recorded, tmp_path):
    """The same training again tells nothing new, whatever its folder and name; then exactly what is another."""
    for name, settings in (
        ("one", {}),
        ("two", {}),
        ("three", {"learning_rate": 0.25, "per_device_train_batch_size": 2}),
    ):
        make(output_dir=str(tmp_path / name), run_name=name, logging_steps=1, **settings).train()

    first, second = lineage_of(recorded(), "config")
    assert {name: (first[name], second[name]) for name in first if first[name] != second[name]} == {
        "learning_rate": ("0.5", "0.25"),
        "per_device_train_batch_size": ("1", "2"),
    }
    assert first.keys() == second.keys()
    assert (first["bf16"], first["seed"], first["lr_scheduler_type"]) == ("False", "42", "linear")
    assert first.keys().isdisjoint({"output_dir", "run_name", "logging_dir", "local_rank", "hub_token"})
    assert lineage_of(recorded(), "model") == [
        {"class": "Counting", "parameters": "1", "trainable": "1", "precision": "torch.float32"}
    ]
    assert lineage_of(recorded(), "dataset") == [{"class": "list", "length": "4"}]
    assert (recorded().state.errors, recorded().state.dropped) == (0, 0)


def test_what_the_program_tells_of_itself_stays(make, recorded, probe):
    """A configuration of the program's own is not replaced by the arguments of the Trainer."""
    probe.add_lineage(config={"mine": 1})
    make().train()

    assert lineage_of(recorded(), "config") == [{"mine": "1"}]
    assert len(lineage_of(recorded(), "model")) == 1


def test_arguments_that_cannot_be_told_are_left_alone(make, recorded, monkeypatch):
    """A ``to_dict`` that fails, and data whose length fails, are no errors of ours."""

    class Odd:
        def __len__(self):
            raise RuntimeError("no length")

    trainer = make()
    monkeypatch.setattr(trainer, "train_dataset", Odd())
    monkeypatch.setattr(type(trainer.args), "to_dict", lambda _: 1 / 0)
    adapter._offer_lineage(trainer)

    assert (lineage_of(recorded(), "config"), lineage_of(recorded(), "dataset")) == ([], [{"class": Odd.__qualname__}])
    assert (recorded().state.errors, len(lineage_of(recorded(), "model"))) == (0, 1)


def test_a_second_training_begins_anew(make, recorded):
    """The same trainer again, then another one: steps restart, the plan is the new one, each step counts once."""
    trainer = make(data=numbers(1, 2))
    trainer.train()
    trainer.train()
    make(data=numbers(5, 6, 7)).train()

    assert losses(recorded()) == [(1, 1.0), (2, 2.0), (1, 1.0), (2, 2.0), (1, 5.0), (2, 6.0), (3, 7.0)]
    assert recorded().identity["target_steps"] == 3
    assert recorded().state.phase == rankfile.PHASES.index("other")


def test_many_trainings_leave_nothing_behind(make, recorded, probe, monkeypatch):
    """A program that trains again and again, also where one fails, does not go deeper into phases each time."""
    depth = []
    for name, change in (("__enter__", 1), ("__exit__", -1)):
        original = getattr(probe._Phase, name)

        def counted(*args, original=original, change=change):
            depth.append(change)
            return original(*args)

        monkeypatch.setattr(probe._Phase, name, counted)
    trainer = make()
    for _ in range(3):
        trainer.train()
        assert (probe.current_phase(), sum(depth)) == ("other", 1)
    trainer.get_train_dataloader = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        trainer.train()

    assert (probe.current_phase(), sum(depth), recorded().state.errors) == ("other", 1, 0)


def test_an_error_of_the_training_goes_on_its_way(make, recorded):
    """The user sees the very same exception; the step that was not finished leaves nothing behind."""
    error = ValueError("a bad batch")

    class Failing(InOrder):
        bad = True

        def training_step(self, model, inputs, *args, **kwargs):
            if self.bad and inputs["x"].item() == 4.0:
                raise error
            return super().training_step(model, inputs, *args, **kwargs)

    trainer = make(Failing, gradient_accumulation_steps=2)
    with pytest.raises(ValueError, match="a bad batch") as raised:
        trainer.train()
    assert raised.value is error
    trainer.bad = False
    trainer.train()

    assert losses(recorded()) == [(1, 1.5), (1, 1.5), (2, 3.5)]
    assert (recorded().state.errors, recorded().state.phase) == (0, rankfile.PHASES.index("other"))


def test_a_batch_size_that_is_looked_for_starts_a_new_segment(make, recorded):
    """``auto_find_batch_size`` begins again with step 1 after memory ran out in the second step."""

    class Full(InOrder):
        def training_step(self, model, inputs, *args, **kwargs):
            if len(inputs["x"]) == 4 and self.state.global_step == 1:
                raise RuntimeError("CUDA out of memory.")
            return super().training_step(model, inputs, *args, **kwargs)

    make(Full, data=numbers(*range(8)), per_device_train_batch_size=4, auto_find_batch_size=True).train()

    assert [number for number, _ in losses(recorded())][:2] == [1, 1]
    assert len(losses(recorded())) > 3
    assert recorded().state.errors == 0


def test_subclasses_may_do_as_they_like(make, recorded):
    """A micro-batch counts once: with the loss that a subclass returns, whether it asks its base or not."""

    class Calling(InOrder):
        def training_step(self, *args, **kwargs):
            return super().training_step(*args, **kwargs) + 10.0

    class Replacing(InOrder):
        def training_step(self, model, inputs, num_items_in_batch=None):
            del num_items_in_batch
            loss = model(**inputs)["loss"]
            loss.backward()
            return loss + 20.0

    for kind in (InOrder, Calling, Replacing, Calling):
        make(kind, data=numbers(1)).train()

    assert losses(recorded()) == [(1, 1.0), (1, 11.0), (1, 21.0), (1, 11.0)]


def test_a_loop_of_its_own_is_taken_from_the_log(make, recorded):
    """A trainer that never calls ``training_step`` (PPO) tells its loss in the log."""

    class Own(InOrder):
        def train(self):
            self.state.max_steps = 1
            self.callback_handler.on_train_begin(self.args, self.state, self.control)
            self.state.global_step = 1
            self.callback_handler.on_step_end(self.args, self.state, self.control)
            self.log({"loss": 4.0})

    make(Own).train()

    assert recorded().steps == [(1, {"epoch": 0.0}), (1, {"loss": 4.0})]


def test_the_programs_own_steps_win(make, recorded, probe):
    """A program with calls of its own is not counted twice."""

    class Own(hf.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            del args, control, kwargs
            probe.step(state.global_step, loss=8.0)

    make(data=numbers(1, 2), callbacks=[Own()]).train()

    assert losses(recorded()) == [(1, 8.0), (2, 8.0)]


# Doors --------------------------------------------------------------------------------------------------------------


def test_several_doors_count_once(make, recorded):
    """auto() and callbacks in the list, even two, are one watch."""
    make(data=numbers(1, 2), callbacks=[adapter.callback(), adapter.callback()]).train()

    assert losses(recorded()) == [(1, 1.0), (2, 2.0)]


def test_one_callback_may_serve_two_trainers(make, recorded):
    """One after the other."""
    ours = adapter.callback()
    for _ in range(2):
        make(data=numbers(1), callbacks=[ours]).train()

    assert losses(recorded()) == [(1, 1.0), (1, 1.0)]


def test_a_trainer_that_was_made_before_is_watched(make, recorded, monkeypatch):
    """So is one whose list of callbacks was made anew, and one whose module has another list of defaults (ms-swift)."""
    trainer = make(data=numbers(1))
    trainer.callback_handler = trainer_module.CallbackHandler(
        [hf.trainer_callback.DefaultFlowCallback], trainer.model, None, None, None
    )
    trainer.train()
    monkeypatch.setattr(trainer_module, "DEFAULT_CALLBACKS", [hf.trainer_callback.DefaultFlowCallback])
    make(data=numbers(2)).train()

    assert losses(recorded()) == [(1, 1.0), (1, 2.0)]


def test_who_takes_our_callback_away_is_left_alone(make, recorded):
    """It is not added again, and nothing is recorded."""
    trainer = make(data=numbers(1))
    trainer.pop_callback(adapter.Watch)
    trainer.train()

    assert recorded().steps == []


def test_without_a_recording_the_trainer_trains(make, recorded, monkeypatch):
    """Where the probe is switched off, the hooks do nothing."""
    monkeypatch.setattr(adapter.probe, "_recorder", None)
    monkeypatch.setenv("TRAINVITALS_DISABLE", "1")
    assert make(data=numbers(1, 2)).train().global_step == 2
    assert recorded().steps == []


def test_nothing_of_ours_keeps_a_trainer_alive(make):
    """The memory of its model is free when the program lets go of it."""
    trainer = make(data=numbers(1))
    trainer.train()
    (ours,) = [each for each in trainer.callback_handler.callbacks if isinstance(each, adapter.Watch)]
    gone = weakref.ref(trainer)
    del trainer
    gc.collect()

    assert gone() is None
    assert ours.trainer() is None


def test_the_callback_survives_a_copy():
    """A trainer is sent to other processes by pickle, and copied."""
    ours = adapter.callback()

    for twin in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours)):
        assert isinstance(twin, hf.TrainerCallback)
        assert isinstance(twin, adapter.Watch)
        assert twin is not ours


def test_a_hook_that_fails_once_is_silent(make, recorded, monkeypatch):
    """In a release that we do not know, the others go on: steps are many, and three errors switch the probe off."""
    monkeypatch.setattr(adapter, "plain_learning_rate", lambda _: 1 // 0)
    make(data=numbers(1, 2, 3, 4)).train()

    assert losses(recorded()) == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]
    assert recorded().state.errors == 1


BROKEN = (
    "Watch.count",
    "Watch.forget",
    "Watch._new_tokens",
    "Watch._report_evaluation",
    "_AFTER.training_step",
    *(f"_CONTEXTS.{name}" for name in adapter._CONTEXTS),
    "_attend",
    "_watch_of",
    "_owner",
    "_split",
    "capture.step",
    "capture.begin",
    "capture.log",
    "probe.evaluate",
    "plain_learning_rate",
)


@pytest.mark.parametrize("broken", BROKEN)
def test_an_error_of_ours_never_reaches_the_training(broken, make, monkeypatch, recorded):
    """Whatever of ours raises, the training, its evaluation and its checkpoint end as they would."""

    def raises(*_, **__):
        raise RuntimeError("ours")

    owner, _, name = broken.rpartition(".")
    if owner in {"_AFTER", "_CONTEXTS"}:
        monkeypatch.setitem(getattr(adapter, owner), name, raises)
    else:
        monkeypatch.setattr(getattr(adapter, owner) if owner else adapter, name, raises)
    settings = {"save_strategy": "steps", "save_steps": 2, "eval_strategy": "steps", "eval_steps": 2}
    settings |= {"load_best_model_at_end": True, "gradient_accumulation_steps": 2, "logging_steps": 1}
    trainer = make(evaluation=numbers(9), **settings)

    assert trainer.train().global_step == 2
    trainer.log({"accuracy": 0.5})
    assert trainer.predict(numbers(7)).metrics["test_loss"] == 7.0
    assert make(evaluation=numbers(9), **settings).train(resume_from_checkpoint=True).global_step == 2
    assert trainer.evaluate()["eval_loss"] == 9.0
    assert trainer.model.weight.item() == pytest.approx(-0.75)
    assert os.path.exists(os.path.join(trainer.args.output_dir, "checkpoint-2"))
    assert recorded().state.errors > 0
