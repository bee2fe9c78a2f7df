"""PyTorch itself, with the real library on the CPU: seen without a line, and not changed by a bit."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.helpers import PATIENCE, Node, run_trainer, trainer_environment

from trainvitals import rankfile

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs PyTorch", allow_module_level=True)

EXAMPLES = Path(__file__).parents[2] / "examples"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
RUN = ("-m", "trainvitals", "run", "--", sys.executable)


def start(spool, *command, **more):
    """Run a command of Python to its end; one thread each, for two ranks on a small machine."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        env=trainer_environment(spool, OMP_NUM_THREADS="1", **more),
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "trainvitals:" not in done.stderr
    return done


def program(text, spool, **more):
    """Run a script that trains a little, with the frameworks watched; return its output and a scrape."""
    head = """
        import torch, trainvitals
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset
        trainvitals.auto()
        torch.manual_seed(1)
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        def train(optimizer=optimizer, steps=1):
            for _ in range(steps):
                model(torch.ones(3, 4)).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
    """
    done = run_trainer(textwrap.dedent(head) + textwrap.dedent(text), spool, OMP_NUM_THREADS="1", **more)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines(), Node(spool).scrape()


def of_rank(scrape, name, rank=0, **labels):
    """Return a series of a rank, or None."""
    given = {**labels, "rank": str(rank), "run": "test"}
    text = ",".join(f'{label}="{value}"' for label, value in sorted(given.items()))
    return scrape.get(f"trainvitals_{name}{{{text}}}")


def adds_up(seconds, walls):
    """Tell whether seconds are the wall time within 3 %; begin and end of it are known from inside and from outside."""
    inside, outside = (float(text) for text in walls.split())
    return inside * 0.97 <= seconds <= outside * 1.03


def shares(scrape, rank=0):
    """Return the share of each phase in the wall time of a rank; together they are that, within 3 %."""
    phases = ("init", "train", "data", "communication", "checkpoint", "evaluation", "other", "device")
    seconds = {phase: of_rank(scrape, "phase_seconds_total", rank, phase=phase) for phase in phases}
    known = {phase: value for phase, value in seconds.items() if value is not None}
    wall = of_rank(scrape, "heartbeat_timestamp_seconds", rank) - of_rank(scrape, "start_timestamp_seconds", rank)
    assert sum(known.values()) == pytest.approx(wall, rel=0.03)
    return {phase: value / wall for phase, value in known.items()}


# Real runs ----------------------------------------------------------------------------------------------------------


def test_a_plain_loop(spool, tmp_path):
    """Weights are the same bit for bit; steps, rate, norm, loss, waits, evaluations and the checkpoint are seen."""
    import torch

    for name, command, more in (("with", RUN, {}), ("without", (), {"TRAINVITALS_DISABLE": "1"})):
        (tmp_path / name).mkdir()
        start(spool, *command, EXAMPLES / "train_pytorch.py", "--output", tmp_path / name, **more)

    ours, plain = (torch.load(tmp_path / name / "model.pt") for name in ("with", "without"))
    assert ours["step"] == plain["step"] == 60
    assert all(torch.equal(ours["model"][name], plain["model"][name]) for name in plain["model"])
    scrape = Node(spool).scrape()
    assert of_rank(scrape, "steps_total") == 60.0
    assert of_rank(scrape, "rank_state", state="finished") == 1.0
    assert 0.1e-3 <= of_rank(scrape, "learning_rate") <= 0.2e-3
    assert of_rank(scrape, "grad_norm") > 0.0
    assert of_rank(scrape, "loss") > 0.0
    assert (of_rank(scrape, "checkpoints_total"), of_rank(scrape, "checkpoint_step")) == (1.0, 59.0)
    assert of_rank(scrape, "probe_errors_total") == of_rank(scrape, "probe_dropped_total") == 0.0
    assert shares(scrape).keys() == {"init", "train", "data", "checkpoint", "evaluation"}


