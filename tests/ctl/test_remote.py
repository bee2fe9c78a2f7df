"""Orders to a run on another machine: the command, a real exporter with TLS, and a real training."""

from __future__ import annotations

import json
import threading

import pytest
import trustme
from tests.helpers import trainer, wait_until
from tests.servers import PostServer

from trainvitals.config import load
from trainvitals.ctl.command import main
from trainvitals.daemon import Exporter
from trainvitals.steer.ranks import live

TOKEN = "0123456789abcdef-of-this-test"
OBEDIENT = """
    import time, trainvitals
    trainvitals.init(run="steered")
    trainvitals.knob("lr", lambda value: None, least=0.0, most=1.0)
    print("ready", flush=True)
    while not trainvitals.should_stop():
        time.sleep(0.01)
        trainvitals.step(loss=1.0)
"""


@pytest.fixture
def site(tmp_path):
    """A folder with a token, the certificate of a server for 127.0.0.1, and that of who signed it."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    (tmp_path / "server.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(tmp_path / "server.key")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    (tmp_path / "web.yml").write_text("tls_server_config: {cert_file: server.pem, key_file: server.key}\n")
    for name in ("token", "wrong"):
        (tmp_path / name).write_text(TOKEN + name)
        (tmp_path / name).chmod(0o600)
    return tmp_path


@pytest.fixture
def node(site, spool):
    """The URL of a real exporter with TLS that takes orders."""
    (site / "settings.yml").write_text(
        f"orders: {{token_file: {site / 'token'}}}\n"
        f"web: {{listen_address: '127.0.0.1:0', config_file: {site / 'web.yml'}}}\n"
        f"spool: {{folders: ['{spool}']}}\njournal: {{enabled: false}}\nsources: {{state_folder: {site / 'state'}}}\n"
        "collect: {disable: [devices, kernel, storage, network, host, processes]}\n"
    )
    exporter = Exporter(load(str(site / "settings.yml"), {}, {}))
    url = exporter.start()
    thread = threading.Thread(target=exporter.run)
    thread.start()
    yield url
    exporter.stop()
    thread.join()


def ctl(url, site, *words, token="token"):
    """Give an order through the exporter."""
    return main(
        ["--node", url, "--token-file", str(site / token), "--ca-file", str(site / "ca.pem"), "--json", *words], {}
    )


def test_orders_go_through_the_exporter(node, site, spool, capsys):
    """The command prints what it prints for an order on the machine itself."""
    with trainer(OBEDIENT, spool) as process:
        wait_until(lambda: [rank.step for rank in live(str(spool), "steered")] > [3])

        assert ctl(node, site, "steered", "set", "lr=0.25") == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["run"], told["what"], told["values"]) == ("steered", "set", {"lr": 0.25})
        assert [rank["rank"] for rank in told["ranks"]] == [0]

        assert ctl(node, site, "steered", "set", "lr=7") == 1
        assert capsys.readouterr().err == f"trainvitals ctl: {node}: rank 0: lr wants a number from 0.0 to 1.0\n"

        assert ctl(node, site, "steered", "stop", token="wrong") == 1
        assert capsys.readouterr().err == (
            f"trainvitals ctl: {node}: expected the header Authorization: Bearer TOKEN with the right token\n"
        )
        assert process.poll() is None

        assert ctl(node, site, "steered", "stop") == 0
        assert process.wait(20) == 0


def test_a_certificate_that_nobody_trusts_gets_no_token(node, site, capsys):
    """Without the authority's file, the one of this exporter is unknown."""
    assert main(["--node", node, "--token-file", str(site / "token"), "steered", "stop"], {}) == 1
    assert "CERTIFICATE_VERIFY_FAILED" in capsys.readouterr().err


class Foreign(PostServer):
    """Answers as no exporter does, and keeps what it was asked."""

    def __init__(self, status, content):
        super().__init__()
        self.said, self.asked = (status, content), []

    def answer(self, path, headers, body):
        """Keep the request."""
        self.asked.append((path, headers["Authorization"], json.loads(body)))
        return self.said


@pytest.mark.parametrize(
    ("status", "content", "said"),
    [
        (200, b"hello", "has not answered as an exporter does"),
        (200, b"[]", "has not answered as an exporter does"),
        (200, b"{}", "has not answered as an exporter does"),
        (404, b"Not Found", "answered 404 Not Found: its exporter takes no orders (orders.token_file)"),
        (409, {"error": "rank 0: \x1b[31mno"}, "rank 0:  [31mno"),
        (302, b"", "answered 302 Found"),
    ],
)
def test_a_foreign_answer_is_told_in_one_line(site, capsys, status, content, said):
    """Whoever answers cannot steer the terminal, and nothing of it is believed."""
    with Foreign(status, content) as server:
        assert main(["--node", server.url, "--token-file", str(site / "token"), "steered", "pause"], {}) == 1

    assert server.asked == [
        ("/api/v1/orders", f"Bearer {TOKEN}token", {"run": "steered", "order": "pause", "values": {}, "part": False})
    ]
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://192.0.2.7:20910", "would get the token in the clear: expected https://"),
        ("node7:20910", "expected a URL such as https://host:20910"),
        ("ftp://node7", "expected a URL such as https://host:20910"),
        ("https://node7:99999", "expected a URL such as https://host:20910"),
        ("https://node7/elsewhere", "expected a URL such as https://host:20910"),
    ],
)
def test_a_url_that_would_give_the_token_away_is_refused(site, capsys, url, said):
    """Nothing is sent."""
    assert main(["--node", url, "--token-file", str(site / "token"), "steered", "stop"], {}) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--node", "https://node7:20910", "steered", "stop"], "--node needs --token-file"),
        (["--token-file", "token", "steered", "stop"], "--token-file and --ca-file need --node"),
        (
            ["--node", "https://node7:20910", "--token-file", "token", "steered", "pause", "--release"],
            "only on the machine of the run; through an exporter: set, pause, resume, checkpoint, stop",
        ),
        (
            ["--node", "https://node7:20910", "--token-file", "token", "steered", "rollback", "7"],
            "only on the machine of the run; through an exporter: set, pause, resume, checkpoint, stop",
        ),
    ],
)
def test_options_that_do_not_go_together_end_with_status_2(capsys, words, said):
    """Before anything is read or sent."""
    with pytest.raises(SystemExit) as ended:
        main(words, {})

    assert ended.value.code == 2
    assert said in capsys.readouterr().err
