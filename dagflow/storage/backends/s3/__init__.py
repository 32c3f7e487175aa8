"""S3 and stores with its protocol: conditional writes, multipart uploads, reads of one version."""

from __future__ import annotations

import heapq
import logging
import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from fsspec.asyn import sync

from dagflow.errors import (
    AlreadyExistsError,
    CredentialsError,
    MissingError,
    SourceChangedError,
    StorageError,
    TransientStorageError,
)
from dagflow.storage.backends.fsspec import FsspecBackend
from dagflow.storage.backends.fsspec.client import PreconditionError
from dagflow.storage.backends.fsspec.files import THREADS, FsspecFiles, read_each, sort_key, stat_of
from dagflow.storage.backends.s3.client import CONNECTIONS, USER_AGENT, S3Client, addressing, frozen_credentials
from dagflow.storage.backends.s3.pending import S3PendingFiles
from dagflow.storage.base import ObjectStore
from dagflow.storage.files import Content, FileStat, LoadedFiles, RangedFile, SmallFiles, fill_buffer
from dagflow.storage.location import Roots, redacted
from dagflow.storage.options import StorageOptions, without_credentials

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Store


class S3Files(FsspecFiles):
    """Objects read as files; a listing is fetched page by page."""

    client: S3Client

    def __init__(self, client: S3Client) -> None:
        super().__init__(client)
        self._fast_buckets: WeakKeyDictionary[Any, dict[str, FastObjects | None]] = WeakKeyDictionary()

    def file_of(self, found: FileStat) -> RangedFile:
        return S3File(self.client, found)

    def stat(self, url: str) -> FileStat:
        try:
            return super().stat(url)
        except StorageError as error:
            if type(error) is StorageError:
                self._require_credentials(url)
            raise

    def _require_credentials(self, url: str) -> None:
        """Check whether a look at an object or a bucket failed because of the credentials.

        An answer to HEAD has no body that could say so; one to GET has, even where listing is not allowed.

        Raises:
            CredentialsError: The credentials are refused.
            TransientStorageError: The store may succeed if asked again.
        """
        location = self.client.location(url)
        try:
            location.call("list_objects_v2", "look at", Prefix=location.prefix, MaxKeys=1)
        except (CredentialsError, TransientStorageError):
            raise
        except StorageError:
            return

    def list(self, url: str) -> Iterator[FileStat]:
        location = self.client.location(url)
        prefix, below = location.prefix, f"{url}/"
        is_empty = True
        for page in location.list("list", Prefix=prefix, Delimiter="/"):
            files = (
                stat_of(below + entry["Key"][len(prefix) :], {**entry, "type": "file", "size": entry["Size"]})
                for entry in page.get("Contents", ())
                if entry["Key"] != prefix or entry["Size"]
            )
            directories = (
                FileStat(below + entry["Prefix"][len(prefix) : -1], 0, is_directory=True)
                for entry in page.get("CommonPrefixes", ())
            )
            is_empty = is_empty and not _has_keys(page)
            yield from heapq.merge(files, directories, key=sort_key)
        if is_empty and prefix:
            raise MissingError("there is no such directory", url=redacted(url))

    def is_also_directory(self, url: str) -> bool:
        location = self.client.location(url)
        return any(map(_has_keys, location.list("list", Prefix=location.prefix, MaxKeys=1)))

    def load(self, files: SmallFiles, buffer: memoryview, endings: bytes) -> LoadedFiles:
        location = self.client.location(files.base)
        fast: dict[str, FastObjects | None] = {}
        # Without etags it would be unknown whether the bytes read are the planned version.
        if files.etags:
            # If the files are in several buckets, the base is only the scheme.
            buckets = {location.bucket} if location.bucket else {name.partition("/")[0] for name in files.names}
            with self.client.translated(files.base, "open"):
                fast = {bucket: self._fast_objects(location.filesystem, bucket) for bucket in buckets}
        prefix = f"{location.bucket}/{location.key}" if location.bucket else ""

        def read(index: int) -> Content:
            bucket, _, key = f"{prefix}{files.names[index]}".partition("/")
            objects, etag = fast.get(bucket), files.etags[index] if files.etags else ""
            content = objects.read(key, etag) if objects is not None and etag else None
            if content is not None and len(content) == files.sizes[index]:
                return content
            return self._content(files.expected(index))

        threads = CONNECTIONS if any(fast.values()) else THREADS
        return fill_buffer(read_each(read, len(files.names), threads), buffer, endings)

    def _fast_objects(self, filesystem: Any, bucket: str) -> FastObjects | None:
        buckets = self._fast_buckets.setdefault(filesystem, {})
        if bucket not in buckets:
            buckets[bucket] = open_bucket(filesystem, bucket, self.client.options)
        return buckets[bucket]

    def _open_whole(self, expected: FileStat) -> RangedFile:
        # A read that names its version needs no look before it, unless there is nothing to read.
        if expected.etag and expected.size_bytes:
            return self.file_of(expected)
        return self.open(expected.url, expected)


