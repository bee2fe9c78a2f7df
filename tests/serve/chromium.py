"""A headless Chromium, steered over a pair of pipes (--remote-debugging-pipe): it needs no driver and no port."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: Long enough for a machine that is busy with other things.
PATIENCE = 60.0
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--lang=en-US",
    "--remote-debugging-pipe",
)


def program() -> str | None:
    """Return where Chromium is; None where it is not installed."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """A running Chromium with one page.  ``requests`` are the addresses that it asked for, ``problems`` its errors."""

    def __init__(self, path: str, folder: str) -> None:
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # It takes its pipes as 3 and 4: ours must be out of the way.
        theirs = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs_in, theirs_out)]
        script = f'exec "$0" "$@" 3<&{theirs[0]} 4>&{theirs[1]}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, path, *_FLAGS, f"--user-data-dir={folder}", "about:blank"],
            pass_fds=theirs,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (theirs_in, theirs_out, *theirs):
            os.close(end)
        self._numbers = itertools.count(1)
        self._rest = b""
        self._session: str | None = None
        self.requests: list[str] = []
        self.problems: list[str] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol; return its result."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self._next(deadline)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError("Chromium does not answer")
            read = os.read(self._in, 1 << 20)
            if not read:
                raise RuntimeError("Chromium ended")
            self._rest += read
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, parameters: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(parameters["exceptionDetails"])[:600])
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.problems.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")

    def open(self, url: str) -> None:
        """Go to an address."""
        self.call("Page.navigate", url=url)

    def look(self, *, width: int = 1280, height: int = 800, dark: bool = False, phone: bool = False) -> None:
        """Set the size of the window, and what the reader prefers."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call(
            "Emulation.setEmulatedMedia", features=[scheme, {"name": "prefers-reduced-motion", "value": "reduce"}]
        )

    def run(self, script: str) -> Any:
        """Return what an expression is in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:600])
        return answer["result"].get("value")

    def until(self, script: str, seconds: float = PATIENCE) -> Any:
        """Wait until an expression is true in the page; return it."""
        deadline = time.monotonic() + seconds
        while not (value := self.run(script)):
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds} s: {script}; the page: {self.text()[:2000]}")
            time.sleep(0.02)
        return value

    def text(self) -> str:
        """Return the text of the page as a person sees it."""
        return str(self.run("document.body ? document.body.innerText : ''"))

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Write what is seen, or the whole page, as PNG."""
        more: dict[str, Any] = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            more = {"captureBeyondViewport": True, "clip": {**size, "scale": 1}}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", **more)["data"]))

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(RuntimeError, TimeoutError, OSError):
            self._session = None
            self.call("Browser.close")
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)


@contextlib.contextmanager
def browser(path: str) -> Iterator[Browser]:
    """Run Chromium with a profile of its own, which is removed in the end."""
    with tempfile.TemporaryDirectory(prefix="trainvitals-chromium-", ignore_cleanup_errors=True) as folder:
        running = Browser(path, folder)
        try:
            yield running
        finally:
            running.close()
