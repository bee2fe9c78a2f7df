"""What runs beside and inside the containers: the secrets' script and the health check."""

from __future__ import annotations

import http.server
import ssl
import stat
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme
import yaml

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
MAKE_SECRETS = ROOT / "deploy/docker/make-secrets"
HEALTHCHECK = ROOT / "deploy/docker/healthcheck.py"


def make_secrets(folder):
    """Run the script on a folder."""
    return subprocess.run([str(MAKE_SECRETS), str(folder)], check=False, capture_output=True, text=True, timeout=30)


def test_secrets_are_long_and_behind_a_closed_folder(tmp_path):
    """Containers of any uid can read the files that are mounted; on the host the folder keeps others out."""
    folder = tmp_path / "secrets"
    done = make_secrets(folder)
    assert done.returncode == 0, done.stderr
    password = (folder / "grafana_admin_password").read_text(encoding="ascii").strip()
    assert len(password) == 32
    assert password not in done.stdout + done.stderr
    empty = {file.name for file in folder.iterdir() if not file.read_bytes()}
    assert empty == set(COMPOSE["secrets"]) - {"grafana_admin_password"}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o644}


def test_secrets_that_exist_are_kept(tmp_path):
    """A second call changes no password."""
    make_secrets(tmp_path)
    (tmp_path / "smtp_password").write_text("mine\n", encoding="ascii")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert make_secrets(tmp_path).returncode == 0
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_folder_in_the_place_of_a_secret_is_refused(tmp_path):
    """An engine may make a folder in the place of a file that it should mount; the script says what to do."""
    (tmp_path / "smtp_password").mkdir()
    done = make_secrets(tmp_path)
    assert done.returncode == 1
    assert "rmdir" in done.stderr


class _Handler(http.server.BaseHTTPRequestHandler):
    status = 200

    def do_GET(self):
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_):
        pass


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        pass  # A refused handshake is what one test wants.


@contextmanager
def server(status=200, context=None):
    """Serve one status on loopback; yields the port."""
    httpd = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"status": status}))
    if context is not None:
        httpd.socket = context.wrap_socket(httpd.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    try:
        yield httpd.server_port
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()


def check(port):
    """Return the health check's exit status."""
    return subprocess.run(
        [sys.executable, str(HEALTHCHECK), str(port)], check=False, capture_output=True, timeout=30
    ).returncode


@pytest.mark.parametrize(("status", "expected"), [(200, 0), (401, 0), (404, 0), (500, 1), (503, 1)])
def test_an_answer_is_healthy_unless_it_is_the_servers_error(status, expected):
    """An exporter with users says 401 to the check, and is well."""
    with server(status) as port:
        assert check(port) == expected


def test_tls_is_healthy_with_and_without_client_certificates():
    """The check has no certificate and knows no authority; that the exporter wants them shows that it lives."""
    authority = trustme.CA()
    for wanted in (ssl.CERT_NONE, ssl.CERT_REQUIRED):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("exporter.example").configure_cert(context)
        authority.configure_trust(context)
        context.verify_mode = wanted
        with server(context=context) as port:
            assert check(port) == 0


def test_nobody_there_is_unhealthy():
    """A port without a server fails the check."""
    with server() as port:
        pass
    assert check(port) == 1
