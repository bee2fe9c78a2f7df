"""What a supervisor remembers, the output it copies, the evidence it keeps, and the stacks it asks for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
from tests.helpers import trainer_environment, wait_until

import trainvitals
from trainvitals import rankfile
from trainvitals.follow.errors import ErrorReader
from trainvitals.probe import stacks
from trainvitals.supervise import evidence, launch, options, processes, resume
from trainvitals.supervise.cause import Failure
from trainvitals.supervise.console import Console, same_place
from trainvitals.supervise.decide import Past
from trainvitals.supervise.record import Nowhere
from trainvitals.supervise.settings import Settings
from trainvitals.supervise.state import BusyError, State, Store
from trainvitals.supervise.supervisor import Supervisor


def test_what_is_saved_is_loaded(tmp_path):
    """Past failures too."""
    store = Store(str(tmp_path / "state"))
    state = State(command=["a"], phase="running", attempt=3, past=[Past("hang", "hang|", step=7)], offsets=[5, 6])

    assert store.save(state)
    assert store.load() == state


@pytest.mark.parametrize(("boot", "excluded"), [("another", []), (rankfile.boot_id(), ["GPU-1"])])
def test_devices_are_given_another_chance_after_a_reboot(tmp_path, boot, excluded):
    """It has reset them."""
    store = Store(str(tmp_path))
    store.save(State(attempt=1, boot=boot, excluded=["GPU-1"]))
    settings = Settings(name="test", command=("x",), spool="/nowhere", folder=str(tmp_path))

    found = Supervisor(settings, store, Nowhere(), {}, kernel_of=None, scan_of=None, tell=None)

    assert found._state.excluded == excluded


def test_where_a_training_goes_on(monkeypatch):
    """A path, or None for a start from the beginning."""
    monkeypatch.delenv("TRAINVITALS_RESUME_FROM", raising=False)
    assert trainvitals.resume_path() is None
    monkeypatch.setenv("TRAINVITALS_RESUME_FROM", "/ckpt/a")
    assert trainvitals.resume_path() == "/ckpt/a"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"past": [{"nonsense": 1}]}', "7", '{"past": 7}'])
def test_a_state_that_makes_no_sense(tmp_path, text):
    """The run begins anew."""
    (tmp_path / "state.json").write_text(text)

    assert Store(str(tmp_path)).load() == State()


def test_a_state_of_another_version(tmp_path):
    """What is not known is passed over."""
    (tmp_path / "state.json").write_text('{"attempt": 4, "colour": "red"}')

    assert Store(str(tmp_path)).load() == State(attempt=4)


def test_a_full_disk_keeps_the_old_state(tmp_path):
    """Nothing is half written."""
    store = Store(str(tmp_path))
    store.save(State(attempt=1))
    (tmp_path / "state.json.new").mkdir()

    assert not store.save(State(attempt=2))
    assert store.load().attempt == 1


def test_a_state_that_is_taken(tmp_path):
    """By another process: it is named."""
    script = f"from trainvitals.supervise.state import Store; store = Store({str(tmp_path)!r})"
    script += "; import sys; print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with pytest.raises(BusyError, match=rf"supervised already, by process {other.pid}$"):
            Store(str(tmp_path))
        other.stdin.close()


@pytest.fixture
def outputs(tmp_path):
    """Two files that a command writes to, and two that it is copied to."""
    found = launch.Outputs(str(tmp_path / "out"), str(tmp_path / "err"))
    targets = [os.open(tmp_path / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for name in ("copy-out", "copy-err")]
    yield found, tuple(targets)
    for target in targets:
        os.close(target)


def append(path, data):
    """Write as the command does."""
    with open(path, "ab") as file:
        file.write(data)


def test_output_is_copied_and_searched(outputs, tmp_path):
    """Byte by byte, half lines too; an error is found once its line is whole."""
    console = Console(outputs[0], scan=ErrorReader().scan, targets=outputs[1])
    append(outputs[0].out, b"step 1\nste")
    append(outputs[0].err, b"OSError: [Errno 28] No space left on")
    console.pump()
    assert (tmp_path / "copy-out").read_bytes() == b"step 1\nste"
    assert list(console.events) == []
    append(outputs[0].err, b" device: '/ckpt/a'\n\xff\0\n")
    console.pump()

    assert (tmp_path / "copy-err").read_bytes().endswith(b"'/ckpt/a'\n\xff\0\n")
    assert [event.fields["cause"] for event in console.events] == ["disk_full"]
    assert list(console.lines) == [b"step 1", b"OSError: [Errno 28] No space left on device: '/ckpt/a'", b"\xff\0"]


def test_output_goes_on_where_another_supervisor_had_got_to(outputs, tmp_path):
    """Nothing comes twice."""
    append(outputs[0].out, b"one\ntwo\n")
    console = Console(outputs[0], targets=outputs[1], offsets=(4, 0))

    console.pump()

    assert (tmp_path / "copy-out").read_bytes() == b"two\n"
    assert console.offsets == (8, 0)


def test_what_was_copied_is_given_back_to_the_disk(outputs):
    """A training of weeks writes more than a disk holds; the file keeps its length."""
    console = Console(outputs[0], targets=outputs[1])
    append(outputs[0].out, b"x" * (8 << 20) + b"\n")
    for _ in range(3):
        console.pump()

    found = os.stat(outputs[0].out)
    assert found.st_size == (8 << 20) + 1
    if found.st_blocks * 512 >= found.st_size:
        pytest.skip("this file system cannot punch holes")


def test_a_reader_that_goes_away_does_not_end_the_supervision(outputs):
    """As ``| head`` does."""
    read, write = os.pipe()
    os.close(read)
    console = Console(outputs[0], targets=(write, write))
    append(outputs[0].out, b"one\n")

    console.pump()
    append(outputs[0].out, b"two\n")
    console.pump()

    assert list(console.lines) == [b"one", b"two"]
    os.close(write)


def test_the_same_place(tmp_path):
    """Two descriptors of one file, of two files, and one that is closed."""
    one, other = os.open(tmp_path, os.O_RDONLY), os.open("/", os.O_RDONLY)

    assert [same_place(one, one), same_place(one, other), same_place(one, 9999)] == [True, False, False]


def test_a_command_ends_with_all_that_it_started(tmp_path):
    """Also what put itself into a session of its own and does not listen."""
    outputs = launch.Outputs(str(tmp_path / "out"), str(tmp_path / "out"))
    stubborn = "trap '' TERM; echo ready; while :; do sleep 1; done"
    script = f'setsid sh -c "{stubborn}" & {stubborn}'
    child = launch.start(
        ["/bin/sh", "-c", script], dict(os.environ), outputs=outputs, status_file=str(tmp_path / "s"), mark="m1"
    )
    wait_until(lambda: "ready" in (tmp_path / "out").read_text())
    assert len(processes.marked("m1")) >= 3

    child.end(0.2)

    assert processes.marked("m1") == []
    assert child.poll() == 137


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)])
def test_how_a_command_ended_is_written_down(tmp_path, script, code):
    """For a supervisor that is not its parent."""
    outputs = launch.Outputs(str(tmp_path / "out"), str(tmp_path / "out"))
    status = str(tmp_path / "status")
    child = launch.start(["/bin/sh", "-c", script], dict(os.environ), outputs=outputs, status_file=status, mark="m2")
    wait_until(lambda: child.poll() is not None)

    assert child.poll() == code
    assert launch.Child(child.pid, child.started, "m2", status).poll() == code


def test_another_process_with_the_same_id_is_not_ours(tmp_path):
    """The time of its start tells."""
    child = launch.Child(os.getpid(), 1, "m3", str(tmp_path / "status"))

    assert child.poll() == 137


def test_evidence_is_bounded(tmp_path):
    """The end of a file, and the newest folders."""
    for number in range(25):
        one = evidence.Evidence(str(tmp_path), f"{number:02}", tool="")
        one.write("big.txt", b"a" * (1 << 20) + b"end")
        one.keep_failure(Failure("hang", "resource", "no step"), {"decision": "restart"})
        os.utime(one.folder, (number, number))

    assert min(os.listdir(tmp_path)) == "05"
    assert len(os.listdir(tmp_path)) == 20
    assert (tmp_path / "24" / "big.txt").read_bytes()[-4:] == b"aend"
    assert (tmp_path / "24" / "big.txt").stat().st_size == 1 << 20


def test_dumps_of_the_flight_recorder(tmp_path):
    """What was written since the attempt began, as much as there is room for."""
    (tmp_path / "trace_0").write_bytes(b"new")
    (tmp_path / "trace_1").write_bytes(b"old")
    os.utime(tmp_path / "trace_1", (1, 1))
    one = evidence.Evidence(str(tmp_path / "incidents"), "a", tool="")

    one.keep_dumps({"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(tmp_path / "trace_")}, since=1000.0)

    assert os.listdir(one.folder) == ["flight-recorder-trace_0"]


def test_dumps_are_asked_for_where_there_is_a_pipe(tmp_path):
    """PyTorch makes one for each rank."""
    path = tmp_path / "fr_0.pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    waited = []

    ranks = [SimpleNamespace(number=0), SimpleNamespace(number=1)]
    evidence.ask_for_dumps({"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(tmp_path / "fr_")}, ranks, waited.append)

    assert os.read(reader, 10) == b"1"
    assert len(waited) == 1


@pytest.mark.parametrize(
    ("environ", "is_set"),
    [
        ({}, False),
        ({"TORCH_FR_BUFFER_SIZE": "0"}, False),
        ({"TORCH_FR_BUFFER_SIZE": "2000"}, True),
        ({"TORCH_NCCL_TRACE_BUFFER_SIZE": "2000", "TORCH_FR_DUMP_TEMP_FILE": "/mine"}, False),
    ],
)
def test_where_dumps_go(environ, is_set):
    """Only where the recorder is on and nobody has said it."""
    assert bool(evidence.recorder_environment(environ, "/state")) is is_set


def test_a_python_tells_its_stacks(tmp_path):
    """Also one that waits in a call; its file goes with it."""
    script = "import os, sys; from trainvitals.probe import stacks; stacks.register(os.environ)"
    script += "; print('ready', flush=True); sys.stdin.read()"
    environ = {**trainer_environment(tmp_path), "TRAINVITALS_STACKS": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ
    ) as process:
        process.stdout.readline()
        path = tmp_path / f"{process.pid}.stacks"
        process.send_signal(stacks.SIGNAL)
        wait_until(lambda: 'File "<string>", line 1 in <module>' in path.read_text())
        process.stdin.close()
    assert process.returncode == 0
    assert not path.exists()


def test_nothing_is_registered_without_a_folder():
    """A training that nobody supervises keeps its signals."""
    assert stacks.register({}) is False
    assert signal.getsignal(stacks.SIGNAL) == signal.SIG_DFL


@pytest.mark.parametrize(
    ("command", "environ", "name"),
    [
        (["torchrun", "--nproc-per-node", "2", "/a/train.py", "--x"], {}, "train"),
        (["torchrun", "--rdzv-id", "job7", "train.py"], {}, "job7"),
        (["torchrun", "--rdzv_id=job7", "train.py"], {"TRAINVITALS_RUN": "mine"}, "mine"),
        (["python", "-m", "pkg.train"], {}, "python"),
        (["torchrun", "train.py"], {"SLURM_JOB_ID": "9"}, "slurm-9"),
    ],
)
def test_the_name_of_a_run(command, environ, name):
    """As its ranks would call it."""
    assert options.name_of(None, command, environ) == name


def test_the_environment_of_an_attempt():
    """A checkpoint from outside does not count where there is none of ours."""
    before = {"TRAINVITALS_RESUME_FROM": "/old", "TRAINVITALS_RESUME_SINCE": "1", "PATH": "/bin"}
    bare = resume.environment(before, attempt=2, checkpoint=None, now=1_700_000_000.25)

    assert bare == {"PATH": "/bin", "TRAINVITALS_ATTEMPT": "2"}
    assert resume.environment(before, attempt=0, checkpoint="/new", now=1_700_000_000.25) == {
        "PATH": "/bin",
        "TRAINVITALS_ATTEMPT": "0",
        "TRAINVITALS_RESUME_FROM": "/new",
        "TRAINVITALS_RESUME_SINCE": "1700000000.250000",
    }


def test_a_flag_with_a_path():
    """Words are parted as a shell does, the path is one of them whatever is in it."""
    assert resume.with_flag(["a"], "--resume {path} --strict", "/b c") == ["a", "--resume", "/b c", "--strict"]
    assert resume.with_flag(["a"], "--from={path}", "/b c") == ["a", "--from=/b c"]
    assert resume.with_flag(["a"], "--resume {path}", None) == ["a"]