class S3File(RangedFile):
    """A file in a bucket.

    Guarantee: every request names the etag, so that two versions are never mixed.
    """

    def __init__(self, client: S3Client, found: FileStat) -> None:
        super().__init__(found)
        self._location = client.location(found.url)

    @property
    def is_pinned(self) -> bool:
        return bool(self.found.etag)

    def request(self, start: int, end: int) -> bytes:
        try:
            return self._location.get(
                f"read at {start}", self.found.etag, Key=self._location.key, Range=f"bytes={start}-{end - 1}"
            )
        except PreconditionError as error:
            raise SourceChangedError("the file was replaced while it was read", url=error.url) from error


def _has_keys(page: dict[str, Any]) -> bool:
    """Whether a page of a listing has any entry; not every store counts in KeyCount as Amazon's does."""
    return bool(page.get("Contents") or page.get("CommonPrefixes"))


class S3Backend(FsspecBackend):
    """S3, by s3fs and, for small objects, obstore."""

    client: S3Client
    client_class = S3Client
    files_class = S3Files
    pending_class = S3PendingFiles

    def object_store_options(self, url: str) -> dict[str, str]:
        return self.client.object_store_options(url)

    def objects(self, url: str, roots: Roots) -> S3ObjectStore:
        return S3ObjectStore(self.client, url, roots)


_DELETE_LIMIT = 1000  # keys that S3 takes in one request


class S3ObjectStore(ObjectStore):
    """Objects in a bucket.

    Guarantee: conditional writes (If-None-Match) make one of several writers win; objects appear whole.
    """

    def __init__(self, client: S3Client, url: str, roots: Roots) -> None:
        super().__init__(url, roots)
        self._location = client.location(url)

    def create_if_absent(self, name: str, data: bytes) -> None:
        try:
            self._location.call("put_object", f"create {name}", Key=self._key(name), Body=data, IfNoneMatch="*")
        except PreconditionError as error:
            raise AlreadyExistsError("the name is taken", url=error.url) from error

    def replace(self, name: str, data: bytes) -> None:
        self._location.call("put_object", f"replace {name}", Key=self._key(name), Body=data)

    def read(self, name: str) -> bytes:
        return self._location.get(f"read {name}", Key=self._key(name))

    def list(self, directory: str, after: str = "") -> Iterator[str]:
        root, prefix = len(self._key("")), self._key(directory)
        start = {"StartAfter": self._key(after)} if after else {}
        for page in self._location.list(f"list {directory}", Prefix=prefix, Delimiter="/", **start):
            # Not the object that marks the directory.
            yield from (entry["Key"][root:] for entry in page.get("Contents", ()) if entry["Key"] != prefix)

    def delete(self, names: Iterable[str]) -> None:
        rest = iter(names)
        while some := list(islice(rest, _DELETE_LIMIT)):
            keys = {"Objects": [{"Key": self._key(name)} for name in some], "Quiet": True}
            answer = self._location.call("delete_objects", "delete", Delete=keys)
            for refused in answer.get("Errors", ()):
                raise StorageError(f"cannot delete {refused['Key']}: {refused['Message']}", url=redacted(self.url))

    def _key(self, name: str) -> str:
        return f"{self._location.key}/{name}" if self._location.key else name


logger = logging.getLogger(__name__)

_TRIES = 8
"""Failures without a success after which objects are read with s3fs."""

_RETRIES: RetryConfig = {"max_retries": 2, "retry_timeout": timedelta(seconds=20)}
"""Few retries: s3fs is asked afterwards, and has its own."""

