"""The web configuration of a running server: read again when one of its files changes, the last good one kept."""

from __future__ import annotations

import logging
import os
import ssl
from typing import Any

from trainvitals.config import ConfigError
from trainvitals.serve.webconfig import TlsServer, WebConfig, load

log = logging.getLogger(__name__)

_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_VERIFY = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}


class WebConfigFile:
    """The web configuration file at ``path`` with the certificates that it names.  For one thread.

    Raises ConfigError when it is bad at the start.  A file that becomes bad later is logged once and the last good
    settings stay; switching TLS on or off takes a restart.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._config = load(path)
        self._seen = self._signature()
        self._context = self._build(self._config)
        http = self._config.http_server_config
        if http.http2 and "http2" in http.model_fields_set:
            log.info("%s: http_server_config.http2 has no effect: this server speaks HTTP/1.1", path)

    @property
    def current(self) -> WebConfig:
        """The settings in force."""
        self._refresh()
        return self._config

    def server_context(self) -> ssl.SSLContext | None:
        """Return the context for a listening socket; every connection gets what is in force when it begins.

        None without tls_server_config.
        """
        if self._context is None:
            return None
        following = _Following(ssl.PROTOCOL_TLS_SERVER)
        following.file = self
        return following

    def connection_context(self) -> ssl.SSLContext:
        """Return the context for a connection that begins now."""
        self._refresh()
        if self._context is None:
            raise RuntimeError("there is no TLS in this configuration")
        return self._context

    def _refresh(self) -> None:
        signature = self._signature()
        if signature == self._seen:
            return
        # Remembered before the file is read: a change while it is being read brings another round.
        self._seen = signature
        try:
            config = load(self._path)
            if (config.tls_server_config is None) != (self._context is None):
                raise ConfigError(f"{self._path}: tls_server_config: TLS is switched on or off by a restart only")
            context = self._build(config)
        except ConfigError as error:
            log.error("%s; the settings from before stay in force", error)
            return
        self._config, self._context = config, context
        # The new settings may name other files.
        self._seen = self._signature()
        log.info("%s: read again", self._path)

    def _signature(self) -> tuple[object, ...]:
        tls = self._config.tls_server_config
        paths = [self._path]
        if tls is not None:
            paths += [self._beside(name) for name in (tls.cert_file, tls.key_file, tls.client_ca_file) if name]
        return tuple(_state(path) for path in paths)

    def _beside(self, name: str) -> str:
        return os.path.join(os.path.dirname(self._path), name)

    def _build(self, config: WebConfig) -> ssl.SSLContext | None:
        tls = config.tls_server_config
        if tls is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _VERSIONS[tls.min_version]
        context.maximum_version = _VERSIONS[tls.max_version]
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        if tls.prefer_server_cipher_suites:
            context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
        else:
            context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
        context.set_alpn_protocols(["http/1.1"])
        if tls.openssl_suites:
            context.set_ciphers(tls.openssl_suites)
        context.verify_mode = _VERIFY[tls.client_auth_type]
        self._load_files(context, tls)
        return context

    def _load_files(self, context: ssl.SSLContext, tls: TlsServer) -> None:
        for key in ("cert_file", "key_file", "client_ca_file"):
            name = getattr(tls, key)
            if name:
                self._check_readable(key, name)
        try:
            # Without a password OpenSSL would ask for one at the terminal.
            context.load_cert_chain(self._beside(tls.cert_file), self._beside(tls.key_file), password=lambda: "")
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{self._path}: tls_server_config.cert_file, key_file: expected a certificate and its private key, "
                f"both PEM and without a passphrase ({_reason(error)})"
            ) from None
        if tls.client_ca_file:
            try:
                context.load_verify_locations(self._beside(tls.client_ca_file))
            except (OSError, ValueError) as error:
                raise ConfigError(
                    f"{self._path}: tls_server_config.client_ca_file: expected certificates in PEM ({_reason(error)})"
                ) from None

    def _check_readable(self, key: str, name: str) -> None:
        try:
            with open(self._beside(name), "rb"):
                pass
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{self._path}: tls_server_config.{key}: expected a file that can be read, found {name} "
                f"({_reason(error)})"
            ) from None


class _Following(ssl.SSLContext):
    """Makes each connection with the context of the moment, so that every TLS setting can change under a listener.

    asyncio calls ``wrap_bio`` once per connection.  Loading a new certificate into the same context would do for
    certificates, but not for the trusted CA, which can only grow there.
    """

    file: WebConfigFile

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """Return the TLS side of a new connection."""
        return self.file.connection_context().wrap_bio(*args, **kwargs)


def _state(path: str) -> tuple[int, ...]:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        # The reason is missing where OpenSSL found nothing that looks like PEM.
        return error.reason or "not in PEM"
    return getattr(error, "strerror", None) or str(error)
