"""Errors in logs: every row of the table, what takes several lines, what is no error, and which one began it."""

import dataclasses
import random
from pathlib import Path

import pytest

from trainvitals.follow.errors import CAUSE, CAUSES, ErrorReader, root_cause
from trainvitals.follow.errors.base import Level
from trainvitals.follow.errors.suspects import WORDS
from trainvitals.telemetry import Event

ERRORS = Path(__file__).parent.parent / "fixtures" / "errors"
STEP = b"iteration %d | loss: %.3f | grad norm: %.2f\n"


def events(*lines):
    """Return the events of lines, read as one block."""
    block = "".join(line + "\n" for line in lines).encode()
    return [event for _, event in ErrorReader().scan(block)]


def told(*lines):
    """Return the causes that lines tell, in their order, each once for a rank."""
    return [event.fields["cause"] for event in events(*lines)]


def rows(name):
    """Return the lines of a file: a cause, a tab, what tells it."""
    return [tuple(line.split("\t", 1)) for line in (ERRORS / name).read_text().splitlines()]


ROWS = [cause for cause in CAUSES if cause.name != "exception"]


@pytest.mark.parametrize("cause", ROWS, ids=[cause.name for cause in ROWS])
def test_the_sample_of_every_row_tells_its_cause_among_steps(cause):
    """A row is found by its sample, and comes with its category, its level and its action."""
    before = b"".join(STEP % (number, 2.5, 0.31) for number in range(50))
    found = list(ErrorReader().scan(before + cause.sample.encode() + b"\n" + before))
    (place, event) = next(item for item in found if item[1].fields["cause"] == cause.name)
    assert place == len(before)
    assert event.kind == "log_error"
    assert (event.fields["category"], event.fields["level"], event.fields["action"]) == (
        cause.category,
        int(cause.level),
        cause.action,
    )
    assert any(word in cause.sample.encode() for word in WORDS)


def test_every_row_is_documented():
    """docs/log-errors.md has a row for each cause, in the words of the table."""
    page = (Path(__file__).parent.parent.parent / "docs" / "log-errors.md").read_text()
    for cause in CAUSES:
        level = cause.level.name.lower()
        assert f"| `{cause.name}` | {cause.category} | {level} | {cause.meaning} | {cause.action} |" in page
    assert page.count("\n| `") == len(CAUSES)


def test_rows_are_whole():
    """Every row has a name of its own, a category, and a meaning and an action that are short sentences."""
    assert len({cause.name for cause in CAUSES}) == len(CAUSES) == 71
    for cause in CAUSES:
        assert cause.name.replace("_", "").isalnum()
        assert cause.name == cause.name.lower()
        assert cause.category in {"resource", "data", "parameter"}
        assert cause.meaning.endswith(".")
        assert cause.action.endswith(".")
        assert len(cause.action) <= 200


OTHER_WORDINGS = rows("wordings.tsv")


@pytest.mark.parametrize(
    ("cause", "line"), OTHER_WORDINGS, ids=[f"{n}-{row[0]}" for n, row in enumerate(OTHER_WORDINGS)]
)
def test_other_wordings_of_the_same_tell_the_same(cause, line):
    """What versions and vendors word differently is one cause."""
    assert told(line) == [cause]


def test_details_of_a_line_are_fields_in_base_units():
    """Rank, device, bytes, seconds, names and codes come out of the line, and the place says them in words."""
    (event,) = events(
        "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 3 has 79.3 GiB"
    )
    assert event.fields["wanted_bytes"] == 1610612736
    assert (event.fields["rank"], event.fields["device"], event.fields["root"]) == (5, 3, True)
    assert event.fields["place"] == "rank 5, device 3"
    assert event.fields["text"] == (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 3 has 79.3 GiB"
    )
    (event,) = events(
        "[rank2]:[E611 09:08:07.1 ProcessGroupNCCL.cpp:629] [Rank 2] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=411, OpType=ALLREDUCE, NumelIn=77, NumelOut=78, Timeout(ms)=600000) ran for 600021 ms"
    )
    assert (event.fields["collective"], event.fields["seconds"], event.fields["rank"]) == ("ALLREDUCE", 600.0, 2)
    (event,) = events("NVRM: Xid (PCI:0000:5E:00): 79, pid=4171, GPU has fallen off the bus.")
    assert (event.fields["code"], event.fields["pci_bus_id"]) == ("79", "0000:5e:00.0")
    (event,) = events("tarfile.ReadError: unexpected end of data, '/data/shards/train-000219.tar'")
    assert (event.fields["file"], event.fields["category"]) == ("/data/shards/train-000219.tar", "data")
    (event,) = events("srun: error: node-7: task 5: Exited with exit code 13")
    assert (event.fields["host"], event.fields["exit_code"], event.fields["ranks"]) == ("node-7", 13, "5")
    assert event.fields["root"] is False


