"""Sends one body over HTTP, and says in a few words why it was not taken."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from typing import Final

from dagflow.spec.app_spec import HttpTarget

TIMEOUT_S: Final = 5.0
"""Seconds that a connection, and each answer, may take."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Follow no redirect: it would turn the POST into a GET, or carry credentials elsewhere."""


_OPENER = urllib.request.build_opener(_NoRedirect)


def post(
    target: HttpTarget, body: bytes, timeout_s: float = TIMEOUT_S, *, content_type: str = "application/json"
) -> str:
    """Send a body.

    Args:
        timeout_s: Seconds that a connection, and each answer, may take.

    Returns:
        "" where the body was accepted; otherwise why not, without the address.
    """
    headers = {"Content-Type": content_type, "User-Agent": "dagflow", **target.headers}
    request = urllib.request.Request(target.url, body, headers, method="POST")  # the app's own URL of HTTP
    try:
        with _OPENER.open(request, timeout=timeout_s):
            return ""
    except urllib.error.HTTPError as error:
        with error:
            return f"the answer was {error.code}"
    except urllib.error.URLError as error:
        return str(error.reason)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return str(error) or type(error).__name__
