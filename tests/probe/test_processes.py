"""How processes end, fork and meet a spool that cannot be used: seen from outside, with real processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.helpers import PATIENCE, Node, run_trainer, trainer, trainer_environment, wait_until

TRAINING = """
    import os, signal, sys, time
    import trainvitals

    trainvitals.init(target_steps=5)
    for number in range(5):
        trainvitals.step(number, loss=1.0 / (number + 1))
"""


# How a run ends -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "code", "state"),
    [
        ("", 0, "finished"),
        ("trainvitals.finish()", 0, "finished"),
        ("trainvitals.finish(); trainvitals.finish('failed')", 0, "finished"),
        ("trainvitals.finish('failed')", 0, "failed"),
        ("sys.exit()", 0, "finished"),
        ("raise ValueError('bad batch')", 1, "failed"),
        ("sys.exit(0)", 0, "finished"),
        ("sys.exit(1)", 1, "failed"),
        ("sys.exit('no data')", 1, "failed"),
        ("try:\n    sys.exit(2)\nexcept SystemExit:\n    trainvitals.step(6, loss=1.0)", 0, "finished"),
        ("import threading; threading.Thread(target=sys.exit, args=(1,)).start()", 0, "finished"),
        # No hook sees this one: docs/probe.md says so.
        ("raise SystemExit(1)", 1, "finished"),
        ("raise KeyboardInterrupt", -2, "finished"),
        ("os._exit(0)", 0, "died"),
        ("os.abort()", -6, "died"),
        ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", -15, "died"),
        ("os.kill(os.getpid(), signal.SIGKILL); time.sleep(60)", -9, "died"),
        ("import ctypes; ctypes.string_at(0)", -11, "died"),
    ],
)
def test_the_end_of_a_process_is_told(spool, ending, code, state):
    """A clean end, an exception and a death are told apart, and the exit code is the training's own."""
    done = run_trainer(textwrap.dedent(TRAINING) + ending, spool)

    assert done.returncode == code
    node = Node(spool)
    assert node.state() == state
    assert node.scrape()['trainvitals_steps_total{rank="0",run="test"}'] >= 5.0


def test_a_line_that_goes_wrong_at_the_prompt_is_no_end(spool):
    """In an interactive interpreter somebody goes on after an exception."""
    training = textwrap.dedent(TRAINING).strip()
    # The prompt ends a loop at an empty line.
    script = f"{training}\n\nmisspelt\ntrainvitals.step(6, loss=1.0)\n"

    done = subprocess.run(
        [sys.executable, "-i"],
        input=script,
        env=trainer_environment(spool),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )

    assert "NameError" in done.stderr
    assert Node(spool).state() == "finished"


def test_an_exception_is_recorded_and_printed_as_ever(spool):
    """The traceback reaches standard error unchanged, and the event names type and message."""
    ending = "raise ValueError('bad batch')"
    with_probe = run_trainer(textwrap.dedent(TRAINING) + ending, spool)
    without = run_trainer(textwrap.dedent(TRAINING) + ending, spool, TRAINVITALS_DISABLE="1")

    assert with_probe.stderr == without.stderr
    (file,) = Node(spool).spool.poll()
    (event,) = [event for event in file.events if event.kind == "exception"]
    assert (event.step, event.fields) == (4, {"type": "ValueError", "message": "bad batch"})


def test_an_exception_without_a_text_still_reaches_the_hook_before_ours(spool):
    """A broken __str__ of a user's exception must not cost the traceback."""
    script = """
        import sys, trainvitals

        def hook(kind, error, trace):
            print("hook", kind.__name__)

        class Broken(Exception):
            def __str__(self):
                raise RuntimeError

        sys.excepthook = hook
        trainvitals.init()
        raise Broken
    """
    done = run_trainer(script, spool)

    assert done.stdout == "hook Broken\n"
    assert done.stderr == ""
    assert Node(spool).state() == "failed"


def test_an_exception_is_a_failure_although_another_hook_hides_it(spool):
    """A library that sets its own hook after ours, and does not call ours."""
    script = """
        import sys, trainvitals

        trainvitals.init()
        sys.excepthook = lambda *_: None
        raise ValueError
    """
    run_trainer(script, spool)

    assert Node(spool).state() == "failed"


