"""A real S3 protocol server on loopback, for tests."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator

import pytest

_START_S = 30.0

# The server says of every upload that it was begun in 2010, so that any driver's sweep took those of all others for
# abandoned: here they are as old as the server.
_PROGRAM = """
import sys, threading, time
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

app = DomainDispatcherApplication(create_backend_app)
dated = b"2010-11-10T20:48:33.000Z", time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime()).encode()

def with_dates(environ, start_response):
    body = app(environ, start_response)
    return [part.replace(*dated) for part in body] if environ["QUERY_STRING"].startswith("uploads") else body

# moto looks whether a name is taken, and then writes: of creators at the same time two may get it.
one_by_one = threading.Lock()

def served(environ, start_response):
    if not environ.keys() & {"HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH"}:
        return with_dates(environ, start_response)
    with one_by_one:
        return with_dates(environ, start_response)

run_simple("127.0.0.1", int(sys.argv[1]), served, threaded=True)
"""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running_server() -> Iterator[str]:
    """Start a server, and yield its address."""
    port = _free_port()
    command = [sys.executable, "-c", _PROGRAM, str(port)]
    address = f"http://127.0.0.1:{port}"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            deadline = time.monotonic() + _START_S
            while True:
                try:
                    urllib.request.urlopen(address, timeout=1).close()
                    break
                except OSError:
                    if server.poll() is not None or time.monotonic() > deadline:
                        raise RuntimeError("the S3 server did not start") from None
                    time.sleep(0.05)  # the server does not report that it is ready
            yield address
        finally:
            server.kill()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The address of a server, which s3:// URLs use during the session."""
    settings = {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        # The server answers some requests for missing objects with 500; retries do not help.
        "AWS_MAX_ATTEMPTS": "1",
    }
    with running_server() as address:
        before = {name: os.environ.get(name) for name in [*settings, "AWS_ENDPOINT_URL"]}
        os.environ.update(settings, AWS_ENDPOINT_URL=address)
        yield address
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@pytest.fixture
def s3_root(s3_server: str) -> str:
    """The URL of an empty bucket."""
    import s3fs

    bucket = f"bucket-{uuid.uuid4().hex}"
    s3fs.S3FileSystem().mkdir(bucket)
    return f"s3://{bucket}"
