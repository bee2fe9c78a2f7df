"""Shows one template as many nodes: ``/N`` is the scrape of node N."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any

import uvicorn
from benchmarks.fleet_template import Place, Template

_HEADERS = [(b"content-type", b"text/plain; version=0.0.4; charset=utf-8")]
#: Seconds of a turn: shorter than the pause between two scrapes.
_TURN = 5.0


@dataclass
class Fleet:
    """The nodes at one port of loopback; those below ``begun`` answer, the others are not there yet."""

    port: int
    begun: int = 0


@contextlib.contextmanager
def serving(template: Template, run_nodes: int) -> Iterator[Fleet]:
    """Serve until the end of the block, in a thread of this process."""

    async def app(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:  # noqa: ARG001  the protocol
        node, now = int(scope["path"][1:]), time.time()
        if node >= fleet.begun:
            await send({"type": "http.response.start", "status": 503, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})
            return
        place = Place(node, node // run_nodes, node % run_nodes * template.ranks)
        body = template.at(place, now, int(now / _TURN) + node).encode()
        length = (b"content-length", str(len(body)).encode())
        await send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, length]})
        await send({"type": "http.response.body", "body": body})

    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listening:
        fleet = Fleet(listening.getsockname()[1])
        server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="warning", timeout_keep_alive=600))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield fleet
        finally:
            server.should_exit = server.force_exit = True
            thread.join()
