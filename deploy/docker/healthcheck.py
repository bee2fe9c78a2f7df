"""Exit with 0 when the exporter in this container answers, with or without TLS and users: healthcheck.py [PORT].

What counts is that it answers in time, not what: with users it may well say 401, and with client certificates it
refuses the handshake.  Standard library only, so that the image needs no curl.
"""

# ruff: noqa: INP001  a program by itself, in no package

from __future__ import annotations

import http.client
import ssl
import sys

PORT = 20910
SECONDS = 3.0


def alive(connection: http.client.HTTPConnection) -> bool:
    """Whether there is an answer that is no error of the server's.  Raises OSError or HTTPException without one."""
    connection.request("GET", "/-/healthy")
    return connection.getresponse().status < 500


def main(port: int = PORT) -> int:
    """Return the exit status."""
    try:
        return not alive(http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS))
    except (http.client.HTTPException, ConnectionResetError):
        pass  # Not HTTP: it may be HTTPS.
    except OSError as error:
        print(error)
        return 1
    # The certificate is made for the name that others use, not for loopback.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        return not alive(http.client.HTTPSConnection("127.0.0.1", port, timeout=SECONDS, context=context))
    except ssl.SSLError:
        return 0  # It wants a certificate of us, so it is there.
    except (http.client.HTTPException, OSError) as error:
        print(error)
        return 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2])))