_VALID = timedelta(minutes=10)
"""Time after which changing credentials are read again at the latest; s3fs's are always valid for as long."""

_STALLED = timedelta(seconds=30)
_WHOLE = timedelta(minutes=10)
"""A slow object is waited for, an object without any data is not."""

_KNOWN_CONFIG = {"max_pool_connections", "user_agent"}
_KNOWN_ARGUMENTS = {"endpoint_url", "region_name"}


class FastObjects:
    """The whole objects of a bucket, by obstore, Rust's object_store for Python: an eighth of s3fs's time for each.

    s3fs stays the configured client, which reports errors: obstore gets endpoint and credentials from it, and leaves to
    it whatever it cannot read itself.
    """

    def __init__(self, store: S3Store, options: StorageOptions) -> None:
        self.store = store
        self._options = options
        self._has_read = False
        self._failures = 0

    def read(self, key: str, etag: str) -> memoryview | None:
        """The bytes of an object; None where it has another etag, or s3fs has to read it for any other reason."""
        # It takes paths, and drops slashes around them; it refuses other keys that are no paths with a ValueError.
        if not self._gets_on or key != key.strip("/"):
            return None
        # Optional: only a bucket that obstore opened has such objects.
        from obstore import exceptions, get

        try:
            answer = get(self.store, key, options={"if_match": f'"{etag}"'})
            data = memoryview(answer.bytes())
        except (FileNotFoundError, exceptions.PreconditionError, ValueError):
            return None
        except Exception as error:  # it raises a dozen classes, which are all handled alike
            self._note(error)
            return None
        self._has_read = True
        # A server that does not know the condition ignores it.
        return data if str(answer.meta["e_tag"]).strip('"') == etag else None

    @property
    def _gets_on(self) -> bool:
        return self._has_read or self._failures < _TRIES

    def _note(self, error: Exception) -> None:
        got_on = self._gets_on
        self._failures += 1
        if got_on and not self._gets_on:
            reason = without_credentials(str(error).partition("\n")[0], self._options)
            logger.warning("small objects are read by s3fs, more slowly: %s", reason)


def _is_understood(filesystem: Any) -> bool:
    unknown = (
        filesystem.req_kw,
        filesystem.s3_additional_kwargs,
        filesystem.config_kwargs.keys() - _KNOWN_CONFIG,
        filesystem.client_kwargs.keys() - _KNOWN_ARGUMENTS,
        filesystem.cache_regions,
    )
    return not any(unknown)


def open_bucket(filesystem: Any, bucket: str, options: StorageOptions) -> FastObjects | None:
    """The objects of a bucket; None where obstore is missing, or does not know an option that was given to s3fs."""
    if not _is_understood(filesystem):
        return None
    try:
        # Optional: without the package s3fs reads small objects, too.
        from obstore.store import S3Store
    except ImportError:
        return None
    endpoint, is_host, region = addressing(filesystem, bucket)
    is_encrypted = not endpoint.startswith("http:")
    settings: ClientConfig = {
        "allow_http": not is_encrypted,
        "default_headers": {"user-agent": USER_AGENT},
        "read_timeout": _STALLED,
        "timeout": _WHOLE,
    }
    ca_file = filesystem.session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE")
    if ca_file and is_encrypted:
        if not os.path.isfile(ca_file):
            return None
        settings["root_certificate"] = Path(ca_file).read_bytes()
    access: dict[str, Any] = {"skip_signature": True}
    if not filesystem.anon:
        access = {"credential_provider": _Credentials(filesystem)}
    store = S3Store(
        bucket,
        endpoint=endpoint,
        virtual_hosted_style_request=is_host,
        region=region,
        client_options=settings,
        retry_config=_RETRIES,
        **access,
    )
    return FastObjects(store, options)


class _Credentials:
    """Gives obstore the credentials that s3fs uses."""

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem

    def __call__(self) -> dict[str, Any]:
        """The credentials, and until when obstore need not ask for them again; None if they are fixed."""
        access_key, secret_key, token, is_fixed = sync(self._filesystem.loop, frozen_credentials, self._filesystem)
        return {
            "access_key_id": access_key,
            "secret_access_key": secret_key,
            "token": token,
            "expires_at": None if is_fixed else datetime.now(UTC) + _VALID,
        }
