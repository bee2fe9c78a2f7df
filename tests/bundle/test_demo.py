"""The demo's training: a real model, real gradients, a loss that falls, and then really breaks."""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from trainvitals.bundle.demo import corpus, numpy_model
from trainvitals.bundle.demo.plan import GROWTH, LEARNING_RATE, LEAST_HEALTHY_STEPS, Plan
from trainvitals.bundle.demo.train import fit_batch_size, make_model
from trainvitals.collect.spool import Spool

BACKENDS = [
    "numpy",
    pytest.param("torch", marks=pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="no PyTorch")),
]


@pytest.fixture(scope="module")
def text():
    """Training and validation split."""
    return corpus.load()


@pytest.fixture(params=BACKENDS)
def model(request):
    """A small model of each backend; NumPy is left as it was."""
    before = np.geterr()
    yield importlib.import_module(f"trainvitals.bundle.demo.{request.param}_model").Model(width=12, units=64)
    np.seterr(**before)


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self):
        """Return the time that was set."""
        return self.now


def train(model, text, plan, steps, *, first=1):
    """Train and return the losses."""
    draw = random.Random(first)
    losses = []
    for step in range(first, first + steps):
        losses.append(float(model.loss(text[0].batch(64, draw))))
        model.backward()
        model.update(plan.learning_rate(step))
        plan.observe(step, losses[-1])
        if plan.stage == "broken":
            break
    return losses


# Text ---------------------------------------------------------------------------------------------------------------


def test_every_machine_has_text(text):
    """Enough for training and for validation, in a small alphabet."""
    for split in text:
        assert len(split.tokens) > 10_000
        assert max(split.tokens) < len(corpus.ALPHABET)


def test_without_sources_there_is_the_built_in_help(monkeypatch, tmp_path):
    """A Python that ships no sources still has something to say."""
    monkeypatch.setattr(corpus.sysconfig, "get_path", lambda _name: str(tmp_path))
    training, validation = corpus.load()
    assert len(training.tokens) > 10_000
    assert len(validation.tokens) > 10 * corpus.CONTEXT


def test_what_is_not_in_the_alphabet_is_a_question_mark():
    """Indices of newline, blank, a letter, and something else."""
    expected = [0, 1, corpus.ALPHABET.index(b"a"), corpus.ALPHABET.index(b"?"), corpus.ALPHABET.index(b"?")]
    assert list(corpus.encode("\n aé訓")) == expected


def test_a_batch_is_windows_and_what_comes_next():
    """Each target is the character behind its window."""
    split = corpus.Split(bytes(range(96)))
    batch = split.batch(5, random.Random(0))
    for row in range(5):
        window = batch.inputs[row * corpus.CONTEXT : (row + 1) * corpus.CONTEXT]
        assert list(window) == list(range(window[0], window[0] + corpus.CONTEXT))
        assert batch.targets[row] == window[-1] + 1


# Models -------------------------------------------------------------------------------------------------------------


def test_gradients_are_those_of_the_loss(text):
    """Each hand-written gradient agrees with central differences at random places of its parameter."""
    before = np.geterr()
    model = numpy_model.Model(width=5, units=7, dtype=np.float64)
    random_places = np.random.default_rng(0)
    # Biases of zero would leave units exactly at the kink of max(a, 0).
    for name, value in model.parameters.items():
        model.parameters[name] = value + 0.05 * random_places.standard_normal(value.shape)
    batch = text[0].batch(9, random.Random(0))
    model.loss(batch)
    norm = model.backward()
    gradients = model.gradients
    width = 1e-6
    for name, value in model.parameters.items():
        # Places that the batch reaches: an embedding of an unseen character has no gradient.
        places = np.argwhere(gradients[name] != 0)
        for place in map(tuple, random_places.permutation(places)[:20]):
            value[place] += width
            above = model.loss(batch)
            value[place] -= 2 * width
            below = model.loss(batch)
            value[place] += width
            assert gradients[name][place] == pytest.approx((above - below) / (2 * width), rel=1e-5, abs=1e-9), name
    assert norm == pytest.approx(np.sqrt(sum((gradient**2).sum() for gradient in gradients.values())))
    np.seterr(**before)


def test_both_backends_are_the_same_network(text):
    """With the same parameters, loss, gradient norm and the loss after one step agree."""
    torch = pytest.importorskip("torch")
    from trainvitals.bundle.demo import torch_model

    ours, theirs = numpy_model.Model(width=6, units=8), torch_model.Model(width=6, units=8)
    p = ours.parameters
    values = [p["embedding"], p["hidden"].T, p["hidden_bias"], p["output"].T, p["output_bias"]]
    with torch.no_grad():
        for parameter, value in zip(theirs._network.parameters(), values, strict=True):
            parameter.copy_(torch.from_numpy(value.copy()))
    assert ours.size == theirs.size
    batch = text[0].batch(32, random.Random(0))
    for _ in range(3):
        assert ours.loss(batch) == pytest.approx(float(theirs.loss(batch)), rel=1e-4)
        assert ours.backward() == pytest.approx(float(theirs.backward()), rel=1e-4)
        for model in (ours, theirs):
            model.update(0.1)
    assert ours.evaluate(batch) == pytest.approx(theirs.evaluate(batch), rel=1e-4)


def test_the_loss_really_falls(model, text):
    """From that of a uniform guess, log(96) = 4.56 nats, to below 3 in 300 steps, on text not seen as well."""
    plan = Plan(healthy_seconds=1e9, broken_seconds=0, tell=lambda *_: None, clock=Clock())
    losses = train(model, text, plan, 300)
    assert losses[0] == pytest.approx(math.log(96), abs=0.3)
    assert sum(losses[-20:]) / 20 < 3.0
    assert model.evaluate(text[1].batch(500, random.Random(0))) < 3.0


