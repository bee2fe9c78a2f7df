"""What a run was made with."""

from __future__ import annotations

import json

import pytest

from trainvitals.diagnose.case import Case
from trainvitals.diagnose.settings import settings
from trainvitals.telemetry import Event

ARGUMENTS = ("lr", "min_lr", "weight_decay", "seed", "num_layers", "hidden_size", "bf16", "seq_length", "tp", "save")


def known(*paths, lineage=None):
    """Return the settings of one run with these logs."""
    case = Case("a", list)
    case.paths = tuple(map(str, paths))
    case.lineage = lineage or {}
    return settings([case])[0]


@pytest.mark.parametrize("prefix", ["", "[default0]:", "0: "])
def test_the_arguments_of_megatron(tmp_path, prefix):
    """In the text before the first step, with or without a rank; where it saves is no setting."""
    lines = [f"{prefix}  {name} {'.' * (48 - len(name))} {n}" for n, name in enumerate(ARGUMENTS)]
    (tmp_path / "t.log").write_text("\n".join(["---- arguments ----", *lines, "---- end of arguments ----"]) + "\n")

    assert {name: str(n) for n, name in enumerate(ARGUMENTS[:-1])} == known(tmp_path / "t.log")


def test_a_few_dots_are_no_arguments(tmp_path):
    """Nor is any text."""
    (tmp_path / "t.log").write_text("loading ........ done\nstep 1: loss 2.0\n")

    assert {} == known(tmp_path / "t.log")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("hparams.yaml", "lr: 0.1\nmodel:\n  depth: 4\n", {"lr": "0.1", "model.depth": "4"}),
        ("hparams.yaml", "dims: !!python/tuple [2, 3]\n", {"dims": "[2, 3]"}),
        ("args.json", '{"lr": 0.1, "data": "web", "x": null}', {"lr": "0.1", "data": "web"}),
        ("files/config.yaml", "lr:\n  desc: null\n  value: 0.1\n_wandb:\n  value: {a: 1}\n", {"lr": "0.1"}),
        (".hydra/config.yaml", "optim: {lr: 0.1}\n", {"optim.lr": "0.1"}),
        ("params/lr", "0.1", {"lr": "0.1"}),
        ("args.yaml", "[1, 2", {}),
        ("args.json", "[1, 2]", {}),
        ("args.yaml", "a: !!python/object/apply:os.system ['true']\n", {"a": '["true"]'}),
    ],
)
def test_files_beside_the_log(tmp_path, name, text, expected):
    """Each as its program writes it; one that is damaged tells nothing, and none makes an object."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    (tmp_path / "metrics.csv").write_text("step,loss\n1,2.0\n")

    assert expected == known(tmp_path / "metrics.csv")


def test_the_state_of_the_trainer(tmp_path):
    """It holds a few settings."""
    state = {"max_steps": 500, "train_batch_size": 8, "log_history": [{"loss": 2.0, "step": 1}], "epoch": 1.0}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))

    assert {"max_steps": "500", "train_batch_size": "8"} == known(tmp_path / "trainer_state.json")


def test_a_lineage_of_the_probe():
    """Values where the process told them, else their fingerprint."""
    case = Case("a", list)
    for subject, fields in (("settings", {"values": {"lr": 0.1}, "hash": "x"}), ("code", {"hash": "abc"})):
        case._take_lineage(Event(1.0, "lineage", 0, {"subject": subject, **fields}))

    assert {"settings.lr": "0.1", "code.hash": "abc"} == settings([case])[0]
