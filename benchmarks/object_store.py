"""The cost of an object store's latency: reads through a proxy that adds 50 ms to every request.

    python -m benchmarks.object_store                      against moto's server, which this starts
    python -m benchmarks.object_store --endpoint http://127.0.0.1:9000 --key KEY --secret SECRET
    python -m benchmarks.object_store --only run --large 8
    python -m benchmarks.object_store --only run --endpoint http://127.0.0.1:9000 --checkpoint /tmp/journal

A BlockReader reads lines as in one task: large objects block by block and small objects whole, with and without
prefetch. "run" is a whole run on Spark that copies the large objects, with its checkpoint in the bucket, or in
--checkpoint if the server has no conditional writes; Spark's start and a small warm-up run are not counted. The
server without delay is reached through a proxy as well. Each measurement is a process of its own, so that its peak
memory is its own. The best round counts, because server, proxy and other programs compete for the same cores. The
last column is the CPU time of the server: if it fills a core, the delay costs less than it would elsewhere.
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
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dagflow.storage.context import StorageContext

MIB = 1 << 20
BLOCK_BYTES = 16 * MIB
SMALL_BYTES = 5_000
APP = """
name: object-store
attributes: {{checkpoint: {checkpoint}}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: {input}, block_size: {block_bytes}}}}}
  reader: {{class: BlockReader, properties: {{min_readers: 2}}}}
  writer: {{class: RecordWriter, properties: {{path: {output}, file_name: block}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  lines: {{from: reader.messages, to: writer.input}}
"""
RUN_BLOCK_BYTES = 64 * MIB
CASES = ["large", "small", "copy", "large-plain", "small-plain", "run"]
AHEAD = {"large", "small", "copy", "run"}
LINE = b"2026-03-01T12:00:00Z INFO request served path=/index.html status=200 bytes=5120 millis=12\n"


@contextlib.contextmanager
def moto() -> Iterator[tuple[str, int]]:
    """Start a server in memory that accepts any credentials; yield its address and process id."""
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
            yield f"http://127.0.0.1:{port}", server.pid
        finally:
            server.kill()


@contextlib.contextmanager
def delayed(endpoint: str, delay_millis: float, connect_millis: float) -> Iterator[str]:
    """Start a proxy of a server that delays answers and connections; yield its address."""
    script = Path(__file__).with_name("latency_proxy.py")
    target = endpoint.removeprefix("http://")
    command = [sys.executable, str(script), "--target", target, "--delay-millis", str(delay_millis)]
    command += ["--connect-millis", str(connect_millis)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as proxy:
        assert proxy.stdout is not None
        try:
            yield f"http://127.0.0.1:{proxy.stdout.readline().strip()}"
        finally:
            proxy.kill()


def fill(filesystem: Any, bucket: str, large: int, large_bytes: int, small: int) -> None:
    """Write large and small objects into a new bucket."""
    filesystem.mkdir(bucket)
    content = (LINE * (large_bytes // len(LINE) + 1))[:large_bytes]
    for number in range(large):
        filesystem.pipe_file(f"{bucket}/large/{number:04}", content)
    filesystem.pipe_file(f"{bucket}/warm/0000", content[:MIB])
    names = {f"{bucket}/small/{number:05}": (LINE * 60)[:SMALL_BYTES] for number in range(small)}
    filesystem.pipe(names)


def read(directory: str, *, is_ahead: bool, target: str = "") -> dict[str, float]:
    """Read all objects of a directory as one task does; with a target, also write and publish them."""
    from dagflow.api.context import OperatorContext
    from dagflow.execution.task_outputs import TaskOutputs
    from dagflow.storage.publishing import publish_all
    from operators.files.metadata import BlockMetadata, FileVersion
    from operators.reader.block_reader import BlockReader
    from operators.sink.record_writer import RecordWriter

    blocks: list[BlockMetadata] = []
    for found in StorageContext.default().list_directory(directory):
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
    outputs = TaskOutputs(StorageContext.default(), "benchmark", "process")
    if target:
        writer = RecordWriter(path=target, file_name="block")
        writer.setup(OperatorContext(outputs=outputs))
        writer.begin_window(1)
        reader.messages.connect(writer.write)
    begun_s = time.monotonic()
    if is_ahead:
        reader.prefetch(list(blocks))
    for block in blocks:
        for _ in reader.read(block):
            pass
    reader.end_window()
    reader.teardown()
    if target:
        writer.end_window()
        publish_all(StorageContext.default(), outputs.take_finished())
    seconds = time.monotonic() - begun_s
    size = sum(block.end - block.start for block in blocks)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "bytes": size, "objects": len(blocks), "records": records, "peak_mib": peak}


def copy(bucket: str, checkpoint: str | None) -> dict[str, float]:
    """Copy all large objects of a bucket with a whole run."""
    from dagflow.engine.run import run
    from dagflow.plan.load import load_app
    from dagflow.runtime.spark import SparkRuntime
    from dagflow.runtime.spark_context import start_context

    with tempfile.TemporaryDirectory() as folder:
        context = start_context("object-store", "local[2]", {}, Path(folder) / "spark.log")

        def once(source: str, name: str) -> Any:
            journal = f"{checkpoint or bucket + '/journal'}-{name}"
            path = Path(folder) / "app.yaml"
            target = f"{bucket}/out-{name}"
            path.write_text(APP.format(checkpoint=journal, input=source, output=target, block_bytes=RUN_BLOCK_BYTES))
            return run(load_app(str(path)), runtime=lambda program: SparkRuntime(program, context))

        try:
            once(f"{bucket}/warm", f"warm-{os.getpid()}")
            begun_s = time.monotonic()
            summary = once(f"{bucket}/large", str(os.getpid()))
            seconds = time.monotonic() - begun_s
        finally:
            context.stop()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "seconds": seconds,
        "bytes": summary.bytes,
        "objects": summary.blocks,
        "records": summary.records.get("reader.messages", 0),
        "peak_mib": peak,
    }


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process so far; 0 without a process."""
    if not pid:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(endpoint: str, bucket: str, case: str, arguments: argparse.Namespace) -> dict[str, float]:
    """Read or copy in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.object_store", "--step", case, "--directory", f"s3://{bucket}"]
    command += ["--checkpoint", arguments.checkpoint] if arguments.checkpoint else []
    environment = {**os.environ, "AWS_ENDPOINT_URL": endpoint}
    before_s = cpu_seconds(arguments.server_pid)
    output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout
    result: dict[str, float] = json.loads(output)
    return {**result, "server_s": cpu_seconds(arguments.server_pid) - before_s}


def compare(arguments: argparse.Namespace, endpoint: str) -> None:
    """Fill a bucket, measure, and print a table."""
    import s3fs

    bucket = f"benchmark-{os.getpid()}"
    fill(
        s3fs.S3FileSystem(endpoint_url=endpoint),
        bucket,
        arguments.large,
        int(arguments.large_mib * MIB),
        arguments.small,
    )
    best: dict[tuple[str, float], dict[str, float]] = {}
    # moto's server ends each connection after one request, unlike real stores. With delayed connections every request
    # would take twice the delay.
    connect_millis = 0.0 if arguments.is_moto else arguments.delay_millis
    with delayed(endpoint, 0, 0) as near, delayed(endpoint, arguments.delay_millis, connect_millis) as far:
        for number in range(arguments.rounds):
            for case in arguments.only.split(","):
                # Without prefetch a round takes minutes, and one is enough.
                for delay, address in (
                    ((0.0, near), (arguments.delay_millis, far)) if not number or case in AHEAD else ()
                ):
                    found = measured(address, bucket, case, arguments)
                    known = best.setdefault((case, delay), found)
                    if found["seconds"] < known["seconds"]:
                        best[case, delay] = found
    sys.stdout.write("what         delay_ms  seconds    MB/s  objects/s  peak_MiB  of_near  server's CPU s\n")
    for (case, delay), found in best.items():
        near_s = best[case, 0.0]["seconds"]
        sys.stdout.write(
            f"{case:11}  {delay:8.0f}  {found['seconds']:7.2f}  {found['bytes'] / found['seconds'] / 1e6:6.1f}"
            f"  {found['objects'] / found['seconds']:9.1f}  {found['peak_mib']:8.0f}  {near_s / found['seconds']:7.0%}"
            f"  {found['server_s']:14.2f}\n"
        )


def main() -> None:
    """Measure everything, or one step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--endpoint", help="an S3 server; by default moto's is started")
    parser.add_argument("--server-pid", type=int, default=0, help="process of that server, to see how busy it is")
    parser.add_argument("--key", default="testing")
    parser.add_argument("--secret", default="testing")
    parser.add_argument("--checkpoint", help="where the checkpoints of whole runs go; by default into the bucket")
    parser.add_argument("--delay-millis", type=float, default=50.0)
    parser.add_argument("--large", type=int, default=4, help="how many large objects")
    parser.add_argument("--large-mib", type=float, default=64.0)
    parser.add_argument("--small", type=int, default=300, help=f"how many objects of {SMALL_BYTES} bytes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(CASES), help="by comma")
    parser.add_argument("--step", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--directory", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step == "run":
        sys.stdout.write(json.dumps(copy(arguments.directory, arguments.checkpoint)))
        return
    if arguments.step == "copy":
        found = read(f"{arguments.directory}/large", is_ahead=True, target=f"{arguments.directory}/out-{os.getpid()}")
        sys.stdout.write(json.dumps(found))
        return
    if arguments.step:
        kind, _, way = arguments.step.partition("-")
        sys.stdout.write(json.dumps(read(f"{arguments.directory}/{kind}", is_ahead=not way)))
        return
    os.environ.update(
        AWS_ACCESS_KEY_ID=arguments.key, AWS_SECRET_ACCESS_KEY=arguments.secret, AWS_DEFAULT_REGION="us-east-1"
    )
    with contextlib.ExitStack() as stack:
        arguments.is_moto = arguments.endpoint is None
        if arguments.is_moto:
            arguments.endpoint, arguments.server_pid = stack.enter_context(moto())
        compare(arguments, arguments.endpoint)


if __name__ == "__main__":
    main()
