"""The HTTP server: uvicorn in a thread of its own, on a socket that is bound before it starts.

uvicorn gives a client all the time that it wants for its first request and, with TLS, a minute for the handshake, and
it never gives up on one that does not read.  Here a connection has a deadline, so that idle ones cannot pile up.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import socket
import ssl
import threading
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from trainvitals.config import ConfigError
from trainvitals.serve.auth import Guard
from trainvitals.serve.reload import WebConfigFile

log = logging.getLogger(__name__)

#: Seconds between two requests of a connection: scrapes every minute and faster need no new one.
KEEP_ALIVE = 75
#: Seconds that a client has for its TLS handshake and then for its first request.
FIRST_REQUEST = 10.0
#: Beyond so many connections the oldest is closed, before they use up the descriptors that the collectors need.
CONNECTIONS = 256
#: Seconds that requests have to finish when the server stops.
_GRACE = 0.5

_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]/\s]*)):(\d{1,5})")
_EVERYWHERE = frozenset({"", "::", "0.0.0.0"})  # noqa: S104 - told apart here, not bound here


class Server:
    """Serves ``app`` at ``listen_address``, guarded by ``web_config``.

    ``listen_address`` is ":20910" (every address), "127.0.0.1:20910", "[::1]:20910" or "name:20910"; port 0 lets the
    system choose.  ``connections`` and the seconds ``first_request`` and ``keep_alive`` limit what clients can hold.
    Starts once.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        listen_address: str,
        web_config: WebConfigFile | None = None,
        connections: int = CONNECTIONS,
        first_request: float = FIRST_REQUEST,
        keep_alive: int = KEEP_ALIVE,
    ) -> None:
        self._address = listen_address
        self._guard = Guard(app, web_config) if web_config else None
        self._context = web_config.server_context() if web_config else None
        config = uvicorn.Config(
            self._guard or app,
            loop="asyncio",
            http=H11Protocol,
            ws="none",
            interface="asgi3",
            lifespan="off",
            log_config=None,
            # Below errors it reports what any stranger's broken request says.
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=keep_alive,
            timeout_graceful_shutdown=1,
        )
        self._uvicorn = _Uvicorn(config, context=self._context, connections=connections, first_request=first_request)
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._listener: socket.socket | None = None
        self._error: BaseException | None = None

    def start(self) -> str:
        """Begin to answer; return the address, such as "http://127.0.0.1:20910".

        Raises ConfigError when the address is wrong, taken or not ours.
        """
        self._listener, host = bind(self._address)
        port = self._listener.getsockname()[1]
        self._thread.start()
        self._uvicorn.settled.wait()
        if self._error is not None:
            raise RuntimeError("the HTTP server did not start") from self._error
        return f"{'http' if self._context is None else 'https'}://{host}:{port}"

    def stop(self) -> None:
        """Finish the requests in flight, close every connection and end the threads."""
        self._uvicorn.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(timeout=10)
        if self._guard is not None:
            self._guard.close()

    def _run(self) -> None:
        assert self._listener is not None  # noqa: S101 - for the type checker
        try:
            self._uvicorn.run(sockets=[self._listener])
        except BaseException as error:
            self._error = error
            if self._uvicorn.settled.is_set():
                log.error("the HTTP server ended: %s", error, exc_info=error)
        finally:
            self._listener.close()
            self._uvicorn.settled.set()


def bind(address: str) -> tuple[socket.socket, str]:
    """Return a listening socket for ``address`` and the host under which this machine reaches it, as in a URL.

    Raises ConfigError with one line.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match[3]) > 65535:
        raise ConfigError(
            f'web.listen_address: expected HOST:PORT such as ":20910", "127.0.0.1:20910" or "[::1]:20910", '
            f"found {address!r}"
        )
    host, port = match[1] or match[2], int(match[3])
    try:
        if host in {"", "::"} and socket.has_dualstack_ipv6():
            listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
        else:
            family, _, _, _, place = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)[0]  # noqa: S104
            listener = socket.create_server(place[:2], family=family)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"web.listen_address: {_complaint(error, address)}") from None
    # Connections inherit it.  Without it the body waits 40 ms for the acknowledgement of the headers: asyncio switches
    # it on by itself only for sockets whose protocol number is given.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if host in _EVERYWHERE:
        return listener, "127.0.0.1"
    return listener, f"[{host}]" if ":" in host else host


def _complaint(error: OSError | UnicodeError, address: str) -> str:
    if isinstance(error, (UnicodeError, socket.gaierror)):
        return f"expected a host name or an address of this machine, found {address!r} (unknown host)"
    if error.errno == errno.EADDRINUSE:
        return f"expected a free port, but another process listens on {address!r}"
    if error.errno == errno.EACCES:
        return f"expected a port that this user may use, such as 20910, found {address!r}"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"expected an address of this machine, found {address!r}"
    return f"cannot listen on {address!r}: {error.strerror}"


class _Uvicorn(uvicorn.Server):
    """uvicorn's server with deadlines and a cap on connections; outside the main thread it leaves signals alone."""

    def __init__(
        self, config: uvicorn.Config, *, context: ssl.SSLContext | None, connections: int, first_request: float
    ) -> None:
        super().__init__(config)
        #: Set when the server answers, or has failed.
        self.settled = threading.Event()
        self.first_request = first_request
        #: In the order of their beginning.
        self.open: dict[_Connection, None] = {}
        self._context = context
        self._connections = connections

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on the one socket."""
        assert sockets is not None  # noqa: S101 - for the type checker
        handshake = None if self._context is None else self.first_request
        server = await asyncio.get_running_loop().create_server(
            self._connection, sock=sockets[0], ssl=self._context, ssl_handshake_timeout=handshake
        )
        self.servers = [server]
        self.started = True
        self.settled.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, and cut off who has not got his answer after a moment."""
        asyncio.get_running_loop().call_later(_GRACE, self._abort_all)
        await super().shutdown(sockets)

    def admit(self, connection: _Connection) -> None:
        """Count a new connection; the oldest makes room for it."""
        self.open[connection] = None
        if len(self.open) > self._connections:
            next(iter(self.open)).abort()

    def _connection(self) -> _Connection:
        return _Connection(self, config=self.config, server_state=self.server_state, app_state={})

    def _abort_all(self) -> None:
        for connection in [*self.open]:
            connection.abort()


class _Connection(H11Protocol):
    """One client, with a deadline for its next answer to be complete."""

    def __init__(self, server: _Uvicorn, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._uvicorn = server
        self._deadline: asyncio.TimerHandle | None = None
        #: For handlers that must wait, in the scope of their request.
        self.app_state["more_time"] = self._give

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock."""
        super().connection_made(transport)
        self._uvicorn.admit(self)
        self._give(self._uvicorn.first_request)

    def on_response_complete(self) -> None:
        """Give time for another request, and a little more than uvicorn, which closes politely."""
        super().on_response_complete()
        self._give(self.timeout_keep_alive + self._uvicorn.first_request)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._uvicorn.open.pop(self, None)
        super().connection_lost(exc)
        # After an error uvicorn leaves this out, and Python 3.10 then warns of a TLS transport that nobody closed.
        self.transport.close()

    def abort(self) -> None:
        """Close at once, whatever is unsent."""
        self._uvicorn.open.pop(self, None)
        self.transport.abort()

    def _give(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(seconds, self.abort)
