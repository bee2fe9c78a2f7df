"""Orders through the exporter: a real server, a real training that obeys, and whoever must not give orders."""

from __future__ import annotations

import json
import logging
import os
import ssl

import httpx
import pytest
import trustme
from tests.helpers import trainer, wait_until

from trainvitals.config import ConfigError, load
from trainvitals.daemon import Exporter
from trainvitals.orders import Mail, path_of
from trainvitals.serve.app import make_app
from trainvitals.serve.orders import Orders, RefusedError, is_loopback, parse
from trainvitals.serve.reload import WebConfigFile
from trainvitals.serve.server import Server
from trainvitals.steer.ranks import live
from trainvitals.steer.steering import Steering

TOKEN = "0123456789abcdef-of-this-test"
OBEDIENT = """
    import time, trainvitals
    trainvitals.init(run="steered")
    settings = {"lr": 0.5}
    trainvitals.knob("lr", lambda value: settings.update(lr=value), least=0.0, most=1.0)
    trainvitals.on_checkpoint(lambda step: f"saved-{step}")
    print("ready", flush=True)
    while not trainvitals.should_stop():
        time.sleep(0.01)
        trainvitals.step(loss=settings["lr"])
"""


@pytest.fixture
def token_file(tmp_path):
    """A file with the token, for this user alone."""
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def orders(spool, token_file):
    """What answers, for one spool."""
    steering = Steering([str(spool)], patience=20.0)
    orders = Orders(steering, str(token_file))
    yield orders
    steering.close()
    orders.close()


@pytest.fixture
def post(serve, orders, client):
    """A function that posts an order to the server, with the right token by default; it returns status and JSON."""
    url = serve(orders=orders)

    def send(document, authorization=f"Bearer {TOKEN}"):
        headers = {} if authorization is None else {"Authorization": authorization}
        content = document if isinstance(document, bytes) else json.dumps(document).encode()
        answer = client.post(url + "/api/v1/orders", content=content, headers=headers)
        return answer.status_code, answer.json()

    return send


@pytest.fixture
def steered(spool):
    """A training of one process that obeys."""
    with trainer(OBEDIENT, spool) as process:
        wait_until(lambda: [rank.step for rank in live(str(spool), "steered")] > [3])
        yield process


@pytest.mark.usefixtures("steered")
def test_a_setting_changes_and_the_answer_names_step_and_rank(post, spool, caplog):
    """The training's own order says who gave it, and the log says so too, and never the token."""
    with caplog.at_level(logging.INFO):
        status, told = post({"run": "steered", "order": "set", "values": {"lr": 0.25}})

    assert status == 200, told
    assert (told["run"], told["order"], told["values"]) == ("steered", "set", {"lr": 0.25})
    assert told["ranks"] == [{"rank": 0, "state": "done", "step": told["step"], "text": ""}]
    given = Mail(path_of(str(spool), "steered"), {os.getuid()}).read(told["number"])
    assert (given.by, told["by"]) == ("api from 127.0.0.1", "api from 127.0.0.1")
    assert f"order obeyed, api from 127.0.0.1: steered: set lr=0.25: behind step {told['step']}" in caplog.messages
    assert TOKEN not in caplog.text


def test_a_training_saves_itself_pauses_goes_on_and_ends(post, steered):
    """All orders that need no supervisor work from elsewhere."""
    assert post({"run": "steered", "order": "checkpoint"})[1]["ranks"][0]["text"].startswith("saved-")
    assert post({"run": "steered", "order": "pause"})[0] == 200
    assert post({"run": "steered", "order": "resume"})[0] == 200
    assert post({"run": "steered", "order": "stop", "values": {"checkpoint": True}})[0] == 200
    assert steered.wait(20) == 0


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", TOKEN],
)
@pytest.mark.usefixtures("steered")
def test_who_does_not_show_the_token_is_refused_and_logged(post, spool, caplog, authorization):
    """Nothing reaches the ranks, and the log names the peer."""
    status, told = post({"run": "steered", "order": "stop"}, authorization)

    assert status == 401
    assert told == {"error": "expected the header Authorization: Bearer TOKEN with the right token"}
    assert caplog.messages == [
        "order refused (401), api from 127.0.0.1: expected the header Authorization: Bearer TOKEN with the right token"
    ]
    assert Mail(path_of(str(spool), "steered"), {os.getuid()}).word[0] == 0


