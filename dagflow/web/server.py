"""The HTTP server: listens at once, and loads the application, or starts its process, with the first request."""

from __future__ import annotations

import contextlib
import secrets
import selectors
import socket
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dagflow.errors import DagflowError
from dagflow.web.checkpoints import CheckpointLocation, named
from dagflow.web.pages_process import Address, PagesProcess
from dagflow.web.security import is_loopback

if TYPE_CHECKING:
    import uvicorn

_QUEUED = 128
"""Connections that wait to be accepted."""


class ServerError(DagflowError):
    """Raised when the server cannot listen where it was asked to."""


class Server:
    """Serves checkpoints from a thread of its own, or from a process of its own.

    Guarantee: a server apart takes from this process one socket and one pipe, whatever is asked of it.

    Args:
        host: Where to listen; any address but a loopback one needs the token that is made for it.
        port: The port; 0 for any that is free.
        is_apart: Whether a process of its own answers; it ends with this one.

    Raises:
        ServerError: The address cannot be listened on.
    """

    def __init__(
        self,
        locations: Iterable[CheckpointLocation],
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        is_apart: bool = False,
    ) -> None:
        self._socket = _listening(host, port)
        token = "" if is_loopback(host) else secrets.token_urlsafe(24)
        self.address = Address(host, self._socket.getsockname()[1], token)
        self._checkpoints = named(locations)
        self._server: uvicorn.Server | None = None
        self._process = PagesProcess(self._socket, self._checkpoints, self.address) if is_apart else None
        self._ending, self._end = socket.socketpair()
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="dagflow-web", daemon=True)

    def _serve(self) -> None:
        while self._is_asked():
            if self._process is None:
                return self._answer()
            # Should it die, the next request starts another one.
            self._process.run()

    def _is_asked(self) -> bool:
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            selector.register(self._ending, selectors.EVENT_READ)
            selector.select()
        return not self._has_ended.is_set()

    def _answer(self) -> None:
        # Slow to import: a run imports it only when its pages are opened.
        from dagflow.web.application import application, serve, server_of

        self._server = server_of(application(self._checkpoints, self.address.token, [self.address.host]))
        self._server.should_exit = self._has_ended.is_set()
        serve(self._server, self._socket)

    @contextlib.contextmanager
    def running(self) -> Iterator[Address]:
        self._thread.start()
        try:
            yield self.address
        finally:
            self._has_ended.set()
            self._end.close()
            if self._server is not None:
                self._server.should_exit = True
            if self._process is not None:
                self._process.end()
            self._thread.join(timeout=5)
            self._socket.close()
            self._ending.close()


def _listening(host: str, port: int) -> socket.socket:
    with contextlib.ExitStack() as unless_it_listens:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            listening = unless_it_listens.enter_context(socket.socket(family, kind, protocol))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(_QUEUED)
        except (OSError, UnicodeError) as error:
            raise _not_listening(host, port, error) from error
        unless_it_listens.pop_all()
        return listening


def _not_listening(host: str, port: int, error: OSError | UnicodeError) -> ServerError:
    reason = getattr(error, "strerror", None) or str(error)
    return ServerError(f"cannot listen on {host}:{port}: {reason}", hint="name another one with --host and --port")