def test_a_time_in_the_line_is_the_time_of_the_event():
    """What a line says of its time and rank wins over what the caller knows."""
    reader = ErrorReader()
    (event,) = reader.feed(
        "2026-03-02T04:00:21Z OSError: [Errno 28] No space left on device", rank=4, time=7.0, step=31
    )
    assert (event.time, event.step, event.fields["rank"]) == (1772424021.0, 31, 4)
    (event,) = reader.feed("[rank6]: OSError: [Errno 28] No space left on device", rank=4, time=7.0)
    assert (event.time, event.step, event.fields["rank"]) == (7.0, -1, 6)


# What is no error.

HARMLESS = (ERRORS / "harmless.txt").read_text().splitlines()


@pytest.mark.parametrize("line", HARMLESS)
def test_what_mentions_an_error_is_none(line):
    """Source code, settings, warnings and steps without numbers are not reported at all."""
    assert told(line, f"[rank3]: {line}") == []


NOTICES = rows("notices.tsv")


@pytest.mark.parametrize(("cause", "line"), NOTICES)
def test_what_is_harmless_by_itself_is_never_a_root_cause(cause, line):
    """Trials of an autotuner, warnings of NCCL and echoes of an end are told as notices."""
    (event,) = events(line)
    assert (event.fields["cause"], event.fields["root"]) == (cause, False)
    assert root_cause([event]) is None


def overflow(before, after, rank=0):
    """Return DeepSpeed's line."""
    return (
        f"[2026-03-02 04:00:21,123] [INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! Rank {rank} Skipping"
        f" step. Attempted loss scale: {before}, reducing to {after}"
    )


def test_the_scale_of_a_healthy_fp16_start_falls_without_an_error():
    """From 2^32 down to 1, with a hysteresis of two at each scale, it is a notice; so is a scale that swings later."""
    lines = []
    for power in range(32, 0, -1):
        lines += [overflow(2**power, 2**power), overflow(2**power, 2 ** (power - 1))]
    assert told(*lines) == ["loss_scale_overflow"]
    assert told(*([overflow(64, 32), overflow(32, 32)] * 20)) == ["loss_scale_overflow"]
    lines = [
        f"NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: {s}" for s in (2, 1, 0.5, 0.25)
    ]
    assert told(*lines * 8) == ["loss_scale_overflow"]


def test_a_scale_that_cannot_fall_further_is_an_error():
    """Eight overflows in a row at the floor are not a start; two ranks do not add up to them."""
    assert told(*[overflow(1, 1)] * 7) == ["loss_scale_overflow"]
    assert told(*[overflow(1, 1)] * 8) == ["loss_scale_overflow", "loss_scale_minimum"]
    assert told(*[overflow(1, 1, rank) for rank in (0, 3) for _ in range(7)]) == ["loss_scale_overflow"] * 2
    apex = "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {}"
    assert told(apex.format("0.5")) == ["loss_scale_overflow"]
    assert told(apex.format("3.0517578125e-05")) == ["loss_scale_minimum"]


# What takes several lines.


def traceback(last, prefix="", script="train.py", line=71):
    """Return a traceback of Python, each line with a prefix."""
    text = [
        "Traceback (most recent call last):",
        '  File "/opt/venv/lib/python3.12/runpy.py", line 9, in run',
        "    return code()",
        "           ^^^^^^",
        f'  File "/work/job/{script}", line {line}, in main',
        '    raise ValueError("CUDA out of memory")',
        last,
    ]
    return [prefix + one for one in text]


def test_the_last_line_of_a_traceback_is_the_error():
    """Any exception is reported with its rank and where it was raised; its source lines are not errors."""
    (event,) = events(*traceback("ValueError: expected 4 heads, got 3", "[rank6]: "))
    assert event.fields["cause"] == "exception"
    assert event.fields["text"] == "ValueError: expected 4 heads, got 3"
    assert event.fields["place"] == "rank 6, train.py:71"
    assert told(*traceback("KeyError: 'x'")) == ["exception"]
    assert told(*traceback("NotImplementedError")) == ["exception"]
    assert told(*traceback("my.package.exc.OddThing: no heads")) == ["exception"]
    assert told(
        "12%|#    | 3/9 [00:01<?, ?it/s]Traceback (most recent call last):", *traceback("KeyError: 'x'")[1:]
    ) == ["exception"]


