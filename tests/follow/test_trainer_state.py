"""``trainer_state.json`` and files of series."""

from __future__ import annotations

import math
import shutil

import pytest
from tests.follow.helpers import LOGS, items_of

from trainvitals.follow.base import Facts, Row
from trainvitals.follow.formats.series_json import SeriesJson
from trainvitals.follow.formats.trainer_state import TrainerState
from trainvitals.telemetry import Event

STATE = LOGS / "trainer-state/trainer_state.json"


def test_history():
    """Training and results have their steps; the mean of all losses is the end and no step."""
    facts, first, second, result, end = items_of(STATE)

    assert facts == Facts(target_steps=40)
    assert first == Row(10, {"epoch": 0.5, "grad_norm": 5.5, "learning_rate": 1e-05, "loss": 1.5})
    assert (second.step, second.values["loss"]) == (20, 0.0)
    assert math.isnan(second.values["grad_norm"])
    assert result == Row(20, {"accuracy": 0.75, "loss": 1.25, "runtime": 2.5}, split="validation")
    assert end == Facts(finished=0.0)


def test_one_in_a_checkpoint_tells_of_the_checkpoint(tmp_path):
    """The folder is the checkpoint of the state's step."""
    folder = tmp_path / "checkpoint-40"
    folder.mkdir()
    shutil.copy(STATE, folder)

    *_, event = TrainerState().read(str(folder / "trainer_state.json"))

    assert event == Event(0.0, "checkpoint", 40, {"action": "save", "ok": True, "path": str(folder)})


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"log_history": 3}', '{"log_history": [', "[" * 50_000])
def test_what_is_no_state_is_an_error_of_the_file(tmp_path, text):
    """It may be in the middle of being written: the core tries again."""
    path = tmp_path / "trainer_state.json"
    path.write_text(text)

    with pytest.raises(ValueError, match=r"\S"):
        list(TrainerState().read(str(path)))


def test_odd_entries_of_a_history_are_left_out(tmp_path):
    """What is no record costs itself."""
    path = tmp_path / "trainer_state.json"
    path.write_text('{"max_steps": -1, "log_history": [3, null, {"step": 5, "loss": 0.5}, {"loss": []}]}')

    assert list(TrainerState().read(str(path))) == [Row(5, {"loss": 0.5})]


def test_series_by_step():
    """A value that Megatron-LM did not read is absent, and not NaN."""
    assert items_of(LOGS / "series-json/megatron.json") == [
        Row(1, {"loss": 10.5, "num-zeros": 1500.0}),
        Row(5, {"loss": 10.25, "num-zeros": 1600.0, "step_seconds": 0.25}),
        Row(10, {"loss": 9.75, "num-zeros": 1700.0, "step_seconds": 0.375}),
    ]


def test_series_as_lists():
    """MindSpeed-LLM's lists begin with the first step, and its times are milliseconds."""
    assert items_of(LOGS / "series-json/mindspeed.json") == [
        Row(1, {"loss": 2.5, "step_seconds": 12.5}),
        Row(2, {"loss": 2.25, "step_seconds": 5.6255}),
    ]


@pytest.mark.parametrize("text", ["", "[1]", '{"lm loss": ', "[" * 50_000])
def test_what_is_no_series_is_an_error_of_the_file(tmp_path, text):
    """As for a state."""
    path = tmp_path / "values.json"
    path.write_text(text)

    with pytest.raises(ValueError, match=r"\S"):
        list(SeriesJson().read(str(path)))
