"""The application: /metrics, /-/healthy, /-/ready and the landing page.

Handlers send bytes that are ready; none of them waits for a collector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from trainvitals.serve.landing import POLICY, RunRow, render
from trainvitals.serve.snapshot import CONTENT_TYPE, SnapshotStore

_NOT_YET = "The first snapshot is not there yet.\n"


def make_app(store: SnapshotStore, *, runs: Callable[[], Sequence[RunRow]] = tuple) -> Starlette:
    """Return the application that serves ``store``.

    ``runs`` returns the rows of the landing page's table; it is called in the server's thread, so it must not wait.
    """

    async def metrics(request: Request) -> Response:
        snapshot = store.current
        if snapshot is None:
            return PlainTextResponse(_NOT_YET, 503, headers={"Retry-After": "1"})
        headers = {"Content-Type": CONTENT_TYPE, "Vary": "Accept-Encoding"}
        if not accepts_gzip(request.headers.get("accept-encoding", "")):
            return Response(snapshot.text, headers=headers)
        return Response(snapshot.gzipped, headers={**headers, "Content-Encoding": "gzip"})

    async def healthy(_: Request) -> Response:
        return PlainTextResponse("Trainvitals is healthy.\n")

    async def ready(_: Request) -> Response:
        if store.current is None:
            return PlainTextResponse(_NOT_YET, 503)
        return PlainTextResponse("Trainvitals is ready.\n")

    async def landing(_: Request) -> Response:
        return HTMLResponse(render(runs()), headers={"Content-Security-Policy": POLICY})

    app = Starlette(
        routes=[
            Route("/", landing),
            Route("/metrics", metrics),
            Route("/-/healthy", healthy),
            Route("/-/ready", ready),
        ]
    )
    # "/metrics/" is a mistake that a redirect would hide.
    app.router.redirect_slashes = False
    return app


def accepts_gzip(header: str) -> bool:
    """Tell whether an Accept-Encoding header allows gzip (RFC 9110, 12.5.3); "gzip;q=0" forbids it."""
    qualities = {}
    for part in header.lower().replace(" ", "").split(","):
        name, _, parameters = part.partition(";")
        qualities[name] = parameters.removeprefix("q=")
    quality = qualities.get("gzip", qualities.get("*", "0"))
    return not quality or quality.strip("0.") != ""
