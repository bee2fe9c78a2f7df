"""What a run is made of: told in short tables, without secrets, without reading data, and never in the way."""

from __future__ import annotations

import argparse
import dataclasses
import enum
import json
import subprocess
import time
from collections import UserDict, UserList
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.helpers import Node, run_trainer

import trainvitals
from trainvitals import rankfile
from trainvitals.probe import code, digest, lineage
from trainvitals.probe.lineage import Lineage


@dataclasses.dataclass
class Optimizer:
    """A nested configuration."""

    rate: float = 3e-4
    betas: tuple[float, float] = (0.9, 0.95)
    api_key: str = "abcdef"


class Precision(enum.Enum):
    """A choice."""

    HALF = "fp16"


class Settings:
    """An object that can say what it holds, as configurations of Hugging Face do."""

    def to_dict(self):
        """Return its fields."""
        return {"layers": 12, "hub_token": "abcdef"}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"lr": 0.1, "nested": {"depth": {"value": None}}}, {"lr": "0.1", "nested.depth.value": "None"}),
        (Optimizer(), {"rate": "0.0003", "betas": "0.9, 0.95"}),
        (argparse.Namespace(steps=5, fp16=True), {"steps": "5", "fp16": "True"}),
        (Settings(), {"layers": "12"}),
        ({"stages": [{"lr": 1}, {"lr": 2}]}, {"stages.0.lr": "1", "stages.1.lr": "2"}),
        ({"ids": list(range(1000)), "blob": bytes(70)}, {"ids": "<list of 1000>", "blob": "<bytes of 70>"}),
        (
            {"kind": Precision.HALF, "class": Optimizer, "f": len},
            {"kind": "fp16", "class": "<Optimizer>", "f": "<len>"},
        ),
        ({"x": object(), "n": 10**400}, {"x": "<object>", "n": "<int>"}),
        ({"order": {"b", "a"}, 3: "three"}, {"order": "a, b", "3": "three"}),
        ("large", {"value": "large"}),
        (None, {"value": "None"}),
    ],
)
def test_a_configuration_becomes_a_flat_table(config, expected):
    """Of a mapping, a dataclass, a namespace, an object with to_dict; of what is large or opaque the type and size."""
    assert digest.of_config(config) == expected


@pytest.mark.parametrize(
    "config",
    [
        {"hub_token": "x"},
        {"apiKey": "x"},
        {"API_KEY": "x"},
        {"db": {"password": 1234}},
        {"secrets": {"a": "x"}},
        {"tokens": ["x"]},
        {"aws_access_key_id": b"x", "AWS_SECRET": 5},
        {"note": "hf_abcdefghijkl"},
        {"header": "Bearer abcdefghijk"},
        {"argv": ["--api-key=abc"]},
        {"text": "password: hunter"},
        {"certificate": "-----BEGIN PRIVATE KEY-----"},
        {"argv": ["--token", "abc"]},
        {"command": "train.py --api-key abc"},
        {"text": "pwd=hunter", "db_pass": "x", "PASS": "x", "jwt": "x", "passcode": 1234},
        {"url": "https://host/x?sv=2020&sig=abc"},
        {"url": "https://host/x?X-Amz-Signature=abc"},
        {"url": "s3://me:pa/ss@bucket"},
        {"chat": "https://hooks.slack.com/services/T0/B0/x"},
        {"chat": "https://api.telegram.org/bot123456:ABCDEF/sendMessage"},
        {"chat": "https://open.feishu.cn/open-apis/bot/v2/hook/x"},
        {"headers": "Basic dXNlcjpwYXNz"},
    ],
)
def test_a_secret_is_never_told(config):
    """Names that sound like one, and texts that look like one."""
    assert digest.of_config(config) == {}


def test_a_secret_in_a_name_is_never_told():
    """Of a model and of a data set, and in a list of variables as Kubernetes writes it."""
    assert digest.of_model("https://me:pw@host/m?token=abc") == {}
    assert digest.of_model(["hf_abcdefghijkl"]) == {}
    assert digest.of_dataset("postgres://me:p@ss@host/table") == {"name": "postgres://host/table"}
    assert digest.of_config([{"name": "HF_TOKEN", "value": "abc"}]) == {"0.name": "HF_TOKEN"}


