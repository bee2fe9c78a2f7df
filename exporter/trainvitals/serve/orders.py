"""``POST /api/v1/orders``: an order to a run of this node, from whoever shows the token.

Off unless there is a file with a token.  Nothing is asked for, and no token is looked at, where it would travel in the
clear: without TLS, only this machine is answered.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from trainvitals.orders import in_words
from trainvitals.output import printable
from trainvitals.steer import token
from trainvitals.steer.giving import Done, Giver, LateError, NoRunError, NotDoneError
from trainvitals.steer.steering import WHAT, Steering
from trainvitals.steer.token import TokenError

log = logging.getLogger(__name__)

#: An order is a few names and numbers; so is the file in which ranks read it.
LONGEST = 2048
#: Orders that may be under way at one time; each waits in a thread.
AT_ONCE = 8
#: A rank that saves itself takes its time: so long, in seconds, the connection is kept for an answer.
ANSWER_SECONDS = 600.0
_LARGEST = 2**63
_LARGEST_STEP = 2**53
_KEYS = {"run", "order", "values", "part", "phase", "at", "number", "before"}
#: Parts of an order to ranks on several nodes, each with the whole numbers that it needs.
_PHASES: dict[str, tuple[str, ...]] = {"look": (), "prepare": ("at",), "do": ("number",), "leave": ("number",)}


_PAST = {"prepare": "prepared", "leave": "left"}
#: What became of an order, or what a part of one has for an answer.
_Answer = Done | dict[str, Any]


class RefusedError(Exception):
    """A request that is not obeyed: the status of the answer, and why, in one line; ``late``: a later step may do."""

    def __init__(self, status: int, text: str, *, late: bool = False) -> None:
        super().__init__(text)
        self.status, self.late = status, late


@dataclass(frozen=True)
class Wanted:
    """What a request asks for."""

    run: str
    what: str
    values: dict[str, Any]
    part: bool
    #: Of an order to several nodes; None for a whole order.
    phase: str | None = None
    at: int = 0
    number: int = 0
    before: int | None = None


class Orders:
    """Answers requests.  ``close`` lets its threads end."""

    def __init__(self, steering: Steering, token_file: str) -> None:
        self._steering, self._token_file = steering, token_file
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="order")
        self._under_way = 0

    async def answer(self, request: Request) -> Response:
        """Give the order that is asked for, and tell what became of it; every attempt is logged with the peer."""
        peer = request.client.host if request.client else "nowhere"
        by = f"api from {peer}"
        wanted = None
        try:
            self._admit(request, peer)
            wanted = parse(await _body(request))
            done = await self._give(wanted, by, request.scope.get("state", {}).get("more_time"))
        except RefusedError as error:
            log.warning("order refused (%d), %s: %s%s", error.status, by, _told(wanted), _line(str(error)))
            headers = {"WWW-Authenticate": 'Bearer realm="trainvitals"'} if error.status == 401 else {}
            late = {"late": True} if error.late else {}
            return JSONResponse({"error": _line(str(error)), **late}, error.status, headers)
        except ClientDisconnect:
            log.warning("order refused, %s: it went away in the middle", by)
            return Response(status_code=400)
        if isinstance(done, Done):
            log.info("order obeyed, %s: %sbehind step %d", by, _told(wanted), done.order.at)
            return JSONResponse(_document(done))
        if wanted.phase != "look":
            log.info("order %s, %s: %s", _PAST[wanted.phase or ""], by, _told(wanted).rstrip(": "))
        return JSONResponse(done)

    def close(self) -> None:
        """Let the threads end; they do as soon as nobody waits for ranks any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _admit(self, request: Request, peer: str) -> None:
        if request.scope["scheme"] != "https" and not is_loopback(peer):
            raise RefusedError(403, "without TLS, orders are taken from this machine only")
        scheme, _, shown = request.headers.get("authorization", "").partition(" ")
        try:
            known = token.read(self._token_file)
        except TokenError as error:
            log.error("orders.token_file: %s", error)
            raise RefusedError(503, "the exporter cannot read its token") from None
        if scheme.lower() != "bearer" or not token.same(known, shown.strip()):
            raise RefusedError(401, "expected the header Authorization: Bearer TOKEN with the right token")

    async def _give(self, wanted: Wanted, by: str, more_time: Callable[[float], None] | None) -> _Answer:
        if self._under_way >= AT_ONCE:
            raise RefusedError(503, f"{AT_ONCE} orders are under way: try again later")
        if more_time is not None:
            more_time(ANSWER_SECONDS)
        self._under_way += 1
        # Whoever asked may go away: the order is counted until it has been obeyed or not.
        work = asyncio.get_running_loop().run_in_executor(self._threads, self._obeyed, wanted, by)
        work.add_done_callback(self._end)
        return await asyncio.shield(work)

    def _end(self, work: asyncio.Future[_Answer]) -> None:
        self._under_way -= 1
        if not work.cancelled():
            work.exception()  # Looked at, also where nobody waits for it any more.

    def _obeyed(self, wanted: Wanted, by: str) -> _Answer:
        try:
            if wanted.phase is None:
                return self._steering.give(wanted.run, wanted.what, wanted.values, by=by, part=wanted.part)
            with self._steering.giver(wanted.run, by=by, part=True) as giver:
                return _phase(giver, wanted)
        except NoRunError as error:
            raise RefusedError(404, str(error)) from None
        except LateError as error:
            raise RefusedError(409, str(error), late=True) from None
        except NotDoneError as error:
            raise RefusedError(409, str(error)) from None
        except Exception as error:
            log.exception("an order could not be given")
            raise RefusedError(500, f"the order could not be given: {type(error).__name__}") from None


