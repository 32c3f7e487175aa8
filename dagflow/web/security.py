"""Checks which requests the server answers, and tells browsers what they may do with the answers."""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "dagflow_token"

_HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_PORT = re.compile(r":\d+$")


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """Lets permitted requests through.

    Without a token, only requests that name this machine as their host: a page of another site whose name was bound to
    a loopback address names its own. With a token, only requests that bring it: as `Authorization: Bearer TOKEN`, as a
    cookie, or once in the address as `?token=TOKEN`, which is then kept as a cookie. Only requests that read are
    answered, and none that a page of another site makes.

    Args:
        hosts: Names beside those of loopback that requests may give.
        token: What requests must bring; "" for none.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str] = (), token: str = "") -> None:
        self._app = app
        self._hosts = frozenset(each.lower() for each in hosts)
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if scope["method"] not in ("GET", "HEAD"):
            await _refuse(send, 405, "this server only reads: GET and HEAD are answered\n")
        elif headers.get("transfer-encoding") or headers.get("content-length", "0") != "0":
            await _refuse(send, 413, "this server only reads: a request has no body\n")
        elif _is_foreign(headers):
            await _refuse(send, 403, "this server answers no page of another site\n")
        elif not self._token and not self._is_own(headers.get("host", "")):
            await _refuse(send, 421, "this server answers requests for this machine's own names only\n")
        elif self._token and not self._has_token(headers, scope["query_string"].decode("latin-1")):
            await _refuse(send, 401, "a token is needed: open the address that dagflow ui has printed\n")
        else:
            in_address = self._token and "token" in parse_qs(scope["query_string"].decode("latin-1"))
            await self._app(scope, receive, _with_headers(send, self._token if in_address else ""))

    def _is_own(self, host: str) -> bool:
        name = _PORT.sub("", host).lower()
        return is_loopback(name) or name in self._hosts

    def _has_token(self, headers: dict[str, str], query: str) -> bool:
        cookies = (part.strip().partition("=") for part in headers.get("cookie", "").split(";"))
        given = [value for name, _, value in cookies if name == COOKIE]
        given += parse_qs(query).get("token", [])
        scheme, _, value = headers.get("authorization", "").partition(" ")
        given += [value.strip()] if scheme.lower() == "bearer" else []
        return any(hmac.compare_digest(each.encode(), self._token.encode()) for each in given)


def _is_foreign(headers: dict[str, str]) -> bool:
    """Whether a page of another site asks; a link that is followed from there is none."""
    if "origin" in headers and headers["origin"].partition("://")[2] != headers.get("host"):
        return True
    is_other = headers.get("sec-fetch-site") in ("cross-site", "same-site")
    return is_other and headers.get("sec-fetch-mode") != "navigate"


def _with_headers(send: Send, token: str) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            added = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
            if token:
                cookie = f"{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/"
                added.append((b"set-cookie", cookie.encode()))
            message["headers"] = [*message["headers"], *added]
        await send(message)

    return sending


async def _refuse(send: Send, status: int, text: str) -> None:
    body = text.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
