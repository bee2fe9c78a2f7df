"""Followed logs as a whole: found, read, rotated, rewritten, remembered."""

from __future__ import annotations

import errno
import gzip
import json
import math
import os
import random
import shutil
import threading
import time

import pytest
from tests.helpers import wait_until

from trainvitals.follow.base import Facts, FileFormat, Row
from trainvitals.follow.follower import SEARCH, Follower
from trainvitals.follow.formats.tables import Table
from trainvitals.follow.reader import IDLE, MAX_ITEMS, REST
from trainvitals.follow.sources import Source


class Clock:
    """A clock that goes on at each look: folders are searched at every poll."""

    now = 2e9

    def __call__(self):
        """Return the time."""
        self.now += SEARCH
        return self.now


@pytest.fixture
def follow(tmp_path):
    """Return a function that makes a follower of patterns below the test's folder."""
    made = []

    def make(*patterns, **more):
        more.setdefault("rate", math.inf)
        more.setdefault("clock", Clock())
        sources = [one if isinstance(one, Source) else Source(str(tmp_path / one)) for one in patterns]
        made.append(Follower(sources, **more))
        return made[-1]

    yield make
    for follower in made:
        follower.close()


def line(step, value=None):
    """Return a line of nanoGPT."""
    return f"iter {step}: loss {3.0 if value is None else value:.4f}, time 250.00ms, mfu 30.00%\n"


def steps(runs):
    """Return the new steps of runs by name."""
    return {run.name: [step.step for step in run.steps] for run in runs}


def write(path, *texts, mode="w"):
    """Write texts to a file whose folder may be missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open(mode) as file:
        file.writelines(texts)


def test_one_file_is_one_run(follow, tmp_path):
    """It is called after its folder and itself, and its format is found by content."""
    write(tmp_path / "exp7" / "train.log", "hello\n", line(0), line(10))

    (run,) = follow("exp7/train.log").poll()

    assert run.name == "exp7/train"
    assert run.formats == ("nanogpt",)
    assert run.identity.framework == "nanogpt"
    assert [(step.step, step.count, step.values["step_seconds"]) for step in run.steps] == [(0, 1, 0.25), (10, 2, 0.25)]


def test_several_runs_below_a_folder(follow, tmp_path):
    """They are called by their paths in it; what is no log is no run."""
    write(tmp_path / "a" / "train.log", line(1))
    write(tmp_path / "b" / "x" / "train.log", line(2))
    write(tmp_path / "b" / "config.yaml", line(3))
    write(tmp_path / "b" / "notes.txt", "nothing here\n")

    assert steps(follow("").poll()) == {"a/train": [1], "b/x/train": [2]}


def test_a_pattern_and_a_name(follow, tmp_path):
    """A pattern finds files that come later; a name given to a source is the begin of theirs."""
    follower = follow(Source(str(tmp_path / "*" / "train.log"), run="mine"))
    assert follower.poll() == []
    write(tmp_path / "a" / "train.log", line(1))
    assert steps(follower.poll()) == {"mine": [1]}


def test_ranks_of_a_folder_are_one_run(follow, tmp_path):
    """Logs of single ranks, by their names, are one run, and one of them is heard."""
    for rank in range(3):
        write(tmp_path / "job" / f"worker_{rank}.log", *(line(step, 3 + rank) for step in range(4)))

    (run,) = follow("job").poll()

    assert run.name == "job"
    assert [(step.step, step.values["loss"]) for step in run.steps] == [(0, 3.0), (1, 3.0), (2, 3.0), (3, 3.0)]
    assert run.identity.world_size == 3
    assert run.attempt == 0


def test_attempts_of_torchrun_are_one_run(follow, tmp_path):
    """The logs of all ranks and restarts below torchrun's folder are one run with two attempts."""
    for rank in (0, 1):
        write(
            tmp_path / "none_x" / "attempt_0" / str(rank) / "stdout.log", *(line(step, 3 + rank) for step in range(90))
        )
        write(
            tmp_path / "none_x" / "attempt_1" / str(rank) / "stdout.log", *(line(step, 2 + rank) for step in range(9))
        )

    (run,) = follow("").poll()

    assert run.name == "none_x"
    assert len(run.steps) == 99
    assert run.attempt == 1


