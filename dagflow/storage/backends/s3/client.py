"""s3fs, and the requests for which fsspec has no method."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from fsspec.asyn import sync

from dagflow.errors import StorageError, TransientStorageError
from dagflow.storage.backends.fsspec.client import FsspecClient, PreconditionError, UnsupportedError
from dagflow.storage.backends.fsspec.files import answered
from dagflow.storage.location import redacted

CONNECTIONS = 128
"""Concurrent requests of one process to S3, at most: at 50 ms each 2,560 objects a second, more than a core
requests."""

USER_AGENT = "dagflow"
"""Built once: the client builds its own twice for each request, which is a tenth of the request's time."""

_KEYS = "aws_access_key_id", "aws_secret_access_key", "aws_session_token"

_SESSIONS = "profile", "session"

_OBJECT_STORE_NAMES = {
    "ServerSideEncryption": "aws_server_side_encryption",
    "SSEKMSKeyId": "aws_sse_kms_key_id",
    "BucketKeyEnabled": "aws_sse_bucket_key_enabled",
}
"""Allowed entries of s3_additional_kwargs for clients by Rust's object_store, with their names there."""

_HANDED_ON = {*_KEYS, "endpoint_url", "region_name", "use_ssl", "verify"}
_NOT_HANDED_ON = {"client_cert", "proxies", "proxies_config"}


class BrokenBodyError(TransientStorageError):
    """An answer broke off in its body."""


class S3Client(FsspecClient):
    """Provides the s3fs file system, and the bucket, of a URL."""

    def locate(self, url: str) -> tuple[Any, str]:
        filesystem, path = super().locate(url)
        prepare_session(filesystem)
        return filesystem, path

    def location(self, url: str) -> S3Location:
        return S3Location(self, url)

    def object_store_options(self, url: str) -> dict[str, str]:
        """Endpoint, region, access and encryption, in the way s3fs uses them.

        Credentials from the app's options are current, and valid for ten minutes at least. Other credentials the client
        finds by itself, and replaces before they expire.
        """
        filesystem, path = self.locate(url)
        _require_handed_on(filesystem, url)
        with self.translated(url, "connect to"):
            endpoint, is_host, region = addressing(filesystem, path.partition("/")[0])
            credentials = sync(filesystem.loop, frozen_credentials, filesystem) if _names_access(filesystem) else ()
        options = {
            # Names of the log are created once, by S3's condition for that.
            "aws_conditional_put": "etag",
            "aws_endpoint_url": endpoint,
            "aws_virtual_hosted_style_request": str(is_host).lower(),
            "aws_region": region,
            "aws_allow_http": str(endpoint.startswith("http:")).lower(),
        }
        if filesystem.client_kwargs.get("verify") is False:
            options["allow_invalid_certificates"] = "true"
        if filesystem.requester_pays:
            options["aws_request_payer"] = "true"
        for name, value in filesystem.s3_additional_kwargs.items():
            options[_OBJECT_STORE_NAMES[name]] = str(value).lower() if isinstance(value, bool) else str(value)
        if filesystem.anon:
            return {**options, "aws_skip_signature": "true"}
        return {**options, **{name: value for name, value in zip(_KEYS, credentials, strict=False) if value}}

    def arguments(self) -> dict[str, Any]:
        options = super().arguments()
        # The client's own limit is 10, which delays requests without need.
        defaults = {"max_pool_connections": CONNECTIONS, "user_agent": USER_AGENT}
        return {**options, "config_kwargs": {**defaults, **options.get("config_kwargs", {})}}


