"""Checkpoints by policy: when, whole or not at all, which stay, and which is loaded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import trainvitals
from trainvitals.probe import checkpoints as module
from trainvitals.probe import knobs, manifest
from trainvitals.probe.checkpoints import Checkpoints
from trainvitals.probe.manifest import NotWholeError
from trainvitals.supervise.checkpoints import find, newest


@pytest.fixture(autouse=True)
def anew(monkeypatch):
    """No knob of another test."""
    monkeypatch.setattr(module, "KNOBS", knobs.Knobs())


class Clock:
    """Seconds that pass when a test says so."""

    now = 100.0

    def __call__(self):
        """Return them."""
        return self.now


def save(checkpoints, *steps, loss=1.0, content="weights"):
    """Save at these steps."""
    for step in steps:
        with checkpoints.saving(step, loss=loss) as folder, open(f"{folder}/model", "w") as file:
            file.write(f"{content} {step}")


def names(folder):
    """Return what lies in a folder."""
    return sorted(os.listdir(folder))


def test_one_is_due_every_so_many_steps_and_once_a_step(tmp_path):
    """Asked again behind the save, it is not due any more."""
    made = Checkpoints(tmp_path, every_steps=10)
    assert [step for step in range(31) if made.due(step)] == [10, 20, 30]
    save(made, 10)
    assert not made.due(10)
    assert made.due(20)


def test_one_is_due_when_so_many_seconds_have_passed_since_the_last(tmp_path):
    """Whichever comes first."""
    clock = Clock()
    made = Checkpoints(tmp_path, every_steps=1000, every_seconds=60.0, clock=clock)
    clock.now += 59.0
    assert not made.due(7)
    clock.now += 1.0
    assert made.due(8)
    save(made, 8)
    assert not made.due(9)
    assert made.due(1000)


def test_ranks_that_save_together_agree_about_the_time(tmp_path):
    """What they agree on counts, and they are asked every tenth step alone."""
    asked = []

    def agree(is_due):
        asked.append(is_due)
        return True

    made = Checkpoints(tmp_path, every_seconds=60.0, agree=agree, clock=Clock())
    assert [step for step in range(1, 31) if made.due(step)] == [10, 20, 30]
    assert asked == [False, False, False]


def test_an_order_makes_one_due(tmp_path):
    """At the next question, and once."""
    made = Checkpoints(tmp_path, every_steps=1000)
    module.KNOBS.do("checkpoint", {}, 5)
    assert made.due(5)
    save(made, 5)
    assert not made.due(6)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"every_steps": 0}, "every_steps: expected a number above 0, found 0"),
        ({"every_seconds": -1.0}, "every_seconds: expected a number above 0, found -1.0"),
        ({"keep": 0}, "keep: expected 1 or more, found 0"),
        ({"pin": 0}, "pin: expected a number above 0, found 0"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(tmp_path, policy, message):
    """In one line."""
    with pytest.raises(ValueError, match=f"^{message}$"):
        Checkpoints(tmp_path, **policy)


def test_a_checkpoint_says_what_it_is(tmp_path, probe):
    """Step, loss, the run, and what the program adds."""
    made = trainvitals.checkpoints(tmp_path, every_steps=1)
    probe.step(7, loss=0.5)
    with made.saving(7, loss=0.5, sampler=3) as folder:
        assert folder == str(tmp_path / "step-7.partial")
        os.mkdir(f"{folder}/optimizer")
        with open(f"{folder}/optimizer/rank-0", "w") as file:
            file.write("state")

    assert names(tmp_path) == ["step-7"]
    saved = made.newest()
    assert (saved.path, saved.step, saved.loss, saved.is_sound) == (str(tmp_path / "step-7"), 7, 0.5, True)
    assert saved.facts == {"run": "test", "attempt": 0, "world_size": 1, "sampler": 3}
    # The checksum as gzip writes it behind the same five bytes.
    assert saved.files == {"optimizer/rank-0": (5, 2744374011)}


@pytest.mark.usefixtures("probe")
def test_the_training_is_told_of_each_save(tmp_path, recorded):
    """As with trainvitals.checkpoint, with its path."""
    save(Checkpoints(tmp_path), 3)
    (event,) = [json.loads(line) for line in recorded().events]
    assert (event["kind"], event["step"], event["ok"], event["path"]) == (
        "checkpoint",
        3,
        True,
        str(tmp_path / "step-3"),
    )


@pytest.mark.usefixtures("probe")
def test_a_save_that_fails_leaves_the_one_before_and_nothing_else(tmp_path, recorded):
    """The error goes to the program."""
    made = Checkpoints(tmp_path)
    save(made, 1)

    def fail():
        with made.saving(2) as folder:
            open(f"{folder}/model", "w").close()
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        fail()

    assert names(tmp_path) == ["step-1"]
    assert made.newest().step == 1
    assert [json.loads(line)["ok"] for line in recorded().events] == [True, False]


def test_a_process_that_is_killed_while_it_saves_leaves_the_one_before(tmp_path):
    """What it left unfinished is no checkpoint, and the next save of the step takes its place."""
    script = f"""
        import os, signal, trainvitals
        made = trainvitals.checkpoints({str(tmp_path)!r}, every_steps=1)
        for step in (1, 2):
            with made.saving(step) as folder:
                open(folder + "/model", "w").write("weights")
                if step == 2:
                    os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert names(tmp_path) == ["step-1", "step-2.partial"]
    made = Checkpoints(tmp_path)
    assert made.newest().step == 1
    assert [one.step for one in find(str(tmp_path))] == [1]
    save(made, 2)
    assert names(tmp_path) == ["step-1", "step-2"]