def test_interleaved_ranks_in_one_file(follow, tmp_path):
    """Prefixes of ranks are cut off, and the same step of another rank is not told."""
    write(tmp_path / "t.log", *(f"[rank{rank}]: {line(step, 3 + rank)}" for step in range(3) for rank in (0, 1)))

    (run,) = follow("t.log").poll()

    assert [(step.step, step.values["loss"]) for step in run.steps] == [(0, 3.0), (1, 3.0), (2, 3.0)]


def test_a_log_that_says_much_before_it_trains(follow, tmp_path):
    """Its format is found when the first step comes, megabytes later, and no step is missed."""
    write(tmp_path / "t.log", *("def forward(self, x): return self.proj(x)  # loss\n" for _ in range(60000)))
    write(tmp_path / "t.log", *(line(step) for step in range(500)), mode="a")

    (run,) = follow("t.log").poll()

    assert [step.step for step in run.steps] == list(range(500))


def test_half_lines_wait(follow, tmp_path):
    """Half a number is a wrong one: a half line is told when its end comes, or after minutes of rest."""
    clock = Clock()
    path = tmp_path / "t.log"
    write(
        path,
        line(1),
        "iter 2: loss 2.5",
    )
    follower = follow("t.log", clock=clock)

    assert steps(follower.poll()) == {f"{tmp_path.name}/t": [1]}
    write(path, "000, time 1.00ms, mfu 1.00%\niter 3: loss 2.2, time 5.00ms, mfu 10.00%", mode="a")
    assert steps(follower.poll()) == {f"{tmp_path.name}/t": [2]}
    clock.now += REST
    assert steps(follower.poll()) == {f"{tmp_path.name}/t": [3]}


def test_the_end_of_a_finished_log_counts(follow, tmp_path):
    """A last line without a line end is a line when nobody writes any more."""
    write(tmp_path / "t.log", line(1), line(2).rstrip())

    assert steps(follow("t.log").poll(final=True)) == {f"{tmp_path.name}/t": [1, 2]}


def test_bars_and_colours(follow, tmp_path):
    """Drawings of a bar, colours and line ends of Windows do not hide a step."""
    write(tmp_path / "t.log", " 5%|## | 1/20\r 10%|### | 2/20\r\x1b[32m", line(1).rstrip(), "\x1b[0m\r\n", line(2))

    assert steps(follow("t.log").poll()) == {f"{tmp_path.name}/t": [1, 2]}


def test_compressed(follow, tmp_path):
    """A finished log that was compressed is read."""
    (tmp_path / "old.log.gz").write_bytes(gzip.compress((line(1) + line(2)).encode()))

    assert steps(follow("").poll()) == {"old": [1, 2]}


def test_a_table_that_is_written_again(follow, tmp_path):
    """Lightning writes the whole file again when a column appears: what was told is not told again."""
    path = tmp_path / "metrics.csv"
    write(path, "epoch,step,train_loss\n", "0,9,2.5\n", "0,19,nan\n", "0,29,2.25\n")
    follower = follow("metrics.csv")
    name = f"{tmp_path.name}/metrics"
    assert steps(follower.poll()) == {name: [9, 19, 29]}
    write(
        path,
        "epoch,step,train_loss,val_loss\n",
        "0,9,2.5,\n",
        "0,19,nan,\n",
        "0,29,2.25,\n",
        "0,29,,2.75\n",
        "1,39,2.0,\n",
    )

    (run,) = follower.poll()

    assert [(step.step, step.count) for step in run.steps] == [(39, 4)]
    assert [(event.kind, event.fields["values"]) for event in run.events] == [("evaluation", {"loss": 2.75})]
    assert run.attempt == 0


