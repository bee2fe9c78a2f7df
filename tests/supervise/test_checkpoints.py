"""Checkpoints: each format whole and damaged, their steps, and the newest of a folder."""

from __future__ import annotations

import json
import os
import pickle
import zipfile

import pytest

from trainvitals.supervise.checkpoints import DamagedError, find, newest
from trainvitals.supervise.checkpoints.base import step_of_name
from trainvitals.supervise.checkpoints.distributed import Distributed
from trainvitals.supervise.checkpoints.huggingface import HuggingFace
from trainvitals.supervise.checkpoints.safetensors import Safetensors
from trainvitals.supervise.checkpoints.torch_zip import TorchZip, step_of_pickle


def archive(path, state=None, tensor=b"\1" * 4000):
    """Write an archive as torch.save does."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps({"weights": "w"} if state is None else state, protocol=2))
        file.writestr("archive/data/0", tensor)
        file.writestr("archive/version", b"3\n")


def safe(path, length=64, missing=0):
    """Write a file of safetensors."""
    header = json.dumps(
        {"__metadata__": {}, "w": {"dtype": "F32", "shape": [16], "data_offsets": [0, length]}}
    ).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(length - missing))


def cut(path, size):
    """Cut a file short."""
    with open(path, "r+b") as file:
        file.truncate(size)


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step_100.pt", 100),
        ("epoch=3-step=1500.ckpt", 1500),
        ("checkpoint-500", 500),
        ("iter_0000100", 100),
        ("global_step42", 42),
        ("0000300", 300),
        ("epoch_3.pt", None),
        ("model.pt", None),
        ("last.ckpt", None),
    ],
)
def test_the_step_in_a_name(name, step):
    """An epoch is no step."""
    assert step_of_name(f"/out/{name}") == step


def test_a_whole_archive(tmp_path):
    """Nothing is raised, and its step is read from the pickle without loading it."""
    archive(tmp_path / "last.ckpt", {"epoch": 3, "global_step": 1500, "state_dict": {}})

    TorchZip().verify(str(tmp_path / "last.ckpt"))
    assert TorchZip().step(str(tmp_path / "last.ckpt")) == 1500


@pytest.mark.parametrize(
    ("size", "why"), [(0, "it is empty"), (3, "no archive"), (200, "cut short"), (4100, "cut short"), (-1, "cut short")]
)
def test_an_archive_that_is_cut_short(tmp_path, size, why):
    """Wherever it ends: the directory stands at the end."""
    path = tmp_path / "step_7.pt"
    archive(path)
    cut(path, size if size >= 0 else path.stat().st_size - 1)

    with pytest.raises(DamagedError, match=why):
        TorchZip().verify(str(path))


def test_a_flipped_bit_in_an_archive(tmp_path):
    """Each entry has a checksum."""
    path = tmp_path / "step_7.pt"
    archive(path)
    data = bytearray(path.read_bytes())
    data[data.index(b"\1" * 100)] ^= 0x10
    path.write_bytes(data)

    with pytest.raises(DamagedError, match="checksum of archive/data/0"):
        TorchZip().verify(str(path))


def test_what_torch_itself_writes(tmp_path):
    """The real format is whole, and is not when it is cut."""
    torch = pytest.importorskip("torch")
    path = tmp_path / "step_7.pt"
    torch.save({"step": 7, "w": torch.ones(2000)}, path)

    TorchZip().verify(str(path))
    assert TorchZip().step(str(path)) == 7
    cut(path, path.stat().st_size // 2)
    with pytest.raises(DamagedError):
        TorchZip().verify(str(path))


def test_a_pickle_is_not_loaded(tmp_path):
    """What would run at loading does not run."""
    target = tmp_path / "ran"

    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(target),)

    assert step_of_pickle(pickle.dumps({"step": 3, "evil": Evil()}, protocol=2)) == 3
    assert not target.exists()


@pytest.mark.parametrize("data", [b"", b"\x80\x02}", b"\xff" * 20, b"\x80\x02X\x04\0\0\0step", b"cos\nsystem\n"])
def test_a_pickle_that_makes_no_sense(data):
    """There is no step, and nothing is raised."""
    assert step_of_pickle(data) is None


def test_safetensors(tmp_path):
    """The header says how long the file is."""
    path = tmp_path / "model.safetensors"
    safe(path)
    Safetensors().verify(str(path))

    for missing, why in ((1, "cut short: "), (-1, "too long")):
        safe(path, missing=missing)
        with pytest.raises(DamagedError, match=why):
            Safetensors().verify(str(path))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no header"),
        (b"\xff" * 8, "no header"),
        ((50).to_bytes(8, "little") + b"{", "within its header"),
        ((4).to_bytes(8, "little") + b"[{]}", "no sense"),
        ((9).to_bytes(8, "little") + b'{"w": {}}', "no sense"),
    ],
)
def test_safetensors_that_make_no_sense(tmp_path, data, why):
    """Each is told in words."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)

    with pytest.raises(DamagedError, match=why):
        Safetensors().verify(str(path))


