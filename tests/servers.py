"""Servers of ours that stand for those of others: real ones, on loopback, in threads of their own."""

from __future__ import annotations

import email
import email.policy
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from aiosmtpd.controller import Controller
from tests.helpers import free_port


class PostServer:
    """Takes what is posted and answers with what :meth:`answer` returns, one after the other."""

    def __init__(self):
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with server._lock:
                    answer = server.answer(self.path, self.headers, body)
                if answer is None:
                    self.close_connection = True
                    return
                status, content = answer
                data = json.dumps(content).encode() if isinstance(content, dict) else content
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    def answer(self, path, headers, body):
        """Return status and bytes or a dictionary for JSON; None cuts the connection without a word."""
        raise NotImplementedError

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Webhook(PostServer):
    """Keeps the JSON that Alertmanager posts."""

    def __init__(self):
        super().__init__()
        self.received = []

    def answer(self, _path, _headers, body):
        """Keep it."""
        self.received.append(json.loads(body))
        return 200, b""

    def alerts(self):
        """Return every alert of every call, flat."""
        return [alert for call in self.received for alert in call["alerts"]]


class Mailbox:
    """A real SMTP server that keeps what it gets; first it refuses recipients with ``refusals``, one for each try."""

    def __init__(self, *refusals):
        self.messages = []
        self.refusals = list(refusals)
        self._controller = Controller(self, hostname="127.0.0.1", port=free_port())

    async def handle_RCPT(self, _server, _session, envelope, address, _options):  # noqa: N802  the names are aiosmtpd's
        """Take a recipient."""
        if self.refusals:
            return self.refusals.pop()
        envelope.rcpt_tos.append(address)
        return "250 go on"

    async def handle_DATA(self, _server, _session, envelope):  # noqa: N802
        """Keep one message."""
        self.messages.append(email.message_from_bytes(envelope.content, policy=email.policy.default))
        return "250 kept"

    @property
    def address(self):
        """Where it listens: host and port."""
        return f"127.0.0.1:{self._controller.port}"

    def texts(self, recipient=""):
        """Return subject and plain text of each message, or of those to somebody."""
        return [
            f"{message['subject']}\n{message.get_body(('plain', 'html')).get_content()}"
            for message in self.messages
            if recipient in message["to"]
        ]

    def __enter__(self):
        self._controller.start()
        return self

    def __exit__(self, *_):
        self._controller.stop()
