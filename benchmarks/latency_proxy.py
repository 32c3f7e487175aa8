"""A TCP proxy on loopback that adds latency to a server.

Bytes from a client arrive later by a fixed time. The rate of a connection stays the same, and every request on it takes
that much longer. A new connection costs one more delay, or --connect-millis.

    python -m benchmarks.latency_proxy --target 127.0.0.1:9000 --delay-millis 50

prints the port that it listens on, and runs until it is killed or its standard input is closed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys

_CHUNK_BYTES = 1 << 16


async def _delayed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    """Forward each piece a fixed time after it arrived."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def take_in() -> None:
        while data := await reader.read(_CHUNK_BYTES):
            pieces.put_nowait((loop.time() + delay_s, data))
        pieces.put_nowait((loop.time() + delay_s, b""))

    taking = asyncio.create_task(take_in())
    try:
        while True:
            due_s, data = await pieces.get()
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            if not data:
                return
            writer.write(data)
            await writer.drain()
    finally:
        taking.cancel()


async def _direct(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK_BYTES * 16):
        writer.write(data)
        await writer.drain()


async def serve(host: str, port: int, delay_s: float, connect_s: float) -> asyncio.Server:
    """Listen, and forward connections to a host and port."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, OSError):
            await asyncio.sleep(connect_s)
            far_reader, far_writer = await asyncio.open_connection(host, port, limit=1 << 22)
            both = [
                asyncio.create_task(_delayed(reader, far_writer, delay_s)),
                asyncio.create_task(_direct(far_reader, writer)),
            ]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for task in both:
                task.cancel()
            far_writer.close()
        writer.close()

    return await asyncio.start_server(connected, "127.0.0.1", 0, limit=1 << 22)


async def _main(host: str, port: int, delay_s: float, connect_s: float) -> None:
    server = await serve(host, port, delay_s, connect_s)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make a server slow to answer.")
    parser.add_argument("--target", required=True, metavar="HOST:PORT")
    parser.add_argument("--delay-millis", type=float, required=True)
    parser.add_argument("--connect-millis", type=float, help="what a new connection costs; by default the delay")
    arguments = parser.parse_args()
    connect_millis = arguments.delay_millis if arguments.connect_millis is None else arguments.connect_millis
    host, _, port = arguments.target.partition(":")
    asyncio.run(_main(host, int(port), arguments.delay_millis / 1000, connect_millis / 1000))
