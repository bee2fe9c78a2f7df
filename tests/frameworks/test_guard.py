"""What we hang into a framework never hurts the program around it."""

from __future__ import annotations

import pytest

from trainvitals.frameworks import guard
from trainvitals.frameworks.guard import Switch, Switches, around, safe, within


class Trainer:
    """A framework's class."""

    def train(self, steps, scale=1):
        """Return something, or raise."""
        if steps < 0:
            raise ValueError("negative")
        return steps * scale


@pytest.fixture
def trainer():
    """A class that a test may change."""
    return type("Copy", (Trainer,), dict(vars(Trainer)))


def test_ours_are_called_around_it(trainer):
    """Before, after with the result, and when it raises; what it returns and raises stays."""
    said = []
    assert around(
        trainer,
        "train",
        before=lambda _, *args, **kwargs: said.append(("before", args, kwargs)),
        after=lambda result, *_, **__: said.append(("after", result)),
        failed=lambda error, *_, **__: said.append(("failed", str(error))),
    )

    assert trainer().train(3, scale=2) == 6
    with pytest.raises(ValueError, match="negative"):
        trainer().train(-1)
    assert said == [
        ("before", (3,), {"scale": 2}),
        ("after", 6),
        ("before", (-1,), {}),
        ("failed", "negative"),
    ]
    assert trainer.train.__name__ == "train"


@pytest.mark.usefixtures("probe")
def test_an_error_of_ours_goes_no_further(trainer, recorded):
    """It is counted as one of the probe's own, and the program goes on."""

    def broken(*_, **__):
        raise RuntimeError("ours")

    around(trainer, "train", before=broken, after=broken)

    assert trainer().train(3) == 3
    assert recorded().state.errors == 2
    assert safe(broken)() is None


def test_a_second_time_changes_nothing(trainer):
    """An adapter that is installed twice counts once."""
    said = []

    assert around(trainer, "train", before=lambda *_: said.append(1))
    assert not around(trainer, "train", before=lambda *_: said.append(2))
    trainer().train(1)

    assert said == [1]


def test_what_cannot_be_changed_is_left_alone(trainer):
    """A missing method, and a class of an extension module."""
    assert not around(trainer, "fit", before=print)
    assert not around(dict, "update", before=print)


class Context:
    """Notes how it was entered and left."""

    def __init__(self, said, name):
        self.said, self.name = said, name

    def __enter__(self):
        self.said.append(f"enter {self.name}")

    def __exit__(self, kind, *_):
        self.said.append(f"leave {self.name} {kind and kind.__name__}")
        return True


def test_a_call_runs_within_a_context(trainer):
    """Also one inside another; an exception is told to the context and goes on its way."""
    said = []
    assert within(trainer, "train", lambda _, steps, **__: Context(said, steps) if steps else None)

    assert trainer().train(0) == 0
    assert trainer().train(3) == 3
    with pytest.raises(ValueError, match="negative"):
        trainer().train(-1)
    assert said == ["enter 3", "leave 3 None", "enter -1", "leave -1 ValueError"]


@pytest.mark.usefixtures("probe")
def test_a_context_that_cannot_be_made_costs_an_error_only(trainer, recorded):
    """The call is made, and the next one is paired as it should be."""
    within(trainer, "train", lambda _, steps: 1 // steps)

    assert trainer().train(0) == 0
    assert recorded().state.errors == 1


@pytest.mark.usefixtures("probe")
def test_an_adapter_is_mute_after_its_first_error(trainer, recorded):
    """The error is counted once, however many steps follow; another adapter goes on."""
    said = []
    switch = Switch()
    around(trainer, "train", before=switch(lambda *_: 1 // 0), after=switch(lambda *_: said.append("muted")))
    trainer.evaluate = lambda _: None
    around(trainer, "evaluate", after=Switch()(lambda *_: said.append("heard")))

    for _ in range(5):
        assert trainer().train(2) == 2
    trainer().evaluate()

    assert said == ["heard"]
    assert recorded().state.errors == 1


def test_a_name_that_has_failed_is_silent():
    """Other names of the same object go on."""
    switches = Switches()

    assert switches.call("one", divmod, 7, 4) == (1, 3)
    with pytest.raises(ZeroDivisionError):
        switches.call("one", divmod, 7, 0)
    assert switches.call("one", divmod, 7, 4) is None
    assert switches.call("other", divmod, 7, 4) == (1, 3)


def test_errors_before_the_recording_are_counted_with_it(probe, recorded, monkeypatch):
    """An adapter fails when its framework is imported, the recording begins with the first step."""
    monkeypatch.setattr(guard, "_early", [])
    monkeypatch.setattr(probe, "is_recording", lambda: False)
    for _ in range(9):
        safe(lambda: 1 // 0)()
    assert len(guard._early) == 3
    del guard._early[1:]

    guard.count_early()

    assert recorded().state.errors == 1
    assert guard._early == []


@pytest.mark.filterwarnings("ignore")
def test_compiled_code_does_not_see_ours(trainer):
    """Not even one break of its graph; where nothing is compiled, ours is called."""
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    said = []
    around(trainer, "train", before=lambda *_: said.append("before"), after=Switch()(lambda *_: said.append("after")))
    mine = trainer()

    compiled = torch.compile(lambda steps: mine.train(2, scale=steps), backend="eager", fullgraph=True)

    assert torch.equal(compiled(torch.tensor(3.0)), torch.tensor(6.0))
    assert said == []
    assert mine.train(2) == 2
    assert said == ["before", "after"]
