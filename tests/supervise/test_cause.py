"""Why an attempt ended: out of all that was seen, one cause with its rank."""

from __future__ import annotations

import json

import pytest

from trainvitals import rankfile
from trainvitals.follow.errors import CAUSE, ErrorReader
from trainvitals.probe.recorder import Recorder
from trainvitals.supervise.cause import Failure, event_of, find, of_full_disk
from trainvitals.supervise.watch import Ranks

#: What torchrun prints when a rank is killed and the other notices.
KILLED = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "/work/train.py", line 9, in <module>
[rank0]: RuntimeError: [../gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:4242
E1201 03:52:44.880000 17180 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -9) local_rank: 1 \
(pid: 17186) of binary: /venv/bin/python3
"""


@pytest.fixture
def ranks(spool, monkeypatch):
    """Two ranks that are seen to be alive, and their recorders.  A process does not see its own locks."""
    monkeypatch.setattr(rankfile.Reader, "writer", lambda _: 7)
    recorders = [
        Recorder(str(spool), {"run": "test", "rank": rank, "local_rank": rank, "world_size": 2, "attempt": 0, "pid": 1})
        for rank in range(2)
    ]
    for recorder in recorders:
        recorder.step(18, {"loss": 1.0})
    found = Ranks(str(spool), "test", 0)
    found.poll()
    yield found, recorders
    found.close()
    for recorder in recorders:
        recorder.finish("ok")


def output(text):
    """Return the events in the output."""
    return [event for _, event in ErrorReader().scan(text.encode())]


def test_a_rank_that_was_killed(ranks):
    """The launcher names who, the other rank's error only follows."""
    found = find(1, ranks[0], output=output(KILLED))

    assert (found.cause, found.category, found.rank, found.step) == ("process_killed", "resource", 1, 18)
    assert found.exit_code == 1


def test_an_exception_that_a_rank_recorded(ranks):
    """The rank file says whose it is, which the output of torchrun does not."""
    ranks[1][1].event("exception", {"type": "ValueError", "message": "there is no head 4"})
    ranks[0].poll()

    text = "Traceback (most recent call last):\n  File 'x'\nValueError: there is no head 4\n"
    found = find(1, ranks[0], output=output(text))

    assert (found.cause, found.rank, found.text) == (
        "exception",
        1,
        "rank 1: exception: ValueError: there is no head 4",
    )


def test_what_the_kernel_says_explains_a_kill(ranks):
    """A process that was killed for memory needs no other explanation."""
    kernel = [event_of(CAUSE["host_out_of_memory"], "Out of memory: Killed process 7", rank=1)]

    found = find(1, ranks[0], output=output(KILLED), kernel=kernel)

    assert (found.cause, found.rank) == ("host_out_of_memory", 1)


def test_the_error_file_of_torchelastic(ranks, tmp_path):
    """It has the exception of a program that is decorated with ``record``."""
    path = tmp_path / "error.json"
    message = {"message": "OSError: [Errno 28] No space left on device: '/ckpt/a'", "extraInfo": {"timestamp": "1"}}
    path.write_text(json.dumps({"message": message}))

    found = find(1, ranks[0], error_file=str(path))

    assert (found.cause, found.rank) == ("disk_full", None)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"message": 7}', '{"message": {"message": "x", "extraInfo": 7}}'])
def test_an_error_file_that_makes_no_sense(ranks, tmp_path, text):
    """It tells nothing, and costs nothing."""
    path = tmp_path / "error.json"
    path.write_text(text)

    assert find(3, ranks[0], error_file=str(path)).exit_code == 3


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (137, "process_killed"),
        (139, "segfault"),
        (143, "terminated"),
        (134, "aborted"),
        (1, "unknown"),
        (200, "unknown"),
    ],
)
def test_an_exit_code_alone(ranks, code, cause):
    """128 and the number of a signal; anything else says nothing."""
    assert find(code, ranks[0]).cause == cause


def test_the_onset_goes_with_any_failure(ranks):
    """What was saved while the loss was no number must not be resumed from."""
    ranks[1][0].step(19, {"loss": float("nan")})
    ranks[0].poll()

    assert find(137, ranks[0]).onset == 19


def test_failures_that_are_alike():
    """Numbers, ranks and steps differ; cause and words count, for resources the cause alone."""

    def signature(cause, category, text):
        return Failure(cause, category, "", fields={"text": text}).signature

    assert signature("exception", "parameter", "ValueError: head 7") == signature(
        "exception", "parameter", "ValueError: head 12"
    )
    assert signature("exception", "parameter", "ValueError: a") != signature("exception", "parameter", "KeyError: a")
    assert signature("hang", "resource", "a") == signature("hang", "resource", "b")


def test_a_full_disk_that_pytorch_hides(ranks):
    """A save that failed where there is no room: the words of ``torch.save`` do not tell it."""
    recorder = ranks[1][0]
    recorder.event("exception", {"type": "RuntimeError", "message": "unexpected pos 64 vs 0"})
    recorder.end_checkpoint(recorder.begin_checkpoint(18), "/ckpt/a.pt", "save", "RuntimeError")
    ranks[0].poll()

    found = of_full_disk(find(1, ranks[0]), "/ckpt", ranks[0])

    assert (found.cause, found.category, found.rank) == ("disk_full", "resource", 0)
    assert found.text == "rank 0: disk_full: no room in /ckpt; the save said: RuntimeError: unexpected pos 64 vs 0"


def test_a_save_that_went_well_does_not_make_a_full_disk(ranks):
    """The disk may be full of something else."""
    recorder = ranks[1][0]
    recorder.end_checkpoint(recorder.begin_checkpoint(18), "/ckpt/a.pt", "save", None)
    ranks[0].poll()

    assert of_full_disk(find(1, ranks[0]), "/ckpt", ranks[0]).cause == "unknown"
