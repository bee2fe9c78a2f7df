"""What is left of a configuration when the same training is started again."""

from __future__ import annotations

import pytest

from trainvitals.frameworks.settings import stable


@pytest.mark.parametrize(
    "name",
    [
        *(
            "output_dir",
            "logging_dir",
            "log-dir",
            "logdir",
            "save_dir",
            "checkpoint_dir",
            "default_root_dir",
            "tb_log_dir",
        ),
        *("run_name", "run_id", "exp_name", "resume_from_checkpoint", "resume", "auto_resume", "overwrite_output_dir"),
        *(
            "local_rank",
            "global_rank",
            "process_index",
            "master_port",
            "port",
            "hostname",
            "pid",
            "timestamp",
            "device",
        ),
    ],
)
def test_what_belongs_to_a_start_is_left_out(name):
    """Folders, names of a run, ranks, ports and times are no settings of a training."""
    assert stable({name: "x", "learning_rate": 0.1}) == {"learning_rate": 0.1}


@pytest.mark.parametrize(
    "name",
    [
        *("learning_rate", "batch_size", "lora_rank", "rank", "task_name", "data_dir", "data_root_dir", "world_size"),
        *("max_time", "support", "report_to", "model_name_or_path", "precision", "updates", "version", "logging_steps"),
    ],
)
def test_settings_stay(name):
    """A name that sounds like one of a start, and is none, is kept."""
    assert stable({name: "x"}) == {name: "x"}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("runs/2026-01-31_12-07-59", False),
        ("runs/20260131T1207", False),
        ("runs/Jan31_12-07-59_node7", False),
        ("out-1796071551.7", False),
        ("/tmp/tmpab3_x9qz/last", False),
        ("20231101.en", True),
        ("2024-05-13", True),
        ("gpt-4o-2024-05-13", True),
        ("/data/tmp/files", True),
        ("16000000000", True),
    ],
)
def test_a_text_with_the_time_of_the_start_is_left_out(text, kept):
    """A day alone may be the release of a data set; a day with a time is that of a start."""
    assert stable({"a": {"b": text}}) == ({"a": {"b": text}} if kept else {"a": {}})


def test_it_is_bounded():
    """A table that holds itself, or a million rows, is cut."""
    endless = {"lr": 1}
    endless["again"] = endless
    assert stable(endless)["again"]["again"]["lr"] == 1
    assert len(stable(dict.fromkeys(range(1_000_000), 1))) == 2000
