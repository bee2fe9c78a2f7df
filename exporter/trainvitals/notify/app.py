"""The web application: what Alertmanager posts, and what Prometheus asks."""

from __future__ import annotations

import math

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from trainvitals.notify.channels.base import LATER
from trainvitals.notify.courier import Courier
from trainvitals.notify.group import LARGEST, GroupError, parse
from trainvitals.notify.series import CONTENT_TYPE, render


def make_app(courier: Courier) -> Starlette:
    """Return the application around a courier.

    ``POST /alertmanager/RECEIVER`` answers 200 when every target accepted the message, 503 when it is to be sent again
    (Alertmanager does), 400 when a target refused it for good or it makes no sense, 404 for an unknown receiver.
    """

    async def alertmanager(request: Request) -> Response:
        receiver = request.path_params["receiver"]
        if receiver not in courier.targets:
            return PlainTextResponse(f"no receiver {receiver[:64]!r} in the settings\n", 404)
        try:
            body = await _body(request)
        except ClientDisconnect:
            return Response(status_code=400)
        if body is None:
            courier.messages["too_large"] += 1
            return PlainTextResponse(f"more than {LARGEST} bytes\n", 413)
        try:
            group = parse(body)
        except GroupError as error:
            courier.messages["malformed"] += 1
            return PlainTextResponse(f"{error}\n", 400)
        outcome = await courier.deliver(receiver, group)
        if outcome.kind == LATER:
            headers = {"Retry-After": str(max(1, math.ceil(outcome.after)))}
            return PlainTextResponse(f"{outcome.text}\n", 503, headers=headers)
        return PlainTextResponse(f"{outcome.text}\n", 400 if outcome.kind else 200)

    async def metrics(_: Request) -> Response:
        return Response(render(courier), headers={"Content-Type": CONTENT_TYPE})

    async def healthy(_: Request) -> Response:
        return PlainTextResponse("Trainvitals' notifier is healthy.\n")

    async def ready(_: Request) -> Response:
        return PlainTextResponse("Trainvitals' notifier is ready.\n")

    async def landing(_: Request) -> Response:
        names = "".join(f"  POST /alertmanager/{name}\n" for name in sorted(courier.targets))
        return PlainTextResponse(f"Trainvitals' notifier\n\n{names}  GET  /metrics /-/healthy /-/ready\n")

    return Starlette(
        routes=[
            Route("/", landing),
            Route("/alertmanager/{receiver}", alertmanager, methods=["POST"]),
            Route("/metrics", metrics),
            Route("/-/healthy", healthy),
            Route("/-/ready", ready),
        ]
    )


async def _body(request: Request) -> bytes | None:
    """Return the body; None for one that is too large, of which no more is read."""
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > LARGEST:
            return None
    return data
