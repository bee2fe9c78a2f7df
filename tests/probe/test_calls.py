"""What the calls record, and that none of them raises or changes an exception of the training."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainvitals import rankfile
from trainvitals.probe.recorder import Recorder

# Steps --------------------------------------------------------------------------------------------------------------


def test_steps_are_recorded_with_their_names(probe, recorded):
    """As keywords, as a mapping, and as both."""
    probe.step(10, loss=0.5, learning_rate=1)
    probe.step(11, {"loss": 0.25, "grad_norm": 2.0})
    probe.step(12, {"loss": 0.125}, extra=7)

    assert recorded().steps == [
        (10, {"loss": 0.5, "learning_rate": 1.0}),
        (11, {"loss": 0.25, "grad_norm": 2.0}),
        (12, {"loss": 0.125, "extra": 7.0}),
    ]


def test_the_number_of_a_step_can_be_left_out(probe, recorded):
    """Then it is the number before plus one; the first step is 0."""
    probe.step(loss=1.0)
    probe.step(100, loss=1.0)
    probe.step(loss=1.0)
    probe.step(step=200, loss=1.0)
    probe.step(None, {"loss": 1.0})

    assert [step for step, _ in recorded().steps] == [0, 100, 101, 200, 201]
    assert recorded().names == ["loss"]


@pytest.mark.parametrize(
    ("number", "expected", "dropped"),
    [(7.0, 7, 0), (True, 1, 0), (7.5, 51, 1), ("7", 51, 1), (2**63, 51, 1), (-(10**30), 51, 1), (math.nan, 51, 1)],
)
def test_a_number_that_is_none_becomes_the_next_one(probe, recorded, number, expected, dropped):
    """What is not a whole number of 64 bits is counted as dropped."""
    probe.step(50, loss=1.0)
    probe.step(number, loss=1.0)

    found = recorded()
    assert [step for step, _ in found.steps] == [50, expected]
    assert found.state.dropped == dropped
    assert found.state.errors == 0


def test_the_largest_step_is_the_end_of_counting(probe, recorded):
    """One more would not fit into 64 bits."""
    probe.step(2**63 - 1, loss=1.0)
    probe.step(loss=1.0)

    assert [step for step, _ in recorded().steps] == [2**63 - 1, 2**63 - 1]


@pytest.mark.parametrize("count", [1, 16, 17, 32, 33, 64])
def test_many_values_span_several_records(probe, recorded, count):
    """16 to a record, all with the count of their step."""
    values = {f"v{index}": float(index) for index in range(count)}
    for number in range(3):
        probe.step(number, values)

    found = recorded()
    assert len(found.records) == 3 * math.ceil(count / 16)
    for number in range(3):
        parts = [found.steps[index][1] for index, record in enumerate(found.records) if record.count == number + 1]
        assert {name: value for part in parts for name, value in part.items()} == values
    assert found.state.dropped == 0


def test_the_sixty_fifth_name_is_dropped_and_counted(probe, recorded):
    """The table has 64 places; the others stay."""
    for number in range(2):
        probe.step(number, {f"v{index}": 1.0 for index in range(70)})

    found = recorded()
    assert len(found.names) == 64
    assert found.state.dropped == 2 * 6
    assert found.state.errors == 0


def test_names_that_do_not_fit_are_dropped_and_counted(probe, recorded):
    """64 characters of a script outside ASCII take six times the room; what was there before stays whole."""
    probe.step(1, {"loss": 1.0} | {f"{index:02d}" + "数" * 62: 1.0 for index in range(63)})
    probe.step(2, loss=2.0)

    found = recorded()
    assert found.names[0] == "loss"
    assert len(found.names) < 64
    assert found.state.dropped == 64 - len(found.names)
    assert found.steps[-1] == (2, {"loss": 2.0})


def test_a_name_that_is_too_long_is_dropped_and_counted(probe, recorded):
    """Names have at most 64 characters; cut ones could become the same curve."""
    probe.step(1, {"x" * 64: 1.0, "x" * 65: 2.0})

    assert recorded().names == ["x" * 64]
    assert recorded().state.dropped == 1


def test_samples_and_tokens_are_added_up(probe, recorded):
    """They are no curves; a negative or endless amount is dropped."""
    for amount in (10, 20.5, -1, math.inf, math.nan):
        probe.step(loss=1.0, tokens=amount, samples=2)

    found = recorded()
    assert found.names == ["loss"]
    assert (found.state.tokens, found.state.samples, found.state.dropped) == (30.5, 10.0, 3)


def test_losses_that_are_not_finite_are_recorded_and_counted(probe, recorded):
    """Except in a step that the loss scaler skipped: it finds its scale by meeting infinities."""
    for loss in (1.0, math.nan, math.inf, -math.inf):
        probe.step(loss=loss)
    probe.step(loss=math.inf, skipped=True)
    probe.step(loss=1.0, skipped=False)

    found = recorded()
    assert (found.state.nonfinite, found.state.skipped) == (3, 1)
    assert str([values for _, values in found.steps]) == (
        "[{'loss': 1.0}, {'loss': nan}, {'loss': inf}, {'loss': -inf}, {'loss': inf, 'skipped': 1.0}, {'loss': 1.0}]"
    )


def test_what_is_no_number_is_dropped_and_counted(probe, recorded):
    """The values beside it are recorded; None means not given."""
    probe.step(1, loss=0.5, text="x", items=[1.0], nothing=None, huge=10**400, exact=Decimal(1), imaginary=1j)

    found = recorded()
    assert found.steps == [(1, {"loss": 0.5})]
    assert (found.state.dropped, found.state.errors) == (5, 0)


def test_numpy_numbers_are_numbers(probe, recorded):
    """Scalars and arrays of one element, as values and as the number of the step."""
    numpy = pytest.importorskip("numpy")
    values = {
        "a": numpy.float32(0.5),
        "b": numpy.float64(0.25),
        "c": numpy.int64(3),
        "d": numpy.bool_(True),
        "e": numpy.array([[7.0]]),
        "f": numpy.float16(1.5),
    }
    wrong = {
        "g": numpy.array([1.0, 2.0]),
        "h": numpy.array([]),
        "i": numpy.complex64(1j),
        "j": numpy.datetime64("2020-01-01"),
        "k": numpy.array(["x"]),
        "l": numpy.array([None]),
    }
    probe.step(numpy.int64(40), values | wrong)
    probe.step(numpy.int32(41), loss=numpy.float32("nan"))

    found = recorded()
    assert found.steps[0] == (40, {"a": 0.5, "b": 0.25, "c": 3.0, "d": 1.0, "e": 7.0, "f": 1.5})
    assert found.steps[1][0] == 41
    assert (found.state.dropped, found.state.nonfinite, found.state.errors) == (6, 1, 0)


def test_arrays_of_other_frameworks_are_not_read(probe, recorded):
    """Their item() waits for a device."""

    class Array:
        size = 1
        shape = ()

        def item(self):
            raise AssertionError("waited for a device")

        __float__ = __array__ = tolist = item

    probe.step(1, loss=Array(), other=2.0)

    found = recorded()
    assert found.steps == [(1, {"other": 2.0})]
    assert found.state.dropped == 1


def test_a_mapping_of_another_kind_will_do(probe, recorded):
    """Any mapping; what is none is dropped."""
    from collections import ChainMap, OrderedDict
    from types import MappingProxyType

    for number, values in enumerate(
        (OrderedDict(a=1.0), ChainMap({"a": 2.0}), MappingProxyType({"a": 3.0}), 7, "ab", [1])
    ):
        probe.step(number, values)

    found = recorded()
    assert [values for _, values in found.steps] == [{"a": 1.0}, {"a": 2.0}, {"a": 3.0}, {}, {}, {}]
    assert (found.state.dropped, found.state.errors) == (3, 0)


# Phases -------------------------------------------------------------------------------------------------------------


def seconds(state):
    """Return the phases that took time, by name."""
    return {name: value for name, value in zip(rankfile.PHASES, state.phase_seconds, strict=False) if value}


def test_phases_add_up_to_the_wall_time(probe, recorder, recorded):
    """Nested, as decorators, left by exceptions, around steps and checkpoints: not a moment is lost or doubled."""

    @probe.phase("optimizer")
    def recursive(depth):
        with probe.phase("communication"):
            return depth and recursive(depth - 1)

    for number in range(3):
        with probe.phase("data"), probe.phase("forward"), probe.phase("nonsense"):
            probe.step(number, loss=1.0)
        with contextlib.suppress(ZeroDivisionError), probe.phase("backward"):
            recursive(5)
            _ = 1 / 0
        with probe.checkpoint(number), probe.phase("evaluation"):
            pass
    recorder.finish("ok")

    found = recorded()
    assert seconds(found.state).keys() == set(rankfile.PHASES) - {"device", "paused"}  # there is none, and nobody was
    assert math.isclose(sum(found.state.phase_seconds), found.state.heartbeat - found.started, abs_tol=1e-9)


def test_time_counts_for_the_innermost_phase(spool, monkeypatch, recorded):
    """With a clock that ticks once a call of the probe: data 1, forward 2 and 1, backward 3."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    recorder = Recorder(str(spool), {"run": "test", "rank": 0})
    for tick, call in (
        (5, lambda: recorder.step(0, {"loss": 1.0})),  # init
        (10, lambda: recorder.begin_phase("data")),  # train
        (1, lambda: recorder.begin_phase("forward")),
        (2, lambda: recorder.begin_phase("backward")),
        (3, recorder.end_phase),
        (4, recorder.end_phase),
        (5, recorder.end_phase),
        (20, lambda: recorder.finish("ok")),
    ):
        now[0] += tick
        call()

    assert seconds(recorded().state) == {"init": 5.0, "train": 30.0, "data": 6.0, "forward": 6.0, "backward": 3.0}
    assert recorded().state.phase == rankfile.PHASES.index("other")