def test_known_errors_at_the_end_of_a_traceback_have_their_own_cause():
    """The table goes before the general case; files are named."""
    (event,) = events(*traceback("PIL.UnidentifiedImageError: cannot identify image file '/data/7.jpg'", "[rank1]: "))
    assert (event.fields["cause"], event.fields["file"]) == ("image_unreadable", "/data/7.jpg")
    assert told(*traceback("KeyboardInterrupt")) == ["interrupted"]
    assert told(*traceback("BrokenPipeError: [Errno 32] Broken pipe")) == ["peer_lost"]
    assert told(*traceback("UserWarning: no more")) == ["exception"]


def test_tracebacks_of_ranks_that_interleave_are_kept_apart():
    """Line by line from two ranks: both errors, each with its rank."""
    one = traceback("KeyError: 'left'", "[rank1]: ", line=5)
    other = traceback("IndexError: right", "[rank4]: ", line=8)
    found = events(*(line for pair in zip(one, other, strict=True) for line in pair))
    assert [(event.fields["rank"], event.fields["text"]) for event in found] == [
        (1, "KeyError: 'left'"),
        (4, "IndexError: right"),
    ]
    assert [event.fields["at"] for event in found] == ["train.py:5", "train.py:8"]


@pytest.mark.parametrize("prefix", ["worker-1: ", "run.node-3.log [stderr] ", "(Actor(train-1) pid=77, ip=10.1.2.3) "])
def test_prefixes_that_nobody_knows_are_seen_by_their_repetition(prefix):
    """Names of nodes and streams before every line do not hide the end of a traceback; two of them may interleave."""
    one, other = traceback("KeyError: 'left'", prefix), traceback("IndexError: right", "worker-22: ", line=8)
    found = events(*(line for pair in zip(one, other, strict=True) for line in pair))
    assert [(event.fields["text"], event.fields["at"]) for event in found] == [
        ("KeyError: 'left'", "train.py:71"),
        ("IndexError: right", "train.py:8"),
    ]
    stamped = [f"2026-06-10T23:09:{second}.0428001Z {line}" for second, line in enumerate(one, 45)]
    assert told(*stamped) == ["exception"]


def test_a_traceback_in_a_frame_is_read():
    """As rich draws it, longer than a screen."""
    (event,) = events(
        "╭───────────── Traceback (most recent call last) ─────────────╮",
        *["│ /work/job/train.py:71 in main                               │", "│ ❱ 71 │   f(x)          │"] * 30,
        "╰─────────────────────────────────────────────────────────────╯",
        "ValueError: expected 4 heads, got 3",
    )
    assert (event.fields["cause"], event.fields["at"]) == ("exception", "train.py:71")


def test_a_chain_of_exceptions_begins_with_the_first():
    """What another exception was raised from comes first, and explains it."""
    lines = [
        *traceback("KeyError: 'x'"),
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        *traceback("RuntimeError: could not load"),
    ]
    found = events(*lines)
    assert [event.fields["text"] for event in found] == ["KeyError: 'x'", "RuntimeError: could not load"]
    assert root_cause(found).fields["text"] == "KeyError: 'x'"


def test_an_error_of_a_worker_or_task_is_told_by_its_own_last_line():
    """Data-loader workers and Ray wrap the traceback of another process."""
    found = events(
        *traceback("RuntimeError: Caught UnidentifiedImageError in DataLoader worker process 3."),
        "Original Traceback (most recent call last):",
        '  File "/opt/venv/lib/PIL/Image.py", line 3, in open',
        "PIL.UnidentifiedImageError: cannot identify image file '/data/9.png'",
    )
    assert root_cause(found).fields["cause"] == "image_unreadable"
    found = events(*traceback("ray.exceptions.RayTaskError(ValueError): ray::main() (pid=7, ip=10.1.2.3)"),
        '  File "/work/job/task.py", line 12, in main', "ValueError: no such split")  # fmt: skip
    assert [event.fields["text"] for event in found] == ["ValueError: no such split"]


