"""Reads whole objects of S3 with a client that takes an eighth of s3fs's time for each.

The client is obstore, Rust's object_store for Python. s3fs stays the configured client, which reports errors: this one
gets endpoint and credentials from it, and leaves to it whatever it cannot read itself.
"""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsspec.asyn import sync

from dagflow.storage.backends.s3.client import USER_AGENT, addressing, frozen_credentials
from dagflow.storage.options import StorageOptions, without_credentials

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Store

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
    """The objects of a bucket."""

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
        from obstore import get
        from obstore.exceptions import PreconditionError

        try:
            answer = get(self.store, key, options={"if_match": f'"{etag}"'})
            data = memoryview(answer.bytes())
        except (FileNotFoundError, PreconditionError, ValueError):
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