@pytest.mark.parametrize("name", ["train_ddp.py", "train_fsdp.py"])
def test_ranks_of_torchrun(spool, tmp_path, name):
    """DDP and FSDP: the same weights bit for bit, and the series of each rank; the agent is no rank."""
    import torch
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    weights = []
    for kind, command, more in (("with", RUN, {}), ("without", (), {"TRAINVITALS_DISABLE": "1"})):
        folder = tmp_path / kind
        folder.mkdir()
        start(spool, *command, *TORCHRUN, EXAMPLES / name, "--steps", "15", "--output", folder, **more)
        if name == "train_fsdp.py":
            dcp_to_torch_save(folder / "checkpoint", folder / "model.pt")
        weights.append(torch.load(folder / "model.pt"))

    ours, plain = (found.get("model", found) for found in weights)
    assert len(plain) == 6
    assert all(torch.equal(ours[key], plain[key]) for key in plain)
    scrape = Node(spool).scrape()
    assert scrape['trainvitals_world_size{run="test"}'] == 2.0
    for rank in (0, 1):
        assert of_rank(scrape, "steps_total", rank) == 15.0
        assert of_rank(scrape, "learning_rate", rank) == 1e-3
        assert of_rank(scrape, "grad_norm", rank) == of_rank(scrape, "grad_norm", 1 - rank) > 0.0
        assert of_rank(scrape, "probe_errors_total", rank) == of_rank(scrape, "probe_dropped_total", rank) == 0.0
        assert of_rank(scrape, "checkpoints_total", rank) == float(rank == 0 or name == "train_fsdp.py")
        assert ("communication" in shares(scrape, rank)) == (name == "train_ddp.py")


@pytest.mark.parametrize(("slow", "cause"), [(("--slow-compute", "0.03"), "train"), (("--slow-data", "0.005"), "data")])
def test_the_split_names_the_slow_rank_and_the_cause(spool, tmp_path, slow, cause):
    """The slow rank waits least for the others, and most of its time goes where it is slow."""
    options = ("--steps", "40", "--slow-rank", "1", *slow, "--output", tmp_path)
    start(spool, *RUN, *TORCHRUN, EXAMPLES / "train_ddp.py", *options)

    scrape = Node(spool).scrape()
    parts = {rank: shares(scrape, rank) for rank in (0, 1)}
    assert min(parts, key=lambda rank: parts[rank]["communication"]) == 1
    assert max(parts[1], key=parts[1].get) == cause
    assert max(parts[0], key=parts[0].get) == "communication"
    assert parts[1][cause] > 2 * parts[0][cause]


def test_the_split_of_a_run_is_its_wall_time(spool):
    """By the program's own clock, and with what it did: half a second of data, a quarter each of the rest."""
    script = """
        import time
        before = time.monotonic()
        trainvitals.init()
        begun = time.monotonic()
        class Slow(torch.utils.data.Dataset):
            def __len__(self):
                return 100
            def __getitem__(self, index):
                time.sleep(0.005)
                return torch.ones(4)
        train()
        for number, batch in enumerate(DataLoader(Slow())):
            time.sleep(0.0025)
            train()
        with torch.no_grad():
            for batch in DataLoader(TensorDataset(torch.ones(10, 4))):
                time.sleep(0.025)
        inside = time.monotonic() - begun
        trainvitals.finish()
        print(inside, time.monotonic() - before)
    """
    (walls,), scrape = program(script, spool)

    parts = shares(scrape)
    total = sum(parts.values()) * (
        of_rank(scrape, "heartbeat_timestamp_seconds") - of_rank(scrape, "start_timestamp_seconds")
    )
    assert adds_up(total, walls)
    assert of_rank(scrape, "phase_seconds_total", phase="data") >= 0.5
    assert of_rank(scrape, "phase_seconds_total", phase="evaluation") >= 0.25
    assert of_rank(scrape, "phase_seconds_total", phase="train") >= 0.25
    assert parts["data"] > max(parts["train"], parts["evaluation"])


