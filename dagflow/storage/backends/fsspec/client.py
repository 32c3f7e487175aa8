"""fsspec's file systems, made with the app's options; their errors become dagflow's."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import fsspec
from fsspec.archive import AbstractArchiveFileSystem

from dagflow.errors import AlreadyExistsError, CredentialsError, MissingError, StorageError, TransientStorageError
from dagflow.storage.backends.local.disk import storage_error
from dagflow.storage.context import backend_of
from dagflow.storage.location import redacted, require_no_credentials
from dagflow.storage.options import StorageOptions, options_of, without_credentials

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
"""The extra of dagflow that installs the package for a scheme."""

# fsspec's own client for HDFS needs Hadoop's native library, which no Python package includes. Registered here and
# not with the HDFS backend, because chains such as `zip://a::hdfs://b` lead to it, too.
for _scheme, _class in (("hdfs", "HdfsFileSystem"), ("viewfs", "ViewfsFileSystem")):
    fsspec.register_implementation(
        _scheme, f"hdfs_native.fsspec.{_class}", clobber=True, errtxt="hdfs-native is not installed"
    )

_TRANSIENT_STATUS = {"429", "500", "502", "503", "504"}
"""HTTP status codes with one meaning on every store; each kind of store also has its own codes."""

_TRANSIENT_CODES = {
    *_TRANSIENT_STATUS,
    "409",
    "ConditionalRequestConflict",
    "InternalError",
    "OperationAborted",
    "RequestTimeout",
    "ServiceUnavailable",
    "SlowDown",
}
_TRANSIENT_CLASSES = {"ConnectionError", "HTTPClientError", "IncompleteReadError", "ResponseParserError"}
"""botocore's classes for an answer that did not arrive, or not whole; timeouts derive from the first two."""

_CREDENTIALS_CODES = {
    "401",
    "AuthFailure",
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSecurity",
    "InvalidToken",
    "MissingAuthenticationToken",
    "RequestExpired",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
    "UnrecognizedClientException",
}
_CREDENTIALS_CLASSES = {
    # botocore
    "CredentialRetrievalError",
    "LoginError",
    "MetadataRetrievalError",
    "NoAuthTokenError",
    "NoCredentialsError",
    "PartialCredentialsError",
    "ProfileNotFound",
    "RefreshWithMFAUnsupportedError",
    "SSOError",
    "TokenRetrievalError",
    # google.auth and azure.core
    "ClientAuthenticationError",
    "DefaultCredentialsError",
    "RefreshError",
}
_CREDENTIALS_HINT = (
    "give valid credentials to all hosts that run tasks, or set their clocks right, and run again: nothing was left "
    "out for lack of them"
)
_CACHES = {"blockcache", "cached", "filecache", "simplecache"}
_QUERY = re.compile(r"(https?://[^\s?'\"]*)\?[^\s'\"]*")
_PRECONDITION_CODES = {"412", "PreconditionFailed"}
_MISSING_CODES = {"404", "410", "NoSuchKey", "NoSuchBucket", "NoSuchUpload"}
_UNSUPPORTED_CODES = {"501", "NotImplemented"}

_NO_LINK = "\0\0"
"""Replaces `::` in a path while fsspec, which would split there, makes a file system: no path has a NUL."""


class PreconditionError(StorageError):
    """The object is not in the state that the request required."""


class UnsupportedError(StorageError):
    """The store does not know the required condition."""