def distributed(folder):
    """Write a folder as DCP does."""
    folder.mkdir()
    (folder / ".metadata").write_bytes(pickle.dumps({"w": ("__0_0.distcp", 0), "v": ("__1_0.distcp", 0)}))
    for name in ("__0_0.distcp", "__1_0.distcp"):
        (folder / name).write_bytes(b"data")


def test_a_distributed_checkpoint(tmp_path):
    """The metadata names the files; it is written last."""
    folder = tmp_path / "step_9"
    distributed(folder)
    Distributed().verify(str(folder))

    (folder / "__1_0.distcp").write_bytes(b"")
    with pytest.raises(DamagedError, match=r"__1_0\.distcp is empty"):
        Distributed().verify(str(folder))
    (folder / "__1_0.distcp").unlink()
    with pytest.raises(DamagedError, match=r"__1_0\.distcp is missing"):
        Distributed().verify(str(folder))
    cut(folder / ".metadata", 20)
    with pytest.raises(DamagedError, match=r"\.metadata is cut short"):
        Distributed().verify(str(folder))
    (folder / ".metadata").unlink()
    assert Distributed().claims(str(folder))
    with pytest.raises(DamagedError, match="the save did not end"):
        Distributed().verify(str(folder))


def huggingface(folder, step=500):
    """Write a folder as the Trainer does."""
    folder.mkdir()
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": []}))
    safe(folder / "model-00001.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": "model-00001.safetensors"}}))
    archive(folder / "optimizer.pt")


def test_a_checkpoint_of_hugging_face(tmp_path):
    """State, shards of the index, optimizer: each must be whole."""
    folder = tmp_path / "checkpoint-500"
    huggingface(folder)
    HuggingFace().verify(str(folder))
    assert HuggingFace().step(str(folder)) == 500

    cut(folder / "optimizer.pt", 300)
    with pytest.raises(DamagedError, match=r"optimizer\.pt: it is cut short"):
        HuggingFace().verify(str(folder))
    (folder / "model-00001.safetensors").unlink()
    with pytest.raises(DamagedError, match=r"model-00001\.safetensors is missing"):
        HuggingFace().verify(str(folder))
    cut(folder / "trainer_state.json", 10)
    with pytest.raises(DamagedError, match=r"trainer_state\.json is cut short"):
        HuggingFace().verify(str(folder))


def test_a_checkpoint_of_hugging_face_without_its_state(tmp_path):
    """The Trainer writes it near the end: without it, the save did not end."""
    folder = tmp_path / "checkpoint-500"
    huggingface(folder)
    (folder / "trainer_state.json").unlink()

    (found,) = find(str(tmp_path))

    assert (found.format.name, found.step) == ("Hugging Face Trainer", 500)
    assert newest([found]) == (None, [newest([found])[1][0]])
    assert newest([found])[1][0].why == "it has no trainer_state.json: the save did not end"


def test_the_newest_that_is_whole(tmp_path):
    """By step and not by time; what is damaged is passed over and named, what is unfinished is not looked at."""
    for step in (20, 100, 60):
        archive(tmp_path / f"step_{step}.pt")
    cut(tmp_path / "step_100.pt", 500)
    (tmp_path / "step_120.pt.tmp").write_bytes(b"half")
    os.symlink("step_60.pt", tmp_path / "latest.pt")

    found = find(str(tmp_path))
    chosen, passed = newest(found)

    assert [one.step for one in found] == [100, 60, 20]
    assert chosen.path == f"{tmp_path}/step_60.pt"
    assert [(one.step, one.path) for one in passed] == [(100, f"{tmp_path}/step_100.pt")]


def test_before_an_onset(tmp_path):
    """The checkpoint of the onset's own step was saved behind it."""
    for step in (10, 15, 20):
        archive(tmp_path / f"step_{step}.pt")

    assert [newest(find(str(tmp_path)), before=before)[0].step for before in (21, 20, 16, 15)] == [20, 15, 15, 10]
    assert newest(find(str(tmp_path)), before=10) == (None, [])