def test_a_disk_that_is_full_leaves_the_one_before(tmp_path):
    """A limit on the size of a file is as good: the program is told, and can go on."""
    script = f"""
        import resource, signal, trainvitals
        made = trainvitals.checkpoints({str(tmp_path)!r}, every_steps=1)
        with made.saving(1) as folder:
            open(folder + "/model", "wb").write(bytes(1000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            with made.saving(2) as folder:
                open(folder + "/model", "wb").write(bytes(1_000_000))
        except OSError as error:
            print(error.strerror)
        print(made.newest().step)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=60, capture_output=True, text=True
    )
    assert done.stdout == "File too large\n1\n"
    assert names(tmp_path) == ["step-1"]


@pytest.mark.usefixtures("probe")
@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda path: os.truncate(path / "model", 4), "model has 4 bytes of 9"),
        (lambda path: (path / "model").unlink(), "model is missing"),
        (lambda path: (path / "model").write_text("weights 8"), "model was changed after it was saved"),
        (lambda path: (path / manifest.NAME).unlink(), "it has no trainvitals.json: it was never finished"),
        (lambda path: (path / manifest.NAME).write_text("{"), "its trainvitals.json cannot be read"),
        (lambda path: (path / manifest.NAME).write_text('{"version": 2}'), "its trainvitals.json is of version 2"),
    ],
)
def test_one_that_is_damaged_is_passed_over_and_named(tmp_path, recorded, damage, why):
    """By the training itself, and by the supervisor."""
    made = Checkpoints(tmp_path)
    save(made, 8, 9)
    damage(tmp_path / "step-9")

    assert made.newest().step == 8
    event = json.loads(recorded().events[-1])
    assert (event["action"], event["ok"], event["path"]) == ("load", False, str(tmp_path / "step-9"))
    assert event["error"].startswith(why)
    with pytest.raises(NotWholeError, match=why):
        manifest.verify(str(tmp_path / "step-9"))
    found, passed = newest(find(str(tmp_path)))
    assert found.step == 8
    assert [one.path for one in passed] in ([str(tmp_path / "step-9")], [])


def test_a_list_that_names_a_file_outside_is_refused(tmp_path):
    """A checkpoint may come from anywhere."""
    made = Checkpoints(tmp_path)
    save(made, 1)
    path = tmp_path / "step-1" / manifest.NAME
    document = json.loads(path.read_text())
    document["files"] = {"../../etc/passwd": [1, 2]}
    path.write_text(json.dumps(document))
    with pytest.raises(NotWholeError, match=r"^its trainvitals.json names a file outside$"):
        manifest.verify(str(tmp_path / "step-1"))


def test_a_bit_in_the_middle_is_seen_where_all_was_read(tmp_path):
    """The ends alone do not show it; `whole` costs a reading of the whole checkpoint."""
    content = bytes(3 << 20)
    for whole in (False, True):
        made = Checkpoints(tmp_path / str(whole), whole=whole)
        with made.saving(1) as folder, open(f"{folder}/model", "wb") as file:
            file.write(content)
        with open(tmp_path / str(whole) / "step-1" / "model", "r+b") as file:
            file.seek(3 << 19)
            file.write(b"x")
        assert (made.newest() is None) is whole


def test_the_newest_stay_and_those_that_are_pinned(tmp_path):
    """All others go."""
    made = Checkpoints(tmp_path, keep=2, pin=40)
    save(made, *range(10, 101, 10))
    assert [saved.step for saved in made.all()] == [100, 90, 80, 40]


def test_the_newest_with_a_sound_loss_always_stays(tmp_path, probe):
    """When the loss is NaN for long, somebody has to go back behind it."""
    made = Checkpoints(tmp_path, keep=2)
    for step in range(1, 9):
        loss = 1.0 if step <= 3 else float("nan")
        probe.step(step, loss=loss)
        save(made, step, loss=loss)
    assert [(saved.step, saved.is_sound, saved.loss) for saved in made.all()] == [
        (8, False, None),
        (7, False, None),
        (3, True, 1.0),
    ]


def test_what_is_loaded_can_be_before_a_step(tmp_path):
    """As when the run goes back behind a NaN."""
    made = Checkpoints(tmp_path)
    save(made, 10, 20, 30)
    assert made.newest(before=30).step == 20
    assert made.newest(before=10) is None


def test_what_the_supervisor_found_comes_first(tmp_path, monkeypatch):
    """It may know that a later one is of no use."""
    made = Checkpoints(tmp_path)
    save(made, 10, 20)
    monkeypatch.setenv("TRAINVITALS_RESUME_FROM", str(tmp_path / "step-10"))
    assert made.newest().step == 10
    monkeypatch.setenv("TRAINVITALS_RESUME_FROM", "/elsewhere")
    assert made.newest().step == 20


@pytest.mark.parametrize("moment", [1, 2, 3])
def test_a_kill_while_a_step_is_saved_again_leaves_a_whole_checkpoint(tmp_path, moment):
    """With one that is kept: killed at each change of a name, there is the old one or the new one."""
    made = Checkpoints(tmp_path, keep=1)
    save(made, 10, content="old")
    script = f"""
        import os, trainvitals
        real, count = os.rename, 0

        def rename(*names):
            global count
            count += 1
            if count == {moment}:
                os._exit(9)
            real(*names)

        made = trainvitals.checkpoints({str(tmp_path)!r}, keep=1, rank=0)
        os.rename = rename
        with made.saving(10) as folder, open(folder + "/model", "w") as file:
            file.write("new")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False)

    assert done.returncode == (9 if moment == 1 else 0)
    found = Checkpoints(tmp_path, keep=1).newest()
    assert found is not None
    assert found.step == 10
    assert (Path(found.path) / "model").read_text() == "new"