def test_the_first_step_ends_the_start_also_within_a_phase(spool, monkeypatch, recorded):
    """Whoever reports every step from within a phase has left the start behind all the same."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    recorder = Recorder(str(spool), {"run": "test", "rank": 0})
    for number in range(3):
        now[0] += 1.0
        recorder.begin_phase("optimizer")
        now[0] += 10.0
        recorder.step(number, {"loss": 1.0})
        recorder.end_phase()
    recorder.finish("ok")

    assert seconds(recorded().state) == {"init": 1.0, "train": 2.0, "optimizer": 30.0}


@pytest.mark.parametrize("name", [None, 7, ["data"], {}, object(), "no such phase", ""])
def test_a_phase_that_is_none_is_another(probe, recorder, recorded, name):
    """It counts as "other", and the phases around it stay in order."""
    probe.step(0, loss=1.0)
    with probe.phase("data"):
        with probe.phase(name):
            assert recorder.writer.state.phase == rankfile.PHASES.index("other")
        assert recorder.writer.state.phase == rankfile.PHASES.index("data")
    assert recorder.writer.state.phase == rankfile.PHASES.index("train")
    assert recorded().state.errors == 0


def test_a_phase_survives_an_end_without_a_beginning(probe, recorder):
    """After finish and a new start the old blocks end nothing of the new run."""
    probe.step(0, loss=1.0)
    phase = probe.phase("data")
    with phase:
        probe._recorder = None
    probe._recorder = recorder
    phase.__exit__(None, None, None)

    assert recorder.writer.state.phase == rankfile.PHASES.index("train")


phase_names = st.sampled_from([*rankfile.PHASES, "none of them"])


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(phase_names, st.just("end"), st.just("step"), st.just("checkpoint")), max_size=40))
def test_phases_add_up_whatever_the_order(tmp_path_factory, actions):
    """Any sequence of beginnings, ends, steps and checkpoints, in balance or not."""
    folder = tmp_path_factory.mktemp("spool")
    recorder = Recorder(str(folder), {"run": "test", "rank": 0})
    for action in actions:
        if action == "end":
            recorder.end_phase()
        elif action == "step":
            recorder.step(None, {"loss": 1.0})
        elif action == "checkpoint":
            recorder.end_checkpoint(recorder.begin_checkpoint(None), None, "save", None)
        else:
            recorder.begin_phase(action)
    recorder.finish("ok")

    reader = rankfile.Reader(recorder.writer.path)
    state, started = reader.read_state(), reader.header.started_monotonic
    reader.close()
    assert math.isclose(sum(state.phase_seconds), state.heartbeat - started, abs_tol=1e-9)
    assert min(state.phase_seconds) >= 0.0


# Events -------------------------------------------------------------------------------------------------------------


def test_events_are_one_line_of_json_each(probe, recorded):
    """With time, kind and step; the fields of the caller cannot take their place."""
    probe.step(7, loss=1.0)
    probe.event("change", "learning rate halved", step=6, factor=0.5)
    probe.event("note", time="never", message="m")
    probe.evaluate(7, name="test", accuracy=0.5, loss=math.nan)
    probe.evaluate(accuracy=1)
    probe.event(7, step="yesterday")

    documents = [json.loads(line) for line in recorded().events]
    assert all(isinstance(document.pop("time"), float) for document in documents)
    assert str(documents[2].pop("values")) == "{'accuracy': 0.5, 'loss': nan}"
    assert documents == [
        {"kind": "change", "step": 6, "message": "learning rate halved", "factor": 0.5},
        {"kind": "note", "step": 7, "message": "m"},
        {"kind": "evaluation", "step": 7, "name": "test"},
        {"kind": "evaluation", "step": 7, "name": "validation", "values": {"accuracy": 1.0}},
        {"kind": "7", "step": 7},
    ]


def test_a_checkpoint_is_timed_and_its_failure_recorded(probe, recorded, tmp_path):
    """Step, path, how long it took, whether it went well."""
    probe.step(7, loss=1.0)
    with probe.checkpoint(7, tmp_path / "model.pt"):
        pass
    with pytest.raises(OSError, match="full"), probe.checkpoint(path=b"bytes", kind="load"):
        raise OSError("full")

    first, second = (json.loads(line) for line in recorded().events)
    assert 0.0 <= first.pop("seconds") < 60.0
    assert {name: first[name] for name in ("kind", "step", "action", "ok", "path")} == {
        "kind": "checkpoint",
        "step": 7,
        "action": "save",
        "ok": True,
        "path": str(tmp_path / "model.pt"),
    }
    assert {name: second[name] for name in ("step", "action", "ok", "error")} == {
        "step": 7,
        "action": "load",
        "ok": False,
        "error": "OSError",
    }


def test_events_that_cannot_be_written_are_dropped_and_counted(probe, recorded):
    """Too long, endless, without a text: no error of ours."""
    circular: dict[str, object] = {}
    circular["self"] = circular

    class Broken:
        def __str__(self):
            raise ValueError

    probe.event("long", "x" * 20_000)
    probe.event("circular", fields=circular)
    probe.event("broken", thing=Broken())
    probe.event("keys", fields={(1, 2): 3})
    probe.event("fine", thing=Decimal("1.5"))

    found = recorded()
    assert [json.loads(line)["kind"] for line in found.events] == ["fine"]
    assert (found.state.dropped, found.state.errors) == (4, 0)


def test_an_events_file_stays_below_its_limit(probe, recorded):
    """A megabyte a rank; what comes later is dropped and counted."""
    for _ in range(400):
        probe.event("long", "x" * 4000)
    probe.step(1, loss=1.0)

    found = recorded()
    assert sum(len(line) + 1 for line in found.events) < 1 << 20
    assert found.state.dropped == 400 - len(found.events) > 0


def test_half_a_line_does_not_swallow_the_next(probe, recorded, monkeypatch):
    """A full spool may take half of an event; the one after it begins on a line of its own."""
    import os

    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[: len(data) // 2]))
    probe.event("half")
    monkeypatch.setattr(os, "write", write)
    probe.event("whole")
    probe.event("next")

    found = recorded()
    assert len(found.events) == 3
    assert [json.loads(line)["kind"] for line in found.events[1:]] == ["whole", "next"]


def test_an_events_file_that_cannot_be_made_is_no_error(probe, recorder, recorded):
    """Somebody else was there first: the events are dropped, the run is recorded."""
    with open(recorder._events.path, "w") as file:
        file.write("theirs\n")
    for _ in range(5):
        probe.event("note")
    probe.step(1, loss=1.0)

    assert recorded().events == [b"theirs"]
    assert (recorded().state.dropped, recorded().state.errors) == (5, 0)


# Exceptions ---------------------------------------------------------------------------------------------------------


class OwnError(BaseException):
    """An exception that nobody catches by accident."""


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, GeneratorExit, SystemExit, StopIteration, OwnError])
@pytest.mark.parametrize("block", ["phase", "checkpoint", "decorator"])
@pytest.mark.parametrize("failing", ["", "begin", "end"])
def test_exceptions_of_the_training_pass_unchanged(probe, error, block, failing):
    """The same object, with its cause, its context and nothing of ours in between; also when our own code fails."""

    def broken(*_):
        raise RuntimeError("ours")

    patch = pytest.MonkeyPatch()
    if failing:
        patch.setattr(Recorder, f"{failing}_phase", broken)
        patch.setattr(Recorder, f"{failing}_checkpoint", broken)
    thrown, cause = error("theirs"), LookupError("cause")

    def body():
        raise thrown from cause

    def use():
        if block == "decorator":
            probe.phase("data")(body)()
        else:
            with probe.phase("data") if block == "phase" else probe.checkpoint(1):
                body()

    try:
        with pytest.raises(error) as caught:
            use()
    finally:
        patch.undo()

    assert caught.value is thrown
    assert thrown.__cause__ is cause
    assert thrown.__context__ is None
    assert [entry.name for entry in caught.traceback][-1] == "body"


def test_a_block_whose_end_fails_without_an_exception_goes_on(probe, monkeypatch):
    """An error of ours at the end of a block is not the block's."""
    monkeypatch.setattr(Recorder, "end_phase", lambda _: 1 / 0)
    monkeypatch.setattr(Recorder, "end_checkpoint", lambda *_: 1 / 0)
    with probe.phase("data"):
        pass
    with probe.checkpoint(1):
        pass