def test_half_a_number_in_a_table_that_is_written_again_is_not_told(follow, tmp_path):
    """It comes again, whole."""
    path = tmp_path / "metrics.csv"
    write(path, "epoch,step,train_loss\n", "0,9,2.5\n", "0,19,2.25\n", "0,29,1.7")
    follower = follow("metrics.csv")
    name = f"{tmp_path.name}/metrics"
    assert steps(follower.poll()) == {name: [9, 19]}
    write(path, "epoch,step,train_loss,val_loss\n", "0,9,2.5,\n", "0,19,2.25,\n", "0,29,1.75,\n", "0,39,1.5,\n")

    (run,) = follower.poll()

    assert [(step.step, step.values["loss"]) for step in run.steps] == [(29, 1.75), (39, 1.5)]


def test_a_table_of_another_run(follow, tmp_path):
    """A file that was written anew by another run is a new attempt."""
    path = tmp_path / "metrics.csv"
    write(path, "step,loss,lr\n", *(f"{step},{3 - step / 100},0.1\n" for step in range(100)))
    follower = follow("metrics.csv")
    follower.poll()
    write(path, "step,loss,lr\n", *(f"{step},{4 - step / 100},0.1\n" for step in range(3)))

    (run,) = follower.poll()

    assert [(step.step, step.values["loss"]) for step in run.steps] == [(0, 4.0), (1, 3.99), (2, 3.98)]
    assert run.attempt == 1


class Whole(FileFormat):
    """A format of a list in JSON: [run, step, loss] in each place."""

    name = "whole"

    def sniff(self, head, path):  # noqa: ARG002
        """Return how sure it is."""
        return 100 * head.startswith(b"[[")

    def read(self, path):
        """Return all that is in it."""
        with open(path) as file:
            for run, step, value in json.load(file):
                if run:
                    yield Facts(run=run)
                yield Row(step, {"loss": value})


def test_a_file_that_is_read_as_a_whole(follow, tmp_path):
    """Whenever it changes, what is new in it is told; half a file is tried again."""
    path = tmp_path / "state.json"
    write(path, json.dumps([["", 1, 3.0], ["", 2, math.nan]]))
    follower = follow("state.json", formats=[Whole()])
    name = f"{tmp_path.name}/state"
    assert steps(follower.poll()) == {name: [1, 2]}
    write(path, "[[")
    assert steps(follower.poll()) == {name: []}
    assert follower.problems
    write(path, json.dumps([["", 1, 3.0], ["", 2, math.nan], ["", 3, 2.0]]))
    assert steps(follower.poll()) == {name: [3]}
    assert not follower.problems


def test_several_runs_in_one_file(follow, tmp_path):
    """A database of several runs is several runs, each with what is new of it, over a restart too."""
    path = tmp_path / "db"
    positions = str(tmp_path / "positions.json")
    write(path, json.dumps([["a", 1, 3.0], ["b", 1, 4.0]]))
    follower = follow("db", formats=[Whole()], positions=positions)
    name = f"{tmp_path.name}/db"
    assert steps(follower.poll()) == {f"{name}/a": [1], f"{name}/b": [1]}
    follower.save()
    write(path, json.dumps([["a", 1, 3.0], ["a", 2, 2.0], ["b", 1, 4.0]]))
    assert steps(follower.poll()) == {f"{name}/a": [2], f"{name}/b": []}

    again = follow("db", formats=[Whole()], positions=positions).poll()
    assert steps(again) == {f"{name}/a": [2], f"{name}/b": []}
    assert [[step.step for step in run.history] for run in again] == [[1], [1]]


def test_a_restart_neither_loses_nor_repeats_a_step(follow, tmp_path):
    """What was told before is history; what came meanwhile is news; counts, attempt and evaluations go on."""
    path, positions = tmp_path / "t.log", str(tmp_path / "state" / "positions.json")
    write(path, line(0), line(10), "step 10: train loss 2.0, val loss 2.1\n", line(20), "iter 30: lo")
    follower = follow("t.log", positions=positions)
    follower.poll()
    follower.save()
    follower.close()
    write(path, "ss 2.7500, time 250.00ms, mfu 30.00%\n", line(40), mode="a")

    (run,) = follow("t.log", positions=positions).poll()

    assert [(step.step, step.count) for step in run.history] == [(0, 1), (10, 2), (20, 3)]
    assert [(step.step, step.count, step.values["loss"]) for step in run.steps] == [(30, 4, 2.75), (40, 5, 3.0)]
    assert run.events == []


