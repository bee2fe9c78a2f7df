"""The page of the exporter: static files, and the JSON that it shows, rendered once per snapshot.

docs/page.md has the shape of the JSON.  The page loads nothing from elsewhere, and nothing in it is inline.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any, NamedTuple

import orjson

from trainvitals._version import __version__

log = logging.getLogger(__name__)

#: The page loads its own style, script and data, and no one else's; nobody may put it into a frame.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
#: What each answer of the page carries.  The browser keeps it, and asks each time whether it is still the same.
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}
#: Path below / to file and type.
FILES = {
    "": ("index.html", "text/html; charset=utf-8"),
    "page/page.css": ("page.css", "text/css; charset=utf-8"),
    "page/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "page/texts.json": ("texts.json", "application/json"),
}
JSON = "application/json"
#: Level 1 takes a third of the time of level 6 for JSON that is a fifth larger.
_LEVEL = 1
#: Snapshots are rendered ahead as long as somebody asked within so many seconds.
_WATCHED_SECONDS = 60.0


class Answer(NamedTuple):
    """A body, plain and compressed, its type and its entity tag."""

    body: bytes
    gzipped: bytes
    type: str
    etag: str


def answer(body: bytes, kind: str, level: int = _LEVEL) -> Answer:
    """Return a body as it is sent."""
    etag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    return Answer(body, gzip.compress(body, level, mtime=0), kind, etag)


def static_files() -> dict[str, Answer]:
    """Return the files of the page by their path."""
    folder = resources.files("trainvitals.serve") / "static"
    return {path: answer((folder / name).read_bytes(), kind, 9) for path, (name, kind) in FILES.items()}


class Page:
    """Holds what the page shows.  ``interval`` is that of the snapshots, in seconds.

    ``advice`` returns what to do about a signal, by its name; it is asked once, when somebody asks.
    """

    def __init__(
        self,
        interval: float = 5.0,
        advice: Callable[[], Mapping[str, Any]] = dict,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._about = {"version": __version__, "interval": interval}
        self._make_advice = advice
        self._advice: Answer | None = None
        self._clock = clock
        self._asked = -_WATCHED_SECONDS
        self._lock = threading.Lock()
        #: The newest data, and their bytes once they are rendered.
        self._current: tuple[Mapping[str, Any], Answer | None] | None = None

    def publish(self, data: Mapping[str, Any]) -> None:
        """Make ``data`` what the page shows; while nobody looks it is not rendered."""
        whole = {**self._about, **data}
        is_watched = self._clock() - self._asked < _WATCHED_SECONDS
        self._current = (whole, _render(whole) if is_watched else None)

    def current(self) -> Answer | None:
        """Return the newest snapshot, None before the first; safe in any thread."""
        self._asked = self._clock()
        with self._lock:
            if self._current is None:
                return None
            data, rendered = self._current
            if rendered is None:
                rendered = _render(data)
                self._current = (data, rendered)
            return rendered

    def advice(self) -> Answer:
        """Return what to do about each signal."""
        if self._advice is None:
            try:
                found = dict(self._make_advice())
            except Exception as error:
                # The findings are good without it.
                log.warning("the page has no advice: %s", error)
                return answer(b"{}", JSON)
            self._advice = answer(json.dumps(found, ensure_ascii=False).encode(), JSON)
        return self._advice


def _render(data: Mapping[str, Any]) -> Answer:
    try:
        return answer(orjson.dumps(data, _called), JSON)
    except orjson.JSONEncodeError:
        # Half a character in a name, or an integer beyond 64 bits: JSON has words for both, that library has not.
        return answer(json.dumps(data, default=_called).encode(), JSON)


def _called(value: Callable[[], Any]) -> Any:
    """Return what stands behind a value that costs something: it is made when it is rendered."""
    return value()
