"""The door to fsspec: a URL becomes a file system, its errors become ours."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import fsspec
from fsspec.asyn import sync

from dagflow.errors import AlreadyExistsError, MissingError, StorageError, TransientStorageError
from dagflow.storage.local_disk import storage_error
from dagflow.storage.location import redacted, require_no_credentials
from dagflow.storage.options import options_of, without_secrets
from dagflow.storage.s3_session import USER_AGENT, prepare_session

_EXTRAS = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gcs",
    "gcs": "gcs",
    "abfs": "azure",
    "abfss": "azure",
    "az": "azure",
    "hdfs": "hdfs",
    "viewfs": "hdfs",
}
# fsspec's own client for HDFS needs Hadoop's native library, which no Python package brings along.
_HDFS = {"hdfs": "hdfs_native.fsspec.HdfsFileSystem", "viewfs": "hdfs_native.fsspec.ViewfsFileSystem"}
for _scheme, _class in _HDFS.items():
    fsspec.register_implementation(_scheme, _class, clobber=True, errtxt="hdfs-native is not installed")
# Clients of one request at a time, which nevertheless do not mind threads.
_FOR_THREADS = {"hdfs", "viewfs", "memory"}
S3_CONNECTIONS = 128
"""Requests to S3 of one process that are under way at the same time, at most: at 50 ms each 2,560 objects a second,
more than a core asks for."""

REQUESTS = 32
"""Requests of one process that are under way at the same time: that many small files in one latency."""

_TRANSIENT_CODES = {
    "409",
    "500",
    "502",
    "503",
    "504",
    "ConditionalRequestConflict",
    "InternalError",
    "OperationAborted",
    "RequestTimeout",
    "ServiceUnavailable",
    "SlowDown",
}
_PRECONDITION_CODES = {"412", "PreconditionFailed"}
_MISSING_CODES = {"404", "NoSuchKey", "NoSuchBucket", "NoSuchUpload"}


class PreconditionError(StorageError):
    """The object is not in the state that the request demanded."""


def filesystem_of(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it.

    Listings are never cached: a listing that does not show what another driver wrote would break the fence.

    Raises:
        StorageError: The scheme is unknown, its package is not installed, or the URL holds a credential.
    """
    require_no_credentials(url)
    scheme = url.partition("://")[0]
    try:
        filesystem, path = fsspec.core.url_to_fs(url, **_arguments(scheme))
    except ImportError as error:
        extra = _EXTRAS.get(scheme, "")
        hint = f"install it with: pip install 'dagflow[{extra}]'" if extra else str(error)
        raise StorageError(f"no package for {scheme}:// is installed", url=redacted(url), hint=hint) from error
    except ValueError as error:
        raise StorageError(f"unknown scheme '{scheme}'", url=redacted(url), hint=str(error)) from error
    if is_s3(filesystem):
        prepare_session(filesystem)
    return filesystem, path


def _arguments(scheme: str) -> dict[str, Any]:
    """What to construct a file system with; for a chain such as `simplecache::s3` by protocol."""
    if "::" in scheme:
        return {**{name: options_of(name) for name in scheme.split("::")}, "use_listings_cache": False}
    if scheme in _HDFS:
        # Its client takes Hadoop's settings, all of them text; it caches no listings.
        return {name: str(value) for name, value in options_of(scheme).items()}
    # Whatever the app says: what a listing tells of other drivers must be true now.
    options = {**options_of(scheme), "use_listings_cache": False}
    if scheme in ("s3", "s3a"):
        # The client's own limit is 10, and makes requests wait that could be under way.
        defaults = {"max_pool_connections": S3_CONNECTIONS, "user_agent": USER_AGENT}
        options["config_kwargs"] = {**defaults, **options.get("config_kwargs", {})}
    return options


def is_s3(filesystem: Any) -> bool:
    """Whether the file system speaks S3, and so has conditional writes and multipart uploads."""
    protocol = filesystem.protocol
    return "s3" in ((protocol,) if isinstance(protocol, str) else protocol)


def is_hdfs(filesystem: Any) -> bool:
    """Whether the file system is HDFS, whose rename is atomic and refuses a name that is taken."""
    return filesystem.protocol in _HDFS


def takes_several(filesystem: Any) -> bool:
    """Whether the file system's client takes several requests at the same time, from any thread."""
    protocol = filesystem.protocol
    names = {protocol} if isinstance(protocol, str) else set(protocol)
    return bool(getattr(filesystem, "async_impl", False)) or not names.isdisjoint(_FOR_THREADS)


