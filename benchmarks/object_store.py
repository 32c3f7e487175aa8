"""What the latency of an object store costs: reading through a proxy that adds 50 ms to every request.

    python benchmarks/object_store.py                      against moto's server, which this starts
    python benchmarks/object_store.py --endpoint http://127.0.0.1:9000 --key KEY --secret SECRET

Lines are read by a BlockReader, as in one task: large objects block by block, and small objects whole, with
and without reading ahead. The server without delay is reached through a proxy as well. Each measurement is
a process of its own, so that its peak memory is its own; of several rounds the best counts, because
the server, the proxy and whatever else the machine does compete for the same cores.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MIB = 1 << 20
BLOCK_BYTES = 16 * MIB
SMALL_BYTES = 5_000
LINE = b"2026-03-01T12:00:00Z INFO request served path=/index.html status=200 bytes=5120 millis=12\n"


@contextlib.contextmanager
def moto() -> Iterator[str]:
    """A server in memory, which takes any credentials."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(600):
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=1).close()
                    break
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()


@contextlib.contextmanager
def delayed(endpoint: str, delay_millis: float) -> Iterator[str]:
    """The same server, so much slower to answer."""
    script = Path(__file__).with_name("latency_proxy.py")
    target = endpoint.removeprefix("http://")
    command = [sys.executable, str(script), "--target", target, "--delay-millis", str(delay_millis)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as proxy:
        assert proxy.stdout is not None
        try:
            yield f"http://127.0.0.1:{proxy.stdout.readline().strip()}"
        finally:
            proxy.kill()


def fill(filesystem: Any, bucket: str, large: int, large_bytes: int, small: int) -> None:
    """Put large and small objects into a new bucket."""
    filesystem.mkdir(bucket)
    content = (LINE * (large_bytes // len(LINE) + 1))[:large_bytes]
    for number in range(large):
        filesystem.pipe_file(f"{bucket}/large/{number:04}", content)
    names = {f"{bucket}/small/{number:05}": (LINE * 60)[:SMALL_BYTES] for number in range(small)}
    filesystem.pipe(names)


def read(directory: str, *, is_ahead: bool) -> dict[str, float]:
    """Read all objects of a directory as one task does."""
    from dagflow.storage.files import list_directory
    from operators.metadata import BlockMetadata, FileVersion
    from operators.reader.block_reader import BlockReader

    blocks: list[BlockMetadata] = []
    for found in list_directory(directory):
        version = FileVersion(found.size_bytes, found.mtime_ns, found.etag)
        for start in range(0, found.size_bytes, BLOCK_BYTES):
            end = min(start + BLOCK_BYTES, found.size_bytes)
            blocks.append(BlockMetadata(len(blocks), found.url, version, start, end, end == found.size_bytes))
    reader = BlockReader(format="lines")
    records = 0

    def count(batch: Any) -> None:
        nonlocal records
        records += len(batch)

    reader.messages.connect(count)
    begun_s = time.monotonic()
    if is_ahead:
        reader.foresee(list(blocks))
    for block in blocks:
        reader.read(block)
    reader.end_window()
    reader.teardown()
    seconds = time.monotonic() - begun_s
    size = sum(block.end - block.start for block in blocks)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "bytes": size, "objects": len(blocks), "records": records, "peak_mib": peak}


def measured(endpoint: str, directory: str, *, is_ahead: bool) -> dict[str, float]:
    """Read in a process of its own."""
    command = [sys.executable, __file__, "--step", "ahead" if is_ahead else "plain", "--directory", directory]
    environment = {**os.environ, "AWS_ENDPOINT_URL": endpoint}
    output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout
    result: dict[str, float] = json.loads(output)
    return result


def compare(arguments: argparse.Namespace, endpoint: str) -> None:
    """Fill a bucket, and print a table."""
    import s3fs

    bucket = f"benchmark-{os.getpid()}"
    fill(
        s3fs.S3FileSystem(endpoint_url=endpoint),
        bucket,
        arguments.large,
        int(arguments.large_mib * MIB),
        arguments.small,
    )
    best: dict[tuple[str, bool, float], dict[str, float]] = {}
    cases = [("large", True), ("small", True), ("large", False), ("small", False)]
    with delayed(endpoint, 0) as near, delayed(endpoint, arguments.delay_millis) as far:
        for number in range(arguments.rounds):
            # Without reading ahead a round takes minutes, and one shows what there is to see.
            for kind, is_ahead in cases if number == 0 else cases[:2]:
                for delay, address in ((0.0, near), (arguments.delay_millis, far)):
                    found = measured(address, f"s3://{bucket}/{kind}", is_ahead=is_ahead)
                    known = best.setdefault((kind, is_ahead, delay), found)
                    if found["seconds"] < known["seconds"]:
                        best[kind, is_ahead, delay] = found
    sys.stdout.write("objects  ahead  delay_ms  seconds    MB/s  objects/s  peak_MiB  of_near\n")
    for (kind, is_ahead, delay), found in best.items():
        near_s = best[kind, is_ahead, 0.0]["seconds"]
        sys.stdout.write(
            f"{kind:7}  {'yes' if is_ahead else 'no':5}  {delay:8.0f}  {found['seconds']:7.2f}"
            f"  {found['bytes'] / found['seconds'] / 1e6:6.1f}  {found['objects'] / found['seconds']:9.1f}"
            f"  {found['peak_mib']:8.0f}  {near_s / found['seconds']:7.0%}\n"
        )


def main() -> None:
    """Measure, or be one measurement."""
    parser = argparse.ArgumentParser(description="What the latency of an object store costs.")
    parser.add_argument("--endpoint", help="an S3 server; by default moto's is started")
    parser.add_argument("--key", default="testing")
    parser.add_argument("--secret", default="testing")
    parser.add_argument("--delay-millis", type=float, default=50.0)
    parser.add_argument("--large", type=int, default=4, help="how many large objects")
    parser.add_argument("--large-mib", type=float, default=64.0)
    parser.add_argument("--small", type=int, default=300, help=f"how many objects of {SMALL_BYTES} bytes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--step", choices=["ahead", "plain"], help=argparse.SUPPRESS)
    parser.add_argument("--directory", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        sys.stdout.write(json.dumps(read(arguments.directory, is_ahead=arguments.step == "ahead")))
        return
    os.environ.update(
        AWS_ACCESS_KEY_ID=arguments.key, AWS_SECRET_ACCESS_KEY=arguments.secret, AWS_DEFAULT_REGION="us-east-1"
    )
    with contextlib.ExitStack() as stack:
        compare(arguments, arguments.endpoint or stack.enter_context(moto()))


if __name__ == "__main__":
    main()
