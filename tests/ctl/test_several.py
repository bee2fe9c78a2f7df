"""Orders to a run with ranks on two nodes: a real training of four ranks, and an exporter with TLS on each node."""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
import trustme
from tests.helpers import PATIENCE, free_port, trainer_environment, wait_until

from trainvitals.config import load
from trainvitals.ctl.command import main
from trainvitals.ctl.remote import Node
from trainvitals.ctl.several import Several
from trainvitals.daemon import Exporter
from trainvitals.orders import Order
from trainvitals.serve.orders import RefusedError, parse
from trainvitals.steer.giving import Done, LateError, Look, NotDoneError
from trainvitals.steer.ranks import Answer, live

pytest.importorskip("torch")
pytestmark = pytest.mark.end_to_end

TOKEN = "0123456789abcdef-of-this-test"
MEMBER = Path(__file__).parent / "member.py"


class Member:
    """One rank: a process, and what it said, line by line."""

    def __init__(self, rank: int, spool: str, port: int, pause: float) -> None:
        names = {"RANK": str(rank), "WORLD_SIZE": "4", "LOCAL_RANK": str(rank % 2), "OMP_NUM_THREADS": "1"}
        names |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        environ = {**trainer_environment(spool), **names}
        command = [sys.executable, str(MEMBER), str(pause)]
        self.process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
        self.said: queue.Queue[str] = queue.Queue()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.put(line.strip())
        self.process.stdout.close()

    def hears(self) -> str:
        """Return the next line."""
        return self.said.get(timeout=PATIENCE)

    def end(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        self._thread.join()


class Site:
    """Two nodes: a spool and an exporter on each, which takes orders."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        issued = authority.issue_cert("127.0.0.1")
        (folder / "server.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(folder / "server.key")
        authority.cert_pem.write_to_path(folder / "ca.pem")
        (folder / "web.yml").write_text("tls_server_config: {cert_file: server.pem, key_file: server.key}\n")
        (folder / "token").write_text(TOKEN)
        (folder / "token").chmod(0o600)
        self.folder = folder
        self.spools = [tempfile.mkdtemp(prefix="test-trainvitals-", dir="/dev/shm") for _ in range(2)]
        self.exporters, self.urls, self.threads = [], [], []
        for number in range(2):
            self.add(number)

    def add(self, number: int) -> None:
        """Start the exporter of a node."""
        settings = self.folder / f"settings-{number}.yml"
        settings.write_text(
            f"orders: {{token_file: {self.folder / 'token'}}}\n"
            f"web: {{listen_address: '127.0.0.1:0', config_file: {self.folder / 'web.yml'}}}\n"
            f"spool: {{folders: ['{self.spools[number]}']}}\njournal: {{enabled: false}}\n"
            f"sources: {{state_folder: {self.folder / f'state-{number}'}}}\n"
            "collect: {disable: [devices, kernel, storage, network, host, processes]}\n"
        )
        exporter = Exporter(load(str(settings), {}, {}))
        self.exporters.append(exporter)
        self.urls.append(exporter.start())
        self.threads.append(threading.Thread(target=exporter.run))
        self.threads[-1].start()

    def stop(self, number: int) -> None:
        """Stop the exporter of a node."""
        self.exporters[number].stop()
        self.threads[number].join()

    def close(self) -> None:
        """Stop all."""
        for number, thread in enumerate(self.threads):
            if thread.is_alive():
                self.stop(number)
        for spool in self.spools:
            shutil.rmtree(spool, ignore_errors=True)

    def ctl(self, *words: str, urls=None) -> int:
        """Give an order through the exporters."""
        nodes = [word for url in (urls or self.urls) for word in ("--node", url)]
        secret = ["--token-file", str(self.folder / "token"), "--ca-file", str(self.folder / "ca.pem")]
        return main([*nodes, *secret, "--json", "wide", *words], {})


@pytest.fixture
def site(tmp_path):
    """Two nodes."""
    made = Site(tmp_path)
    yield made
    made.close()


@pytest.fixture
def members(site):
    """Four ranks that train."""
    port = free_port()
    started = [Member(rank, site.spools[rank // 2], port, 0.02) for rank in range(4)]
    assert [member.hears() for member in started] == ["ready"] * 4
    wait_until(lambda: all(min(rank.step for rank in live(spool, "wide")) > 5 for spool in site.spools))
    yield started
    for member in started:
        member.end()


def test_all_ranks_of_both_nodes_obey_behind_one_step(site, members, capsys):
    """Each order that ranks know; one that is refused, and one that is no order, on no rank."""
    assert site.ctl("set", "lr=0.5") == 0
    told = json.loads(capsys.readouterr().out)
    heard = [member.hears() for member in members]
    assert len(set(heard)) == 1
    assert heard[0].startswith("lr 0.5 ")
    assert [rank["rank"] for rank in told["ranks"]] == [0, 1, 2, 3]
    assert {rank["step"] for rank in told["ranks"]} == {int(heard[0].split()[2])}

    assert site.ctl("set", "lr=7") == 1
    assert "lr" in capsys.readouterr().err
    assert site.ctl("resume") == 1
    assert "the run is not paused" in capsys.readouterr().err

    assert site.ctl("pause") == 0
    paused = json.loads(capsys.readouterr().out)
    assert len({rank["step"] for rank in paused["ranks"]}) == 1
    assert site.ctl("pause") == 1
    assert "the run is paused already" in capsys.readouterr().err
    assert site.ctl("set", "lr=0.25") == 0
    assert {member.hears() for member in members} == {f"lr 0.25 {paused['ranks'][0]['step']}"}
    assert site.ctl("resume") == 0
    assert site.ctl("checkpoint") == 0
    saved = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert len({rank["step"] for rank in saved["ranks"]}) == 1

    assert site.ctl("stop") == 0
    ends = {member.hears() for member in members}
    assert len(ends) == 1
    assert ends.pop().startswith("end ")
    assert site.ctl("stop") == 1
    assert "no rank of wide lives here" in capsys.readouterr().err


def test_a_node_that_is_missing_is_named_and_nobody_obeys(site, members, capsys):
    """Not given at all, twice, or not reachable; when it is back, all obey."""
    assert site.ctl("set", "lr=0.5", urls=[site.urls[0]]) == 1
    assert "2 of 4 ranks of wide live here" in capsys.readouterr().err
    assert site.ctl("set", "lr=0.5", urls=[site.urls[0], site.urls[0]]) == 1
    assert "is given twice" in capsys.readouterr().err

    site.stop(1)
    assert site.ctl("set", "lr=0.5") == 1
    assert f"{site.urls[1]} cannot be reached" in capsys.readouterr().err
    site.exporters.pop(), site.urls.pop(), site.threads.pop()
    site.add(1)

    assert all(member.said.empty() for member in members)
    assert site.ctl("set", "lr=0.5") == 0
    assert len({member.hears() for member in members}) == 1


class FakeNode(Node):
    """A node whose answers are made up; it remembers what it was asked."""

    def __init__(self, url, ranks, *, step=100, paused=False, prepared=7, settled=None):
        self._url, self._ranks, self._step, self._paused = url, ranks, step, paused
        self._prepared, self._settled = prepared, settled
        self.asked = []

    def look(self, *_):
        """Say where the ranks are."""
        self.asked.append("look")
        return Look(self._step, 0.5, self._paused, tuple(self._ranks), 4)

    def prepare(self, *asked):
        """Return a number, or raise."""
        *_, at = asked
        self.asked.append(("prepare", at))
        if isinstance(self._prepared, Exception):
            raise self._prepared
        return self._prepared

    def settle(self, *asked):
        """Return what was done, or raise."""
        *_, number, before = asked
        self.asked.append(("settle", number, before))
        answer = self._settled.pop(0) if isinstance(self._settled, list) else self._settled
        if isinstance(answer, Exception):
            raise answer
        return answer

    def leave(self, *asked):
        """Take note."""
        *_, number = asked
        self.asked.append(("leave", number))


def done(at, *ranks):
    """Return what a node says of an order that its ranks obeyed."""
    order = Order(number=7, run="wide", what="set", at=at, values={})
    return Done(order, {rank: Answer("done", at) for rank in ranks})


def test_one_step_is_chosen_for_all_and_nobody_decides_late():
    """Three seconds ahead of the one that is furthest, at the pace of the slowest; the last third is for nobody."""
    nodes = [FakeNode("a", (0, 1), settled=done(116, 0, 1)), FakeNode("b", (2, 3), step=110, settled=done(116, 2, 3))]
    found = Several(nodes).give("wide", "set", {"lr": 0.5})

    assert [node.asked for node in nodes] == [["look", ("prepare", 116), ("settle", 7, 114)]] * 2
    assert sorted(found.answers) == [0, 1, 2, 3]


def test_a_node_that_cannot_prepare_lets_the_others_leave():
    """Refused on one is refused on all; what came too late is tried again with twice the time."""
    nodes = [FakeNode("a", (0, 1)), FakeNode("b", (2, 3), prepared=NotDoneError("b: rank 2: there is no knob lr"))]
    with pytest.raises(NotDoneError, match="there is no knob lr"):
        Several(nodes).give("wide", "set", {"lr": 0.5})
    assert nodes[0].asked[-1] == ("leave", 7)

    nodes = [FakeNode("a", (0, 1)), FakeNode("b", (2, 3), prepared=LateError("b: step 106 came"))]
    with pytest.raises(NotDoneError, match="wide was too quick 6 times: no rank has obeyed"):
        Several(nodes).give("wide", "set", {"lr": 0.5})
    assert [asked[1] for asked in nodes[0].asked if asked[0] == "prepare"] == [106, 112, 124, 148, 196, 292]


def test_a_node_that_is_lost_between_is_told_with_what_the_others_did():
    """The one case that nobody can undo."""
    lost = NotDoneError("b has not answered; the order may have been obeyed: timed out")
    nodes = [FakeNode("a", (0, 1), settled=done(106, 0, 1)), FakeNode("b", (2, 3), settled=lost)]

    with pytest.raises(NotDoneError, match=r"^obeyed behind step 106 on a; not known: b has not answered"):
        Several(nodes).give("wide", "set", {"lr": 0.5})


def test_a_node_that_decides_too_late_is_told_as_one_that_has_not_obeyed():
    """It says so itself; of another that is lost, nothing is known."""
    nodes = [
        FakeNode("a", (0, 1), settled=done(106, 0, 1)),
        FakeNode("b", (2,), settled=LateError("b: step 106 came before the decision")),
        FakeNode("c", (3,), settled=NotDoneError("c has not answered")),
    ]

    with pytest.raises(NotDoneError) as told:
        Several(nodes).give("wide", "set", {"lr": 0.5})
    assert str(told.value) == (
        "obeyed behind step 106 on a; not obeyed: b: step 106 came before the decision; not known: c has not answered"
    )


def test_where_all_were_too_late_it_is_tried_again():
    """No rank has obeyed, so nothing is lost."""
    late = LateError("step 106 came before the decision")
    nodes = [
        FakeNode("a", (0, 1), settled=[late, done(112, 0, 1)]),
        FakeNode("b", (2, 3), settled=[late, done(112, 2, 3)]),
    ]
    assert sorted(Several(nodes).give("wide", "set", {}).answers) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (FakeNode("b", (1, 2)), "rank 1 of wide is on two of these nodes"),
        (FakeNode("b", (2,)), "3 of 4 ranks of wide are on these nodes: name all, or --part"),
        (FakeNode("b", (2, 3), paused=True), "wide is paused on some of these nodes and not on others"),
    ],
    ids=["twice", "missing", "half paused"],
)
def test_nodes_that_do_not_make_one_run_are_refused(second, said):
    """Before anything was put up."""
    first = FakeNode("a", (0, 1))
    with pytest.raises(NotDoneError, match=said):
        Several([first, second]).give("wide", "pause", {})
    assert first.asked == ["look"]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"phase": "guess"}, "phase: expected one of look, prepare, do, leave"),
        ({"phase": "prepare"}, "at: expected a whole number"),
        ({"phase": "prepare", "at": -1}, "at: expected a whole number"),
        ({"phase": "do", "number": 1.5}, "number: expected a whole number"),
        ({"phase": "do", "number": True}, "number: expected a whole number"),
        ({"phase": "do", "number": 1, "before": "soon"}, "before: expected a whole number"),
        ({"phase": ["do"], "number": 1}, "phase: expected one of look, prepare, do, leave"),
    ],
)
def test_a_part_that_makes_no_sense_is_refused(document, said):
    """In one line that names it."""
    body = json.dumps({"run": "wide", "order": "pause", **document}).encode()
    with pytest.raises(RefusedError, match=f"^{said}$"):
        parse(body)