def test_a_restart_of_a_table(follow, tmp_path):
    """A table's header is read again."""
    path, positions = tmp_path / "m.csv", str(tmp_path / "positions.json")
    write(path, "step,loss,lr\n", "1,2.0,0.5\n", "2,1.5,0.5\n")
    follower = follow("m.csv", positions=positions)
    follower.poll()
    follower.save()
    write(path, "3,1.25,0.25\n", mode="a")

    (run,) = follow("m.csv", positions=positions).poll()

    assert [(step.step, step.count, step.values) for step in run.steps] == [
        (3, 3, {"loss": 1.25, "learning_rate": 0.25})
    ]


def test_a_restart_while_the_log_was_rotated(follow, tmp_path):
    """The rest of the old file and the new one are read, each line once."""
    path, positions = tmp_path / "t.log", str(tmp_path / "positions.json")
    write(path, line(0), line(10), "iter 20: lo")
    follower = follow("t.log", positions=positions)
    follower.poll()
    follower.save()
    follower.close()
    write(path, "ss 2.7500, time 250.00ms, mfu 30.00%\n", mode="a")
    path.rename(tmp_path / "t.log.1")
    write(path, line(30))

    (run,) = follow("t.log", positions=positions).poll()

    assert [step.step for step in run.steps] == [20, 30]


def test_restarts_while_the_log_is_gone(follow, tmp_path, monkeypatch):
    """A log that vanished when it was to be opened at a restart, and was not there at the next, goes on."""
    path, positions = tmp_path / "t.log", str(tmp_path / "positions.json")
    write(path, line(0), line(10))
    first = follow("t.log", positions=positions, clock=time.time)
    first.poll()
    first.save()
    write(path, line(20), mode="a")

    def gone(path):
        raise FileNotFoundError(path)

    with monkeypatch.context() as patch:
        patch.setattr("trainvitals.follow.tail.Opened", gone)
        second = follow("t.log", positions=positions, clock=time.time)
        assert [run.steps for run in second.poll()] == [[]]
        second.save()
    aside = path.rename(tmp_path / "aside.log")
    third = follow("t.log", positions=positions, clock=time.time)
    assert third.poll() == []
    third.save()
    aside.rename(path)

    (run,) = follow("t.log", positions=positions, clock=time.time).poll()

    assert [(step.step, step.count) for step in run.steps] == [(20, 3)]


def test_a_half_line_after_a_restart_has_its_time(follow, tmp_path):
    """A restart in the middle of a line does not tell half of it, however long nothing comes at first."""
    path, positions = tmp_path / "t.log", str(tmp_path / "positions.json")
    write(path, line(0), "iter 10: loss 2.5")
    follower = follow("t.log", positions=positions)
    follower.poll()
    follower.save()

    again = follow("t.log", positions=positions)
    assert [run.steps for run in again.poll()] == [[]]
    write(path, "500, time 250.00ms, mfu 30.00%\n", mode="a")

    (run,) = again.poll()
    assert [(step.step, step.values["loss"]) for step in run.steps] == [(10, 2.55)]


def test_a_whole_file_that_is_half_at_a_restart(follow, tmp_path):
    """What was told before is known to be told when it can be read again, also over several restarts."""
    path, positions = tmp_path / "state.json", str(tmp_path / "positions.json")
    rows = [["", step, 3.0 - step / 8] for step in range(1, 6)]
    write(path, json.dumps(rows))
    follower = follow("state.json", formats=[Whole()], positions=positions)
    assert steps(follower.poll()) == {f"{tmp_path.name}/state": [1, 2, 3, 4, 5]}
    follower.save()
    write(path, "[[")
    for _ in range(2):
        follower = follow("state.json", formats=[Whole()], positions=positions)
        assert [run.steps for run in follower.poll()] in ([], [[]])
        follower.save()
    write(path, json.dumps([*rows, ["", 6, 1.0]]))

    (run,) = follower.poll()
    assert [(step.step, step.count) for step in run.steps] == [(6, 6)]
    assert run.attempt == 0