def request_threads() -> ThreadPoolExecutor:
    """Threads that wait for requests, so that several are under way; do not use them from one of them."""
    return _threads_of(os.getpid())


@functools.cache
def _threads_of(process: int) -> ThreadPoolExecutor:
    # A process that was forked has none of its parent's threads, and gets its own.
    return ThreadPoolExecutor(REQUESTS, thread_name_prefix=f"requests-{process}")


@contextlib.contextmanager
def translated_remote(url: str, action: str) -> Iterator[None]:
    """Turn whatever a remote store's client raises into a StorageError.

    Raises:
        PreconditionError: A conditional request was refused.
        StorageError: As translated() says.
    """
    try:
        yield
    except (StorageError, NotImplementedError):
        raise
    except Exception as error:  # clients raise their own classes, which have no common base
        raise _remote_error(error, redacted(url), action) from error


def _remote_error(error: Exception, url: str, action: str) -> StorageError:
    # Some clients quote the server's stack trace.
    reason = without_secrets(str(error)).split("\n\tat ")[0].strip()
    message = f"cannot {action}: {reason}"
    code = _code_of(error)
    if code in _PRECONDITION_CODES:
        return PreconditionError(message, url=url)
    if isinstance(error, FileExistsError):
        return AlreadyExistsError(message, url=url)
    if isinstance(error, FileNotFoundError) or code in _MISSING_CODES:
        return MissingError(message, url=url)
    if code in _TRANSIENT_CODES or isinstance(error, (ConnectionError, TimeoutError)) or _is_hdfs_away(error):
        return TransientStorageError(message, url=url)
    if type(error).__module__.startswith(("aiohttp", "aiobotocore", "urllib3")) or "Connect" in type(error).__name__:
        return TransientStorageError(message, url=url)
    return storage_error(error, url, action) if isinstance(error, OSError) else StorageError(message, url=url)


def _is_hdfs_away(error: Exception) -> bool:
    """Whether HDFS's client, which has one class for all that goes wrong, says that servers are not there."""
    return type(error) is RuntimeError and re.search(r"[Cc]onnect|timed out|SafeMode|Standby", str(error)) is not None


def _code_of(error: BaseException | None) -> str:
    while error is not None:
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code", ""))
        error = error.__cause__
    return ""


class S3Location:
    """A place in a bucket, and the requests that fsspec has no verb for.

    Args:
        filesystem: An s3fs file system.
        path: bucket/key.
        url: The same as a URL, for messages.
    """

    def __init__(self, filesystem: Any, path: str, url: str) -> None:
        self.filesystem = filesystem
        self.bucket, _, self.key = path.partition("/")
        self.url = url

    def call(self, method: str, action: str, **arguments: Any) -> dict[str, Any]:
        """Send one request about the bucket; Key must be among the arguments where it takes one.

        Raises:
            StorageError: As translated_remote says.
        """
        with translated_remote(self.url, action):
            answer: dict[str, Any] = self.filesystem.call_s3(method, Bucket=self.bucket, **arguments)
            return answer

    def get(self, action: str, etag: str = "", **arguments: Any) -> bytes:
        """One object's bytes, or a range of them; with an etag those of that version or none.

        Raises:
            PreconditionError: The object has another etag.
            StorageError: As translated_remote says.
        """
        with translated_remote(self.url, action):
            if not etag:
                data: bytes = sync(self.filesystem.loop, self._get, arguments)[0]
                return data
            data, found = sync(self.filesystem.loop, self._get, {**arguments, "IfMatch": f'"{etag}"'})
        # A server that does not know the condition answers all the same.
        if found.strip('"') != etag:
            raise PreconditionError(f"cannot {action}: the etag is {found}", url=redacted(self.url))
        return data

    async def _get(self, arguments: dict[str, Any]) -> tuple[bytes, str]:
        answer = await self.filesystem._call_s3("get_object", Bucket=self.bucket, **arguments)
        async with answer["Body"] as body:
            data: bytes = await body.read()
        return data, answer.get("ETag", "")

    def list(self, action: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        """The pages of a listing, each fetched when it is asked for.

        Raises:
            StorageError: As translated_remote says.
        """
        while True:
            page = self.call("list_objects_v2", action, **arguments)
            yield page
            if not page.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = page["NextContinuationToken"]
            arguments.pop("StartAfter", None)


def s3_location(url: str) -> S3Location | None:
    """The S3 place of a URL, or None where the URL's store is no S3."""
    filesystem, path = filesystem_of(url)
    return S3Location(filesystem, path, url) if is_s3(filesystem) else None
