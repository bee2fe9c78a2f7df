"""Helpers of these tests: a real server on a port that the system chooses, clients and passwords."""

from __future__ import annotations

import ssl
import time

import bcrypt
import httpx
import pytest
from prometheus_client.metrics_core import GaugeMetricFamily

from trainvitals.serve.app import make_app
from trainvitals.serve.reload import WebConfigFile
from trainvitals.serve.server import Server
from trainvitals.serve.snapshot import SnapshotStore


@pytest.fixture
def until():
    """A function that waits until a condition holds and returns what it returned; fails after some seconds."""

    def wait(condition, seconds=20.0):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if found := condition():
                return found
            time.sleep(0.01)
        raise AssertionError(f"not within {seconds} s: {condition}")

    return wait


@pytest.fixture
def client():
    """A client for plain HTTP; it loads no certificates, which takes longer than everything else here."""
    with httpx.Client(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), timeout=20) as client:
        yield client


@pytest.fixture
def store():
    """A store with one snapshot."""
    store = SnapshotStore()
    store.publish([GaugeMetricFamily("trainvitals_step", "Number of the last optimizer step.", value=7)])
    return store


@pytest.fixture
def serve(store):
    """A function that starts a server and returns its URL; all servers stop at the end."""
    servers = []

    def start(*, store=store, address="127.0.0.1:0", config=None, page=None, orders=None, **limits):
        file = WebConfigFile(str(config)) if config else None
        server = Server(make_app(store, page, orders), listen_address=address, web_config=file, **limits)
        servers.append(server)
        return server.start()

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(scope="session")
def hash_of():
    """A function that returns the bcrypt hash of a password, of the lowest cost."""
    return lambda password: bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()
