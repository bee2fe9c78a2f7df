"""Who a process is: the same run name on every rank, without asking another one."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
from tests.helpers import Node, run_trainer, trainer_environment

from trainvitals.probe.identity import attempt, device_uuid, framework, identify, run_name


@pytest.mark.parametrize(
    ("environ", "explicit", "program", "expected"),
    [
        ({}, None, "/home/me/train.py", "train"),
        ({}, None, "", "run"),
        ({}, None, "-c", "c"),
        ({}, None, "/site-packages/trainer/__main__.py", "trainer"),
        ({}, None, "__main__.py", "run"),
        ({}, "my run/1", "", "my-run-1"),
        ({}, "训练 一", "", "训练-一"),
        ({}, "..", "train.py", "train"),
        ({}, "x" * 100, "", "x" * 64),
        ({}, 'a"b\n{c}\x00', "", "a-b-c"),
        ({"TRAINVITALS_RUN": "named", "SLURM_JOB_ID": "7"}, None, "", "named"),
        ({"TRAINVITALS_RUN": "named"}, "explicit", "", "explicit"),
        ({"TORCHELASTIC_RUN_ID": "none", "SLURM_JOB_ID": "7"}, None, "", "slurm-7"),
        ({"TORCHELASTIC_RUN_ID": "job", "SLURM_JOB_ID": "7"}, None, "", "job"),
        ({"SLURM_ARRAY_JOB_ID": "5", "SLURM_JOB_ID": "7"}, None, "", "slurm-5"),
        ({"RAY_JOB_ID": "ray1"}, None, "", "ray1"),
        ({"TRAINVITALS_RUN": ""}, "", "train.py", "train"),
    ],
)
def test_the_name_comes_from_the_first_that_has_one(environ, explicit, program, expected):
    """Explicit, our variable, the launcher, the program; what breaks labels and paths becomes a dash."""
    assert run_name(environ, explicit=explicit, program=program) == expected


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, (0, 0, 1)),
        ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}, (3, 1, 8)),
        ({"RANK": "3"}, (3, 0, 1)),
        ({"RANK": "-1", "SLURM_PROCID": "2", "SLURM_LOCALID": "2", "SLURM_NTASKS": "4"}, (2, 2, 4)),
        ({"RANK": "x", "OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "6"}, (5, 0, 6)),
        ({"RANK": "2", "LOCAL_RANK": "-1", "WORLD_SIZE": "-1"}, (2, 0, 1)),
        ({"RANK_ID": "1", "DEVICE_ID": "7", "RANK_SIZE": "16"}, (1, 7, 16)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, (1, 0, 2)),
        ({"PADDLE_TRAINER_ID": "1", "PADDLE_RANK_IN_NODE": "1", "PADDLE_TRAINERS_NUM": "2"}, (1, 1, 2)),
        ({"RANK": "9" * 5000}, (0, 0, 1)),
    ],
)
def test_the_rank_comes_from_the_launcher(environ, expected):
    """The variables of each launcher; what is no number, or a negative one, is not set."""
    who = identify(environ, run="test")

    assert (who["rank"], who["local_rank"], who["world_size"]) == expected


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, 0),
        ({"TORCHELASTIC_RESTART_COUNT": "2", "SLURM_RESTART_COUNT": "1"}, 3),
        ({"TRAINVITALS_ATTEMPT": "7", "TORCHELASTIC_RESTART_COUNT": "2"}, 7),
        ({"TORCHELASTIC_RESTART_COUNT": "?"}, 0),
    ],
)
def test_restarts_are_counted_by_the_launcher(environ, expected):
    """Those of all launchers add up."""
    assert attempt(environ) == expected


def test_the_framework_is_the_most_specific_one_that_was_imported(monkeypatch):
    """Nothing is imported to find out."""
    for name in (
        "torch",
        "transformers",
        "lightning",
        "keras",
        "jax",
        "paddle",
        "mindspore",
        "accelerate",
        "deepspeed",
    ):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert framework() == "python"
    monkeypatch.setitem(sys.modules, "torch", sys)
    assert framework() == "torch"
    monkeypatch.setitem(sys.modules, "transformers", sys)
    assert framework() == "transformers"


def test_what_init_is_told_wins(spool):
    """Numbers in another type become numbers: the exporter takes no text for a rank."""
    script = """
        import trainvitals

        class Whole:
            def __int__(self):
                return 6

        more = {"world_size": "8", "attempt": None, "device_uuid": "GPU-1"}
        trainvitals.init(run="我的模型", target_steps=1e5, rank=Whole(), **more)
        trainvitals.step(1, loss=1.0)
    """
    done = run_trainer(script, spool)
    assert (done.returncode, done.stderr) == (0, "")
    scrape = Node(spool).scrape()

    assert scrape['trainvitals_target_steps{rank="6",run="我的模型"}'] == 100_000.0
    assert scrape['trainvitals_rank_info{attempt="0",local_rank="0",rank="6",run="我的模型",uuid="GPU-1"}'] == 1.0
    assert scrape['trainvitals_run_info{attempt="0",framework="python",run="我的模型",world_size="8"}'] == 1.0
    assert all(path.name.isascii() for path in spool.iterdir())


@pytest.mark.parametrize("target", ["float('inf')", "-1", "0", "'many'", "None", "10**400"])
def test_a_target_that_is_none_is_left_out(spool, target):
    """A training without a known end has no percentage, and is recorded all the same."""
    run_trainer(f"import trainvitals; trainvitals.init(target_steps={target}); trainvitals.step(1, loss=1.0)", spool)
    scrape = Node(spool).scrape()

    assert scrape['trainvitals_step{rank="0",run="test"}'] == 1.0
    assert not any("target_steps" in name for name in scrape)


def test_the_name_of_the_program_is_the_last_resort(spool, tmp_path):
    """For a script and for a module."""
    package = tmp_path / "trainer"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text("import trainvitals; trainvitals.init()")
    (tmp_path / "fine tune.py").write_text("import trainvitals; trainvitals.init()")
    environ = trainer_environment(spool)
    del environ["TRAINVITALS_RUN"]
    for command in (["fine tune.py"], ["-m", "trainer"]):
        subprocess.run([sys.executable, *command], cwd=tmp_path, env=environ, check=True)

    runs = {file.identity.run for file in Node(spool).spool.poll()}
    assert runs == {"fine-tune", "trainer"}


class FakeCuda:
    """The part of torch.cuda that says which device a process computes on."""

    def __init__(self, *, initialized=True, uuid="8a6e0000-0000-4000-8000-000000000001"):
        self._initialized = initialized
        self._uuid = uuid

    def is_initialized(self):
        """Whether there is a context."""
        return self._initialized

    def current_device(self):
        """Would make a context where there is none."""
        assert self._initialized
        return 3

    def get_device_properties(self, index):
        """Return an object with a uuid, or one without."""
        assert index == 3
        return SimpleNamespace(uuid=self._uuid) if self._uuid else SimpleNamespace()


@pytest.mark.parametrize(
    ("cuda", "expected"),
    [
        (FakeCuda(), "GPU-8a6e0000-0000-4000-8000-000000000001"),
        (FakeCuda(uuid="MIG-8a6e0000-0000-4000-8000-000000000002"), "MIG-8a6e0000-0000-4000-8000-000000000002"),
        (FakeCuda(initialized=False), None),
        (FakeCuda(uuid=None), None),
        (None, None),
    ],
)
def test_a_device_is_told_only_where_the_training_has_one(cuda, expected):
    """Without a context nothing is asked; an older torch that knows no uuid is no error."""
    assert expected == device_uuid(SimpleNamespace(cuda=cuda) if cuda else None)


def test_a_process_without_torch_has_no_device():
    """Nothing is imported to find out."""
    assert device_uuid(None) is None


def test_the_rank_of_a_process_group_counts_where_no_launcher_told_one(monkeypatch):
    """Ranks that the program itself started are told apart; what a launcher says comes first."""
    group = SimpleNamespace(is_initialized=lambda: True, get_rank=lambda: 3, get_world_size=lambda: 4)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=group))

    found = identify({})
    told = identify({"RANK": "1", "WORLD_SIZE": "2"})

    assert (3, 4) == (found["rank"], found["world_size"])
    assert (1, 2) == (told["rank"], told["world_size"])


def test_what_is_learnt_later_is_added(probe, recorded):
    """A framework tells its plan when it begins, and another one the next time; what the program said stays."""
    probe.add_identity(target_steps=100, framework="lightning", run="other", world_size=8)
    probe.add_identity(target_steps=250.0, attempt=None)

    identity = recorded().identity
    assert (identity["target_steps"], identity["framework"]) == (250, "lightning")
    assert (identity["run"], identity["world_size"], identity["attempt"]) == ("test", 1, 0)
