"""What a run was made with: its settings, from its log or from the files that its program left beside it.

Sources: Megatron-LM prints "name ........ value" for each argument (megatron.training.arguments._print_args), llm.c a
table "| name | value |"; the Hugging Face Trainer keeps some in ``trainer_state.json``; Lightning writes
``hparams.yaml``, W&B ``files/config.yaml`` ("name: {value: ...}"), MLflow's file store ``params/NAME``, Hydra
``.hydra/config.yaml``, timm and ultralytics ``args.yaml``, many programs ``args.json`` or ``config.json``.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainvitals.diagnose.case import Case

#: Begin of a log that is looked at, and the size of a file of settings, in bytes.
_HEAD, _LARGEST = 1 << 19, 1 << 20
_MOST, _LONGEST, _DEEPEST = 2000, 200, 6
_FILES = (
    "hparams.yaml", "args.json", "args.yaml", "params.json", "training_args.json", "hyperparameters.json",
    "hparams.json", "config.json", "config.yaml", os.path.join(".hydra", "config.yaml"),
    os.path.join("files", "config.yaml"),
)  # fmt: skip
_STATE = "trainer_state.json"
_OF_STATE = ("max_steps", "num_train_epochs", "train_batch_size", "logging_steps", "eval_steps", "save_steps")
_ARGUMENT = re.compile(
    r"^(?:\[[^\]\n]{1,60}\]:? ?|\d{1,6}: ?)?\s{0,8}([A-Za-z_]\w{1,80}) \.{3,120} (.{0,200})$", re.MULTILINE
)
_CELL = re.compile(r"^\| ([A-Za-z_][\w ]{1,60}?) {0,60}\| (.{1,200}?) {0,60}\|$", re.MULTILINE)
#: Where a run leaves what it makes, and what it is called: another word there makes no other training.
_NAMES = frozenset({
    "output_dir", "logging_dir", "log_dir", "save_dir", "work_dir", "run_name", "run_id", "exp_name", "experiment_name",
    "name", "project", "save", "tensorboard_dir", "wandb_save_dir", "wandb_exp_name", "hostname", "host", "rank",
    "local_rank", "master_addr", "master_port", "timestamp", "_wandb", "device", "pid", "log_file", "version",
})  # fmt: skip
SEEDS = frozenset({"seed", "random_seed", "data_seed", "torch_seed", "numpy_seed", "manual_seed", "rng_seed"})


def is_seed(name: str) -> bool:
    """Whether a setting chooses the random numbers and nothing else."""
    return _last(name) in SEEDS


def settings(cases: Sequence[Case]) -> list[dict[str, str]]:
    """Return the settings of each run by name, empty where nobody tells them.

    A file beside a log counts only where no other of the runs has a log in that folder: it may be that one's.
    """
    folders = Counter(folder for case in cases for folder in {os.path.dirname(path) for path in case.paths})
    return [_of(case, {folder for folder, count in folders.items() if count == 1}) for case in cases]


def _of(case: Case, own: set[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in case.paths[:4]:
        with contextlib.suppress(OSError):
            found.update(_from_log(path))
        folder = path if os.path.isdir(path) else os.path.dirname(path)
        if os.path.dirname(path) not in own:
            continue
        for name in _FILES:
            with contextlib.suppress(OSError, ValueError, RecursionError):
                found.update(_from_file(os.path.join(folder, name)))
        with contextlib.suppress(OSError):
            found.update(_from_params(os.path.join(folder, "params")))
    for subject, values in case.lineage.items():
        found.update(_flat(values, f"{subject}."))
    known = ((name, value) for name, value in found.items() if _last(name) not in _NAMES and "_wandb" not in name)
    return {name: value[:_LONGEST] for name, value in list(known)[:_MOST]}


def _from_log(path: str) -> dict[str, str]:
    if os.path.isdir(path):
        return {}
    if os.path.basename(path) == _STATE:
        state = json.loads(_text(path, 1 << 26))
        return {name: str(state[name]) for name in _OF_STATE if isinstance(state.get(name), (int, float))}
    with open(path, "rb") as file:
        head = file.read(_HEAD)
    if b" ..." not in head and b"\n| " not in head:
        return {}
    text = head.decode("utf-8", "replace").replace("\r\n", "\n")
    found = _ARGUMENT.findall(text)
    # A few lines with dots are no list of arguments; a table of something may be any.
    found = found if len(found) >= 10 else []
    cells = _CELL.findall(text) if b"\n| max_sequence_length" in head or b"\n| parameter" in head.lower() else []
    return {name.strip(): value.strip() for name, value in (*found, *cells)}


def _from_file(path: str) -> dict[str, str]:
    text = _text(path, _LARGEST)
    if path.endswith(".json"):
        document = json.loads(text)
    else:
        import yaml  # noqa: PLC0415  Most runs have no such file.

        class Loader(yaml.SafeLoader):
            """Takes tags of Python (tuples, paths) for what they hold."""

        Loader.add_multi_constructor("", lambda loader, _, node: _plain(loader, node))
        try:
            document = yaml.load(text, Loader)  # noqa: S506  It makes no objects.
        except yaml.YAMLError as error:
            raise ValueError(str(error)) from None
    return dict(_flat(document, "")) if isinstance(document, dict) else {}


def _plain(loader: object, node: object) -> object:
    """Return what a node of YAML holds, whatever its tag says."""
    kind = type(node).__name__
    construct = {"MappingNode": "construct_mapping", "SequenceNode": "construct_sequence"}.get(kind, "construct_scalar")
    return getattr(loader, construct)(node)


def _from_params(folder: str) -> dict[str, str]:
    """Return the parameters of MLflow's file store: a file for each."""
    return {name: _text(os.path.join(folder, name), _LONGEST) for name in sorted(os.listdir(folder))[:_MOST]}


def _text(path: str, largest: int) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read(largest + 1)
    if len(text) > largest:
        raise ValueError("too large for settings")
    return text


def _flat(document: Mapping[Any, object], prefix: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield settings by their names, parts of parts parted by points; W&B's values stand below "value"."""
    for key, value in document.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and "value" in value and set(value) <= {"value", "desc"}:
            value = value["value"]  # noqa: PLW2901
        if isinstance(value, dict):
            if depth < _DEEPEST:
                yield from _flat(value, f"{name}.", depth + 1)
        elif value is not None:
            yield name, value if isinstance(value, str) else json.dumps(value, default=str)


def _last(name: str) -> str:
    return name.rpartition(".")[2].lower()
