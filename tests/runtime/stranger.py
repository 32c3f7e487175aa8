"""What a stranger on the same machine tries with the ports and sockets of a run; prints what it could get hold of.

Run with Python alone as `stranger.py UID PORT… SOCKET…`: asks each TCP port for the pieces of the first broadcast, in
the protocol of Spark's block managers, and connects to each socket.
"""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401  # before the change of user, who may not be allowed to look into where Python is
import os
import socket
import struct
import sys

CHUNK_REQUEST, CHUNK_SUCCESS, RPC_REQUEST, RPC_RESPONSE = 0, 1, 3, 4
OPEN_BLOCKS = 0
REQUEST = ord("\n")
"""The number of the request, which also ends a line for a server that reads lines, so that it answers."""


def text(value: str) -> bytes:
    """Text as Spark's protocol has it."""
    return struct.pack("!i", len(value)) + value.encode()


def send(connection: socket.socket, kind: int, header: bytes, body: bytes = b"") -> None:
    """Send one frame."""
    connection.sendall(struct.pack("!qb", 9 + len(header) + len(body), kind) + header + body)


def receive(connection: socket.socket) -> tuple[int, bytes]:
    """One frame: its kind and the rest."""
    data = b""
    while len(data) < 9 or len(data) < struct.unpack_from("!q", data)[0]:
        piece = connection.recv(1 << 16)
        if not piece:
            raise EOFError
        data += piece
    return data[8], data[9:]


def broadcast_from(port: int) -> bytes:
    """The first piece of the first broadcast, as a block manager gives it without a secret."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        wanted = bytes([OPEN_BLOCKS]) + text("app") + text("driver") + struct.pack("!i", 1) + text("broadcast_0_piece0")
        send(connection, RPC_REQUEST, struct.pack("!qi", REQUEST, len(wanted)), wanted)
        kind, rest = receive(connection)
        if kind != RPC_RESPONSE:
            return b""
        (stream,) = struct.unpack_from("!q", rest, 13)  # behind the request's number, a length and the answer's type
        send(connection, CHUNK_REQUEST, struct.pack("!qi", stream, 0))
        kind, rest = receive(connection)
        return rest if kind == CHUNK_SUCCESS else b""


def main(user: int, addresses: list[str]) -> None:
    """Try everything, and print what was got: data of a broadcast, or the path of a socket that answers."""
    if user != os.getuid():
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    for place in addresses:
        # Nothing, the end of the connection, and a refusal are all the same to a stranger.
        with contextlib.suppress(OSError, EOFError):
            if place.isdecimal():
                print(broadcast_from(int(place)).decode("latin-1"), end="")
            else:
                with socket.socket(socket.AF_UNIX) as connection:
                    connection.connect(place)
                    print(place)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