def test_an_interrupt_is_never_swallowed(probe, monkeypatch):
    """Ctrl-C that arrives while the probe works is the user's."""

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Recorder, "event", interrupted)
    with pytest.raises(KeyboardInterrupt):
        probe.event("note")


def test_a_phase_in_a_generator_that_is_closed_ends(probe, recorder):
    """GeneratorExit passes through."""

    def batches():
        with probe.phase("data"):
            yield 1
            yield 2

    probe.step(0, loss=1.0)
    iterator = batches()
    next(iterator)
    assert recorder.writer.state.phase == rankfile.PHASES.index("data")
    iterator.close()
    assert recorder.writer.state.phase == rankfile.PHASES.index("train")


def test_a_decorated_function_keeps_its_name_and_result(probe):
    """And may call itself."""

    @probe.phase("forward")
    def factorial(number):
        """Multiply."""
        return number * factorial(number - 1) if number else 1

    assert factorial(10) == 3_628_800
    assert (factorial.__name__, factorial.__doc__) == ("factorial", "Multiply.")


def test_three_errors_switch_off_with_one_line(probe, recorded, monkeypatch, capsys):
    """Two are counted, the third is told once; after that nothing is written but the end."""
    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "evaluate", lambda *_: 1 / 0)
        for _ in range(2):
            probe.evaluate(accuracy=1.0)
        assert capsys.readouterr() == ("", "")
        for _ in range(5):
            probe.evaluate(accuracy=1.0)
    probe.step(1, loss=1.0)

    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "trainvitals: switched off after 3 internal errors, the training goes on; "
        "the last was: ZeroDivisionError('division by zero')\n"
    )
    found = recorded()
    assert (found.state.errors, found.state.flags, found.records) == (3, rankfile.FLAG_DISABLED, [])
    probe.finish()
    assert recorded().state.flags == rankfile.FLAG_DISABLED | rankfile.FLAG_FINISHED