def test_several_runs_in_a_file_that_is_half_at_a_restart(follow, tmp_path):
    """Each goes on where it was: under its own name, and with its own count of steps."""
    path, positions = tmp_path / "db", str(tmp_path / "positions.json")
    rows = [["a", 1, 3.0], ["a", 2, 2.5], ["b", 1, 4.0]]
    write(path, json.dumps(rows))
    os.utime(path, (2e9, 2e9))
    follower = follow("db", formats=[Whole()], positions=positions)
    follower.poll()
    follower.save()
    write(path, "[[")
    os.utime(path, (2e9, 2e9))
    follower = follow("db", formats=[Whole()], positions=positions)
    follower.poll()
    follower.save()
    write(path, json.dumps([*rows, ["b", 2, 3.5], ["a", 3, 2.0]]))

    runs = {run.name.rpartition("/")[2]: run for run in follower.poll() if run.steps}
    told = {name: [(step.step, step.count) for step in run.steps] for name, run in runs.items()}
    assert told == {"a": [(3, 3)], "b": [(2, 2)]}
    assert [run.attempt for run in runs.values()] == [0, 0]


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_table_that_is_written_again_while_we_are_away(follow, tmp_path, is_empty):
    """Rows that were told are not told again, even if the table was empty, on its way to be written, when we came."""
    path, positions = tmp_path / "metrics.csv", str(tmp_path / "positions.json")
    write(path, "epoch,step,train_loss\n", *(f"0,{step},{step / 8}\n" for step in range(1, 10)))
    follower = follow("metrics.csv", positions=positions)
    follower.poll()
    follower.save()
    if is_empty:
        write(path, "")
        for _ in range(2):
            follower = follow("metrics.csv", positions=positions)
            follower.poll()
            follower.save()
    write(path, "epoch,step,train_loss,val_loss\n", *(f"0,{step},{step / 8},\n" for step in range(1, 12)))

    (run,) = follow("metrics.csv", positions=positions).poll()
    assert [(step.step, step.count) for step in run.steps] == [(10, 10), (11, 11)]
    assert run.attempt == 0


def test_a_table_of_another_run_while_we_are_away(follow, tmp_path):
    """A table that another run wrote in its place is told from its begin, as another attempt."""
    path, positions = tmp_path / "metrics.csv", str(tmp_path / "positions.json")
    write(path, "step,loss\n", *(f"{step},{step / 8}\n" for step in range(1, 10)))
    follower = follow("metrics.csv", positions=positions)
    follower.poll()
    follower.save()
    write(path, "step,loss\n", *(f"{step},{step / 4}\n" for step in range(1, 12)))

    (run,) = follow("metrics.csv", positions=positions).poll()
    assert [step.step for step in run.steps] == list(range(1, 12))
    assert run.attempt == 1


def is_open_on(name, path):
    """Return whether a descriptor is one of a path."""
    try:
        return os.readlink(f"/proc/self/fd/{name}") == str(path)
    except OSError:
        return False


def failing(function, stale):
    """Return a function of the operating system that fails for these descriptors."""

    def call(descriptor, *more):
        if descriptor in stale:
            raise OSError(errno.ESTALE, "Stale file handle")
        return function(descriptor, *more)

    return call