def test_a_rising_learning_rate_really_breaks_the_loss(model, text, tmp_path):
    """NaN or infinity comes out of the arithmetic, and the checkpoint from before leads back."""
    clock, told = Clock(), []
    plan = Plan(healthy_seconds=60, broken_seconds=30, tell=lambda step, line: told.append((step, line)), clock=clock)
    train(model, text, plan, LEAST_HEALTHY_STEPS)
    model.save(str(tmp_path / "checkpoint"))
    plan.saved(LEAST_HEALTHY_STEPS)
    assert plan.stage == "healthy"
    clock.now = 60.0
    plan.saved(LEAST_HEALTHY_STEPS)
    assert plan.stage == "raising"
    losses = train(model, text, plan, 1500, first=LEAST_HEALTHY_STEPS + 1)
    assert plan.stage == "broken"
    assert not math.isfinite(losses[-1])
    assert not math.isfinite(model.evaluate(text[1].batch(100, random.Random(0))))
    model.load(str(tmp_path / "checkpoint"))
    plan.rolled_back(LEAST_HEALTHY_STEPS)
    recovered = train(model, text, plan, 50, first=LEAST_HEALTHY_STEPS + 1)
    assert sum(recovered) / 50 < 3.0
    assert [step for step, _ in told] == [LEAST_HEALTHY_STEPS, LEAST_HEALTHY_STEPS + len(losses), LEAST_HEALTHY_STEPS]


def test_half_a_checkpoint_is_never_seen(model, tmp_path):
    """A checkpoint is written under another name; nothing but the checkpoint remains."""
    model.save(str(tmp_path / "checkpoint"))
    model.save(str(tmp_path / "checkpoint"))
    assert os.listdir(tmp_path) == ["checkpoint"]


# Plan ---------------------------------------------------------------------------------------------------------------


def test_the_learning_rate_never_jumps_while_it_is_raised():
    """Every rise stays below the 20 % that the spike detector takes for a change on purpose."""
    clock = Clock()
    plan = Plan(healthy_seconds=0, broken_seconds=10, tell=lambda *_: None, clock=clock)
    assert [plan.learning_rate(step) for step in (1, 50, 100, 600)] == pytest.approx([0.001, 0.05, 0.1, 0.1])
    plan.saved(LEAST_HEALTHY_STEPS)
    rates = [plan.learning_rate(step) for step in range(601, 901)]
    assert rates[-1] == pytest.approx(LEARNING_RATE * GROWTH**300)
    assert 1.0 < GROWTH < 1.2
    assert not plan.sound
    plan.observe(901, math.inf)
    assert plan.learning_rate(902) == rates[-1]
    assert not plan.wants_rollback
    clock.now = 10.0
    assert plan.wants_rollback
    plan.rolled_back(600)
    assert plan.sound
    assert plan.learning_rate(601) == LEARNING_RATE / 2
    plan.saved(1000)
    assert plan.stage == "recovered"


# Loop ---------------------------------------------------------------------------------------------------------------


def test_the_batch_fits_the_machine(text):
    """A slow model gets a small batch, a fast one a large batch, both in multiples of 64."""

    class Slow:
        def loss(self, _batch):
            return 0.0

        def backward(self):
            time.sleep(0.004)

    slow = fit_batch_size(Slow(), text[0], seconds=0.001)
    fast = fit_batch_size(Slow(), text[0], seconds=10.0)
    assert (slow, fast) == (64, 4096)


def test_without_pytorch_the_model_is_in_numpy(monkeypatch):
    """What is importable decides."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    before = np.geterr()
    assert make_model(None).framework == "NumPy"
    np.seterr(**before)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_loop_reports_as_a_user_would(tmp_path, backend):
    """Steps, loss, phases, evaluation and checkpoint of the whole program are in its rank file, and a clean end."""
    (tmp_path / "spool").mkdir()
    command = [sys.executable, "-m", "trainvitals.bundle.demo.train", "--steps", "250", "--batch", "64"]
    command += ["--backend", backend, "--folder", str(tmp_path)]
    environ = {
        **os.environ,
        "TRAINVITALS_DIR": str(tmp_path / "spool"),
        "OMP_NUM_THREADS": "1",
        "TRAINVITALS_DISABLE": "",
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "checkpoint saved" in done.stdout
    assert done.stdout.endswith("step 250: the training is complete\n")
    spool = Spool([str(tmp_path / "spool")], keep=3600, remove=False)
    (file,) = spool.poll()
    assert (file.identity.run, file.identity.target_steps) == ("demo", 250)
    assert [step.step for step in file.steps] == list(range(1, 251))
    assert all({"loss", "learning_rate", "grad_norm"} <= step.values.keys() for step in file.steps[:-2])
    assert {"start", "evaluation", "checkpoint"} <= {event.kind for event in file.events}
    assert not file.alive
    assert file.state.tokens == 64 * 250
    spool.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_being_stopped_is_no_failure(tmp_path, number):
    """SIGTERM and Ctrl-C end the program quietly, and the run as finished."""
    command = [sys.executable, "-m", "trainvitals.bundle.demo.train", "--batch", "64", "--backend", "numpy"]
    environ = {**os.environ, "TRAINVITALS_DIR": str(tmp_path), "TRAINVITALS_DISABLE": ""}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ)
    process.stdout.readline()
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "")
    spool = Spool([str(tmp_path)], keep=3600, remove=False)
    (file,) = spool.poll()
    assert file.state.flags == 1
    spool.close()