def test_where_names_cannot_be_exchanged_the_old_one_goes_first(tmp_path, monkeypatch):
    """On NFS: then a kill between leaves none, and nothing else does."""
    monkeypatch.setattr("trainvitals.probe.checkpoints._exchange", lambda *_: False)
    made = Checkpoints(tmp_path, keep=1)
    save(made, 10, content="old")
    save(made, 10, content="new")

    assert (Path(made.newest().path) / "model").read_text() == "new 10"
    assert [path.name for path in tmp_path.iterdir()] == ["step-10"]


def test_what_was_saved_in_the_attempt_comes_before_what_began_it(tmp_path, monkeypatch):
    """Torchrun starts ranks again within an attempt; what was there before the supervisor chose is of no use still."""
    made = Checkpoints(tmp_path)
    save(made, 10, 20)
    monkeypatch.setenv("TRAINVITALS_RESUME_FROM", str(tmp_path / "step-10"))
    monkeypatch.setenv("TRAINVITALS_RESUME_SINCE", f"{time.time():.6f}")
    assert made.newest().step == 10
    save(made, 12)
    assert made.newest().step == 12
    monkeypatch.setenv("TRAINVITALS_RESUME_SINCE", "yesterday")
    assert made.newest().step == 10


def test_a_step_that_comes_again_replaces_its_checkpoint(tmp_path):
    """A run that went back saves the same steps with other weights."""
    made = Checkpoints(tmp_path)
    save(made, 10, content="old")
    save(made, 10, content="new")
    assert names(tmp_path) == ["step-10"]
    assert (tmp_path / "step-10" / "model").read_text() == "new 10"


