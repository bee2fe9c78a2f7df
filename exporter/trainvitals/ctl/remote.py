"""Orders to a run on another machine, through the exporter there: ``trainvitals ctl RUN ... --node URL``.

The token is sent over TLS only, to whom the certificate names, and to nobody to whom that one refers; to this machine
itself also without.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from trainvitals.orders import Order
from trainvitals.steer import token
from trainvitals.steer.giving import Done, LateError, Look, NotDoneError
from trainvitals.steer.ranks import Answer
from trainvitals.steer.steering import PATH

T = TypeVar("T")

#: A little longer than the exporter waits for its ranks.
ANSWER_SECONDS = 620.0
_LONGEST = 1 << 20


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows nobody: the token would go along."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Node:
    """The exporter of another machine, such as "https://host:20910".

    ``ca_file`` is the authority of its certificate, by default those that this system trusts.  Raises NotDoneError for
    a URL or file that cannot be used.
    """

    def __init__(self, url: str, token_file: str, ca_file: str | None = None) -> None:
        self._url = url.rstrip("/")
        try:
            parts = urlsplit(self._url)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            parts, host, port = urlsplit(""), "", None
        if parts.scheme not in {"http", "https"} or not host or port == 0 or parts.path or parts.query:
            raise NotDoneError(f"--node: expected a URL such as https://host:20910, found {url!r}")
        if parts.scheme == "http" and not _is_here(host):
            raise NotDoneError(f"--node: {url} would get the token in the clear: expected https://")
        try:
            self._token = token.read(token_file)
        except token.TokenError as error:
            raise NotDoneError(f"--token-file: {error}") from None
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect(), urllib.request.ProxyHandler({})]
        if parts.scheme == "https":
            handlers.append(urllib.request.HTTPSHandler(context=_context(ca_file)))
        self._opener = urllib.request.build_opener(*handlers)

    @property
    def url(self) -> str:
        """Where it is."""
        return self._url

    def give(self, run: str, what: str, values: dict[str, Any], *, part: bool = False) -> Done:
        """Give an order and return what the ranks said.  Raises NotDoneError."""
        return self._ask({"run": run, "order": what, "values": values, "part": part}, _done)

    def look(self, run: str) -> Look:
        """Return where the ranks of a run are.  Raises NotDoneError."""
        return self._ask({"run": run, "order": "pause", "phase": "look"}, _look)

    def prepare(self, run: str, what: str, values: dict[str, Any], at: int) -> int:
        """Put an order up for a step, undecided; return its number there.  Raises NotDoneError, also LateError."""
        asked = {"run": run, "order": what, "values": values, "phase": "prepare", "at": at}
        return self._ask(asked, lambda document: int(document["number"]))

    def settle(self, run: str, what: str, values: dict[str, Any], number: int, before: int | None) -> Done:
        """Decide for it, unless the ranks are at the step ``before``.  Raises NotDoneError, also LateError."""
        asked = {"run": run, "order": what, "values": values, "phase": "do", "number": number, "before": before}
        return self._ask(asked, _done)

    def leave(self, run: str, what: str, values: dict[str, Any], number: int) -> None:
        """Decide against it.  Raises NotDoneError."""
        asked = {"run": run, "order": what, "values": values, "phase": "leave", "number": number}
        self._ask(asked, lambda document: document["number"])

    def _ask(self, asked: dict[str, Any], read: Callable[[Any], T]) -> T:
        body = json.dumps(asked).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self._url + PATH, body, headers)  # noqa: S310  The scheme was looked at.
        try:
            with self._opener.open(request, timeout=ANSWER_SECONDS) as answer:
                return read(json.loads(answer.read(_LONGEST)))
        except urllib.error.HTTPError as error:
            why, is_late = _reason(error)
            raise (LateError if is_late else NotDoneError)(f"{self._url}: {why}") from None
        except urllib.error.URLError as error:
            raise NotDoneError(f"{self._url} cannot be reached: {error.reason}") from None
        except (OSError, http.client.HTTPException) as error:
            raise NotDoneError(f"{self._url} has not answered; the order may have been obeyed: {error}") from None
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise NotDoneError(f"{self._url} has not answered as an exporter does") from None


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _context(ca_file: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise NotDoneError(f"--ca-file: {ca_file}: {error.strerror or error}") from None


def _reason(error: urllib.error.HTTPError) -> tuple[str, bool]:
    """Return why an order was refused, as the exporter says or by the status of the answer; and whether it was late."""
    try:
        document = json.loads(error.read(_LONGEST))
        return str(document["error"]), document.get("late") is True
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        off = ": its exporter takes no orders (orders.token_file)" if error.code == 404 else ""
        return f"answered {error.code} {error.reason}{off}", False


def _look(document: Any) -> Look:
    return Look(
        step=int(document["step"]),
        pace=float(document["pace"]),
        is_paused=bool(document["is_paused"]),
        ranks=tuple(int(rank) for rank in document["ranks"]),
        world_size=int(document["world_size"]),
    )


def _done(document: Any) -> Done:
    order = Order(
        number=int(document["number"]),
        run=str(document["run"]),
        what=str(document["order"]),
        at=int(document["step"]),
        values=dict(document["values"]),
        by=str(document["by"]),
    )
    ranks = {
        int(one["rank"]): Answer(str(one["state"]), int(one["step"]), str(one["text"])) for one in document["ranks"]
    }
    return Done(order, ranks)
