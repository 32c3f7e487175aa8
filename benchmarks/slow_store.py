"""A store with the part of S3 that reading small objects needs; it answers each request after a fixed time.

    python -m benchmarks.slow_store --objects 10000 --size 5000 --delay-millis 50

prints its port, serves s3://bench/in/000000 and so on, and runs until its standard input is closed.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import sys
from urllib.parse import parse_qs, unquote, urlsplit

_PAGE_KEYS = 1000
_TIME = "2024-01-01T00:00:00.000Z"


class Store:
    """A number of equal objects.

    Args:
        count: Number of objects.
        size: Bytes in each.
        delay_s: Delay of each answer.
    """

    def __init__(self, count: int, size: int, delay_s: float) -> None:
        self._keys = [f"in/{number:06}" for number in range(count)]
        self._known = set(self._keys)
        self._body = (b"x" * 99 + b"\n") * (size // 100) + b"x" * (size % 100)
        self._tag = hashlib.md5(self._body, usedforsecurity=False).hexdigest()
        self._delay_s = delay_s

    def answer(self, target: str) -> bytes:
        """Return the answer to a GET."""
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        if "list-type" in query:
            return _framed(200, self._page(query).encode(), "application/xml")
        if unquote(parts.path).removeprefix("/bench/") in self._known:
            return _framed(200, self._body, "application/octet-stream", self._tag)
        body = b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>"
        return _framed(404, body, "application/xml")

    def _page(self, query: dict[str, str]) -> str:
        prefix = query.get("prefix", "")
        if not "in/".startswith(prefix) and not prefix.startswith("in/"):
            return _listing("", False, "")
        if query.get("delimiter") and "/" not in prefix:
            return _listing("<CommonPrefixes><Prefix>in/</Prefix></CommonPrefixes>", False, "")
        first = int(query.get("continuation-token", "0"))
        limit = int(query.get("max-keys", _PAGE_KEYS))
        keys = [key for key in self._keys if key.startswith(prefix)][first : first + limit]
        rows = "".join(
            f"<Contents><Key>{key}</Key><LastModified>{_TIME}</LastModified><ETag>&quot;{self._tag}&quot;</ETag>"
            f"<Size>{len(self._body)}</Size><StorageClass>STANDARD</StorageClass></Contents>"
            for key in keys
        )
        following = first + len(keys)
        return _listing(rows, following < len(self._keys) and bool(keys), str(following))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        while head := await _head(reader):
            method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ", 2)
            await asyncio.sleep(self._delay_s)
            whole = self.answer(target)
            writer.write(whole if method == "GET" else whole[: whole.index(b"\r\n\r\n") + 4])
        writer.close()


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
        return b""


def _framed(status: int, body: bytes, kind: str, tag: str = "") -> bytes:
    lines = [f"HTTP/1.1 {status} -", f"Content-Length: {len(body)}", f"Content-Type: {kind}"]
    lines += [f'ETag: "{tag}"', "Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT"] if tag else []
    return "\r\n".join([*lines, "", ""]).encode() + body


def _listing(rows: str, is_cut: bool, token: str) -> str:
    tail = f"<NextContinuationToken>{token}</NextContinuationToken>" if is_cut else ""
    count = rows.count("<Contents>") + rows.count("<CommonPrefixes>")
    return (
        '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>bench</Name>'
        f"<IsTruncated>{str(is_cut).lower()}</IsTruncated><KeyCount>{count}</KeyCount>{rows}{tail}</ListBucketResult>"
    )


async def _main(store: Store) -> None:
    server = await asyncio.start_server(store.serve, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Serve objects slowly.")
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=5_000)
    parser.add_argument("--delay-millis", type=float, default=50)
    arguments = parser.parse_args()
    asyncio.run(_main(Store(arguments.objects, arguments.size, arguments.delay_millis / 1000)))