def test_a_traceback_that_was_caught_is_none():
    """What a logger prints as a record, or Python ignores itself, did not end anything."""
    record = "[rank6]:E0416 03:53:55.211000 99383 torch/_inductor/select_algorithm.py:3541] [0/0] "
    assert told(*traceback("RuntimeError: No valid triton configs. OutOfMemoryError: out of resource", record)) == [
        "device_memory_retried"
    ]
    for begin in (
        "Exception ignored in: <function X at 0x7f>",
        "Error in atexit._run_exitfuncs:",
        "--- Logging error ---",
    ):
        assert told(begin, *traceback("ValueError: closed")) == []


def test_a_traceback_without_an_end_is_given_up():
    """Neither a flood of frames nor other text keeps it open; later errors are found."""
    reader = ErrorReader()
    begin = "\n".join(traceback("")[:-1])
    reader.scan((begin + "\n" + "    deeper()\n" * 600 + "step 1\n" * 50).encode())
    assert not reader._open()
    assert [event.fields["cause"] for _, event in reader.scan(b"OSError: [Errno 28] No space left on device\n")] == [
        "disk_full"
    ]


ELASTIC = (ERRORS / "torchelastic.txt").read_text()
OLD_ELASTIC = (ERRORS / "torchelastic-1.9.txt").read_text()


def test_the_table_of_torchelastic_names_the_child_that_failed_first():
    """Rank, node, exit code, process and the file with the error come from its block of the root cause."""
    text = ELASTIC.format(code=1, file="/tmp/e/5/error.json", text="To enable traceback see: https://pytorch.org/x")
    found = [event for event in events(text) if "rank" in event.fields]
    assert [event.fields["cause"] for event in found] == ["child_failed"]
    fields = found[0].fields
    assert (fields["rank"], fields["host"], fields["exit_code"], fields["pid"]) == (13, "node-7", 1, 4191)
    assert fields["file"] == "/tmp/e/5/error.json"
    assert fields["root"] is False


def test_a_child_that_a_signal_ended_tells_more_than_a_child_that_failed():
    """SIGKILL, SIGSEGV and SIGTERM of the first failure are causes; of the others they are not."""
    found = events(ELASTIC.format(code=-9, file="<N/A>", text="Signal 9 (SIGKILL) received by PID 4191"))
    best = root_cause(found)
    assert (best.fields["cause"], best.fields["signal"], best.fields["rank"]) == ("process_killed", "SIGKILL", 13)
    assert "terminated" not in [event.fields["cause"] for event in found]
    best = root_cause(events(OLD_ELASTIC))
    assert (best.fields["cause"], best.fields["rank"], best.fields["pid"]) == ("segfault", 3, 77)


def test_an_error_that_the_table_quotes_is_the_cause():
    """With @record the table holds the traceback of the child."""
    quoted = (
        'Traceback (most recent call last):\n    File "/w/x.py", line 8, in main\n      f()\n  TypeError: f() takes 2'
    )
    best = root_cause(events(ELASTIC.format(code=1, file="/tmp/error.json", text=quoted)))
    assert (best.fields["cause"], best.fields["text"], best.fields["rank"]) == (
        "exception",
        "TypeError: f() takes 2",
        13,
    )


def test_exit_codes_of_launchers_tell_the_signal():
    """Negative, as torchelastic and DeepSpeed write them, or above 128 as a shell does."""
    line = "E0302 x.py:1] failed (exitcode: {}) local_rank: 3 (pid: 71) of binary: /v/python"
    assert told(line.format(-9)) == ["process_killed", "child_failed"]
    assert told(line.format(139)) == ["segfault", "child_failed"]
    assert told(line.format(1)) == ["child_failed"]
    paddle = "Container rank 3 status failed cmd ['/v/python', '-u', 'x.py'] code -9 log log/workerlog.3"
    assert [(one.fields["cause"], one.fields["rank"]) for one in events(paddle)] == [
        ("process_killed", 3),
        ("child_failed", 3),
    ]


def test_ranks_that_are_missing_are_named():
    """By the table of an analysis of flight recorders, and by the report of a desync."""
    found = events(
        "PGID | Process Group Desc | Op Type | Size | Dtype | Missing Ranks",
        "31   | DATA_PARALLEL,2    | nccl:all_reduce | 77x5 | Float | 4,12",
    )
    assert [(event.fields["cause"], event.fields["ranks"]) for event in found] == [("collective_missing_ranks", "4,12")]
    found = events(
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=42, OpType=ALLREDUCE, Timeout(ms)=9)",
        " - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:",
        "     [3] finished collective #41, but didn't join collective #42 (count from 1)",
    )
    assert root_cause(found).fields["place"] == "ranks 3"


