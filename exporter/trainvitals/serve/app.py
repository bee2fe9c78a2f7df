"""The application: /metrics, /-/healthy, /-/ready, the page and its JSON; orders, where they are switched on.

Handlers send bytes that are ready; none of them waits for a collector.  An order waits for the ranks, in a thread.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from trainvitals.serve.orders import Orders
from trainvitals.serve.page import HEADERS, Answer, Page, static_files
from trainvitals.serve.snapshot import CONTENT_TYPE, SnapshotStore
from trainvitals.steer.steering import PATH

_NOT_YET = "The first snapshot is not there yet.\n"


def make_app(store: SnapshotStore, page: Page | None = None, orders: Orders | None = None) -> Starlette:
    """Return the application that serves ``store`` and ``page``, and takes ``orders`` where there are to be any."""
    shown = page or Page()
    files = static_files()

    async def metrics(request: Request) -> Response:
        snapshot = store.current
        if snapshot is None:
            return PlainTextResponse(_NOT_YET, 503, headers={"Retry-After": "1"})
        return _send(
            request, snapshot.text, snapshot.gzipped, {"Content-Type": CONTENT_TYPE, "Vary": "Accept-Encoding"}
        )

    async def healthy(_: Request) -> Response:
        return PlainTextResponse("Trainvitals is healthy.\n")

    async def ready(_: Request) -> Response:
        if store.current is None:
            return PlainTextResponse(_NOT_YET, 503)
        return PlainTextResponse("Trainvitals is ready.\n")

    async def file(request: Request) -> Response:
        return _answer(request, files[request.url.path.removeprefix("/")])

    async def overview(request: Request) -> Response:
        found = shown.current()
        if found is None:
            return PlainTextResponse(_NOT_YET, 503, headers={"Retry-After": "1"})
        return _answer(request, found)

    async def advice(request: Request) -> Response:
        return _answer(request, shown.advice())

    app = Starlette(
        routes=[
            *(Route(f"/{path}", file) for path in files),
            Route("/api/v1/overview", overview),
            Route("/api/v1/advice", advice),
            *([Route(PATH, orders.answer, methods=["POST"])] if orders is not None else ()),
            Route("/metrics", metrics),
            Route("/-/healthy", healthy),
            Route("/-/ready", ready),
        ]
    )
    # "/metrics/" is a mistake that a redirect would hide.
    app.router.redirect_slashes = False
    return app


def _answer(request: Request, found: Answer) -> Response:
    headers = {**HEADERS, "Content-Type": found.type, "ETag": found.etag}
    asked = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if found.etag in asked or "*" in asked:
        return Response(status_code=304, headers=headers)
    return _send(request, found.body, found.gzipped, headers)


def _send(request: Request, plain: bytes, gzipped: bytes, headers: Mapping[str, str]) -> Response:
    if not accepts_gzip(request.headers.get("accept-encoding", "")):
        return Response(plain, headers=headers)
    return Response(gzipped, headers={**headers, "Content-Encoding": "gzip"})


def accepts_gzip(header: str) -> bool:
    """Tell whether an Accept-Encoding header allows gzip (RFC 9110, 12.5.3); "gzip;q=0" forbids it."""
    qualities = {}
    for part in header.lower().replace(" ", "").split(","):
        name, _, parameters = part.partition(";")
        qualities[name] = parameters.removeprefix("q=")
    quality = qualities.get("gzip", qualities.get("*", "0"))
    return not quality or quality.strip("0.") != ""