def test_what_only_sounds_like_a_secret_is_told():
    """Numbers of tokens and heads; and an address loses its login."""
    config = {"max_tokens": 5, "num_key_value_heads": 8, "tokenizer": "bpe", "url": "https://me:pw@host/x"}
    assert digest.of_config(config) == {
        "max_tokens": "5",
        "num_key_value_heads": "8",
        "tokenizer": "bpe",
        "url": "https://host/x",
    }


def test_a_table_is_bounded():
    """Rows, texts, depth and bytes as JSON, and one that holds itself ends; a cut is marked."""
    wide = digest.of_config({f"name{index}": "x" * 1000 for index in range(1000)})
    emoji = digest.of_config({f"name{index}": "\U0001f600" * 128 for index in range(200)})
    endless: dict[str, object] = {}
    endless["again"] = endless
    many = digest.of_config({f"n{index}": index for index in range(300)})

    assert (max(map(len, wide.values())), wide["..."]) == (128, "more")
    assert (len(many), many["n199"], many["..."]) == (201, "199", "more")
    assert all(len(json.dumps(rows)) < 12_100 for rows in (wide, emoji, many))
    assert digest.of_config(endless) == {".".join(["again"] * 8): "<dict of 1>"}


class Missing(UserDict):
    """A configuration with a value that is still to be given, as OmegaConf has them."""

    def __getitem__(self, key):
        """Return a value."""
        if self.data[key] == "???":
            raise KeyError(key)
        return self.data[key]


class Broken:
    """An object that fails to say what it holds."""

    def to_dict(self):
        """Raise."""
        raise RuntimeError


class Attributes(UserList):
    """A list and a dict with attributes that are none of Python's own."""

    def keys(self):
        """Return names."""

    items = keys

    def to_dict(self):
        """Return its fields."""
        return {"lr": 2}


def test_what_cannot_be_read_costs_its_own_row():
    """A value that is missing, an object whose method raises; and containers of other libraries are looked into."""
    config = Missing(a=1, b="???", c=Broken(), d=UserList([1, 2]), e=Attributes())
    assert digest.of_config(config) == {"a": "1", "c": "<Broken>", "d": "1, 2", "e.lr": "2"}


def test_a_long_text_costs_no_time():
    """It is cut before it is looked at."""
    begun = time.process_time()
    assert digest.of_config({str(number): "x" * 10_000_000 for number in range(20)})["7"] == "x" * 128
    assert time.process_time() - begun < 2.0


class Data:
    """A data set that must not be read."""

    _fingerprint = "f1e2"
    version = "1.1.0"

    def __len__(self):
        """Might count files."""
        raise AssertionError

    def __iter__(self):
        """Would read."""
        raise AssertionError

    __getitem__ = __iter__


def test_a_data_set_is_named_and_never_read():
    """By name, by what Hugging Face calls its fingerprint, within a loader, and one by one in a mapping."""
    data = {"class": "Data", "fingerprint": "f1e2", "version": "1.1.0"}
    loader = SimpleNamespace(dataset=Data())

    assert digest.of_dataset("c4") == {"name": "c4"}
    assert digest.of_dataset({"path": Path("/data/c4"), "weight": 0.5}) == {"path": "/data/c4", "weight": "0.5"}
    assert digest.of_dataset(Data()) == data
    assert digest.of_dataset(loader) == {
        "class": "SimpleNamespace",
        **{f"dataset.{name}": text for name, text in data.items()},
    }
    assert digest.of_dataset({"train": Data()}) == {f"train.{name}": text for name, text in data.items()}


class Parameter:
    """The metadata of a parameter; its values may be on a device."""

    def __init__(self, size, trainable=True, dtype="torch.bfloat16"):
        self._size, self.requires_grad, self.dtype = size, trainable, dtype

    def numel(self):
        """Return how many numbers it has."""
        return self._size


class DistributedDataParallel:
    """What stands around a model, by its name."""

    def __init__(self, module):
        self.module = module

    def parameters(self):
        """Return those of the model."""
        return self.module.parameters()


class Model:
    """A model with a configuration."""

    config = Settings()

    def parameters(self):
        """Return a frozen one as well."""
        return [Parameter(30), Parameter(12, trainable=False, dtype="torch.float32")]