def test_a_rejected_checkpoint_counts_again_once_it_is_written_anew(tmp_path):
    """The mark is that of the content, not of the name."""
    archive(tmp_path / "step_10.pt")
    rejected = [find(str(tmp_path))[0].mark]
    assert newest(find(str(tmp_path)), rejected=rejected) == (None, [])

    archive(tmp_path / "step_10.pt")
    os.utime(tmp_path / "step_10.pt", (1e9, 1e9))

    assert newest(find(str(tmp_path)), rejected=rejected)[0].step == 10


def test_steps_that_the_training_told(tmp_path):
    """A name without a step gets that of the probe's event."""
    archive(tmp_path / "a.pt")
    archive(tmp_path / "b.pt")

    found = find(str(tmp_path), {f"{tmp_path}/a.pt": 40, f"{tmp_path}/b.pt": 20})

    assert [(os.path.basename(one.path), one.step) for one in found] == [("a.pt", 40), ("b.pt", 20)]


def test_of_nothing_that_tells_a_step_the_newest_counts(tmp_path):
    """And what tells none is no rival of what does."""
    archive(tmp_path / "a.pt")
    archive(tmp_path / "b.pt")
    os.utime(tmp_path / "a.pt", (2e9, 2e9))
    assert newest(find(str(tmp_path)))[0].path == f"{tmp_path}/a.pt"

    archive(tmp_path / "step_1.pt")

    assert [one.step for one in find(str(tmp_path))] == [1]


def test_folders_of_files_and_deeper_ones(tmp_path):
    """A folder for each step; Lightning's checkpoints lie three folders down."""
    (tmp_path / "step_4").mkdir()
    for rank in (0, 1):
        archive(tmp_path / "step_4" / f"rank{rank}.pt")
    deep = tmp_path / "lightning_logs" / "version_0" / "checkpoints"
    deep.mkdir(parents=True)
    archive(deep / "epoch=0-step=8.ckpt")

    found = find(str(tmp_path))

    assert [(one.step, one.format.name) for one in found] == [(8, "Lightning"), (4, "folder of files")]
    cut(tmp_path / "step_4" / "rank1.pt", 100)
    assert newest(found, before=8)[1][0].why.startswith("rank1.pt: it is cut short")


@pytest.mark.filterwarnings("ignore")
def test_what_dcp_itself_writes(tmp_path):
    """A real folder of ``torch.distributed.checkpoint`` is whole, and is not without one of its files."""
    torch = pytest.importorskip("torch")
    from torch.distributed import checkpoint

    checkpoint.save({"w": torch.ones(2000)}, checkpoint_id=str(tmp_path / "step_9"), no_dist=True)

    (found,) = find(str(tmp_path))
    assert (found.step, found.format.name) == (9, "torch.distributed.checkpoint")
    assert newest([found]) == (found, [])
    (tmp_path / "step_9" / "__0_0.distcp").unlink()
    assert newest([found])[1][0].why == "__0_0.distcp is missing"


@pytest.mark.filterwarnings("ignore")
def test_what_lightning_itself_writes(tmp_path):
    """A real ``.ckpt``: its step is in the name and in the file."""
    lightning = pytest.importorskip("lightning.pytorch")
    from lightning.pytorch.demos.boring_classes import BoringModel

    trainer = lightning.Trainer(
        default_root_dir=tmp_path, max_steps=4, logger=False, enable_progress_bar=False, accelerator="cpu",
        enable_model_summary=False, limit_val_batches=0,
    )  # fmt: skip
    trainer.fit(BoringModel())
    trainer.save_checkpoint(tmp_path / "last.ckpt")

    found = find(str(tmp_path))

    assert {(one.step, one.format.name) for one in found} == {(4, "Lightning")}
    assert newest(found) == (found[0], [])


@pytest.mark.filterwarnings("ignore")
def test_what_hugging_face_itself_writes(tmp_path):
    """A real ``checkpoint-N`` of the Trainer is whole; with a weight file cut short it is not."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 1)

        def forward(self, x, labels=None):
            return {"loss": (self.linear(x) - labels).square().mean()}

    data = [{"x": torch.ones(4), "labels": torch.zeros(1)}] * 8
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=4, save_steps=2, report_to=[], use_cpu=True, disable_tqdm=True
    )
    transformers.Trainer(model=Model(), args=arguments, train_dataset=data).train()

    found = find(str(tmp_path))
    assert [(one.step, one.format.name) for one in found] == [(4, "Hugging Face Trainer"), (2, "Hugging Face Trainer")]
    assert newest(found) == (found[0], [])
    weights = next((tmp_path / "checkpoint-4").glob("model.*"))
    cut(weights, weights.stat().st_size - 8)
    assert newest(found)[0].step == 2