def test_the_split_adds_up_whatever_a_loop_does(spool, tmp_path):
    """Accumulated batches, an evaluation and a checkpoint midway, nested phases, an exception in one, other threads."""
    script = f"""
        import threading, time
        before = time.monotonic()
        trainvitals.init()
        begun = time.monotonic()

        class Slow(torch.utils.data.Dataset):
            def __init__(self, seconds):
                self.seconds = seconds
            def __len__(self):
                return 40
            def __getitem__(self, index):
                time.sleep(self.seconds)
                return torch.ones(4)

        def beside():
            for batch in DataLoader(Slow(0.02)):
                pass
            torch.save(torch.ones(100_000), {str(tmp_path)!r} + "/beside.pt")

        thread = threading.Thread(target=beside)
        train()
        thread.start()
        for number, batch in enumerate(DataLoader(Slow(0.005), batch_size=2)):
            time.sleep(0.01)
            model(batch).sum().backward()
            if number % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
            if number == 9:
                with torch.inference_mode():
                    for batch in DataLoader(TensorDataset(torch.ones(10, 4))):
                        time.sleep(0.01)
            if number == 11:
                with trainvitals.checkpoint(number, "here"), trainvitals.phase("other"):
                    time.sleep(0.1)
                try:
                    with trainvitals.phase("forward"), trainvitals.phase("communication"):
                        time.sleep(0.15)
                        raise ValueError("theirs")
                except ValueError:
                    time.sleep(0.05)
                try:
                    for batch in DataLoader(Slow(0.005), collate_fn=lambda batch: 1 / 0):
                        pass
                except ZeroDivisionError:
                    time.sleep(0.05)
        thread.join()
        trainvitals.step(99, loss=1.0)
        inside = time.monotonic() - begun
        trainvitals.finish()
        print(inside, time.monotonic() - before)
    """
    (walls,), scrape = program(script, spool)

    def seconds(phase):
        return of_rank(scrape, "phase_seconds_total", phase=phase)

    known = [seconds(phase) for phase in rankfile.PHASES]
    assert adds_up(sum(value for value in known if value is not None), walls)
    # What each slept at least; the 0.8 that the thread beside has waited for data are no part of it.
    expected = {"data": 0.205, "evaluation": 0.1, "other": 0.1, "communication": 0.15, "train": 0.3}
    found = {phase: seconds(phase) for phase in expected}
    assert all(found[phase] >= least for phase, least in expected.items()), found
    assert all(found[phase] < least + 0.6 for phase, least in expected.items() if phase != "train"), found
    assert seconds("checkpoint") < found["other"]
    assert of_rank(scrape, "checkpoints_total") == 1.0
    assert of_rank(scrape, "steps_total") == 7.0
    assert of_rank(scrape, "probe_errors_total") == 0.0


# Steps --------------------------------------------------------------------------------------------------------------


def test_steps_that_the_scaler_skips_are_counted(spool):
    """Whether the scaler leaves the optimizer out, or a fused optimizer finds out for itself."""
    script = """
        def scaled(optimizer, bad):
            scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
            for number in range(10):
                inputs = torch.full((3, 4), float("inf") if number in bad else 1.0)
                scaler.scale(model(inputs).sum()).backward()
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
        scaled(optimizer, {3, 4})
        scaled(torch.optim.Adam(model.parameters(), lr=0.25, fused=True), {5})
        disabled = torch.amp.GradScaler("cpu", enabled=False)
        disabled.step(optimizer)
    """
    _, scrape = program(script, spool)

    assert of_rank(scrape, "skipped_steps_total") == 3.0
    assert of_rank(scrape, "steps_total") == 19.0  # Another optimizer is known by its second step.
    assert of_rank(scrape, "probe_errors_total") == of_rank(scrape, "probe_dropped_total") == 0.0


def test_several_optimizers_are_one_step(spool):
    """Generator and discriminator, and an optimizer within another."""
    script = """
        other = torch.optim.Adam(nn.Linear(4, 2).parameters(), lr=0.25)
        for _ in range(20):
            train()
            train(other)
    """
    _, scrape = program(script, spool)

    assert of_rank(scrape, "steps_total") == 20.0
    assert of_rank(scrape, "learning_rate") == 0.5