# Whatever the arguments ---------------------------------------------------------------------------------------------


class Hostile:
    """Fails in every way that Python offers."""

    def _fail(self, *_, **__):
        raise RuntimeError("hostile")

    __float__ = __int__ = __index__ = __bool__ = __len__ = __iter__ = __getitem__ = __str__ = __repr__ = _fail
    __add__ = __radd__ = __sub__ = __rsub__ = __lt__ = __fspath__ = __format__ = item = tolist = numel = _fail
    size = 1

    @property
    def shape(self):
        """Fail."""
        raise RuntimeError("hostile")


class HostileFloat(float):
    """A float that is none."""

    def __sub__(self, _):
        raise RuntimeError("hostile")

    __add__ = __radd__ = __rsub__ = __le__ = __ge__ = __lt__ = __gt__ = __sub__


class HostileMapping(dict):
    """A mapping that changes its mind."""

    def items(self):
        """Fail."""
        raise RuntimeError("hostile")

    keys = values = __iter__ = __len__ = __getitem__ = items


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=20),
    st.binary(max_size=20),
    st.decimals(),
    st.just(10**4000),
    st.builds(Hostile),
    st.builds(HostileFloat, st.floats()),
    st.sampled_from([object(), int, len, ..., NotImplemented, range(3), sys]),
)
anything = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(st.text(max_size=5), st.integers(), st.none()), inner, max_size=3),
        st.frozensets(st.integers(), max_size=3),
    ),
    max_leaves=8,
)
mappings = st.one_of(
    st.dictionaries(st.one_of(st.text(max_size=80), st.integers(), st.none()), anything, max_size=20),
    st.dictionaries(st.text(max_size=5), st.floats(), max_size=40),
    st.builds(HostileMapping),
    anything,
)
keywords = st.dictionaries(st.sampled_from(["loss", "tokens", "samples", "skipped", "a", "b"]), anything, max_size=6)
calls = st.one_of(
    st.tuples(st.just("step"), anything, mappings, keywords),
    st.tuples(st.just("evaluate"), anything, anything, keywords),
    st.tuples(st.just("event"), anything, anything, keywords),
    st.tuples(st.just("checkpoint"), anything, anything, anything),
    st.tuples(st.just("phase"), anything, st.none(), st.none()),
    st.tuples(st.just("finish"), anything, st.none(), st.none()),
)


