"""The web configuration file of Prometheus' exporters: TLS, client certificates, headers, bcrypt users.

The format is that of Prometheus' exporter-toolkit 0.17.  What Python's ssl cannot do is refused in one line and never
ignored: a reader of the file must be able to trust it.  docs/web-configuration.md has the list.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from trainvitals.config import ConfigError, Section, read_sections

#: Names of Go's crypto/tls, as the format has them, to those of OpenSSL.
TLS12_SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
#: Always on with TLS 1.3: neither Go nor Python's ssl lets anybody choose among them.
TLS13_SUITES = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})

#: The headers that the format knows.
Header = Literal[
    "Content-Security-Policy",
    "Strict-Transport-Security",
    "X-Content-Type-Options",
    "X-Frame-Options",
    "X-XSS-Protection",
]

_BCRYPT = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")
#: Above cost 16 one check takes more than 5 s.
_COSTS = range(4, 17)

#: Keys of the format that are refused, and why.
_REFUSED = {
    "tls_server_config.cert": "give the certificate in a file, with the key cert_file",
    "tls_server_config.key": "give the private key in a file, with the key key_file",
    "tls_server_config.client_ca": "give the client CA in a file, with the key client_ca_file",
    "tls_server_config.client_allowed_sans": "not supported; a client_ca_file of its own limits the clients",
    "tls_server_config.curve_preferences": "not supported; OpenSSL chooses the curve",
    "rate_limit": "not supported; answers are ready-made, and a proxy in front can limit clients",
}


def _expect(condition: object, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _version(value: object) -> object:
    _expect(value not in ("TLS10", "TLS11"), "TLS12 or TLS13: older versions are not secure")
    return value


def _client_auth(value: object) -> object:
    _expect(
        value not in ("RequestClientCert", "RequireAnyClientCert"),
        "NoClientCert, VerifyClientCertIfGiven or RequireAndVerifyClientCert: Python cannot take a client certificate "
        "without verifying it",
    )
    return value or "NoClientCert"


def _suite(name: str) -> str:
    _expect(name in TLS12_SUITES or name in TLS13_SUITES, f"one of {', '.join(sorted({*TLS12_SUITES, *TLS13_SUITES}))}")
    return name


def _header_value(text: str) -> str:
    _expect(text.isascii() and text.isprintable(), "printable ASCII on one line")
    return text


def _file_name(name: str) -> str:
    _expect(name, "the name of a file")
    return name


def _user(name: str) -> str:
    _expect(name and ":" not in name, "the name of a user, without a colon")
    return name


def _hash(text: str) -> str:
    match = _BCRYPT.fullmatch(text)
    _expect(match, "a bcrypt hash such as $2y$10$..., as from htpasswd -nBC 10 NAME")
    assert match is not None  # noqa: S101 - for the type checker
    _expect(int(match[1]) in _COSTS, f"a bcrypt hash of cost {_COSTS[0]} to {_COSTS[-1]}")
    return text


FileName = Annotated[str, AfterValidator(_file_name)]
TlsVersion = Annotated[Literal["TLS12", "TLS13"], BeforeValidator(_version)]


class TlsServer(Section):
    """Server certificate, client certificates, versions and ciphers.  File names are relative to the file's folder."""

    cert_file: FileName
    key_file: FileName
    client_auth_type: Annotated[
        Literal["NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"], BeforeValidator(_client_auth)
    ] = "NoClientCert"
    client_ca_file: FileName | None = None
    min_version: TlsVersion = "TLS12"
    max_version: TlsVersion = "TLS13"
    #: For TLS 1.2; empty means OpenSSL's choice.
    cipher_suites: tuple[Annotated[str, AfterValidator(_suite)], ...] = ()
    prefer_server_cipher_suites: bool = True

    @model_validator(mode="after")
    def _together(self) -> TlsServer:
        _expect(self.min_version <= self.max_version, "min_version not above max_version")
        if self.client_auth_type == "NoClientCert":
            _expect(not self.client_ca_file, "client_auth_type beside client_ca_file, else no certificate is asked for")
        else:
            _expect(self.client_ca_file, f"client_ca_file beside client_auth_type {self.client_auth_type}")
        chosen = self.openssl_suites
        _expect(
            chosen or not self.cipher_suites or self.min_version == "TLS13",
            "a TLS 1.2 suite in cipher_suites, or min_version TLS13",
        )
        return self

    @property
    def openssl_suites(self) -> str:
        """The TLS 1.2 suites as OpenSSL writes them."""
        return ":".join(TLS12_SUITES[name] for name in self.cipher_suites if name in TLS12_SUITES)


class HttpServer(Section):
    """Headers that every answer gets."""

    #: Part of the format and without effect: this server speaks HTTP/1.1 with and without it.
    http2: bool = True
    headers: dict[Header, Annotated[str, AfterValidator(_header_value)]] = Field(default_factory=dict)


User = Annotated[str, AfterValidator(_user)]


class WebConfig(Section):
    """The whole file."""

    tls_server_config: TlsServer | None = None
    http_server_config: HttpServer = HttpServer()
    basic_auth_users: dict[User, Annotated[str, AfterValidator(_hash)]] = Field(default_factory=dict)


#: pydantic's types of the error "this is no mapping".
_NO_SECTION = frozenset({"model_type", "model_attributes_type", "dict_type"})
_SECTIONS: dict[str, type[Section]] = {"tls_server_config": TlsServer, "http_server_config": HttpServer}


def load(path: str) -> WebConfig:
    """Return the settings in the file at ``path``; the certificates that it names are not read here.

    Raises ConfigError with one line: the file, the key and what was expected.
    """
    document = read_sections(path, "tls_server_config:")
    try:
        return WebConfig.model_validate(_without_empty(document))
    except ValidationError as error:
        # A key that is refused may be the reason why another is missing.
        errors = sorted(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
        raise ConfigError(f"{path}: {_explain(errors[0])}") from None


def _without_empty(value: Any) -> Any:
    """Return ``value`` without keys that have no value: an empty section is as good as none."""
    if not isinstance(value, dict):
        return value
    return {key: _without_empty(item) for key, item in value.items() if item is not None}


def _explain(error: Any) -> str:
    place = " ".join(".".join(str(part) for part in error["loc"] if part != "[key]").split())
    if error["type"] == "extra_forbidden":
        if place in _REFUSED:
            return f"{place}: {_REFUSED[place]}"
        known = _SECTIONS[error["loc"][0]] if len(error["loc"]) > 1 else WebConfig
        return f"{place}: unknown key, expected one of {', '.join(known.model_fields)}"
    if error["type"] == "missing":
        return f"{place}: expected a value, found none"
    if error["type"] in _NO_SECTION:
        return f"{place}: expected a section with keys"
    expected = error["msg"].removeprefix("Value error, ").replace("Input should be ", "")
    # A section is too long to be shown, and what stands in the place of a hash may be a password.
    if isinstance(error["input"], dict) or error["loc"][0] == "basic_auth_users":
        return f"{place}: expected {expected}"
    return f"{place}: expected {expected}, found {repr(error['input'])[:80]}"