class FsspecClient:
    """Provides the file system of each URL of a scheme; picklable, holds no connection.

    Args:
        scheme: The scheme; for a chain such as `zip://a::s3://b` the first one.
    """

    def __init__(self, scheme: str, options: StorageOptions) -> None:
        self.scheme = scheme
        self.options = options

    def locate(self, url: str) -> tuple[Any, str]:
        """The file system of a URL, and the path in it.

        Listings are never cached: a listing without another driver's writes would break the fence. fsspec has a file
        system for each thread, as some of its clients are not safe for several.
        """
        require_no_credentials(url)
        _require_no_cache(url)
        try:
            chain = self._chain_of(url)
            arguments = {protocol: self._arguments_of(protocol) for protocol in map(_protocol_of, chain.split("::"))}
            filesystem, path = fsspec.core.url_to_fs(chain, **arguments)
        except ImportError as error:
            extra = _EXTRAS.get(self.scheme, "")
            hint = f"install it with: pip install 'dagflow[{extra}]'" if extra else str(error)
            raise StorageError(f"no package for {self.scheme}:// is installed", url=redacted(url), hint=hint) from error
        except ValueError as error:
            raise StorageError(f"unknown scheme '{self.scheme}'", url=redacted(url), hint=str(error)) from error
        except Exception as error:  # as translated() says
            raise self._error_of_opening(error, url) from error
        return filesystem, path.replace(_NO_LINK, "::")

    def _error_of_opening(self, error: Exception, url: str) -> StorageError:
        """Why a file system cannot be made: servers are asked, archives are opened, and options may be missing."""
        is_in_archive = self.is_chain(url)
        error, shown = _without_wrapper(error, self), redacted(url)
        if isinstance(error, OSError) or self.is_transient(error):
            is_local = is_in_archive and not self.is_transient(error)
            return self._storage_error(error, shown, "open the archive" if is_local else "connect to the server")
        reason = without_credentials(str(error), self.options)
        if is_in_archive:
            hint = "it is damaged, or not complete yet; put the whole archive in its place, and run again"
            return StorageError(f"cannot open the archive: {reason}", url=shown, hint=hint)
        hint = f"see which options fsspec needs for it, and give them as storage: {{{self.scheme}: …}}"
        return StorageError(f"cannot use {self.scheme}://: {reason}", url=shown, hint=hint)

    def _chain_of(self, url: str) -> str:
        """The URL with `::` only where it links a chain: in the scheme, and behind a path in an archive."""
        scheme, mark, path = url.partition("://")
        first = scheme.partition("::")[0]
        if "::" not in path or issubclass(fsspec.get_filesystem_class(first), AbstractArchiveFileSystem):
            return url
        return scheme + mark + path.replace("::", _NO_LINK)

    def is_chain(self, url: str) -> bool:
        """Whether a URL leads through one file system to another, as into an archive."""
        return "::" in self._chain_of(url)

    def arguments(self) -> dict[str, Any]:
        """The arguments of the scheme's file system; each link of a chain has a client of its own."""
        # False regardless of the app's options: a listing must show what other drivers have written by now.
        return {**options_of(self.options, self.scheme), "use_listings_cache": False}

    def _arguments_of(self, protocol: str) -> dict[str, Any]:
        if protocol == self.scheme:
            return self.arguments()
        client = getattr(backend_of(f"{protocol}://", self.options), "client", None)
        return client.arguments() if isinstance(client, FsspecClient) else options_of(self.options, protocol)

    @property
    def is_concurrent(self) -> bool:
        """Whether the client takes several requests at the same time, from any thread."""
        try:
            kind = fsspec.get_filesystem_class(self.scheme.partition("::")[0])
        except (ImportError, ValueError):
            return False  # the error of a request explains better what is missing
        return bool(getattr(kind, "async_impl", False)) or kind.protocol == "memory"

    @contextlib.contextmanager
    def translated(self, url: str, action: str) -> Iterator[None]:
        """Turn any error of the client into a StorageError.

        Raises:
            PreconditionError: A conditional request was refused.
            UnsupportedError: The store does not know such a request.
            CredentialsError: The credentials are refused or missing.
            StorageError: As translated() of local disks says.
        """
        try:
            yield
        except (StorageError, NotImplementedError):
            raise
        except Exception as error:  # clients raise their own classes, which have no common base
            raise self._storage_error(error, redacted(url), action) from error

    def _storage_error(self, error: Exception, url: str, action: str) -> StorageError:
        error = _without_wrapper(error, self)
        # Some clients quote the server's stack trace, some the whole location.
        reason = without_credentials(str(error), self.options).split("\n\tat ")[0].strip()
        reason = _QUERY.sub(r"\1?***", reason)
        message = f"cannot {action}: {reason}"
        code, status = _answer_of(error)
        if code in _PRECONDITION_CODES:
            return PreconditionError(message, url=url)
        if isinstance(error, FileExistsError):
            return AlreadyExistsError(message, url=url)
        if isinstance(error, FileNotFoundError) or code in _MISSING_CODES:
            return MissingError(message, url=url)
        if code in _CREDENTIALS_CODES or _classes_of(error) & _CREDENTIALS_CLASSES:
            what = f"the credentials are refused ({code})" if code else "there are no valid credentials"
            return CredentialsError(f"cannot {action}: {what}: {reason}", url=url, hint=_CREDENTIALS_HINT)
        if code in _TRANSIENT_CODES or status in _TRANSIENT_STATUS or (not code and self.is_transient(error)):
            return TransientStorageError(message, url=url)
        if code in _UNSUPPORTED_CODES or status in _UNSUPPORTED_CODES:
            return UnsupportedError(message, url=url)
        return storage_error(error, url, action) if isinstance(error, OSError) else StorageError(message, url=url)

    def is_transient(self, error: Exception) -> bool:
        """Whether an error means that servers could not be reached, so that the request may succeed later."""
        if isinstance(error, (ConnectionError, TimeoutError)) or "Connect" in type(error).__name__:
            return True
        if _classes_of(error) & _TRANSIENT_CLASSES:
            return True
        return type(error).__module__.startswith(("aiohttp", "aiobotocore", "urllib3"))


def _without_wrapper(error: Exception, client: FsspecClient) -> Exception:
    """The error of a web server, any answer of which fsspec reports as a missing file."""
    cause = error.__cause__
    is_wrapped = isinstance(error, FileNotFoundError) and isinstance(cause, Exception) and client.is_transient(cause)
    return cause if is_wrapped and isinstance(cause, Exception) else error


def available_protocols() -> list[str]:
    """The schemes that fsspec has a file system for, installed or not."""
    protocols: list[str] = fsspec.available_protocols()
    return protocols


def _protocol_of(link: str) -> str:
    protocol, mark, _ = link.partition("://")
    return protocol if mark or link.isalpha() else "file"


def _require_no_cache(url: str) -> None:
    parts = url.split("::")
    caches = [part for part in parts[:-1] if part.partition("://")[0] in _CACHES]
    if caches:
        without = redacted("::".join(part for part in parts if part not in caches))
        raise StorageError(
            f"{caches[0]} keeps copies of files, and would give the bytes of an older version for those of a newer one",
            url=redacted(url),
            hint=f"name it without the cache: {without}",
        )


def _classes_of(error: BaseException) -> set[str]:
    """The names of an error's classes: those of clients cannot be imported where the client is not installed."""
    return {parent.__name__ for parent in type(error).__mro__}


def _answer_of(error: BaseException | None) -> tuple[str, str]:
    while error is not None:
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", "")
            return str(response.get("Error", {}).get("Code", "")), str(status)
        if isinstance(status := getattr(error, "status", None), int):
            return str(status), str(status)
        error = error.__cause__
    return "", ""
