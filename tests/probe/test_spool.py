"""The spool of a training where no exporter keeps it small."""

from __future__ import annotations

import os

from tests.helpers import run_trainer, trainer

from trainvitals import orders, rankfile
from trainvitals.probe.spool import tidy

SHORT = "import trainvitals; trainvitals.init(run='test'); trainvitals.event('x'); trainvitals.step(1, loss=1.0)"


def ended(spool, count):
    """Leave the files of ended processes, oldest first."""
    for index in range(count):
        base = str(spool / f"old.0.{index:08d}")
        rankfile.Writer(base + ".rank", {"run": "old"}).close()
        (spool / f"old.0.{index:08d}.events").write_text("")
        os.utime(base + ".rank")


def test_the_files_of_ended_processes_are_bounded(spool):
    """A new start keeps the newest 32 of them, so that a small /dev/shm does not fill up."""
    ended(spool, 40)

    assert run_trainer(SHORT, spool).returncode == 0

    assert len(list(spool.glob("*.rank"))) == 33
    assert len(list(spool.glob("*.events"))) == 33
    assert not (spool / "old.0.00000007.rank").exists()
    assert (spool / "old.0.00000008.rank").exists()


def test_a_live_process_keeps_its_file(spool):
    """Whoever holds the lock of a file is not touched, however old the file is."""
    script = SHORT + "; print('ready', flush=True); import sys; sys.stdin.read()"
    with trainer(script, spool):
        live = {path.name for path in spool.iterdir()}
        ended(spool, 40)

        tidy(str(spool))

        assert live <= {path.name for path in spool.iterdir()}


def test_what_cannot_be_removed_stays(spool):
    """A spool that is gone, and names that are no files, are no error."""
    (spool / "folder.rank").mkdir()
    (spool / "link.rank").symlink_to("/nowhere")

    tidy(str(spool))
    tidy(str(spool / "nowhere"))

    assert (spool / "folder.rank").is_dir()
    assert (spool / "link.rank").is_symlink()


def old_orders(spool, run):
    """Leave an order to a run as it is after a day."""
    mail = orders.Mail(orders.path_of(str(spool), run), {os.getuid()}, create=True, write=True)
    number = mail.give(orders.Order(number=0, run=run, what="stop", at=1)).number
    mail.decide(number, "do")
    mail.close()
    files = sorted(spool.glob(f"{os.path.basename(mail.path)}*"))
    for path in files:
        os.utime(path, (1e9, 1e9))
    return files


def test_orders_to_runs_that_ended_go_and_those_to_a_live_one_stay(spool):
    """Names of runs are new with each job: else their orders would fill the memory of the node."""
    with trainer(SHORT + "; print('ready', flush=True); import sys; sys.stdin.read()", spool):
        live, gone = old_orders(spool, "test"), old_orders(spool, "gone.orders")
        fresh = old_orders(spool, "fresh")
        os.utime(fresh[-1])

        tidy(str(spool))

        assert [path.exists() for path in live] == [True] * 3
        assert [path.exists() for path in gone] == [False] * 3
        assert [path.exists() for path in fresh] == [True] * 3
