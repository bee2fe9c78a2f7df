"""The web configuration file: every mistake is one line that names file, key and what was expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainvitals.config import ConfigError
from trainvitals.serve.webconfig import TLS12_SUITES, TLS13_SUITES, load

CONFIGS = Path(__file__).parent / "configs"
SUITES = ", ".join(sorted({*TLS12_SUITES, *TLS13_SUITES}))
CLIENT_AUTH = (
    "tls_server_config.client_auth_type: expected NoClientCert, VerifyClientCertIfGiven or RequireAndVerifyClientCert: "
    "Python cannot take a client certificate without verifying it, found "
)

MISTAKES = {
    "a_list": "expected sections such as tls_server_config:, found a list",
    "certificate_inline": "tls_server_config.cert: give the certificate in a file, with the key cert_file",
    "ciphers_of_tls13_only": "tls_server_config: expected a TLS 1.2 suite in cipher_suites, or min_version TLS13",
    "client_allowed_sans": (
        "tls_server_config.client_allowed_sans: not supported; a client_ca_file of its own limits the clients"
    ),
    "client_auth_without_ca": (
        "tls_server_config: expected client_ca_file beside client_auth_type RequireAndVerifyClientCert"
    ),
    "client_ca_inline": "tls_server_config.client_ca: give the client CA in a file, with the key client_ca_file",
    "client_ca_without_auth_type": (
        "tls_server_config: expected client_auth_type beside client_ca_file, else no certificate is asked for"
    ),
    "curve_preferences": "tls_server_config.curve_preferences: not supported; OpenSSL chooses the curve",
    "empty_cert_file": "tls_server_config.cert_file: expected the name of a file, found ''",
    "hash_too_expensive": "basic_auth_users.prometheus: expected a bcrypt hash of cost 4 to 16",
    "header_is_a_list": "http_server_config.headers: expected a section with keys",
    "header_of_two_lines": (
        "http_server_config.headers.X-Frame-Options: expected printable ASCII on one line, "
        r"found 'deny\r\nSet-Cookie: a=b'"
    ),
    "insecure_cipher": (
        f"tls_server_config.cipher_suites.0: expected one of {SUITES}, found 'TLS_RSA_WITH_RC4_128_SHA'"
    ),
    "key_inline": "tls_server_config.key: give the private key in a file, with the key key_file",
    "no_key_file": "tls_server_config.key_file: expected a value, found none",
    "not_yaml": "not valid YAML: while parsing a flow node",
    "old_tls": "tls_server_config.min_version: expected TLS12 or TLS13: older versions are not secure, found 'TLS10'",
    "plain_password": (
        "basic_auth_users.prometheus: expected a bcrypt hash such as $2y$10$..., as from htpasswd -nBC 10 NAME"
    ),
    "rate_limit": "rate_limit: not supported; answers are ready-made, and a proxy in front can limit clients",
    "request_client_cert": CLIENT_AUTH + "'RequestClientCert'",
    "require_any_client_cert": CLIENT_AUTH + "'RequireAnyClientCert'",
    "section_is_a_list": "tls_server_config: expected a section with keys",
    "unknown_client_auth_type": (
        "tls_server_config.client_auth_type: expected 'NoClientCert', 'VerifyClientCertIfGiven' or "
        "'RequireAndVerifyClientCert', found 'always'"
    ),
    "unknown_header": (
        "http_server_config.headers.X-Powered-By: expected 'Content-Security-Policy', 'Strict-Transport-Security', "
        "'X-Content-Type-Options', 'X-Frame-Options' or 'X-XSS-Protection', found 'X-Powered-By'"
    ),
    "unknown_key": (
        "tls_server_config.ca_file: unknown key, expected one of cert_file, key_file, client_auth_type, "
        "client_ca_file, min_version, max_version, cipher_suites, prefer_server_cipher_suites"
    ),
    "unknown_section": (
        "tls_config: unknown key, expected one of tls_server_config, http_server_config, basic_auth_users"
    ),
    "unknown_tls": "tls_server_config.max_version: expected 'TLS12' or 'TLS13', found 1.3",
    "user_with_colon": "basic_auth_users.pro:metheus: expected the name of a user, without a colon",
    "user_without_name": "basic_auth_users.: expected the name of a user, without a colon",
    "users_are_a_list": "basic_auth_users: expected a section with keys",
    "versions_are_a_list": "tls_server_config.min_version: expected 'TLS12' or 'TLS13', found ['TLS12', 'TLS13']",
    "versions_crossed": "tls_server_config: expected min_version not above max_version",
}


def test_every_bad_file_has_its_message():
    """A file in configs/ without an expected message would test nothing."""
    assert {path.stem for path in CONFIGS.glob("*.yml")} == set(MISTAKES)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_that_names_file_key_and_expectation(name):
    """Each bad file is refused with one line."""
    path = str(CONFIGS / f"{name}.yml")

    with pytest.raises(ConfigError) as caught:
        load(path)

    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{path}: {MISTAKES[name]}")


def test_what_may_be_a_password_is_not_shown():
    """Somebody who writes a password in the place of its hash does not find it in a log."""
    with pytest.raises(ConfigError) as caught:
        load(str(CONFIGS / "plain_password.yml"))

    assert "correct-horse" not in str(caught.value)


def test_a_missing_file_is_one_line():
    """A file that is not there is named."""
    with pytest.raises(ConfigError, match=r"^/nowhere/web\.yml: No such file or directory$"):
        load("/nowhere/web.yml")


@pytest.mark.parametrize("text", ["", "tls_server_config:\n", "basic_auth_users:\nhttp_server_config:\n  headers:\n"])
def test_empty_sections_change_nothing(tmp_path, text):
    """A key without a value is as good as none."""
    file = tmp_path / "web.yml"
    file.write_text(text)

    config = load(str(file))

    assert config.tls_server_config is None
    assert config.basic_auth_users == {}
    assert config.http_server_config.headers == {}


def test_ciphers_get_the_names_of_openssl(tmp_path):
    """The names of the format are Go's; those of TLS 1.3 are allowed beside them and change nothing."""
    file = tmp_path / "web.yml"
    file.write_text(
        "tls_server_config:\n  cert_file: a\n  key_file: b\n  client_auth_type: ''\n  cipher_suites:\n"
        "  - TLS_AES_128_GCM_SHA256\n  - TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384\n"
        "  - TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256\n"
    )

    tls = load(str(file)).tls_server_config

    assert tls.openssl_suites == "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305"
    assert tls.client_auth_type == "NoClientCert"
    assert (tls.min_version, tls.max_version) == ("TLS12", "TLS13")