# Which one began it.


def test_an_out_of_memory_on_one_rank_outranks_the_cascade_that_it_starts():
    """Timeouts of the others, broken pipes, SIGTERM and ChildFailedError follow, in whatever order they come."""
    lines = [
        "[rank0]:[E611 09:08:07.1 x.cpp:6] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=41)",
        "[rank1]: torch.distributed.DistBackendError: NCCL error in: x.cpp:1, ncclRemoteError: remote process exited",
        "[W611 09:08:09.1 TCPStore.cpp:106] [c10d] sendBytes failed on SocketImpl(fd=71): Broken pipe",
        *traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 3 has", "[rank3]: "),
        "W0611 09:08:10.1 1 torch/x.py:1] Sending process 4188 closing signal SIGTERM",
        ELASTIC.format(code=1, file="<N/A>", text="see https://pytorch.org/x"),
    ]
    for seed in range(5):
        best = root_cause(events(*lines))
        assert (best.fields["cause"], best.fields["rank"]) == ("device_out_of_memory", 3)
        some = lines[:3]
        random.Random(seed).shuffle(some)
        lines = [*lines[3:-2], *some, *lines[-2:]]
    assert "collective_timeout (1)" in best.fields["reason"]
    assert best.fields["reason"].startswith("needs no other explanation")


def event(cause, time=0.0, **fields):
    """Return an event as a reader of another file made it."""
    row = CAUSE[cause]
    return Event(time, "log_error", -1, {"cause": cause, "level": int(row.level), **fields})


def test_of_equals_the_earliest_is_the_root_cause():
    """By time where there is one, else in the order of coming."""
    late, early = event("disk_full", 30.0, rank=2), event("quota_exceeded", 20.0, rank=1)
    assert root_cause([late, early]).fields["cause"] == "quota_exceeded"
    assert root_cause([event("disk_full"), event("quota_exceeded")]).fields["cause"] == "disk_full"
    assert root_cause([event("child_failed"), event("terminated"), event("exception")]).fields["cause"] == "terminated"
    assert root_cause([event("child_failed")]).fields["cause"] == "child_failed"
    assert root_cause([event("nccl_warning"), event("peers_stopped")]) is None
    assert root_cause([Event(1.0, "checkpoint", 3, {})]) is None


def test_what_the_run_survived_is_not_its_end():
    """An error after which more than ten steps were made is passed over."""
    caught, last = event("disk_full"), event("exception")
    caught, last = dataclasses.replace(caught, step=100), dataclasses.replace(last, step=900)
    assert root_cause([caught, last]).fields["cause"] == "exception"
    assert root_cause([dataclasses.replace(caught, step=890), last]).fields["cause"] == "disk_full"
    assert root_cause([caught]).fields["cause"] == "disk_full"
    again = dataclasses.replace(event("quota_exceeded"), step=30)
    assert root_cause([again, caught]).fields["cause"] == "disk_full"
    assert root_cause([caught, again]).fields["cause"] == "disk_full"
    assert root_cause([caught], newest_step=110).fields["cause"] == "disk_full"
    assert root_cause([caught], newest_step=111) is None


def test_levels_put_what_needs_no_explanation_first():
    """Resources and data before symptoms, symptoms before launchers."""
    assert CAUSE["device_out_of_memory"].level is CAUSE["image_unreadable"].level is Level.ROOT
    assert CAUSE["process_killed"].level is Level.BLAMED
    assert CAUSE["collective_timeout"].level is CAUSE["exception"].level is Level.SYMPTOM
    assert CAUSE["child_failed"].level is CAUSE["peer_lost"].level is Level.CASCADE


# Bounds.


def test_other_errors_of_one_cause_are_told_too():
    """Other exceptions of the same rank, and other files, are events of their own."""
    assert (
        told(*traceback("KeyError: 'x'"), *traceback("KeyError: 'y'"), *traceback("TypeError: z")) == ["exception"] * 2
    )
    line = "PIL.UnidentifiedImageError: cannot identify image file '/data/{}.jpg'"
    assert [one.fields["file"] for one in events(*(line.format(number) for number in (7, 8, 7)))] == [
        "/data/7.jpg",
        "/data/8.jpg",
    ]


