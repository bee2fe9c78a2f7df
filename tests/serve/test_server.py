"""The server: addresses, slow clients, and what is left behind."""

from __future__ import annotations

import signal
import socket

import httpx
import pytest
from prometheus_client.metrics_core import GaugeMetricFamily
from tests.held import held, new_since

from trainvitals.config import ConfigError
from trainvitals.serve.app import make_app
from trainvitals.serve.server import Server, bind

REQUEST = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


def connect(url):
    """Return a socket that is connected to the server."""
    parts = httpx.URL(url)
    return socket.create_connection((parts.host, parts.port), timeout=20)


def ended(connection):
    """Read until the server closes the connection; True then."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


@pytest.mark.parametrize(
    ("address", "start"),
    [
        (":0", "http://127.0.0.1:"),
        ("0.0.0.0:0", "http://127.0.0.1:"),
        ("127.0.0.1:0", "http://127.0.0.1:"),
        ("localhost:0", "http://localhost:"),
        ("[::1]:0", "http://[::1]:"),
        ("[::]:0", "http://127.0.0.1:"),
    ],
)
def test_the_address_that_is_told_answers(serve, client, address, start):
    """Every form of an address works with port 0, and the port that the system chose is in the URL."""
    if "[" in address and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")

    url = serve(address=address)

    assert url.startswith(start)
    assert not url.endswith(":0")
    assert client.get(url + "/-/healthy").status_code == 200


@pytest.mark.parametrize(
    "address", ["20910", "localhost", "127.0.0.1:", ":70000", "::1:20910", "http://localhost:20910", ":http", ""]
)
def test_a_wrong_address_is_one_line(address):
    """The forms that are understood are named."""
    with pytest.raises(ConfigError) as caught:
        bind(address)

    assert str(caught.value) == (
        'web.listen_address: expected HOST:PORT such as ":20910", "127.0.0.1:20910" or "[::1]:20910", '
        f"found {address!r}"
    )


def test_an_address_in_use_is_one_line(serve, store):
    """The error says which address, at once and in the caller's thread."""
    port = httpx.URL(serve()).port

    with pytest.raises(ConfigError) as caught:
        Server(make_app(store), listen_address=f"127.0.0.1:{port}").start()

    assert str(caught.value) == (
        f"web.listen_address: expected a free port, but another process listens on '127.0.0.1:{port}'"
    )


def test_an_address_of_another_machine_is_one_line():
    """192.0.2.1 is an address for documentation, which no machine has."""
    with pytest.raises(ConfigError) as caught:
        bind("192.0.2.1:0")

    assert str(caught.value) == "web.listen_address: expected an address of this machine, found '192.0.2.1:0'"


@pytest.mark.parametrize("host", ["x" * 70, "no-such-host.invalid"])
def test_an_unknown_host_is_one_line(host):
    """A name that has no address, and one that cannot be a name."""
    with pytest.raises(ConfigError, match=r"^web.listen_address: .* \(unknown host\)$"):
        bind(f"{host}:0")


def test_answers_leave_at_once():
    """Nagle's algorithm is off: with it the body of every answer but the first comes 40 ms late."""
    listener, _ = bind("127.0.0.1:0")
    with listener:
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def test_signals_stay_with_the_caller(serve):
    """The server takes no signal away from the program that runs it."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)

    serve()

    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_fifty_silent_clients_hold_nobody(serve, client):
    """Connections without a request, with half of one and with an answer that nobody reads do not matter to others."""
    url = serve()
    silent = [connect(url) for _ in range(50)]
    try:
        for number, connection in enumerate(silent):
            connection.sendall((b"", b"GET /metr", REQUEST)[number % 3])

        answers = [client.get(url + "/metrics").status_code for _ in range(3)]
    finally:
        for connection in silent:
            connection.close()

    assert answers == [200, 200, 200]


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nHost:"], ids=["nothing", "half a request"])
def test_a_client_that_does_not_ask_is_cut_off(serve, sent):
    """The server closes a connection without a whole request after a while."""
    with connect(serve(first_request=0.1)) as connection:
        connection.sendall(sent)

        assert ended(connection)


def test_a_client_that_asks_no_more_is_closed(serve):
    """The server closes a connection some time after its last answer."""
    with connect(serve(keep_alive=1)) as connection:
        connection.sendall(REQUEST)

        assert ended(connection)


def test_a_client_that_does_not_read_is_cut_off(serve, store, until):
    """One that asks again and again and reads nothing loses its connection, and its answers do not pile up."""
    store.publish([GaugeMetricFamily("trainvitals_step", "x" * 1_000_000, value=7)])
    with connect(serve(first_request=0.5, keep_alive=1)) as connection:
        connection.setblocking(False)

        def refused():
            try:
                connection.send(REQUEST * 100)
            except BlockingIOError:
                return False
            except (ConnectionResetError, BrokenPipeError):
                return True
            return False

        until(refused)


def test_too_many_connections_cost_the_oldest(serve, client):
    """A new client gets its answer when the table of connections is full."""
    url = serve(connections=3)
    silent = [connect(url) for _ in range(3)]
    try:
        assert client.get(url + "/metrics").status_code == 200
        assert ended(silent[0])
    finally:
        for connection in silent:
            connection.close()


def test_a_broken_request_is_refused(serve, caplog):
    """What is no HTTP is answered with 400 and not worth a line in the log."""
    with connect(serve()) as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")

        assert connection.recv(12) == b"HTTP/1.1 400"
    assert caplog.records == []


def test_fifty_scrapes_leave_nothing_behind(serve, client, until):
    """Descriptors and threads are the same before and after, with a connection for each scrape."""
    url = serve()
    before = held()

    for _ in range(50):
        assert client.get(url + "/metrics", headers={"Connection": "close"}).status_code == 200

    until(lambda: new_since(before) == [])


def test_a_stopped_server_leaves_nothing_behind(store, client, until):
    """Listener, connections and threads are gone, also those of clients that are still connected."""
    before = held()
    server = Server(make_app(store), listen_address="127.0.0.1:0")
    url = server.start()
    with connect(url) as silent:
        silent.sendall(b"GET /")
        client.get(url + "/metrics")

        server.stop()

        with pytest.raises(httpx.ConnectError):
            client.get(url + "/metrics")
    client.close()
    until(lambda: new_since(before) == [])