def test_a_death_is_seen_although_a_forked_child_lives(spool):
    """SIGKILL of the trainer, with a data loader's worker that holds copies of all its descriptors."""
    script = """
        import os, sys, time, trainvitals

        trainvitals.init()
        trainvitals.step(1, loss=1.0)
        child = os.fork()
        if child == 0:
            os.close(1)
            time.sleep(600)
        print("ready", flush=True)
        print(child, flush=True)
        sys.stdin.readline()
    """
    node = Node(spool)
    with trainer(script, spool) as process:
        child = int(process.stdout.readline())
        try:
            assert node.state() == "running"
            process.kill()
            process.wait()
            os.kill(child, 0)
            assert node.state() == "died"
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_death_is_seen_although_a_child_of_multiprocessing_lives(spool, tmp_path, method):
    """The same with workers as data loaders start them."""
    script = f"""
        import multiprocessing, sys, time, trainvitals

        if __name__ == "__main__":
            trainvitals.init(run="test")
            trainvitals.step(1, loss=1.0)
            child = multiprocessing.get_context("{method}").Process(target=time.sleep, args=(600,))
            child.start()
            print("ready", flush=True)
            print(child.pid, flush=True)
            sys.stdin.readline()
    """
    program = tmp_path / "train.py"
    program.write_text(textwrap.dedent(script))
    node = Node(spool)
    process = subprocess.Popen(
        [sys.executable, program],
        env=trainer_environment(spool),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    child = 0
    try:
        assert process.stdout.readline() == "ready\n"
        child = int(process.stdout.readline())
        assert node.state() == "running"
        process.kill()
        process.wait()
        os.kill(child, 0)
        assert node.state() == "died"
        assert len(list(spool.glob("*.rank"))) == 1
    finally:
        process.kill()
        process.stdin.close()
        process.stdout.close()
        process.wait()
        if child:
            os.kill(child, signal.SIGKILL)


def test_a_spawned_worker_that_imports_the_script_is_no_rank(spool, tmp_path):
    """A script that calls init() outside of its main guard runs once more in each worker, which trains nothing."""
    script = """
        import multiprocessing, trainvitals
        recorded = trainvitals.init(run="test")

        def work(queue):
            queue.put(recorded)

        if __name__ == "__main__":
            context = multiprocessing.get_context("spawn")
            queue = context.Queue()
            child = context.Process(target=work, args=(queue,))
            child.start()
            print(recorded, queue.get(timeout=60))
            child.join()
    """
    program = tmp_path / "train.py"
    program.write_text(textwrap.dedent(script))

    done = subprocess.run(
        [sys.executable, program], env=trainer_environment(spool), capture_output=True, timeout=PATIENCE, check=True
    )

    assert done.stdout == b"True False\n"
    assert len(list(spool.glob("*.rank"))) == 1


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_trainers_that_are_children_of_multiprocessing_end_as_others_do(spool, tmp_path, method):
    """They leave by os._exit, which skips atexit: a clean end, an exception, an exit code, a death."""
    script = f"""
        import multiprocessing, os, sys, trainvitals

        def train(rank):
            trainvitals.init(run="test", rank=rank)
            trainvitals.step(1, loss=1.0)
            if rank == 1:
                raise ValueError
            if rank == 2:
                sys.exit(3)
            if rank == 3:
                os._exit(0)
            if rank == 4:
                sys.exit(0)

        if __name__ == "__main__":
            context = multiprocessing.get_context("{method}")
            children = [context.Process(target=train, args=(rank,)) for rank in range(5)]
            for child in children:
                child.start()
            for child in children:
                child.join()
    """
    program = tmp_path / "train.py"
    program.write_text(textwrap.dedent(script))
    subprocess.run(
        [sys.executable, program], env=trainer_environment(spool), capture_output=True, timeout=PATIENCE, check=True
    )
    node = Node(spool)

    assert [node.state(rank) for rank in range(5)] == ["finished", "failed", "failed", "died", "finished"]


def test_a_forked_trainer_whose_parent_records_too_ends_by_itself(spool):
    """Parent and child each have a file, and each file its end."""
    script = """
        import multiprocessing, trainvitals

        def train():
            trainvitals.init(run="child")
            trainvitals.step(1, loss=1.0)

        trainvitals.init(run="parent")
        trainvitals.step(7, loss=1.0)
        child = multiprocessing.get_context("fork").Process(target=train)
        child.start()
        child.join()
        raise SystemExit(child.exitcode)
    """
    done = run_trainer(script, spool)

    assert done.returncode == 0
    node = Node(spool)
    assert (node.state(run="parent"), node.state(run="child")) == ("finished", "finished")
    assert node.scrape()['trainvitals_steps_total{rank="0",run="parent"}'] == 1.0


# Forked children ----------------------------------------------------------------------------------------------------


def test_a_forked_child_is_inert(spool):
    """Whatever it calls, and however it ends: the parent's file and lock stay as they are."""
    script = """
        import gc, os, sys, trainvitals

        trainvitals.init()
        trainvitals.step(1, loss=1.0)
        phase, saving = trainvitals.phase("data"), trainvitals.checkpoint(1)
        phase.__enter__()
        saving.__enter__()
        for ending in (lambda: os._exit(0), sys.exit, lambda: 1 / 0):
            child = os.fork()
            if child == 0:
                sys.stderr = open(os.devnull, "w")
                trainvitals.step(99, loss=9.0)
                trainvitals.evaluate(99, accuracy=1.0)
                trainvitals.event("child")
                with trainvitals.phase("evaluation"), trainvitals.checkpoint(99):
                    pass
                saving.__exit__(None, None, None)
                phase.__exit__(None, None, None)
                del saving, phase
                gc.collect()
                ending()
            os.waitpid(child, 0)
        saving.__exit__(None, None, None)
        phase.__exit__(None, None, None)
        print("ready", flush=True)
        sys.stdin.readline()
    """
    node = Node(spool)
    with trainer(script, spool):
        (file,) = node.spool.poll()
        assert file.alive
        assert file.state.flags == 0
        assert [step.step for step in file.steps] == [1]
        assert [event.kind for event in file.events if event.kind != "lineage"] == ["start", "checkpoint"]
        assert file.state.errors == 0


def test_a_forked_child_may_record_itself(spool):
    """With a call of init of its own it has its own file."""
    script = """
        import os, sys, trainvitals

        trainvitals.init(run="parent")
        trainvitals.step(1, loss=1.0)
        if os.fork() == 0:
            assert trainvitals.init(run="child")
            trainvitals.step(2, loss=2.0)
            sys.exit()
        os.wait()
    """
    assert run_trainer(script, spool).returncode == 0
    scrape = Node(spool).scrape()

    assert scrape['trainvitals_loss{rank="0",run="parent"}'] == 1.0
    assert scrape['trainvitals_loss{rank="0",run="child"}'] == 2.0


# Spools that cannot be used -----------------------------------------------------------------------------------------

EVERYTHING = """
    import trainvitals

    started = trainvitals.init(run="test", target_steps=5)
    again = trainvitals.init(run="test", target_steps=5)
    for number in range(3):
        with trainvitals.phase("data"):
            pass
        trainvitals.step(number, loss=1.0, tokens=5)
    trainvitals.evaluate(3, accuracy=0.5)
    with trainvitals.checkpoint(3, "/checkpoint"):
        pass
    trainvitals.event("note", "text")
    trainvitals.finish()
    print(started, again)
"""


def assert_inert(done, reason):
    """The training went through, and one line on standard error says why nothing is recorded."""
    assert done.returncode == 0
    assert done.stdout == "False False\n"
    assert re.fullmatch(rf"trainvitals: this run is not recorded: [^\n]*{reason}[^\n]*\n", done.stderr)


def test_a_spool_below_a_missing_folder_is_not_made(tmp_path):
    """A mount that is missing must not become a folder on the root disk."""
    assert_inert(run_trainer(EVERYTHING, tmp_path / "missing" / "spool"), "No such file")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_spool_is_made(spool):
    """Its last part, readable for the exporter."""
    folder = spool / "new"
    done = run_trainer(EVERYTHING, folder)

    assert (done.stdout, done.stderr) == ("True True\n", "")
    assert Node(folder).state() == "finished"


def test_a_spool_that_is_a_file_or_a_link_is_refused(spool):
    """A link could lead anywhere."""
    (spool / "file").write_text("")
    (spool / "folder").mkdir()
    (spool / "link").symlink_to("folder")

    assert_inert(run_trainer(EVERYTHING, spool / "file"), "is not a folder")
    assert_inert(run_trainer(EVERYTHING, spool / "link"), "is not a folder")
    assert list((spool / "folder").iterdir()) == []


@pytest.mark.skipif(os.getuid() != 0, reason="giving a folder to another user needs root")
def test_a_spool_of_another_user_is_refused_unless_it_is_shared(spool):
    """Who owns the folder may take files away; a sticky folder is shared on purpose."""
    os.chown(spool, 1234, 1234)
    assert_inert(run_trainer(EVERYTHING, spool), "belongs to another user")
    os.chmod(spool, 0o1777)
    assert run_trainer(EVERYTHING, spool).stdout == "True True\n"


def test_a_spool_without_permission_is_refused(spool):
    """As a user who may not write there."""
    spool.chmod(0o555)
    script = "import os, trainvitals\nif os.getuid() == 0: os.setuid(65534)\n" + textwrap.dedent(EVERYTHING)

    assert_inert(run_trainer(script, spool), "Permission denied")


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "fuse.sshfs", "ceph", "cifs", "9p", "gpfs", "beegfs"])
def test_a_spool_on_a_remote_file_system_is_refused(spool, kind):
    """Mapped memory is not coherent there, and a server that goes away would block the training."""
    script = f"import trainvitals.probe.spool\ntrainvitals.probe.spool.filesystem = lambda folder: {kind!r}\n"
    folder = spool / "new"

    assert_inert(run_trainer(script + textwrap.dedent(EVERYTHING), folder), f"is on {kind}")
    assert not folder.exists()