def test_repeats_are_counted_and_told_a_few_times_only():
    """One event for a cause and a rank, sixteen for a cause; a new attempt tells anew."""
    reader = ErrorReader()
    block = b"".join(
        b"[rank%d]: OSError: [Errno 28] No space left on device\n" % (number % 40) for number in range(4000)
    )
    assert len(reader.scan(block)) == 16
    assert reader.scan(block) == []
    assert reader.counts["disk_full"] == 8000
    reader.restart()
    assert len(reader.scan(block)) == 16


def test_an_error_that_comes_again_after_a_while_is_told_again():
    """Behind 500 lines without it, or behind the end of a launcher, it is another one: a log may hold many attempts."""
    line = "[rank3]: OSError: [Errno 28] No space left on device"
    assert told(line, *["step"] * 400, line, *["step"] * 498, line) == ["disk_full"]
    assert told(line, *["step"] * 499, line) == ["disk_full"] * 2
    failed = ELASTIC.format(code=1, file="<N/A>", text="x")
    assert told(line, line, failed, line, failed) == ["disk_full", "child_failed", "child_failed"] * 2
    reader = ErrorReader()
    assert len(reader.feed(line)) == 1
    assert [reader.feed("step") for _ in range(499)] == [[]] * 499
    assert len(reader.feed(line)) == 1


def test_healthy_lines_are_looked_at_for_a_while_only():
    """The shape of a line that tells nothing is remembered, whatever its numbers, and others are looked at still."""
    reader = ErrorReader()
    noisy = b"step %d closed the collective signal file"
    for number in range(10, 73):
        assert reader.scan(noisy % number + b"\n") == []
    assert noisy % 55 not in reader._harmless
    for number in range(73, 99):
        assert reader.scan(noisy % number + b"\n") == []
    assert noisy % 55 in reader._harmless
    assert noisy % 55 + b"s" not in reader._harmless


def test_memory_for_shapes_is_bounded():
    """Prose, whose lines do not come again, does not fill the memory."""
    reader = ErrorReader()
    letters = bytes.maketrans(b"0123456789", b"abcdefghij")
    for start in range(0, 60_000, 15_000):
        lines = (f"{number} signal" for number in range(start, start + 15_000))
        reader.scan("\n".join(lines).encode().translate(letters))
    assert 1000 < len(reader._harmless) <= 20_000


def test_a_block_cut_between_lines_tells_the_same():
    """Wherever the cuts, tracebacks and tables included."""
    lines = [*traceback("KeyError: 'x'", "[rank1]: "), *ELASTIC.format(code=-9, file="<N/A>", text="x").split("\n")]
    data = [(line + "\n").encode() for line in lines]
    whole = [one.fields for _, one in ErrorReader().scan(b"".join(data))]
    assert len(whole) == 4
    for cut in range(len(data)):
        reader = ErrorReader()
        found = [*reader.scan(b"".join(data[:cut])), *reader.scan(b"".join(data[cut:]))]
        assert [one.fields for _, one in found] == whole


def test_of_a_very_long_line_begin_and_end_are_read():
    """A command of 70,000 characters does not hide the exit code behind it; one event's text stays short."""
    line = f"subprocess.CalledProcessError: Command '{'x ' * 35_000}' returned non-zero exit status 17."
    (event,) = events(line)
    assert (event.fields["cause"], event.fields["exit_code"]) == ("subprocess_failed", 17)
    assert len(event.fields["text"]) == 300


def test_no_bytes_raise():
    """Random bytes, random pieces of errors and very long lines are read without an exception."""
    chance = random.Random(11)
    pieces = [cause.sample.encode() for cause in CAUSES] + [line.encode() for line in ELASTIC.split("\n")]
    pieces += [b"Traceback (most recent call last):", b"[rank3]: ", b"\xff\xfe\x00", b"\n", b"9" * 50, b"x" * 70_000]
    reader = ErrorReader()
    for _ in range(300):
        block = b"".join(
            piece[chance.randrange(len(piece) + 1) :] if chance.random() < 0.3 else piece + b"\n"
            for piece in chance.choices(pieces, k=20)
        )
        for _, one in reader.scan(block):
            assert len(one.fields["text"]) <= 300
        reader.scan(chance.randbytes(4000))
        reader.feed(chance.randbytes(200).decode(errors="replace"))
        reader.restart()