@pytest.mark.no_cover
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(calls, min_size=1, max_size=12))
def test_no_call_raises_whatever_the_arguments(probe, tmp_path_factory, monkeypatch, actions):
    """Values, names, steps, paths, kinds: the probe may drop them or switch itself off, and nothing else."""
    recorder = Recorder(str(tmp_path_factory.mktemp("spool")), {"run": "test", "rank": 0})
    monkeypatch.setattr(probe, "_recorder", recorder)
    monkeypatch.setattr(probe, "_switched_off", None)
    for name, first, second, third in actions:
        if name == "step":
            probe.step(first, second, **third)
        elif name == "evaluate":
            probe.evaluate(first, name=second, **third)
        elif name == "event":
            probe.event(first, second, **third)
        elif name == "checkpoint":
            with probe.checkpoint(first, second, kind=third):
                pass
        elif name == "phase":
            with probe.phase(first):
                pass
        else:
            probe.finish(first)
            break
    probe.finish()

    reader = rankfile.Reader(recorder.writer.path)
    state = reader.read_state()
    reader.read_text()
    assert reader.read_records(0)[1] == 0
    reader.close()
    assert state.flags & rankfile.FLAG_FINISHED


identities = st.dictionaries(st.sampled_from(["run", "target_steps", "rank", "attempt", "world_size", "x"]), anything)


@pytest.mark.no_cover
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(identities)
def test_init_never_raises(tmp_path_factory, monkeypatch, capsys, identity):
    """It records or it says no."""
    from trainvitals import probe

    monkeypatch.setenv("TRAINVITALS_DIR", str(tmp_path_factory.mktemp("spool")))
    monkeypatch.setattr(probe, "_recorder", None)
    monkeypatch.setattr(probe, "_switched_off", None)
    monkeypatch.setattr(probe, "_told", set())
    monkeypatch.setattr(probe, "_install", lambda _: None)

    started = probe.init(**identity)
    probe.finish()

    assert started in (True, False)
    assert capsys.readouterr().err.count("\n") <= (not started)
