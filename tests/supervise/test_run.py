"""``trainvitals run``: the command is started as it would have been, with the probe attached."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest
from tests.helpers import trainer_environment

from trainvitals.supervise.run import environment

#: Says what a program sees of us.
REPORT = """
    import json, os, sys
    import trainvitals.frameworks
    print(json.dumps({
        "watching": trainvitals.frameworks._installed,
        "argv": sys.argv[1:],
        "path": any("supervise/site" in part for part in sys.path),
        "run": os.environ.get("TRAINVITALS_RUN"),
        "file": getattr(sys.modules.get("sitecustomize"), "__file__", None),
    }))
"""


@pytest.fixture
def program(tmp_path):
    """A script that reports."""
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(REPORT))
    return path


def run(*arguments, spool, **more):
    """Run the command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "trainvitals", "run", *map(str, arguments)],
        env=trainer_environment(spool, **more),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_program_is_watched_and_sees_no_other_difference(program, tmp_path):
    """The frameworks are watched; arguments and path are as without us."""
    done = run("--name", "mine", "--", sys.executable, program, "--lr", "1", "--", "x", spool=tmp_path)

    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert (found["watching"], found["argv"], found["run"]) == (True, ["--lr", "1", "--", "x"], "mine")
    assert not found["path"]


def test_the_sitecustomize_of_the_site_is_loaded(program, tmp_path):
    """A cluster's own sitecustomize runs as it does without us, and is found under its name."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import sys; sys.stderr.write('theirs\\n')\n")

    done = run("--", sys.executable, program, spool=tmp_path, PYTHONPATH=str(site))

    # Once in this command's own Python, once in the program's.
    assert done.stderr == "theirs\ntheirs\n"
    assert json.loads(done.stdout)["file"] == str(site / "sitecustomize.py")
    assert json.loads(done.stdout)["watching"]


def test_a_python_without_us_is_watched_too(tmp_path):
    """The interpreter of the training need not have Trainvitals installed: it is loaded from where the command is."""
    script = "import sys, trainvitals; print(trainvitals.frameworks._installed, 'site-packages' in str(sys.path))"

    done = run("--", sys.executable, "-S", "-c", "import site, sitecustomize;" + script, spool=tmp_path)

    assert (done.stdout, done.stderr) == ("True False\n", "")


def test_processes_of_the_program_are_watched_too(program, tmp_path):
    """What a launcher starts inherits it, as torchrun's workers do."""
    launcher = f"import subprocess, sys; subprocess.run([sys.executable, {str(program)!r}], check=True)"

    done = run("--", sys.executable, "-c", launcher, spool=tmp_path)

    assert json.loads(done.stdout)["watching"]


@pytest.mark.parametrize("status", [0, 3])
def test_the_exit_status_is_the_commands(status, tmp_path):
    """Success and failure pass through."""
    assert run("--", sys.executable, "-c", f"raise SystemExit({status})", spool=tmp_path).returncode == status


def test_the_process_becomes_the_command(tmp_path):
    """Its process id is the one that was started, so that signals reach the training."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "trainvitals", "run", "--", sys.executable, "-c"),
            "import os, time; print(os.getpid(), flush=True); time.sleep(600)",
        ],
        env=trainer_environment(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
    )

    assert int(process.stdout.readline()) == process.pid
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == -signal.SIGTERM
    process.stdout.close()


def test_switched_off_it_only_starts_the_command(program, tmp_path):
    """With TRAINVITALS_DISABLE nothing is watched."""
    done = run("--", sys.executable, program, spool=tmp_path, TRAINVITALS_DISABLE="1")

    assert not json.loads(done.stdout)["watching"]


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        ([], 2, "expected a command after --"),
        (["--"], 2, "expected a command after --"),
        (["--", "no-such-program"], 127, "trainvitals run: no-such-program: not found\n"),
        (["--", "./data.txt"], 126, "trainvitals run: ./data.txt: not executable\n"),
        (["--nonsense", "x"], 2, "unrecognized arguments: --nonsense"),
    ],
)
def test_a_wrong_command_is_one_line(arguments, status, text, tmp_path, monkeypatch):
    """The exit statuses are those of a shell."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.txt").touch(mode=0o600)
    done = run(*arguments, spool=tmp_path)

    assert done.returncode == status
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_it_works_where_only_the_trainers_part_is_installed(program, tmp_path):
    """Neither typer nor any other library is loaded."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "typer.py").write_text("raise ImportError('hidden')\n")

    done = run("--", sys.executable, program, spool=tmp_path, PYTHONPATH=str(hidden))

    assert json.loads(done.stdout)["watching"]


def test_a_second_run_inside_changes_nothing():
    """Our folder is on the path once, in front, and the user's own parts stay."""
    once = environment({"PYTHONPATH": os.pathsep.join(["/theirs", "/more"])})
    twice = environment(once)

    assert once["PYTHONPATH"].split(os.pathsep)[1:] == ["/theirs", "/more"]
    assert once == twice


