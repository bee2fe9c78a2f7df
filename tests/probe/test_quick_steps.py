"""The quick way of a step leaves exactly what the slow way leaves."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainvitals import rankfile
from trainvitals.probe.recorder import Recorder

_NAMES = ("loss", "grad_norm", "lr", "tokens", "samples", "skipped", *(f"v{i}" for i in range(16)))
_NUMBERS = st.one_of(st.floats(), st.integers(-(10**30), 10**30), st.booleans())
_OTHERS = st.sampled_from([None, "text", [1.0], 10**400, 1j])
_STEP = st.one_of(st.none(), st.integers(-5, 2**64), st.floats(), st.just("7"))
_SETS = st.lists(st.lists(st.sampled_from(_NAMES), unique=True), min_size=1, max_size=3)
_folders = itertools.count()


def _recorder(folder: Path) -> Recorder:
    folder.mkdir()
    return Recorder(str(folder), {"run": "run", "rank": 0})


def _what_is_left(recorder: Recorder) -> tuple[Any, ...]:
    """State, names and records as the exporter finds them, without the times."""
    recorder.writer.write_state()
    reader = rankfile.Reader(recorder.writer.path)
    try:
        state = reader.read_state()
        records, invalid = reader.read_records(0)
        assert state is not None
        counters = (state.count, state.step, state.records, state.samples, state.tokens)
        failures = (state.skipped, state.nonfinite, state.dropped, state.errors)
        found = [(record.sequence, record.count, record.step, repr(record.values)) for record in records]
        return counters, failures, reader.read_text()[1], found, invalid
    finally:
        reader.close()


@pytest.mark.no_cover
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), sets=_SETS)
def test_quick_steps_leave_what_slow_steps_leave(tmp_path: Path, data: st.DataObject, sets: list[list[str]]) -> None:
    """Whatever the numbers, names and their order: records, names and counters are those of the slow way."""
    folder = tmp_path / str(next(_folders))
    folder.mkdir()
    quick, slow = _recorder(folder / "quick"), _recorder(folder / "slow")
    for _ in range(12):
        names = data.draw(st.sampled_from(sets).flatmap(st.permutations))
        values = {name: data.draw(st.one_of(_NUMBERS, _NUMBERS, _NUMBERS, _OTHERS)) for name in names}
        number = data.draw(_STEP)
        quick.step(number, values)
        slow._slow_step(number, values)
    assert _what_is_left(quick) == _what_is_left(slow)
    for recorder in (quick, slow):
        recorder.finish("ok")
        os.unlink(recorder.writer.path)


def test_a_loop_is_quick_from_its_second_step_on(tmp_path: Path) -> None:
    """The same names again take the quick way, in any order, without a number too; so do two sets in turn."""
    recorder = _recorder(tmp_path / "spool")
    recorder.step(1, {"loss": 1.0, "lr": 0.1, "tokens": 8})
    quick = recorder.step
    recorder.step(None, {"tokens": 8, "lr": 0.1, "loss": 1.0})
    assert recorder.step is quick
    recorder.step(3, {"loss": 1.0})
    other = recorder.step
    assert other is not quick
    slow_steps = []
    recorder._slow_step = lambda *step: slow_steps.append(step)  # type: ignore[method-assign]
    for number in range(4, 8):
        recorder.step(number, {"loss": 1.0, "lr": 0.1, "tokens": 8})
        assert recorder.step is quick
        recorder.step(number, {"loss": 1.0})
        assert recorder.step is other
    assert slow_steps == []
    assert recorder.writer.state.tokens == 48.0
    recorder.finish("ok")


def test_the_step_behind_the_last_number_there_is_drops_nothing(tmp_path: Path) -> None:
    """A step without a number is the one before plus one, and stays at the largest of 64 bits."""
    for kind in (("loss",), ("loss", *"abcdefgh")):
        recorder = _recorder(tmp_path / f"spool-{len(kind)}")
        values = dict.fromkeys(kind, 1.0)
        recorder.step(1, values)
        recorder.step(2**63 - 1, values)
        recorder.step(None, values)
        state = recorder.writer.state
        assert (state.step, state.count, state.dropped) == (2**63 - 1, 3, 0)
        recorder.finish("ok")


def test_a_set_with_one_name_exchanged_is_not_taken_for_the_set_before(tmp_path: Path) -> None:
    """As many names as before, but another instead of the tokens: nothing is lost."""
    recorder = _recorder(tmp_path / "spool")
    recorder.step(1, {"loss": 1.0, "lr": 0.1})
    recorder.step(2, {"loss": 1.0, "tokens": 8})
    recorder.step(3, {"loss": 1.0, "lr": 0.2})
    _, _, names, records, _ = _what_is_left(recorder)
    assert names == ["loss", "lr"]
    assert records[-1] == (3, 3, 3, "{0: 1.0, 1: 0.2}")
    recorder.finish("ok")


def test_what_looks_like_a_tensor_is_not_computed_with(tmp_path: Path) -> None:
    """A value of another type is told apart without arithmetic: on a sharded tensor it would be a collective."""
    used = []

    class Sharded:
        def __sub__(self, other: object) -> float:
            used.append("arithmetic")
            return 0.0

        __rsub__ = __add__ = __radd__ = __sub__

        def __float__(self) -> float:
            used.append("float")
            return 0.0

    recorder = _recorder(tmp_path / "spool")
    for number in range(3):
        recorder.step(number, {"loss": 1.0, "lr": 0.1})
    recorder.step(3, {"loss": Sharded(), "lr": 0.1})
    recorder.step(4, {"loss": 1.0, "lr": Sharded()})
    assert used == []
    assert recorder.writer.state.dropped == 2
    recorder.finish("ok")