@pytest.mark.usefixtures("steered")
def test_a_token_is_read_anew_at_each_use(post, token_file, caplog):
    """A new one counts at once, and one that others may read gives no orders to anybody."""
    token_file.write_text("another-token-of-this-test")
    assert post({"run": "steered", "order": "checkpoint"})[0] == 401
    assert post({"run": "steered", "order": "checkpoint"}, "Bearer another-token-of-this-test")[0] == 200

    token_file.chmod(0o644)

    assert post({"run": "steered", "order": "checkpoint"}, "Bearer another-token-of-this-test") == (
        503,
        {"error": "the exporter cannot read its token"},
    )
    assert f"orders.token_file: {token_file}: others may read or write it, expected chmod 600" in caplog.messages


def test_a_run_that_is_not_here_is_unknown(post):
    """The answer says so in one line."""
    assert post({"run": "nobody\n", "order": "stop"}) == (404, {"error": "no rank of nobody  lives here"})


@pytest.mark.usefixtures("steered")
def test_what_a_rank_refuses_is_told_with_its_reason(post):
    """The ranks know what may be set."""
    status, told = post({"run": "steered", "order": "set", "values": {"lr": 7}})

    assert status == 409
    assert told == {"error": "rank 0: lr wants a number from 0.0 to 1.0"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "expected JSON"),
        (b"{", "expected JSON"),
        (b"[" * 2000, "expected JSON"),
        (b'{"run": "a", "order": "set", "values": {"lr": NaN}}', "expected JSON"),
        (b'{"run": "\\ud800", "order": "stop"}', "expected JSON"),
        (b"\xff\xfe", "expected JSON"),
        (b"[]", "expected an object with the keys"),
        ({"run": "a", "order": "stop", "by": "root"}, "expected an object with the keys"),
        ({"order": "stop"}, "run: expected"),
        ({"run": "", "order": "stop"}, "run: expected"),
        ({"run": "a" * 257, "order": "stop"}, "run: expected"),
        ({"run": "a", "order": "clone"}, "order: expected one of set, pause, resume, checkpoint, stop"),
        ({"run": "a", "order": ["stop"]}, "order: expected one of"),
        ({"run": "a", "order": "set"}, "values: expected names of settings"),
        ({"run": "a", "order": "set", "values": {"lr": None}}, "values: expected names of settings"),
        ({"run": "a", "order": "set", "values": {"": 1}}, "values: expected names of settings"),
        ({"run": "a", "order": "set", "values": {"lr": 2**63}}, "values: expected names of settings"),
        (b'{"run": "a", "order": "set", "values": {"lr": 1e999}}', "values: expected names of settings"),
        ({"run": "a", "order": "set", "values": [1]}, "values: expected an object"),
        ({"run": "a", "order": "stop", "values": {"checkpoint": 1}}, "values: expected {checkpoint: true}"),
        ({"run": "a", "order": "pause", "values": {"release": True}}, "values: expected nothing for pause"),
        ({"run": "a", "order": "stop", "part": 1}, "part: expected"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(body, said):
    """A body is a few names and numbers and nothing else."""
    if isinstance(body, dict):
        body = json.dumps(body).encode()
    with pytest.raises(RefusedError) as refused:
        parse(body)

    assert refused.value.status == 422
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)


def test_a_body_that_is_too_long_is_not_read_to_its_end(post):
    """It costs no more memory than a good one."""
    assert post(b"x" * 2049) == (413, {"error": "expected at most 2048 bytes"})
    assert post(b"{")[0] == 422


def test_without_a_token_file_there_is_nothing_to_order(serve, client):
    """Off by default."""
    assert client.post(serve() + "/api/v1/orders", content=b"{}").status_code == 404


def test_nobody_asks_for_an_order_with_get(serve, orders, client):
    """A link that somebody clicks gives no order."""
    assert client.get(serve(orders=orders) + "/api/v1/orders").status_code == 405


@pytest.mark.parametrize(
    ("peer", "here"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:10.0.0.1", False),
        ("10.0.0.1", False),
        ("0.0.0.0", False),
        ("nowhere", False),
        ("", False),
    ],
)
def test_this_machine_is_told_apart_from_others(peer, here):
    """A server on all addresses sees an IPv4 peer as an IPv6 one."""
    assert is_loopback(peer) is here


