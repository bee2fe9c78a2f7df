"""Where the messages of the bundle arrive on this machine: a mail server and a webhook, both on loopback.

Nothing leaves the machine.  Each message becomes a :class:`Message` in a queue, for the terminal to show.
"""

from __future__ import annotations

import asyncio
import email
import email.policy
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from typing import Any

from trainvitals.bundle.ports import LOOPBACK
from trainvitals.output import printable

#: A header that our Alertmanager configuration adds, so that nobody has to read the state out of a subject.
STATUS_HEADER = "X-Trainvitals-Status"
#: Alertmanager groups; a group of hundreds of alerts stays far below this.
_MAX_BODY = 4 << 20


@dataclass(frozen=True, kw_only=True)
class Message:
    """A message that arrived: ``channel`` is "e-mail" or "webhook", ``status`` "firing" or "resolved"."""

    channel: str
    status: str
    subject: str
    #: Short lines of plain text: where, what, and what to do.
    lines: tuple[str, ...]
    #: All of it in one line.
    short: str


Queue = SimpleQueue[Message]


def from_webhook(document: dict[str, Any]) -> list[Message]:
    """Return one message for each alert in what Alertmanager posts (its format 4)."""
    return [_from_alert(alert) for alert in document["alerts"]]


def _from_alert(alert: dict[str, Any]) -> Message:
    labels, notes, status = alert["labels"], alert["annotations"], str(alert["status"])
    where = ", ".join(f"{name} {labels[name]}" for name in ("run", "rank", "device", "instance") if labels.get(name))
    what = notes.get("description") or notes.get("summary") or ""
    action = (notes.get("action") or "") if status == "firing" else ""
    # The full stop of a sentence, not that of a number.
    first, *_ = action.split(". ")
    lines = [f"Where: {where}" if where else "", f"Evidence: {what}", f"What to do: {action}" if action else ""]
    return Message(
        channel="webhook",
        status=status,
        subject=_clean(labels["alertname"]),
        lines=_lines(lines),
        short=_clean(f"{labels['alertname']} ({where}): {what}" + f" To do: {first.rstrip('.')}." * bool(first)),
    )


def from_mail(content: bytes) -> Message:
    """Return the message in a mail: its subject and the lines of its plain text, without what they repeat."""
    mail = email.message_from_bytes(content, _class=EmailMessage, policy=email.policy.default)
    subject = _clean(str(mail["Subject"]))
    body = mail.get_body(preferencelist=("plain",))
    text = (body.get_content() if body is not None else "").replace("\r\n", "\n").partition("\n-- \n")[0]
    lines = [
        line for line in text.splitlines() if line.partition(": ")[2] not in subject or not line.partition(": ")[2]
    ]
    return Message(
        channel="e-mail", status=str(mail[STATUS_HEADER] or ""), subject=subject, lines=_lines(lines), short=subject
    )


def _lines(lines: list[str]) -> tuple[str, ...]:
    return tuple(line for line in map(_clean, lines) if line)


def _clean(text: str) -> str:
    """Labels come from training jobs: nothing in them may steer a terminal."""
    return printable(text).strip()


class WebhookSink:
    """An HTTP server that takes what Alertmanager posts; ``url`` is where."""

    def __init__(self, queue: Queue, host: str = LOOPBACK, port: int = 0) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # the name is http.server's
                try:
                    size = min(int(self.headers.get("Content-Length", 0)), _MAX_BODY)
                    messages = from_webhook(json.loads(self.rfile.read(size)))
                except (ValueError, KeyError, TypeError, AttributeError):
                    self.send_error(400)
                    return
                for message in messages:
                    queue.put(message)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_GET(self) -> None:
                # For health checks.
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass  # The terminal is for the messages.

        self._server = ThreadingHTTPServer((host, port), Handler)
        self.url = f"http://{host}:{self._server.server_address[1]}/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="webhook", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class MailSink:
    """An SMTP server that takes every mail and delivers none; ``address`` is host and port.

    Raises ModuleNotFoundError where aiosmtpd is not installed.
    """

    def __init__(self, queue: Queue) -> None:
        from aiosmtpd.smtp import SMTP  # noqa: PLC0415  only the demo needs it

        class Handler:
            async def handle_DATA(self, _server: object, _session: object, envelope: Any) -> str:  # noqa: N802  aiosmtpd's
                queue.put(from_mail(envelope.content))
                return "250 Message accepted for delivery"

        self._loop = asyncio.new_event_loop()
        make: Callable[[], asyncio.Protocol] = lambda: SMTP(Handler(), hostname=LOOPBACK, loop=self._loop)  # noqa: E731
        self._server = self._loop.run_until_complete(self._loop.create_server(make, LOOPBACK, 0))
        self.address = f"{LOOPBACK}:{self._server.sockets[0].getsockname()[1]}"
        self._thread = threading.Thread(target=self._loop.run_forever, name="mail", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