def test_an_empty_part_of_the_path_stays_the_current_folder():
    """``PYTHONPATH=$PYTHONPATH:/mine``, where it was not set, puts the current folder on the path."""
    site = environment({})["PYTHONPATH"]

    assert environment({"PYTHONPATH": ":/mine"})["PYTHONPATH"] == f"{site}::/mine"
    assert environment({"PYTHONPATH": "/mine:"})["PYTHONPATH"] == f"{site}:/mine:"
    assert environment({"PYTHONPATH": ""})["PYTHONPATH"] == site


def test_a_program_below_a_folder_finds_what_is_beside_it(tmp_path, monkeypatch):
    """The same modules are imported with and without us."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "train.py").write_text("import beside; print(beside.__file__)")
    (tmp_path / "beside.py").touch()
    monkeypatch.chdir(tmp_path)

    done = run("--", sys.executable, "scripts/train.py", spool=tmp_path, PYTHONPATH=":/mine")

    assert (done.stdout, done.stderr) == (f"{tmp_path}/beside.py\n", "")


def test_signals_are_as_they_were(tmp_path):
    """Python ignores SIGPIPE for itself; a command that writes into a closed pipe ends silently, as below a shell."""
    done = run("--", "grep", "SigIgn", "/proc/self/status", spool=tmp_path)
    plain = subprocess.run(["grep", "SigIgn", "/proc/self/status"], capture_output=True, text=True, check=True)

    assert done.stdout == plain.stdout
    piped = run("--", "bash", "-c", "yes | head -n 1; exit ${PIPESTATUS[0]}", spool=tmp_path)
    assert (piped.returncode, piped.stderr) == (128 + signal.SIGPIPE, "")


def test_nothing_but_our_variables_is_new(tmp_path):
    """In the locale "C", Python sets LC_CTYPE for all that it starts: a command would sort otherwise than before."""
    given = {"PATH": os.environ["PATH"], "TRAINVITALS_DIR": str(tmp_path), "ODD": "a\nb=c"}
    command = [sys.executable, "-m", "trainvitals", "run", "--", "env", "-0"]

    def variables(**more):
        output = subprocess.run(command, env={**given, **more}, capture_output=True, text=True, check=True).stdout
        return dict(entry.split("=", 1) for entry in output.split("\0") if entry)

    found = variables()
    assert found.keys() - given.keys() == {"PYTHONPATH", "TRAINVITALS_PACKAGE"}
    assert {name: found[name] for name in given} == given
    assert variables(LC_CTYPE="C.UTF-8")["LC_CTYPE"] == "C.UTF-8"


def test_a_script_that_names_no_interpreter_is_run_by_the_shell(program, tmp_path):
    """As a shell does with a file that is executable and nothing that the kernel knows."""
    script = tmp_path / "job"
    script.write_text(f'"{sys.executable}" "{program}" "$@"\nexit 5\n')
    script.chmod(0o700)

    done = run("--", script, "a", "b c", spool=tmp_path)

    assert (done.returncode, done.stderr) == (5, "")
    found = json.loads(done.stdout)
    assert (found["watching"], found["argv"]) == (True, ["a", "b c"])


def test_the_spool_is_made_absolute(monkeypatch, tmp_path):
    """The command may change its folder before it trains."""
    monkeypatch.chdir(tmp_path)

    assert environment({}, folder="spool")["TRAINVITALS_DIR"] == str(tmp_path / "spool")