class S3Location:
    """A key in a bucket, and requests about it.

    Attributes:
        key: The key, with the slashes at its end; "" for the bucket itself.
        prefix: The common beginning of all keys below.
    """

    def __init__(self, client: S3Client, url: str) -> None:
        self._client = client
        self.filesystem, path = client.locate(url)
        # The client removes slashes at the end, which are part of a key.
        self.bucket, slash, self.key = (path + url[len(url.rstrip("/")) :]).partition("/")
        self.prefix = f"{self.key}/" if slash else ""
        self.url = url

    def call(self, method: str, action: str, **arguments: Any) -> dict[str, Any]:
        """Send one request about the bucket; Key must be among the arguments where it takes one."""
        try:
            with self._client.translated(self.url, action):
                answer: dict[str, Any] = self.filesystem.call_s3(method, Bucket=self.bucket, **arguments)
                return answer
        except UnsupportedError as error:
            if not arguments.keys() & {"IfMatch", "IfNoneMatch"}:
                raise
            raise StorageError(
                f"{error.message}: the store does not know conditional writes, which keep two runs apart",
                url=error.url,
                hint="put the checkpoint on a local disk or on an object store with conditional writes, such as "
                "Amazon S3 or MinIO; output that is published into S3 needs them as well",
            ) from error

    def get(self, action: str, etag: str = "", **arguments: Any) -> bytes:
        """One object's bytes, or a range of them; with an etag only those of that version.

        Raises:
            PreconditionError: The object has another etag.
            StorageError: As FsspecClient.translated says.
        """
        asked = {**arguments, "IfMatch": f'"{etag}"'} if etag else arguments
        # The client repeats a failed request, but not one whose answer breaks off in its body.
        data, tag = answered(lambda: self._ask(action, asked), BrokenBodyError)
        # A server that does not know the condition ignores it.
        if etag and tag.strip('"') != etag:
            raise PreconditionError(f"cannot {action}: the etag is {tag}", url=redacted(self.url))
        return data

    def _ask(self, action: str, arguments: dict[str, Any]) -> tuple[bytes, str]:
        with self._client.translated(self.url, action):
            got: tuple[bytes, str] = sync(self.filesystem.loop, self._get, action, arguments)
            return got

    async def _get(self, action: str, arguments: dict[str, Any]) -> tuple[bytes, str]:
        answer = await self.filesystem._call_s3("get_object", Bucket=self.bucket, **arguments)
        try:
            with self._client.translated(self.url, action):
                async with answer["Body"] as body:
                    data: bytes = await body.read()
        except TransientStorageError as error:
            raise BrokenBodyError(error.message, url=error.url) from error.__cause__
        return data, answer.get("ETag", "")

    def list(self, action: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        """The pages of a listing, each fetched on demand."""
        while True:
            page = self.call("list_objects_v2", action, **arguments)
            yield page
            if not page.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = page["NextContinuationToken"]
            arguments.pop("StartAfter", None)


def addressing(filesystem: Any, bucket: str) -> tuple[str, bool, str]:
    """The endpoint of a bucket, whether the bucket is its host, and the region."""
    client = sync(filesystem.loop, filesystem.set_session)
    # Whether the bucket is a host or in the path depends on a dozen settings; s3fs says here what it would do.
    signed = sync(filesystem.loop, client.generate_presigned_url, "get_object", {"Bucket": bucket, "Key": "k"})
    endpoint = client.meta.endpoint_url
    is_host = urlsplit(signed).netloc.startswith(f"{bucket}.")
    return endpoint.replace("://", f"://{bucket}.", 1) if is_host else endpoint, is_host, client.meta.region_name


async def frozen_credentials(filesystem: Any) -> tuple[str, str, str | None, bool]:
    """The current credentials of a connected s3fs file system, and whether they stay valid."""
    if filesystem.key:
        return filesystem.key, filesystem.secret, filesystem.token, True
    keys = [filesystem.client_kwargs.get(name) for name in _KEYS]
    if keys[0]:
        return keys[0], keys[1], keys[2], True
    credentials = await filesystem.session.get_credentials()
    if credentials is None:
        # Imported late: it is optional.
        from botocore.exceptions import NoCredentialsError

        raise NoCredentialsError
    frozen = await credentials.get_frozen_credentials()
    return frozen.access_key, frozen.secret_key, frozen.token, not hasattr(credentials, "refresh_needed")


def _names_access(filesystem: Any) -> bool:
    named = filesystem.key, filesystem.client_kwargs.get(_KEYS[0]), *map(filesystem.storage_options.get, _SESSIONS)
    return not filesystem.anon and any(named)


def _require_handed_on(filesystem: Any, url: str) -> None:
    """Refuse options without a name in Rust's object_store, whose clients would behave differently."""
    unknown = [
        *(filesystem.s3_additional_kwargs.keys() - _OBJECT_STORE_NAMES.keys()),
        *(filesystem.client_kwargs.keys() - _HANDED_ON),
        *(filesystem.config_kwargs.keys() & _NOT_HANDED_ON),
    ]
    if unknown:
        raise StorageError(
            f"the option {min(unknown)} of the storage cannot be handed on to deltalake",
            url=redacted(url),
            hint="leave it out, or write the table as Iceberg or as a dataset of Parquet",
        )


def prepare_session(filesystem: Any) -> None:
    """Give a file system that has not connected yet a session that parses the times of answers quickly.

    A session of its own, or from the app's options, is kept.
    """
    if getattr(filesystem, "session", filesystem) is not None:
        return
    # Imported late: it is optional, and takes a quarter of a second.
    from aiobotocore.session import AioSession

    session = AioSession(**filesystem.kwargs)
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=parsed_time)
    filesystem.session = session


def parsed_time(value: Any) -> datetime:
    """The time in an answer.

    The forms that S3 uses, in listings and in headers, take a fiftieth and a tenth of the time of the client's own
    parser, which guesses; that one parses the rest.
    """
    if isinstance(value, str):
        try:
            time = datetime.fromisoformat(value) if value[10:11] == "T" else parsedate_to_datetime(value)
        except ValueError:
            time = None
        if time is not None and time.tzinfo is not None:
            return time
    # Imported late: it is optional.
    from botocore.utils import parse_timestamp

    other: datetime = parse_timestamp(value)
    return other
