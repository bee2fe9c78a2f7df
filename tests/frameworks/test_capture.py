"""One source counts the steps, and it is the best one."""

from __future__ import annotations

import os

import pytest

from trainvitals.frameworks import capture as capture_module
from trainvitals.frameworks.capture import Capture, Source


@pytest.mark.usefixtures("probe")
def test_a_better_source_takes_over(recorded):
    """The optimizer is heard until the framework speaks, and not any more."""
    capture = Capture()

    assert capture.step(Source.OPTIMIZER, values={"learning_rate": 0.5})
    assert capture.step(Source.OPTIMIZER, values={"learning_rate": 0.25})
    assert capture.step(Source.FRAMEWORK, 7, {"loss": 2.0})
    assert not capture.step(Source.OPTIMIZER)
    assert capture.step(Source.FRAMEWORK, 8, {"loss": 1.0})

    optimizers = [(0, {"learning_rate": 0.5}), (1, {"learning_rate": 0.25})]
    assert recorded().steps == [*optimizers, (7, {"loss": 2.0}), (8, {"loss": 1.0})]


def test_the_first_step_of_a_program_that_counts_itself_is_one(probe, recorded):
    """It began to record by itself; its optimizer comes a moment before its own call, and nothing is counted twice."""
    capture = Capture()
    for number in (251, 252):
        capture.step(Source.OPTIMIZER, values={"learning_rate": 0.5})
        probe.step(number, loss=2.0)

    assert recorded().steps == [(251, {"loss": 2.0}), (252, {"loss": 2.0})]


def test_the_programs_own_calls_win(probe, recorded):
    """As soon as the program calls step() itself, nobody else counts."""
    capture = Capture()
    capture.step(Source.FRAMEWORK, 1)
    probe.step(1, loss=2.0)

    assert not capture.step(Source.FRAMEWORK, 2)
    assert not capture.step(Source.OPTIMIZER)

    assert recorded().steps == [(1, {}), (1, {"loss": 2.0})]


@pytest.mark.usefixtures("probe")
def test_a_framework_claims_the_steps_before_its_first(recorded):
    """The library below a framework ends its step first, and is not counted."""
    capture = Capture()
    capture.claim(Source.FRAMEWORK)
    capture.claim(Source.LIBRARY)

    assert not capture.step(Source.LIBRARY, 1)
    assert capture.step(Source.FRAMEWORK, 1, {"loss": 2.0})

    assert recorded().steps == [(1, {"loss": 2.0})]


def test_a_recording_that_ended_owns_no_steps(spool, monkeypatch):
    """Who counted the first training of a process, a framework or the program itself, mutes nobody in the next."""
    from trainvitals import probe

    monkeypatch.setenv("TRAINVITALS_DIR", str(spool))
    monkeypatch.setattr(probe, "_install", lambda _: None)
    capture = Capture()
    for owner in (Source.FRAMEWORK, Source.USER):
        assert probe.init(run="first")
        for number in range(3):
            probe.step(number) if owner is Source.USER else capture.step(owner, number)
        assert not capture.step(Source.OPTIMIZER)
        probe.finish()
        assert probe.init(run="second")
        assert [capture.step(Source.OPTIMIZER), capture.step(Source.OPTIMIZER)] == [True, True]
        assert probe.steps_recorded() == 2
        probe.finish()


def test_a_claim_between_two_recordings_holds(spool, monkeypatch):
    """A framework that claims the steps before the second recording begins is not asked again."""
    from trainvitals import probe

    monkeypatch.setenv("TRAINVITALS_DIR", str(spool))
    monkeypatch.setattr(probe, "_install", lambda _: None)
    capture = Capture()
    assert probe.init(run="first")
    capture.step(Source.LIBRARY)
    probe.finish()
    capture.claim(Source.FRAMEWORK)
    assert probe.init(run="second")

    assert not capture.step(Source.LIBRARY)
    assert capture.step(Source.FRAMEWORK)
    probe.finish()


@pytest.mark.usefixtures("probe")
def test_what_others_know_is_added(recorded):
    """A loss that is only logged belongs to the step of whoever counts."""
    capture = Capture()
    capture.step(Source.LOGGER, 4)
    capture.log({"loss": 0.5})

    assert recorded().steps == [(4, {}), (4, {"loss": 0.5})]


@pytest.mark.usefixtures("spool")
def test_without_a_recording_there_is_nothing(monkeypatch):
    """Where recording cannot start, every source is told so."""
    monkeypatch.setenv("TRAINVITALS_DISABLE", "1")
    capture = Capture()

    assert not capture.step(Source.FRAMEWORK, 1)
    capture.log({"loss": 1.0})


@pytest.mark.usefixtures("probe")
def test_a_framework_tells_its_plan_to_a_recording_that_runs(recorded):
    """A recording that the program began still learns the target."""
    assert Capture().begin(target_steps=40, framework="lightning")

    assert recorded().identity["target_steps"] == 40


def test_what_is_quoted_is_known_already():
    """A framework that tells loggers what it told us says so, also one within another."""
    capture = Capture()

    assert not capture.is_quoted
    with capture.quoting(), capture.quoting():
        assert capture.is_quoted
    assert not capture.is_quoted


def test_a_refusal_is_taken_at_once(monkeypatch):
    """A spool that cannot be used is not asked again in each step; a recording that the program begins counts."""
    asked = []
    monkeypatch.setattr(capture_module.probe, "init", lambda **_: bool(asked.append(1)))
    capture = Capture()

    assert not any(capture.step(Source.FRAMEWORK, number) for number in range(3))
    assert asked == [1]
    monkeypatch.setattr(capture_module.probe, "is_recording", lambda: True)
    assert capture.begin()


def test_a_forked_child_of_a_training_is_none(monkeypatch):
    """What a worker of its loader calls starts no recording; where only the children train, each has one."""
    asked = []
    monkeypatch.setattr(capture_module.probe, "init", lambda **_: not asked.append(os.getpid()))
    recorded, fresh = Capture(), Capture()
    assert recorded.begin()

    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert not recorded.begin()
    assert fresh.begin()
    assert asked[1:] == [-1]