class _Elsewhere:
    """An application as it is behind a server without TLS, for a peer of another machine."""

    def __init__(self, app):
        self._app = app

    async def __call__(self, scope, receive, send):
        await self._app({**scope, "client": ("192.0.2.7", 4711)}, receive, send)


def test_without_tls_only_this_machine_is_answered(store, orders, client, caplog):
    """Whoever comes from elsewhere is refused before the token is looked at: it was sent in the clear."""
    server = Server(_Elsewhere(make_app(store, orders=orders)), listen_address="127.0.0.1:0")
    try:
        answer = client.post(
            server.start() + "/api/v1/orders",
            content=b'{"run": "steered", "order": "stop"}',
            headers={"Authorization": f"Bearer {TOKEN}"},
        )
    finally:
        server.stop()

    assert answer.status_code == 403
    assert answer.json() == {"error": "without TLS, orders are taken from this machine only"}
    assert caplog.messages == [
        "order refused (403), api from 192.0.2.7: without TLS, orders are taken from this machine only"
    ]


@pytest.mark.usefixtures("steered")
def test_with_tls_others_are_answered_and_users_of_the_page_give_no_orders(tmp_path, store, orders, hash_of):
    """The token comes in the header in which other requests have user and password: here these count for nothing."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    (tmp_path / "server.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(tmp_path / "server.key")
    (tmp_path / "web.yml").write_text(
        "tls_server_config: {cert_file: server.pem, key_file: server.key}\n"
        f"basic_auth_users: {{reader: '{hash_of('secret')}'}}\n"
    )
    context = ssl.create_default_context()
    authority.configure_trust(context)
    app = _Elsewhere(make_app(store, orders=orders))
    server = Server(app, listen_address="127.0.0.1:0", web_config=WebConfigFile(str(tmp_path / "web.yml")))
    order = {"run": "steered", "order": "checkpoint"}
    try:
        url = server.start()
        with httpx.Client(verify=context, timeout=30) as client:
            obeyed = client.post(url + "/api/v1/orders", json=order, headers={"Authorization": f"Bearer {TOKEN}"})
            refused = client.post(url + "/api/v1/orders", json=order, auth=("reader", "secret"))
            read = client.get(url + "/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
            odd = client.get(url + "/api/v1/orders/../../../metrics")
    finally:
        server.stop()

    assert obeyed.json()["by"] == "api from 192.0.2.7"
    assert (obeyed.status_code, refused.status_code, read.status_code, odd.status_code) == (200, 401, 401, 401)


def test_an_order_may_take_longer_than_a_first_request(serve, orders, spool, client):
    """A training that saves itself takes its time: the connection waits for it."""
    url = serve(orders=orders, first_request=2.0)
    with trainer(OBEDIENT.replace("lambda step: ", "lambda step: time.sleep(2.5) or "), spool):
        wait_until(lambda: [rank.step for rank in live(str(spool), "steered")] > [3])

        answer = client.post(
            url + "/api/v1/orders",
            json={"run": "steered", "order": "checkpoint"},
            headers={"Authorization": f"Bearer {TOKEN}"},
        )

    assert answer.status_code == 200
    assert answer.elapsed.total_seconds() > 2.5


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (TOKEN, 0o644, "others may read or write it, expected chmod 600"),
        (TOKEN, 0o640, "others may read or write it, expected chmod 600"),
        ("", 0o600, "expected one line of 16 to 512 letters and digits, as of `openssl rand -hex 32`"),
        ("short", 0o600, "expected one line of 16 to 512 letters and digits, as of `openssl rand -hex 32`"),
        ("x" * 600, 0o600, "expected one line of 16 to 512 letters and digits, as of `openssl rand -hex 32`"),
        (f"{TOKEN}\n{TOKEN}", 0o600, "expected one line of 16 to 512 letters and digits, as of `openssl rand -hex 32`"),
        (None, 0o600, "No such file or directory"),
    ],
)
def test_a_bad_token_file_ends_the_start_with_one_line(tmp_path, content, mode, said):
    """Not a word of what is in it is shown."""
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
        path.chmod(mode)
    settings = load(None, {"TRAINVITALS_ORDERS_TOKEN_FILE": str(path)}, {"spool.folders": [str(tmp_path)]})

    with pytest.raises(ConfigError) as refused:
        Exporter(settings)

    assert str(refused.value) == f"orders.token_file: {path}: {said}"