def test_a_run_that_went_back_loads_what_it_saved_since(tmp_path):
    """And not a later step of the way that it left."""
    made = Checkpoints(tmp_path, keep=2)
    save(made, 10, 20, 30)
    save(made, 15)
    assert made.newest().step == 15
    assert [saved.step for saved in made.all()] == [15, 30]


def test_a_removal_that_was_broken_off_is_finished_by_the_next(tmp_path):
    """And is no checkpoint meanwhile."""
    made = Checkpoints(tmp_path)
    save(made, 10)
    os.rename(tmp_path / "step-10", tmp_path / "step-10.removing")
    assert made.newest() is None
    save(made, 20)
    assert names(tmp_path) == ["step-20"]


def test_several_ranks_write_into_one_and_the_first_finishes_it(tmp_path):
    """The barrier is called when a rank is ready to write, and when it has written."""
    calls = []
    second = Checkpoints(tmp_path, rank=1, barrier=lambda: calls.append("second"))
    with second.saving(5) as folder:
        open(f"{folder}/rank-1", "w").close()
    assert names(tmp_path) == ["step-5.partial"]
    assert calls == ["second", "second"]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_what_torch_saves_is_loaded_again(tmp_path):
    """With torch.save, and with torch.distributed.checkpoint."""
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    dcp = pytest.importorskip("torch.distributed.checkpoint", reason="needs PyTorch")
    made = Checkpoints(tmp_path)
    weights = {"weight": torch.arange(4.0)}
    with made.saving(1) as folder:
        torch.save(weights, f"{folder}/model.pt")
        dcp.save(weights, checkpoint_id=f"{folder}/shards")

    saved = made.newest()
    assert torch.equal(torch.load(f"{saved.path}/model.pt")["weight"], weights["weight"])
    loaded = {"weight": torch.zeros(4)}
    dcp.load(loaded, checkpoint_id=f"{saved.path}/shards")
    assert torch.equal(loaded["weight"], weights["weight"])


def test_a_clock_that_is_set_back_leaves_the_order_of_saving(tmp_path, monkeypatch):
    """What was saved last is the newest, whatever the clock says; else it would be the first to go."""
    made = Checkpoints(tmp_path, keep=2)
    times = iter([5000.0, 1000.0, 1001.0])
    monkeypatch.setattr(module.time, "time", lambda: next(times))
    save(made, 10, 20, 30)

    assert [saved.step for saved in made.all()] == [30, 20]
    assert made.newest().step == 30


def test_a_step_of_numpy_is_a_step(tmp_path):
    """Counters of a training are often such."""
    numpy = pytest.importorskip("numpy")
    made = Checkpoints(tmp_path)
    save(made, numpy.int64(10))
    assert made.newest().step == 10


@pytest.mark.parametrize(("step", "error"), [(-1, ValueError), (1.5, TypeError), ("7", TypeError)])
def test_a_step_that_makes_no_sense_is_refused_before_anything_is_written(tmp_path, step, error):
    """Such a checkpoint would never be found again."""
    made = Checkpoints(tmp_path / "out")
    with pytest.raises(error), made.saving(step):
        pass
    assert not (tmp_path / "out").exists()


def test_links_that_lead_nowhere_and_pipes_are_no_part_of_a_checkpoint(tmp_path):
    """A pipe would be waited for, for ever; a link that leads to a file is that file."""
    made = Checkpoints(tmp_path / "out")
    (tmp_path / "weights").write_text("shared")
    with made.saving(1) as folder:
        os.mkfifo(f"{folder}/pipe")
        os.symlink("/nowhere", f"{folder}/gone")
        os.symlink(tmp_path / "weights", f"{folder}/weights")
    saved = made.newest()
    assert saved.step == 1
    assert sorted(saved.files) == ["weights"]


@pytest.mark.parametrize("field", ['"step": Infinity', '"time": Infinity', '"time": NaN', '"time": -1'])
def test_numbers_that_are_none_are_a_damaged_list(tmp_path, field):
    """It is passed over, and the training begins at the one before."""
    made = Checkpoints(tmp_path)
    save(made, 1, 2)
    path = tmp_path / "step-2" / manifest.NAME
    name = field.split(":")[0]
    document = json.loads(path.read_text())
    document.pop(name.strip('"'))
    path.write_text(json.dumps(document)[:-1] + f", {field}}}")

    assert made.newest().step == 1
