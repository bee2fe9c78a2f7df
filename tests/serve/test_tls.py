"""TLS from a real server: versions, client certificates, and certificates that change."""

from __future__ import annotations

import logging
import os
import socket
import ssl

import httpx
import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from trainvitals.config import ConfigError
from trainvitals.serve.reload import WebConfigFile

TLS = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n"
CLIENTS = TLS + "  client_ca_file: clients.pem\n  client_auth_type: {}\n"


class Site:
    """A folder with web.yml and the certificate of a server for 127.0.0.1."""

    def __init__(self, folder, serve):
        self.folder = folder
        self.authority = trustme.CA()
        self._serve = serve
        self.renew()

    def renew(self):
        """Write a new server.pem and server.key and return the serial number."""
        issued = self.authority.issue_cert("127.0.0.1")
        (self.folder / "server.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(self.folder / "server.key")
        return x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes()).serial_number

    def write(self, text):
        """Write web.yml as configuration management does it, whole or not at all, and return its path."""
        (self.folder / "new").write_text(text)
        os.replace(self.folder / "new", self.folder / "web.yml")
        return self.folder / "web.yml"

    def serve(self, text=TLS, **limits):
        """Start a server with web.yml and return its URL."""
        return self._serve(config=self.write(text), **limits)

    def trust(self, client=None):
        """Return the context of a client that trusts the authority and shows the certificate ``client``."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if client is not None:
            client.configure_cert(context)
        return context


@pytest.fixture
def site(tmp_path, serve):
    """A folder with a certificate."""
    return Site(tmp_path, serve)


def status(url, context):
    """Return the status of a scrape over a new connection."""
    return httpx.get(url + "/metrics", verify=context, timeout=20).status_code


def shown(url, context):
    """Return the serial number of the certificate that the server shows."""
    parts = httpx.URL(url)
    with (
        socket.create_connection((parts.host, parts.port), timeout=20) as raw,
        context.wrap_socket(raw, server_hostname=parts.host) as secured,
    ):
        return int(secured.getpeercert()["serialNumber"], 16)


def test_a_client_that_trusts_the_authority_gets_its_answer(site):
    """The URL says https, and names of files are relative to the configuration file."""
    url = site.serve()

    assert url.startswith("https://127.0.0.1:")
    assert status(url, site.trust()) == 200


def test_a_client_of_another_authority_refuses(site):
    """The certificate is really the one from the file."""
    url = site.serve()
    site.authority = trustme.CA()

    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        status(url, site.trust())


@pytest.mark.parametrize(
    ("lines", "version", "answers"),
    [
        ("", ssl.TLSVersion.TLSv1_2, True),
        ("", ssl.TLSVersion.TLSv1_3, True),
        ("  min_version: TLS13\n", ssl.TLSVersion.TLSv1_2, False),
        ("  max_version: TLS12\n", ssl.TLSVersion.TLSv1_3, False),
        ("  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]\n", ssl.TLSVersion.TLSv1_2, True),
        ("  cipher_suites: [TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384]\n", ssl.TLSVersion.TLSv1_2, False),
    ],
)
def test_versions_and_ciphers_are_those_of_the_file(site, lines, version, answers):
    """A client that speaks one version only gets an answer where the file allows it; the key here is an ECDSA key."""
    url = site.serve(TLS + lines)
    context = site.trust()
    context.minimum_version = context.maximum_version = version

    if answers:
        assert status(url, context) == 200
    else:
        with pytest.raises(httpx.ConnectError):
            status(url, context)


def test_tls_1_1_is_never_spoken(site):
    """The minimum is TLS 1.2 when the file names none."""
    url = site.serve()
    context = site.trust()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match=r"TLSv1_1 is deprecated"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1

    with pytest.raises(httpx.ConnectError):
        status(url, context)


@pytest.mark.parametrize(
    ("kind", "none", "good"), [("RequireAndVerifyClientCert", False, True), ("VerifyClientCertIfGiven", True, True)]
)
def test_client_certificates_are_verified(site, kind, none, good):
    """With a certificate of another authority nobody gets in, without one only where it is not required."""
    clients = trustme.CA()
    clients.cert_pem.write_to_path(site.folder / "clients.pem")
    url = site.serve(CLIENTS.format(kind))

    def answers(client):
        try:
            return status(url, site.trust(client)) == 200
        except (httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError):
            return False

    assert answers(None) is none
    assert answers(clients.issue_cert("prometheus")) is good
    assert answers(trustme.CA().issue_cert("prometheus")) is False


def test_a_new_certificate_is_shown_without_a_restart(site):
    """A connection that begins after the files were replaced gets the new certificate; one that is open lives on."""
    url = site.serve()
    context = site.trust()
    with httpx.Client(verify=context, timeout=20) as kept:
        kept.get(url + "/metrics")
        before = shown(url, context)

        renewed = site.renew()

        assert before != renewed
        assert shown(url, context) == renewed
        assert kept.get(url + "/metrics").status_code == 200


def test_another_client_authority_replaces_the_one_before(site):
    """A client whose authority is no longer in the file is refused from then on."""
    first, second = trustme.CA(), trustme.CA()
    first.cert_pem.write_to_path(site.folder / "clients.pem")
    url = site.serve(CLIENTS.format("RequireAndVerifyClientCert"))
    context = site.trust(first.issue_cert("prometheus"))
    assert status(url, context) == 200

    second.cert_pem.write_to_path(site.folder / "clients.pem")

    with pytest.raises((httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError)):
        status(url, context)
    assert status(url, site.trust(second.issue_cert("prometheus"))) == 200


def test_a_bad_certificate_leaves_the_last_good_one(site, caplog):
    """It is logged once, however many connections follow, and a good one is taken again."""
    url = site.serve()
    context = site.trust()
    good = (site.folder / "server.pem").read_bytes()
    before = shown(url, context)

    with caplog.at_level(logging.ERROR):
        (site.folder / "server.pem").write_text("nonsense")
        assert [shown(url, context) for _ in range(3)] == [before] * 3

    (record,) = caplog.records
    assert record.getMessage() == (
        f"{site.folder / 'web.yml'}: tls_server_config.cert_file, key_file: expected a certificate and its "
        "private key, both PEM and without a passphrase (not in PEM); the settings from before stay in force"
    )
    (site.folder / "server.pem").write_bytes(good)
    assert shown(url, context) == before


def test_tls_is_not_switched_off_by_a_change_of_the_file(site, caplog):
    """Plain HTTP on a port that spoke TLS would send passwords in the clear."""
    url = site.serve()

    with caplog.at_level(logging.ERROR):
        site.write("")
        assert status(url, site.trust()) == 200

    assert "TLS is switched on or off by a restart only" in caplog.text


def test_a_silent_client_does_not_hold_the_handshakes_of_others(site):
    """One that connects and says nothing is cut off, and others are served meanwhile."""
    url = site.serve(first_request=0.3)
    parts = httpx.URL(url)
    with socket.create_connection((parts.host, parts.port), timeout=20) as silent:
        assert status(url, site.trust()) == 200
        assert silent.recv(1) == b""


def encrypt(folder):
    """Put a passphrase on the key."""
    key = serialization.load_pem_private_key((folder / "server.key").read_bytes(), None)
    (folder / "server.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )


BREAKERS = {
    "no certificate": (
        lambda folder: (folder / "server.pem").unlink(),
        "cert_file: expected a file that can be read, found server.pem (No such file or directory)",
    ),
    "key is a folder": (
        lambda folder: [(folder / "server.key").unlink(), (folder / "server.key").mkdir()],
        "key_file: expected a file that can be read, found server.key (Is a directory)",
    ),
    "no client CA": (
        lambda folder: (folder / "clients.pem").unlink(),
        "client_ca_file: expected a file that can be read, found clients.pem (No such file or directory)",
    ),
    "client CA is nonsense": (
        lambda folder: (folder / "clients.pem").write_text("nonsense"),
        "client_ca_file: expected certificates in PEM (",
    ),
    "key of another certificate": (
        lambda folder: trustme.CA().issue_cert("x").private_key_pem.write_to_path(folder / "server.key"),
        "cert_file, key_file: expected a certificate and its private key, both PEM and without a passphrase (",
    ),
    "key with a passphrase": (
        encrypt,
        "cert_file, key_file: expected a certificate and its private key, both PEM and without a passphrase (",
    ),
}


@pytest.mark.parametrize("name", BREAKERS)
def test_a_bad_file_at_the_start_is_one_line(site, name):
    """A file that is missing, foreign or locked with a passphrase ends the start; nobody is asked for a passphrase."""
    trustme.CA().cert_pem.write_to_path(site.folder / "clients.pem")
    path = site.write(CLIENTS.format("RequireAndVerifyClientCert"))
    break_it, message = BREAKERS[name]
    break_it(site.folder)

    with pytest.raises(ConfigError) as caught:
        WebConfigFile(str(path))

    assert str(caught.value).startswith(f"{path}: tls_server_config.{message}")
    assert "\n" not in str(caught.value)