def test_a_model_is_counted_from_its_metadata():
    """Class, parameters, their types, and a hash of the configuration; several parts are one."""
    rows = digest.of_model(DistributedDataParallel(Model()))
    config = rows.pop("config")

    assert rows == {
        "class": "Model",
        "parameters": "42",
        "trainable": "30",
        "precision": "torch.bfloat16, torch.float32",
    }
    assert len(config) == 12
    assert digest.of_model([Model(), Model()])["parameters"] == "84"
    assert digest.of_model({"layers": 2}) == {"layers": "2"}
    assert digest.of_model("llama") == {"name": "llama"}


def git(folder, *arguments):
    """Run git without settings of the user."""
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", "-c", "core.hooksPath=/none"]
    done = subprocess.run(["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture(params=["2", "4"])
def repository(tmp_path, request):
    """Give a repository with a program, in an old and in the newest format of the index."""
    try:
        git(tmp_path, "init", "-q", "-b", "main")
    except FileNotFoundError:
        pytest.skip("git is not installed")
    for name in ("train.py", "pack/model.py", "pack/models.py", "other.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"# {name}\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    git(tmp_path, "update-index", "--index-version", request.param)
    return tmp_path


def described(folder):
    """Describe the code of a program that imported a module."""
    return code.describe(str(folder / "train.py"), [SimpleNamespace(__file__=str(folder / "pack/models.py")), object()])


def test_the_code_is_told_without_git_being_run(repository):
    """Commit and branch, also when packed; an imported file that differs, or something staged, is dirty."""
    clean = described(repository)
    commit = git(repository, "rev-parse", "HEAD")
    assert (clean["commit"], clean["branch"], clean["dirty"]) == (commit, "main", "False")

    (repository / "other.txt").write_text("not imported")
    assert described(repository) == clean
    (repository / "pack/models.py").write_text("changed")
    dirty = described(repository)
    assert dirty["dirty"] == "True"
    assert dirty["source"] != clean["source"]
    git(repository, "add", "pack/models.py")
    assert described(repository) == dirty

    git(repository, "commit", "-q", "-m", "second")
    git(repository, "pack-refs", "--all")
    after = described(repository)
    assert (after["commit"], after["dirty"]) == (git(repository, "rev-parse", "HEAD"), "False")
    git(repository, "checkout", "-q", "--detach")
    assert "branch" not in described(repository)


def test_what_a_stand_in_stands_for_is_told():
    """To guard a data set or to watch a loader is no change of it."""
    assert digest.of_dataset(trainvitals.guarded(Data()))["class"] == "Data"
    assert digest.of_dataset(trainvitals.data(Data()))["class"] == "Data"


def test_a_split_index_is_not_read(repository):
    """The files are in another one: whether one differs is not known, and not said."""
    git(repository, "update-index", "--split-index")
    assert "dirty" not in described(repository)


def test_modules_that_are_none_cost_nothing(repository):
    """Whatever a program has put among its modules."""

    class Odd:
        @property
        def __dict__(self):
            raise RuntimeError

    modules = [None, Odd(), 7]
    assert code.describe(str(repository / "train.py"), modules)["dirty"] == "False"
    assert lineage.packages({"torch": Odd(), "numpy": None}).get("numpy") is None


def test_a_worktree_and_a_folder_without_a_repository(repository, tmp_path_factory):
    """The first has its HEAD elsewhere; of the second only the files are hashed, of an installed program nothing."""
    tree = tmp_path_factory.mktemp("tree") / "side"
    git(repository, "worktree", "add", "-q", "-b", "side", str(tree))
    plain = tmp_path_factory.mktemp("plain")
    (plain / "train.py").write_text("# train.py\n")

    assert (described(tree)["branch"], described(tree)["commit"]) == ("side", git(repository, "rev-parse", "HEAD"))
    assert set(code.describe(str(plain / "train.py"), [])) == {"source"}
    assert code.describe("/usr/lib/python3/site-packages/tool/__main__.py", []) == {}
    assert code.describe(None, []) == {}


@pytest.mark.parametrize(
    "index", [b"", b"DIRC", b"DIRC\0\0\0\2\xff\xff\xff\xff" + bytes(90), bytes(500), b"DIRC\0\0\0\7" + bytes(99)]
)
def test_a_damaged_index_costs_one_answer(repository, index):
    """Whether the code is dirty is then not told."""
    (repository / ".git/index").write_bytes(index)
    found = described(repository)

    assert "dirty" not in found
    assert found["branch"] == "main"


def test_the_environment_is_a_list_of_what_may_be_told():
    """Never all of it."""
    environ = {
        "NCCL_DEBUG": "INFO",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "OMP_NUM_THREADS": "4",
        "TORCHELASTIC_RESTART_COUNT": "3",
        "HF_TOKEN": "x",
        "NCCL_SECRET_TOKEN": "x",
        "HOME": "/home/me",
        "AWS_SECRET_ACCESS_KEY": "x",
    }
    assert lineage.environment(environ) == {
        "NCCL_DEBUG": "INFO",
        "OMP_NUM_THREADS": "4",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    }


def test_packages_are_those_that_are_imported():
    """By what they say themselves; nothing is imported to find out."""
    torch = SimpleNamespace(__version__="2.13.0", version=SimpleNamespace(cuda="13.0", hip=None))
    modules = {"torch": torch, "apex": SimpleNamespace(), "json": json}

    assert lineage.packages(modules) == {"torch": "2.13.0", "torch.cuda": "13.0"}


def test_the_platform_names_the_driver(tmp_path):
    """Python, kernel, machine; the driver of NVIDIA where there is one."""
    (tmp_path / "version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"
    )

    assert lineage.platform_rows(str(tmp_path / "version"))["driver"] == "580.65.06"
    assert set(lineage.platform_rows("/none")) == {"python", "kernel", "machine"}


def test_rank_0_tells_tables_and_the_others_hashes():
    """With one hash over all; what did not change is not told again."""
    told: list[dict[str, object]] = []
    first, second = Lineage(told.append, whole=True), Lineage(told.append, whole=False)
    first.add(config={"lr": 1})
    first.add(config={"lr": 1}, dataset=None)
    second.add(config={"lr": 1})

    assert [fields["subject"] for fields in told] == ["config", "config"]
    assert told[0]["values"] == {"lr": "1"}
    assert "values" not in told[1]
    assert told[0]["hash"] == told[1]["hash"]
    assert first.hash == second.hash == told[0]["lineage"]


def test_each_rank_may_see_another_device(monkeypatch):
    """The variables that part devices among ranks are told and not hashed."""
    told: list[dict[str, object]] = []
    for devices in ("0", "1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", devices)
        Lineage(told.append, whole=True).complete()
    hashes = {fields["hash"] for fields in told if fields["subject"] == "environment"}

    assert len(hashes) == 1


SCRIPT = """
    import trainvitals

    class Odd:
        def to_dict(self):
            raise RuntimeError("odd")

    trainvitals.init(config=Odd(), dataset="c4", model={"name": "m"})
    trainvitals.init(config={"lr": 0.5, "password": "hunter2"})
    trainvitals.step(7, loss=1.0)
    with trainvitals.checkpoint(7):
        pass
"""


def events_of(spool):
    """Return the events of the only rank."""
    (path,) = spool.glob(f"*{rankfile.EVENTS_SUFFIX}")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_program_tells_what_its_run_is_made_of(spool):
    """An odd configuration costs itself only; a checkpoint carries the hash of what made it."""
    done = run_trainer(SCRIPT, spool)
    events = events_of(spool)
    told = {event["subject"]: event for event in events if event["kind"] == "lineage"}
    (checkpoint,) = [event for event in events if event["kind"] == "checkpoint"]

    assert (done.returncode, done.stderr) == (0, "")
    scrape = Node(spool).scrape()
    assert scrape['trainvitals_probe_errors_total{rank="0",run="test"}'] == 0.0
    assert scrape['trainvitals_probe_dropped_total{rank="0",run="test"}'] == 1.0
    assert {"config", "dataset", "packages", "platform"} <= told.keys()
    assert (told["config"]["values"], told["dataset"]["values"]) == ({"lr": "0.5"}, {"name": "c4"})
    assert (told["config"]["step"], told["platform"]["step"]) == (-1, 7)
    assert told["packages"]["values"].keys() == {"trainvitals"}
    assert len(checkpoint["lineage"]) == 12


def test_it_can_be_switched_off(spool):
    """For who may not tell what code and settings a job has."""
    run_trainer(SCRIPT, spool, TRAINVITALS_LINEAGE="0")
    events = events_of(spool)

    assert [event["kind"] for event in events] == ["start", "checkpoint"]
    assert "lineage" not in events[1]


def test_a_training_that_reports_no_step_imports_nothing_for_it(spool):
    """The hashes are for the first step."""
    script = "import sys, trainvitals; trainvitals.init(); print('trainvitals.probe.lineage' in sys.modules)"
    assert run_trainer(script, spool).stdout == "False\n"