def test_a_learning_rate_in_a_tensor_is_not_read(spool):
    """It may be on the device, and the optimizer of a captured graph has it there."""
    script = """
        train(torch.optim.Adam(model.parameters(), lr=torch.tensor(0.25), foreach=False), steps=3)
    """
    _, scrape = program(script, spool)

    assert (of_rank(scrape, "steps_total"), of_rank(scrape, "learning_rate")) == (3.0, None)


def test_the_programs_own_steps_win(spool):
    """A program that calls ``trainvitals.step`` is not counted twice."""
    script = """
        trainvitals.init()
        for number in range(1, 6):
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            trainvitals.step(number, loss=1.0)
            train()
    """
    _, scrape = program(script, spool)

    assert (of_rank(scrape, "steps_total"), of_rank(scrape, "step")) == (5.0, 5.0)


def test_what_does_not_train_is_not_recorded(spool):
    """Inference under a loader, a saved file, gradients that are clipped: no rank."""
    script = """
        import os, tempfile
        for (batch,) in DataLoader(TensorDataset(torch.ones(4, 4))):
            model(batch).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        torch.save(torch.ones(100_000), os.path.join(tempfile.mkdtemp(), "x.pt"))
    """
    _, scrape = program(script, spool)

    assert scrape["trainvitals_rank_files"] == 0.0


def test_compilers_find_nothing_in_their_way(spool):
    """A compiled optimizer step counts; a compiled function that clips is one graph, as without us."""
    script = """
        import logging
        logging.disable(logging.WARNING)
        model(torch.ones(3, 4)).sum().backward()
        step = torch.compile(lambda: optimizer.step(), backend="eager")
        for _ in range(5):
            step()
        clip = torch.compile(lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0), backend="eager", fullgraph=True)
        print(float(clip()) == float(clip()) or "clipped")
        print(trainvitals.probe.steps_recorded())
    """
    output, scrape = program(script, spool)

    assert output[-1] == "5"
    assert of_rank(scrape, "probe_errors_total") == 0.0


# Data ---------------------------------------------------------------------------------------------------------------


def test_a_loader_is_what_it_was(spool):
    """Its iterators keep their types; workers of their own, an early end and an exception are as before."""
    script = """
        import time
        from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter
        class Broken(torch.utils.data.Dataset):
            def __len__(self):
                return 8
            def __getitem__(self, index):
                if index == 5:
                    raise KeyError("theirs")
                return torch.ones(4)
        train()
        data = TensorDataset(torch.arange(8.0))
        print(type(iter(DataLoader(data))) is _SingleProcessDataLoaderIter)
        workers = iter(DataLoader(data, num_workers=1))
        print(type(workers) is _MultiProcessingDataLoaderIter, [float(batch) for (batch,) in workers])
        try:
            for batch in DataLoader(Broken()):
                train()
        except KeyError as error:
            print(error)
        print(trainvitals.probe.current_phase())
    """
    output, scrape = program(script, spool)

    assert output == ["True", f"True {[float(number) for number in range(8)]}", "'theirs'", "train"]
    assert of_rank(scrape, "steps_total") == 6.0
    assert of_rank(scrape, "probe_errors_total") == 0.0


def test_evaluations_below_no_grad_end_with_their_loader_or_with_the_next_step(spool):
    """Also when the loop is left early, and inside a phase that the program marks itself."""
    script = """
        data = DataLoader(TensorDataset(torch.ones(8, 4)))
        phase = trainvitals.probe.current_phase
        train()
        with torch.no_grad():
            for batch in data:
                print(phase(), end=" ")
                break
        print(phase(), end=" ")
        train()
        print(phase(), end=" ")
        with torch.no_grad():
            for batch in data:
                pass
        print(phase(), end=" ")
        with trainvitals.phase("evaluation"):
            for batch in data:
                pass
            print(phase(), end=" ")
        with torch.no_grad():
            next(iter(data))
        for batch in data:
            print(phase())
            break
    """
    output, scrape = program(script, spool)

    assert output == ["evaluation evaluation train train evaluation train"]
    assert of_rank(scrape, "probe_errors_total") == 0.0


