"""Posts JSON over HTTPS, with httpx."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx

from trainvitals._version import __version__
from trainvitals.notify.channels.base import Request

#: Robots answer with a line or two.
_LARGEST = 1 << 16


class HttpPost:
    """Keeps connections open between messages.  Proxies of the environment (``HTTPS_PROXY``) are used."""

    def __init__(self, timeout: float) -> None:
        self._client = httpx.AsyncClient(
            timeout=timeout, follow_redirects=False, headers={"User-Agent": f"trainvitals/{__version__}"}
        )

    async def __call__(self, request: Request) -> tuple[int, Mapping[str, Any]]:
        """Post; return status and the object that came back, empty when it was none.

        Raises OSError without the address, which holds a secret.
        """
        try:
            async with self._client.stream("POST", request.url, json=request.body) as response:
                data = b""
                async for chunk in response.aiter_bytes():
                    data += chunk
                    if len(data) > _LARGEST:
                        break
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise OSError(0, type(error).__name__) from None
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            found = None
        return response.status_code, found if isinstance(found, dict) else {}

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()