def test_the_file_system_is_that_of_the_innermost_mount(tmp_path):
    """A later mount on the same point hides the earlier one; names with a space are escaped."""
    from trainvitals.probe.spool import filesystem

    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/sda1 / ext4 rw 0 0\n"
        "tmpfs /dev/shm tmpfs rw 0 0\n"
        "server:/home /home nfs4 rw 0 0\n"
        "tmpfs /home/local tmpfs rw 0 0\n"
        "server:/x /home/with\\040space lustre rw 0 0\n"
        "none /data tmpfs rw 0 0\n"
        "server:/data /data ceph rw 0 0\n"
        "odd\n"
    )
    found = {
        folder: filesystem(folder, str(mounts))
        for folder in ("/dev/shm/a", "/dev/shmx", "/home", "/home/me", "/home/local/x", "/home/with space/x", "/data/x")
    }
    mounts.write_text(mounts.read_text().replace("odd\n", ""))

    assert set(found.values()) == {""}
    assert [filesystem(folder, str(mounts)) for folder in found] == [
        "tmpfs",
        "ext4",
        "nfs4",
        "nfs4",
        "tmpfs",
        "lustre",
        "ceph",
    ]
    assert filesystem("/dev/shm", str(tmp_path / "missing")) == ""


def test_the_switch_makes_it_silent(spool):
    """TRAINVITALS_DISABLE=1: nothing is written, not even a reason; 0 is no switch."""
    done = run_trainer(EVERYTHING, spool, TRAINVITALS_DISABLE="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "False False\n", "")
    assert list(spool.iterdir()) == []

    assert run_trainer(EVERYTHING, spool, TRAINVITALS_DISABLE="0").stdout == "True True\n"


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_other_systems_are_silent(spool, platform):
    """Also where the module for locks does not exist."""
    script = f"import sys\nsys.platform = {platform!r}\nsys.modules['fcntl'] = None\n" + textwrap.dedent(EVERYTHING)
    done = run_trainer(script, spool)

    assert (done.returncode, done.stdout, done.stderr) == (0, "False False\n", "")


def test_without_init_every_call_does_nothing(spool):
    """A library may call the probe without knowing whether the script wants it."""
    script = textwrap.dedent(EVERYTHING).replace("trainvitals.init(", "bool(0 and ")
    script = re.sub(r"bool\(0 and [^)]*\)", "False", script)
    done = run_trainer(script, spool)

    assert (done.returncode, done.stdout, done.stderr) == (0, "False False\n", "")
    assert list(spool.iterdir()) == []


def test_a_closed_standard_error_is_no_error(tmp_path):
    """Where nobody listens the reason is lost, and it does not go to standard output."""
    script = "import sys\nsys.stderr.close()\nsys.stderr = None\n" + textwrap.dedent(EVERYTHING)
    done = run_trainer(script, tmp_path / "missing" / "spool")

    assert (done.returncode, done.stdout) == (0, "False False\n")


# Full and read-only file systems, in a mount namespace of their own -------------------------------------------------

NAMESPACE = ["unshare", "--mount"] if os.getuid() == 0 else ["unshare", "--mount", "--map-root-user"]


def mounted(folder: Path, options: str, script: str, *, after: str = "true") -> subprocess.CompletedProcess[str]:
    """Run a training whose spool is a tmpfs with these options, which nobody else sees."""
    can = subprocess.run([*NAMESPACE, "mount", "-t", "tmpfs", "none", folder], capture_output=True, check=False)
    if can.returncode != 0:
        pytest.skip(f"a tmpfs cannot be mounted here: {can.stderr.decode().strip()}")
    shell = f'mount -t tmpfs -o {options} none "$0" && {after} && exec "$1" -c "$2"'
    return subprocess.run(
        [*NAMESPACE, "sh", "-c", shell, str(folder), sys.executable, textwrap.dedent(script)],
        env=trainer_environment(folder),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_a_full_spool_is_refused(tmp_path):
    """Without a SIGBUS, and without a half file that takes the last space."""
    script = textwrap.dedent(EVERYTHING) + "import os; print(os.listdir(os.environ['TRAINVITALS_DIR']))"
    done = mounted(tmp_path, "size=600k", script)

    assert done.stdout.endswith("[]\n")
    done.stdout = done.stdout.removesuffix("[]\n")
    assert_inert(done, "No space left on device")


def test_a_spool_without_inodes_is_refused(tmp_path):
    """Full in the other sense."""
    assert_inert(mounted(tmp_path, "nr_inodes=1", EVERYTHING), "No space left on device")


def test_a_read_only_spool_is_refused(tmp_path):
    """Mounted without the right to write."""
    assert_inert(mounted(tmp_path, "ro", EVERYTHING), "Read-only file system")


FILLED_LATER = """
    import os, trainvitals
    from trainvitals import rankfile

    folder = os.environ["TRAINVITALS_DIR"]
    assert trainvitals.init()
    {before}
    with open(folder + "/filler", "wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(4096))
        except OSError as error:
            assert error.errno == 28
    for number in range(10_000):
        trainvitals.step(number, loss=1.0)
        if number % 100 == 0:
            trainvitals.evaluate(number, accuracy=0.5, note=1.0)
            with trainvitals.checkpoint(number, "/checkpoint"):
                pass
            trainvitals.event("note", "x" * 3000)
    trainvitals.finish()
    (name,) = [name for name in os.listdir(folder) if name.endswith(".rank")]
    reader = rankfile.Reader(folder + "/" + name)
    state = reader.read_state()
    print(state.flags, state.count, state.errors, state.dropped > 0, len(reader.read_records(0)[0]))
"""


@pytest.mark.parametrize("before", ["", "trainvitals.event('first')"])
def test_a_spool_that_fills_up_later_costs_events_only(tmp_path, before):
    """The ring was allocated at the start; events are dropped and counted, and are no errors of ours."""
    done = mounted(tmp_path, "size=1000k", FILLED_LATER.format(before=before))

    assert (done.returncode, done.stdout, done.stderr) == (0, "1 10000 0 True 4096\n", "")


# Errors of our own --------------------------------------------------------------------------------------------------

FAULTY = """
    import sys
    import trainvitals
    from trainvitals.probe.recorder import Recorder

    trainvitals.init()
    trainvitals.step(1, loss=1.0)

    def faulty(self, *_):
        raise RuntimeError("ours\\nin two lines " + "x" * 2000)

    Recorder.{method} = faulty
    for number in range({times}):
        with trainvitals.phase("data"):
            pass
        trainvitals.evaluate(number, accuracy=1.0)
        with trainvitals.checkpoint(number):
            pass
        trainvitals.event("note")
    trainvitals.step(2, loss=2.0)
    print(trainvitals.init(), flush=True)
"""


@pytest.mark.parametrize(
    "method", ["begin_phase", "end_phase", "evaluate", "event", "begin_checkpoint", "end_checkpoint"]
)
def test_after_three_errors_of_ours_the_probe_switches_itself_off(spool, method):
    """Exactly one line on standard error; the file is marked, and a clean end is still a clean end."""
    done = run_trainer(FAULTY.format(method=method, times=5), spool)

    assert (done.returncode, done.stdout) == (0, "False\n")
    assert done.stderr.startswith("trainvitals: switched off after 3 internal errors, the training goes on")
    assert done.stderr.count("\n") == 1
    assert len(done.stderr) < 500
    scrape = Node(spool).scrape()
    assert scrape['trainvitals_probe_disabled{rank="0",run="test"}'] == 1.0
    assert scrape['trainvitals_probe_errors_total{rank="0",run="test"}'] == 3.0
    assert scrape['trainvitals_rank_state{rank="0",run="test",state="finished"}'] == 1.0
    assert scrape['trainvitals_step{rank="0",run="test"}'] == 1.0


def test_two_errors_of_ours_are_counted_and_not_told(spool):
    """The third is the one that counts."""
    done = run_trainer(FAULTY.format(method="evaluate", times=2), spool)

    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
    scrape = Node(spool).scrape()
    assert scrape['trainvitals_probe_disabled{rank="0",run="test"}'] == 0.0
    assert scrape['trainvitals_probe_errors_total{rank="0",run="test"}'] == 2.0
    assert scrape['trainvitals_step{rank="0",run="test"}'] == 2.0


def test_a_probe_that_switched_itself_off_still_tells_how_the_run_ended(spool):
    """An exception after that is a failure, a kill is a death."""
    fault = textwrap.dedent(FAULTY.format(method="begin_phase", times=3))
    run_trainer(fault + "raise ValueError", spool, TRAINVITALS_RUN="raised")
    run_trainer(fault + "import os; os._exit(0)", spool, TRAINVITALS_RUN="gone")
    node = Node(spool)

    assert node.state(run="raised") == "failed"
    assert node.state(run="gone") == "died"


def test_an_error_without_a_text_switches_off_quietly(spool):
    """Even the error of an error must not reach the training."""
    script = """
        import trainvitals
        from trainvitals.probe.recorder import Recorder

        class Broken(Exception):
            def __repr__(self):
                raise RuntimeError

        def faulty(self, *_):
            raise Broken

        trainvitals.init()
        Recorder.begin_phase = Recorder.count_error = faulty
        for _ in range(5):
            with trainvitals.phase("data"):
                pass
    """
    done = run_trainer(script, spool)

    assert (done.returncode, done.stderr) == (0, "")


# The import ---------------------------------------------------------------------------------------------------------


def test_the_import_loads_nothing_heavy():
    """Only the standard library, and of that nothing that opens sockets, starts processes or parses the network."""
    script = "import sys; before = set(sys.modules); import trainvitals; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    loaded = {name.split(".")[0] for name in done.stdout.split()} - {"trainvitals"}
    assert loaded <= set(sys.stdlib_module_names)
    heavy = {
        "asyncio",
        "email",
        "http",
        "logging",
        "multiprocessing",
        "socket",
        "ssl",
        "subprocess",
        "threading",
        "urllib",
    }
    assert loaded & heavy == set()


def test_no_thread_and_four_descriptors_are_all_it_takes(spool):
    """The rank file, its mapping, the events file and the mapping of the number of orders."""
    script = """
        import os, sys, trainvitals

        before = len(os.listdir("/proc/self/fd"))
        trainvitals.init()
        for number in range(1000):
            with trainvitals.phase("data"), trainvitals.checkpoint(number):
                trainvitals.step(number, loss=1.0)
        threads = len(os.listdir("/proc/self/task"))
        during = len(os.listdir("/proc/self/fd"))
        trainvitals.finish()
        print(threads, during - before, len(os.listdir("/proc/self/fd")) - before)
    """
    assert run_trainer(script, spool).stdout == "1 4 0\n"


def test_a_trainer_is_seen_while_it_runs(spool):
    """The whole way once: a process that lives, steps that appear, an end."""
    script = """
        import sys, trainvitals

        trainvitals.init(target_steps=10)
        print("ready", flush=True)
        for line in sys.stdin:
            trainvitals.step(int(line), loss=0.5)
    """
    node = Node(spool)
    with trainer(script, spool) as process:
        assert node.state() == "running"
        for number in (1, 2):
            process.stdin.write(f"{number}\n")
            process.stdin.flush()
            wait_until(
                lambda number=number: node.scrape().get('trainvitals_step{rank="0",run="test"}') == float(number)
            )
        process.stdin.close()
        process.wait()
        assert node.state() == "finished"
        process.stdin = None