# Checkpoints --------------------------------------------------------------------------------------------------------


def test_saves_are_checkpoints_if_they_are_worth_it(spool, tmp_path):
    """To a path, and large; not in memory, not small, not twice, not by another thread."""
    script = f"""
        import io, threading, torch.serialization
        large, folder = torch.ones(100_000), {str(tmp_path)!r}
        train(steps=3)
        torch.save(large, io.BytesIO())
        torch.save(torch.ones(1), folder + "/small.pt")
        with trainvitals.checkpoint():
            torch.save(large, folder + "/within.pt")
        thread = threading.Thread(target=lambda: torch.save(large, folder + "/thread.pt"))
        thread.start()
        thread.join()
        torch.save(large, folder + "/large.pt")
        torch.serialization.save(obj=large, f=folder + "/keywords.pt")
        try:
            torch.save(large, folder + "/missing/large.pt")
        except RuntimeError as error:
            print(type(error).__name__)
        print(torch.load(folder + "/large.pt").sum().item())
    """
    output, scrape = program(script, spool)

    assert output == ["RuntimeError", "100000.0"]
    assert of_rank(scrape, "checkpoints_total") == 3.0
    assert of_rank(scrape, "checkpoint_failures_total") == 1.0
    assert of_rank(scrape, "probe_errors_total") == 0.0


# Errors of ours -----------------------------------------------------------------------------------------------------

HOOKS = [
    "begin_loading",
    "begin_scaled",
    "end_loading",
    "end_scaled",
    "exposed",
    "saving",
    "saving_parts",
    "step",
    "take_norm",
    "watch",
]


def test_an_error_of_ours_reaches_nobody(spool, tmp_path):
    """Each hook raises on purpose; the program ends as it would have ended, with the same weights."""
    script = f"""
        import sys, torch.distributed as dist, torch.distributed.checkpoint as dcp
        from trainvitals.frameworks import ddp, pytorch

        def train_all(name):
            torch.manual_seed(1)
            model = nn.parallel.DistributedDataParallel(nn.Linear(4, 300))
            optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.5), torch.amp.GradScaler("cpu")
            data = DataLoader(TensorDataset(torch.randn(12, 4)), batch_size=3)
            for _ in range(2):
                for (batch,) in data:
                    scaler.scale(model(batch).sum()).backward()
                    scaler.unscale_(optimizer)
                    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    scaler.step(optimizer)
                    scaler.update()
                with torch.no_grad():
                    for batch in data:
                        pass
            torch.save(model.state_dict(), {str(tmp_path)!r} + "/model.pt")
            dcp.save(model.state_dict(), checkpoint_id={str(tmp_path)!r} + "/" + name)
            return torch.load({str(tmp_path)!r} + "/model.pt")

        def raises(name, method):
            def broken(*args, **kwargs):
                told.add(name)
                if name == "watch":
                    method(*args, **kwargs)
                raise RuntimeError("ours")
            return broken

        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        told = set()
        for name in {HOOKS!r}:
            place = pytorch.Watch if hasattr(pytorch.Watch, name) else ddp.Communication
            setattr(place, name, raises(name, getattr(place, name)))
        trainvitals.probe.MAX_ERRORS = 10**6
        pytorch.install(torch)
        trainvitals.init()
        with_us = train_all("with")
        for _ in range(2):
            trainvitals.step(loss=1.0)  # It asks for the communication.
        trainvitals.finish()
        without = train_all("without")
        print(sorted(told), all(torch.equal(with_us[name], without[name]) for name in without))
        dist.destroy_process_group()
    """
    head = "import torch, trainvitals\nfrom torch import nn\nfrom torch.utils.data import DataLoader, TensorDataset\n"
    done = run_trainer(head + textwrap.dedent(script), spool, OMP_NUM_THREADS="1")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{HOOKS} True\n"
    assert of_rank(Node(spool).scrape(), "probe_errors_total") > 20.0