def test_a_stale_descriptor_is_opened_anew(follow, tmp_path, monkeypatch):
    """A descriptor that fails for ever, as one of NFS may, costs a poll: the file is opened again by its path."""
    path = tmp_path / "t.log"
    write(path, line(1))
    follower = follow("t.log")
    follower.poll()
    stale = {int(name) for name in os.listdir("/proc/self/fd") if is_open_on(name, path)}
    assert stale
    for name in ("fstat", "pread"):
        monkeypatch.setattr(os, name, failing(getattr(os, name), stale))
    write(path, line(2), mode="a")

    assert steps(follower.poll()) == {f"{tmp_path.name}/t": []}
    assert "Stale" in follower.problems[str(path)]
    assert not any(is_open_on(name, path) for name in map(str, stale))
    stale.clear()
    assert steps(follower.poll()) == {f"{tmp_path.name}/t": [2]}
    assert not follower.problems


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version":1,"state":{"logs":[],"runs":3}}', '{"version":9}', "\0" * 99]
)
def test_a_damaged_file_of_positions_is_as_good_as_none(follow, tmp_path, text):
    """Everything is read from its begin, and nothing fails."""
    (tmp_path / "positions.json").write_text(text)
    write(tmp_path / "t.log", line(0))
    follower = follow("t.log", positions=str(tmp_path / "positions.json"))

    assert steps(follower.poll()) == {f"{tmp_path.name}/t": [0]}
    follower.save()
    assert json.loads((tmp_path / "positions.json").read_text())["version"] == 1


def test_garbage_costs_itself(follow, tmp_path):
    """Binary rubbish, endless lines and files that cannot be read do not stop the others."""
    chance = random.Random(3)
    (tmp_path / "rubbish.log").write_bytes(chance.randbytes(1 << 18))
    (tmp_path / "endless.log").write_bytes(b"x" * (1 << 20))
    (tmp_path / "mixed.log").write_bytes(line(1).encode() + chance.randbytes(5000) + b"\n" + line(2).encode())
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "gone.log").symlink_to(tmp_path / "nowhere")

    assert steps(follow("").poll()) == {"mixed": [1, 2]}


def test_the_byte_rate_is_limited(follow, tmp_path):
    """A long log is read over several polls, and what is left is told."""
    write(tmp_path / "t.log", *(line(step) for step in range(60000)))
    follower = follow("t.log", rate=1.0, clock=time.time)

    (run,) = follower.poll()
    first = len(run.steps)
    assert 0 < first < 60000
    assert run.behind > 0
    while follower.behind:
        (run,) = follower.poll()
        assert run.steps[0].step == first
        first += len(run.steps)
    assert first == 60000


def test_a_limit_cuts_no_line(follow, tmp_path):
    """Where a poll ends because of the rate, also one that knows that nobody writes any more, no line ends."""
    write(tmp_path / "t.log", *(line(step) for step in range(60000)))
    follower = follow("t.log", rate=1.0, clock=time.time)

    found = []
    while not found or follower.behind:
        (run,) = follower.poll(final=True)
        found += [step.step for step in run.steps]

    assert found == list(range(60000))
    assert run.bad == 0


def test_a_poll_gives_so_many_steps_at_most(follow, tmp_path):
    """Steps take more memory than their lines: a poll ends after some, however much may be read."""
    write(tmp_path / "m.csv", "step,loss\n", *(f"{step},2.5\n" for step in range(300_000)))
    follower = follow("m.csv")

    counts = []
    while not counts or follower.behind:
        (run,) = follower.poll(final=True)
        counts.append(len(run.steps))

    assert sum(counts) == 300_000
    assert max(counts) < MAX_ITEMS + 200_000


def test_old_logs_are_left_alone(follow, tmp_path):
    """A log that was not written for long when it is found is not followed."""
    write(tmp_path / "old.log", line(1))
    os.utime(tmp_path / "old.log", (1e9, 1e9))

    follower = follow("", max_age=3600.0)

    assert follower.poll() == []
    assert follower.rejected["old"] == 1


class Scanner:
    """Finds the word PANIC."""

    words = (b"PANIC",)

    def scan(self, block, places=None):  # noqa: ARG002
        """Return the events of a block."""
        from trainvitals.telemetry import Event

        place = block.find(b"PANIC")
        return [] if place < 0 else [(place, Event(0.0, "error", -1, {"text": "PANIC"}))]