def _phase(giver: Giver, wanted: Wanted) -> _Answer:
    """Do a part of an order to several nodes."""
    if wanted.phase == "look":
        return asdict(giver.look())
    if wanted.phase == "prepare":
        return {"number": giver.prepare(wanted.what, wanted.values, wanted.at).number}
    if wanted.phase == "do":
        return giver.settle(wanted.number, wanted.before)
    giver.leave(wanted.number)
    return {"number": wanted.number}


def is_loopback(peer: str) -> bool:
    """Tell whether an address is one of this machine to itself."""
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > LONGEST:
            raise RefusedError(413, f"expected at most {LONGEST} bytes")
    return bytes(body)


def parse(body: bytes) -> Wanted:
    """Return what a body asks for.  Raises RefusedError."""
    try:
        document = json.loads(body, parse_constant=_no_number)
        json.dumps(document, ensure_ascii=False).encode()  # Half a letter is no name of a run.
    except (ValueError, RecursionError):
        raise RefusedError(422, "expected JSON such as {run: NAME, order: set, values: {lr: 1e-4}}") from None
    if not isinstance(document, dict) or not document.keys() <= _KEYS:
        raise RefusedError(422, f"expected an object with the keys {', '.join(sorted(_KEYS))}")
    run, what, values = document.get("run"), document.get("order"), document.get("values", {})
    part, phase = document.get("part", False), document.get("phase")
    if not isinstance(run, str) or not 0 < len(run) <= 256:
        raise RefusedError(422, "run: expected the name of a run")
    if what not in WHAT:
        raise RefusedError(422, f"order: expected one of {', '.join(WHAT)}")
    if not isinstance(part, bool):
        raise RefusedError(422, "part: expected true or false")
    _check_values(what, values)
    return Wanted(run, what, values, part, **_check_phase(phase, document))


def _check_phase(phase: object, document: dict[str, Any]) -> dict[str, Any]:
    """Return what a part of an order to several nodes needs."""
    if phase is None:
        return {}
    if not isinstance(phase, str) or phase not in _PHASES:
        raise RefusedError(422, f"phase: expected one of {', '.join(_PHASES)}")
    names = [*_PHASES[phase], *(["before"] if document.get("before") is not None else [])]
    numbers = {name: document.get(name) for name in names}
    for name, number in numbers.items():
        if type(number) is not int or not 0 <= number < _LARGEST_STEP:
            raise RefusedError(422, f"{name}: expected a whole number")
    return {"phase": phase, **numbers}


def _check_values(what: str, values: Any) -> None:
    if not isinstance(values, dict):
        raise RefusedError(422, "values: expected an object")
    if what == "set":
        if not values or not all(name and _is_setting(value) for name, value in values.items()):
            raise RefusedError(422, "values: expected names of settings, each with a number, a text, true or false")
    elif what == "stop":
        if not values.keys() <= {"checkpoint"} or not all(isinstance(value, bool) for value in values.values()):
            raise RefusedError(422, "values: expected {checkpoint: true} or nothing for stop")
    elif values:
        raise RefusedError(422, f"values: expected nothing for {what}")


def _is_setting(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str) or (isinstance(value, int) and abs(value) < _LARGEST)


def _no_number(word: str) -> NoReturn:
    raise ValueError(word)


def _line(text: str) -> str:
    return printable(text)[:500]


def _told(wanted: Wanted | None) -> str:
    if wanted is None:
        return ""
    return _line(f"{wanted.run}: {in_words(wanted.what, wanted.values)}") + ": "


def _document(done: Done) -> dict[str, Any]:
    order = done.order
    ranks = [
        {"rank": rank, "state": said.state, "step": said.step, "text": said.text}
        for rank, said in sorted(done.answers.items())
    ]
    return {
        "run": order.run,
        "number": order.number,
        "order": order.what,
        "values": order.values,
        "by": order.by,
        "step": order.at,
        "ranks": ranks,
    }
