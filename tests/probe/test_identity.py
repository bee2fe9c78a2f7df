"""Who a process is: the same run name on every rank, without asking another one."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
from tests.helpers import Node, run_trainer, trainer_environment

from trainvitals.probe.identity import attempt, device, framework, identify, run_name


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
        ({"RAY_JOB_ID": "01000000"}, None, "default_worker.py", "ray-01000000"),
        ({"PBS_JOBID": "12[3].server"}, None, "train.py", "pbs-12"),
        ({"LSB_JOBID": "34"}, None, "train.py", "lsf-34"),
        ({"FLUX_JOB_ID": "f5"}, None, "train.py", "flux-f5"),
        ({"TRAINVITALS_RUN": ""}, "", "train.py", "train"),
    ],
)
def test_the_name_comes_from_the_first_that_has_one(environ, explicit, program, expected):
    """Explicit, our variable, the launcher, the program; what breaks labels and paths becomes a dash."""
    assert run_name(environ, explicit=explicit, program=program) == expected


RANDOM = "f81d4fae-7dec-41d0-a765-00a0c91e6bf6"
#: What each launcher leaves in the environment of the second process of the second node of two with four.
LAUNCHERS = {
    "torchrun with an id": (
        {
            "RANK": "5",
            "LOCAL_RANK": "1",
            "WORLD_SIZE": "8",
            "LOCAL_WORLD_SIZE": "4",
            "GROUP_RANK": "1",
            "GROUP_WORLD_SIZE": "2",
            "MASTER_ADDR": "node17",
            "MASTER_PORT": "40123",
            "TORCHELASTIC_RUN_ID": "llama",
            "TORCHELASTIC_RESTART_COUNT": "2",
            "TORCHELASTIC_MAX_RESTARTS": "3",
        },
        ("llama", 2, 5, 1, 1, 8),
    ),
    "torchrun without one": (
        {
            "RANK": "5",
            "LOCAL_RANK": "1",
            "WORLD_SIZE": "8",
            "GROUP_RANK": "1",
            "MASTER_ADDR": "node17",
            "MASTER_PORT": "29500",
            "TORCHELASTIC_RUN_ID": "none",
            "TORCHELASTIC_RESTART_COUNT": "0",
        },
        ("train", 0, 5, 1, 1, 8),
    ),
    "torchrun --standalone": (
        {
            "RANK": "1",
            "LOCAL_RANK": "1",
            "WORLD_SIZE": "4",
            "GROUP_RANK": "0",
            "MASTER_ADDR": "localhost",
            "TORCHELASTIC_RUN_ID": RANDOM,
            "TORCHELASTIC_RESTART_COUNT": "1",
        },
        ("train", 1, 1, 1, 0, 4),
    ),
    "NVIDIA's ft_launcher in Slurm": (
        {
            "RANK": "5",
            "LOCAL_RANK": "1",
            "WORLD_SIZE": "8",
            "GROUP_RANK": "1",
            "TORCHELASTIC_RUN_ID": "none",
            "TORCHELASTIC_RESTART_COUNT": "2",
            "NVRX_CYCLE": "2",
            "NVRX_INFRA_RANK": "1",
            "SLURM_JOB_ID": "77",
            "SLURM_NODEID": "1",
            "SLURM_PROCID": "1",
            "SLURM_RESTART_COUNT": "1",
        },
        ("slurm-77", 3, 5, 1, 1, 8),
    ),
    "srun": (
        {
            "SLURM_JOB_ID": "77",
            "SLURM_CLUSTER_NAME": "east",
            "SLURM_PROCID": "5",
            "SLURM_LOCALID": "1",
            "SLURM_NODEID": "1",
            "SLURM_NTASKS": "8",
            "SLURM_RESTART_COUNT": "1",
        },
        ("slurm-77", 1, 5, 1, 1, 8),
    ),
    "an array of Slurm whose tasks go on with each other": (
        {
            "SLURM_ARRAY_JOB_ID": "70",
            "SLURM_ARRAY_TASK_ID": "4",
            "SLURM_ARRAY_TASK_MIN": "1",
            "SLURM_JOB_ID": "74",
            "SLURM_PROCID": "5",
            "SLURM_LOCALID": "1",
            "SLURM_NODEID": "1",
            "SLURM_NTASKS": "8",
            "SLURM_RESTART_COUNT": "2",
        },
        ("slurm-70", 3, 5, 1, 1, 8),
    ),
    "Kubeflow's PyTorchJob": (
        {
            "KUBERNETES_SERVICE_HOST": "10.0.0.1",
            "HOSTNAME": "bert-worker-0",
            "MASTER_ADDR": "bert-master-0",
            "MASTER_PORT": "23456",
            "RANK": "1",
            "WORLD_SIZE": "2",
        },
        ("bert", 0, 1, 0, None, 2),
    ),
    "its master, which sees itself": (
        {
            "KUBERNETES_SERVICE_HOST": "10.0.0.1",
            "HOSTNAME": "bert-master-0",
            "MASTER_ADDR": "localhost",
            "RANK": "0",
            "WORLD_SIZE": "2",
        },
        ("bert", 0, 0, 0, None, 2),
    ),
    "torchrun in Kubeflow's TrainJob, a JobSet": (
        {
            "KUBERNETES_SERVICE_HOST": "10.0.0.1",
            "HOSTNAME": "gpt-node-0-1",
            "PET_NNODES": "2",
            "PET_NODE_RANK": "1",
            "MASTER_ADDR": "gpt-node-0-0.gpt",
            "GROUP_RANK": "1",
            "RANK": "5",
            "LOCAL_RANK": "1",
            "WORLD_SIZE": "8",
            "TORCHELASTIC_RUN_ID": "none",
            "TORCHELASTIC_RESTART_COUNT": "0",
        },
        ("gpt", 0, 5, 1, 1, 8),
    ),
    "a JobSet that tells its name": (
        {
            "KUBERNETES_SERVICE_HOST": "10.0.0.1",
            "JOBSET_NAME": "gpt",
            "JOBSET_RESTART_ATTEMPT": "2",
            "JOB_COMPLETION_INDEX": "1",
            "TORCHELASTIC_RUN_ID": "gpt-2",
            "RANK": "5",
            "LOCAL_RANK": "1",
            "WORLD_SIZE": "8",
        },
        ("gpt", 2, 5, 1, 1, 8),
    ),
    "mpirun": (
        {"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_SIZE": "8"},
        ("train", 0, 5, 1, None, 8),
    ),
    "mpirun of Open MPI in a job of Slurm": (
        {
            "SLURM_JOB_ID": "77",
            "SLURM_PROCID": "1",
            "SLURM_LOCALID": "0",
            "SLURM_NTASKS": "2",
            "SLURM_NODEID": "1",
            "OMPI_COMM_WORLD_RANK": "5",
            "OMPI_COMM_WORLD_LOCAL_RANK": "1",
            "OMPI_COMM_WORLD_SIZE": "8",
        },
        ("slurm-77", 0, 5, 1, 1, 8),
    ),
    "mpiexec of MPICH in a job of Slurm": (
        {
            "SLURM_JOB_ID": "77",
            "SLURM_PROCID": "1",
            "SLURM_LOCALID": "0",
            "SLURM_NTASKS": "2",
            "SLURM_NODEID": "1",
            "PMI_RANK": "5",
            "MPI_LOCALRANKID": "1",
            "PMI_SIZE": "8",
        },
        ("slurm-77", 0, 5, 1, 1, 8),
    ),
    "srun with PMI": (
        {
            "SLURM_JOB_ID": "77",
            "SLURM_PROCID": "5",
            "SLURM_LOCALID": "1",
            "SLURM_NTASKS": "8",
            "SLURM_NODEID": "1",
            "PMI_RANK": "5",
            "PMI_SIZE": "8",
        },
        ("slurm-77", 0, 5, 1, 1, 8),
    ),
    "a process that Lightning has started": (
        {"LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"},
        ("train", 0, 1, 1, 0, 2),
    ),
    "many nodes and nothing that names the job": (
        {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "NODE_RANK": "1", "MASTER_ADDR": "node17"},
        ("train", 0, 5, 1, 1, 8),
    ),
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_each_launcher_tells_who_a_rank_is(launcher, monkeypatch):
    """Name, attempt, rank, local rank, rank of the node and size of the world."""
    environ, expected = LAUNCHERS[launcher]
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "/home/me/train.py", raising=False)
    who = identify(environ)

    names = ("run", "attempt", "rank", "local_rank", "node_rank", "world_size")
    assert tuple(who.get(name) for name in names) == expected


@pytest.mark.parametrize(
    ("environ", "program", "expected"),
    [
        ({"TORCHELASTIC_RUN_ID": RANDOM}, "-c", RANDOM),
        ({"TORCHELASTIC_RUN_ID": RANDOM.replace("-", "")}, "train.py", "train"),
        ({"TORCHELASTIC_RUN_ID": RANDOM, "MASTER_ADDR": "node17", "MASTER_PORT": "29500"}, "", RANDOM),
        ({"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "node17", "MASTER_PORT": "29500"}, "-c", "node17-29500"),
        ({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}, "-c", "c"),
        ({"MASTER_ADDR": "bert-master-0"}, "train.py", "train"),
    ],
)
def test_a_name_that_no_restart_survives_is_the_last_but_one(environ, program, expected):
    """The name of the program is better; of a notebook and of ``-c`` there is none."""
    assert run_name(environ, program=program) == expected


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
        ({"RANK": "9" * 40, "WORLD_SIZE": "8"}, (0, 0, 1)),
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
        ({"TORCHELASTIC_RESTART_COUNT": "?", "SLURM_RESTART_COUNT": "-1"}, 0),
        ({"NVRX_CYCLE": "3", "TORCHELASTIC_RESTART_COUNT": "2"}, 3),
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
        "pytorch_lightning",
        "keras",
        "jax",
        "paddle",
        "mindspore",
        "accelerate",
        "deepspeed",
        "megatron",
        "torchtitan",
    ):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert framework() == "python"
    monkeypatch.setitem(sys.modules, "torch", sys)
    assert framework() == "torch"
    monkeypatch.setitem(sys.modules, "transformers", sys)
    assert framework() == "transformers"


def test_torchrun_without_a_name_keeps_that_of_the_program(spool, tmp_path):
    """The real one: --standalone makes a random id at each start; both ranks and the next start have one name."""
    pytest.importorskip("torch", reason="needs PyTorch")
    script = tmp_path / "finetune.py"
    script.write_text("import trainvitals; trainvitals.init(); trainvitals.step(1, loss=1.0)\n")
    environ = trainer_environment(spool, OMP_NUM_THREADS="1")
    del environ["TRAINVITALS_RUN"]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    subprocess.run(command, env=environ, check=True, capture_output=True, timeout=300)
    files = [file.identity for file in Node(spool).spool.poll()]

    found = sorted((who.run, who.rank, who.local_rank, who.node_rank, who.world_size) for who in files)
    assert found == [("finetune", 0, 0, "0", 2), ("finetune", 1, 1, "0", 2)]


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
    assert (
        scrape[
            'trainvitals_rank_info{attempt="0",local_rank="0",node_rank="",pci_bus_id="",rank="6",run="我的模型",uuid="GPU-1"}'
        ]
        == 1.0
    )
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


UUID = "8a6e0000-0000-4000-8000-000000000001"


class FakeDevice:
    """The part of torch.cuda (or of another device) that says which device a process computes on."""

    def __init__(self, module="torch.cuda", /, **properties):
        self.__name__ = module
        self._properties = properties

    def current_device(self):
        """Return the number of a device."""
        return 3

    def get_device_properties(self, index):
        """Return an object with what is known."""
        assert index == 3
        return SimpleNamespace(**self._properties)


@pytest.mark.parametrize(
    ("module", "environ", "expected"),
    [
        (FakeDevice(uuid=UUID), {}, {"device_uuid": f"GPU-{UUID}"}),
        (FakeDevice(uuid=f"MIG-{UUID}"), {}, {"device_uuid": f"MIG-{UUID}"}),
        (FakeDevice(uuid=UUID), {"CUDA_VISIBLE_DEVICES": f"MIG-1,MIG-{UUID}"}, {"device_uuid": f"MIG-{UUID}"}),
        (FakeDevice(uuid=UUID), {"NVIDIA_VISIBLE_DEVICES": f"MIG-{UUID}"}, {"device_uuid": f"MIG-{UUID}"}),
        (FakeDevice(uuid=UUID), {"CUDA_VISIBLE_DEVICES": "MIG-other"}, {"device_uuid": f"GPU-{UUID}"}),
        (
            FakeDevice(uuid=UUID, pci_domain_id=1, pci_bus_id=0xA5, pci_device_id=2),
            {},
            {"device_uuid": f"GPU-{UUID}", "pci_bus_id": "0001:a5:02.0"},
        ),
        (FakeDevice(pci_domain_id=0, pci_bus_id="x", pci_device_id=0), {}, {}),
        (FakeDevice("torch.xpu", uuid="86800000-1"), {}, {"device_uuid": "86800000-1"}),
        (FakeDevice("torch.npu", name="Ascend910B"), {}, {}),
        (SimpleNamespace(), {}, {}),
        (None, {}, {}),
    ],
)
def test_a_device_is_told_as_its_driver_and_the_kernel_write_it(module, environ, expected):
    """Uuid and PCI address, an instance by its own uuid; what is not known is not told, and nothing raises."""
    assert device(module, environ) == expected


def test_the_rank_of_a_process_group_counts_where_no_launcher_told_one(monkeypatch):
    """Ranks that the program itself started are told apart; what a launcher says comes first."""
    group = SimpleNamespace(is_initialized=lambda: True, get_rank=lambda: 3, get_world_size=lambda: 4)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=group))

    found = identify({})
    told = identify({"RANK": "1", "WORLD_SIZE": "2"})

    # The script of a job has the variables of its first task, and so have the ranks that it starts itself.
    inside = identify({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"})
    same = identify({"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NTASKS": "4"})

    assert (3, 4) == (found["rank"], found["world_size"])
    assert (3, 3, 4) == (inside["rank"], inside["local_rank"], inside["world_size"])
    assert (3, 1, 4) == (same["rank"], same["local_rank"], same["world_size"])
    assert (1, 2) == (told["rank"], told["world_size"])


def test_what_is_learnt_later_is_added(probe, recorded):
    """A framework tells its plan when it begins, and another one the next time; what the program said stays."""
    probe.add_identity(target_steps=100, framework="lightning", run="other", world_size=8)
    probe.add_identity(target_steps=250.0, attempt=None)

    identity = recorded().identity
    assert (identity["target_steps"], identity["framework"]) == (250, "lightning")
    assert (identity["run"], identity["world_size"], identity["attempt"]) == ("test", 1, 0)