def test_errors_land_between_the_steps(follow, tmp_path):
    """An error has the step that was the newest before it, once, whether the format is known by then or not."""
    write(tmp_path / "t.log", line(1), line(2), "PANIC\n", line(3))
    write(tmp_path / "u.log", "PANIC early\n")
    follower = follow("t.log", "u.log", scanner=Scanner)

    found = {run.name[-1]: [(event.kind, event.step) for event in run.events] for run in follower.poll()}
    assert found == {"t": [("error", 2)], "u": [("error", -1)]}
    write(tmp_path / "u.log", line(1), mode="a")
    assert [event for run in follower.poll() for event in run.events] == []


def test_only_the_format_that_is_named(follow, tmp_path):
    """A source may name its format; no other is found."""
    write(tmp_path / "t.log", line(1))

    assert follow(Source(str(tmp_path), format="table")).poll() == []
    assert Table.name == "table"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_is_lost_and_nothing_comes_twice(tmp_path, seed):
    """A writer appends while its log is renamed, copied and truncated, and the exporter is restarted."""
    path, positions = tmp_path / "live.log", str(tmp_path / "positions.json")
    chance = random.Random(seed)
    done = threading.Event()
    total = 1500

    def write_all():
        file = path.open("a")
        for step in range(total):
            text = line(step)
            cut = chance.randrange(len(text))
            for piece in (text[:cut], text[cut:]):
                file.write(piece)
                file.flush()
            if step % 150 == 149:
                number = step // 150
                if chance.random() < 0.5:
                    path.rename(tmp_path / f"live.log.{number}")
                    file.close()
                    file = path.open("a")
                else:
                    shutil.copy(path, tmp_path / f"live.log.{number}")
                    file.truncate(0)
                time.sleep(0.03)
            elif step % 10 == 0:
                time.sleep(0.001)
        file.close()
        done.set()

    path.touch()
    writer = threading.Thread(target=write_all)
    found, history, polls = [], 0, 0
    follower = Follower([Source(str(path))], positions=positions, rate=math.inf)
    writer.start()

    def poll():
        nonlocal follower, history, polls
        polls += 1
        for run in follower.poll():
            found.extend((step.step, step.count) for step in run.steps)
            history += len(run.history)
        follower.save()
        if polls % 5 == 0:
            follower.close()
            follower = Follower([Source(str(path))], positions=positions, rate=math.inf)
        return done.is_set() and len(found) >= total

    wait_until(poll)
    writer.join()
    follower.poll(final=True)
    follower.close()

    assert found == [(step, step + 1) for step in range(total)]
    assert history


def test_a_log_that_may_not_be_read_for_a_while(follow, tmp_path, monkeypatch):
    """It is named, counts no error in it, and goes on where it was when it is given back."""
    path = tmp_path / "t.log"
    write(path, line(0), line(10))
    clock = Clock()
    follower = follow("t.log", clock=clock)
    assert [[0, 10]] == [[step.step for step in run.steps] for run in follower.poll()]
    opened, closed = os.open, [True]

    def refuse(name, *arguments, **named):
        if closed[0] and name == str(path):
            raise PermissionError(errno.EACCES, "Permission denied", name)
        return opened(name, *arguments, **named)

    # It is closed when it is idle, and must be opened anew.
    clock.now += 2 * IDLE
    follower.poll()
    monkeypatch.setattr(os, "open", refuse)
    write(path, line(20), mode="a")
    for _ in range(3):
        (run,) = follower.poll()
        assert ([], 0) == (run.steps, run.bad)
        assert "Permission denied" in follower.problems[str(path)]
    closed[0] = False
    (run,) = follower.poll()

    assert [20] == [step.step for step in run.steps]
    assert {} == follower.problems


def test_a_file_from_the_future_is_as_young_as_its_news(follow, tmp_path):
    """A file server's clock is a year ahead: the log counts as grown when something came, and then grows old."""
    path = tmp_path / "t.log"
    clock = Clock()
    follower = follow("t.log", clock=clock)
    ages = []
    for number in range(4):
        if number != 2:
            write(path, line(number), mode="a")
        os.utime(path, (clock.now + 3.2e7, clock.now + 3.2e7))
        (run,) = follower.poll()
        ages.append(clock.now - run.changed)

    assert [0.0, 0.0, SEARCH, 0.0] == ages
