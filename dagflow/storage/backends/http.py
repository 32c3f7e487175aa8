"""Files of web servers, by HTTP: single files, each by its own URL."""

from __future__ import annotations

import contextlib
import re
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from fsspec.asyn import sync

from dagflow.errors import StorageError, TransientStorageError
from dagflow.storage.backends.fsspec import FsspecBackend
from dagflow.storage.backends.fsspec.client import FsspecClient
from dagflow.storage.backends.fsspec.files import LOOK_PATIENCE_S, FsspecFile, FsspecFiles, answered, stat_of
from dagflow.storage.files import FileStat, RangedFile, require_same_version
from dagflow.storage.location import redacted

_MARKS = ("ETag", "Last-Modified")
_RANGE = re.compile(r"bytes\s+(\d+)-(\d+)/(\d+|\*)")
_SERVE_RANGES = (
    "serve it by a server that answers byte ranges as they are, or leave it out with on_error: skip on the reader, and "
    "read a copy of it"
)
_NAME_FILES = "a web server cannot be asked for the files of a directory: name each file by its own URL"


class HttpClient(FsspecClient):
    """Makes fsspec's file system for web servers, and requests files uncompressed."""

    def arguments(self) -> dict[str, Any]:
        """The arguments that prevent compression on the way, which changes the length and the ranges of a file."""
        options = super().arguments()
        return {**options, "headers": {**options.get("headers", {}), "Accept-Encoding": "identity"}}


class HttpFile(FsspecFile):
    """A file of a web server.

    Guarantee: each answer is of the opened version, as far as the server sends a tag or a time with it.
    """

    def request(self, start: int, end: int) -> bytes:
        received: list[bytes] = []

        def ask() -> None:
            with self._client.translated(self.found.url, f"read at {start}"):
                has_more = True
                while has_more and start + _length(received) < end:
                    # A server may send less of a range than was requested, and say so.
                    has_more = sync(self._filesystem.loop, self._get, received, start + _length(received), end)

        answered(ask)
        return b"".join(received)

    async def _get(self, received: list[bytes], start: int, end: int) -> bool:
        """Receive the first of the bytes [start, end), at least one.

        Args:
            received: Gets the bytes of a range, also where the answer breaks off; a file that is sent whole is added
                only when it is complete.
            start: First byte.
            end: One past the last byte.

        Returns:
            Whether the server may have more of them. After a file that it sends whole it has no more; then the bytes
            may be fewer, or none.
        """
        # By fsspec's session, not by its cat_file(), which accepts any answer of any length.
        filesystem, options = self._filesystem, dict(self._filesystem.kwargs)
        headers = {**options.pop("headers", {}), "Range": f"bytes={start}-{end - 1}"}
        session = await filesystem.set_session()
        async with session.get(filesystem.encode_url(self._path), headers=headers, **options) as answer:
            answer.raise_for_status()
            is_range: bool = answer.status == 206
            sent = _RANGE.fullmatch(answer.headers.get("Content-Range", "").strip()) if is_range else None
            size = sent and sent[3] if is_range else answer.content_length
            marks = {name: answer.headers[name] for name in _MARKS if name in answer.headers}
            info = {**marks, "type": "file", "size": self.size_bytes if size in ("*", None) else size}
            is_encoded = answer.headers.get("Content-Encoding", "identity") != "identity"
            if is_encoded or not (is_range or end - start == self.size_bytes):
                what = "compressed, though" if is_encoded else "whole, and"
                raise self._refused(
                    f"the server sends the file {what} it was asked for {end - start} of its {self.size_bytes} bytes"
                )
            require_same_version(self.found, _stat(self.found.url, info))
            if is_range:
                end = self._sent_end(sent, start, end)
            arriving, before = (received, _length(received)) if is_range else ([], 0)
            async for some in answer.content.iter_any():
                arriving.append(some)
        sent_bytes = _length(arriving) - before
        if sent_bytes > end - start:
            raise self._refused(f"the server sent {sent_bytes} bytes for the {end - start} from {start} on")
        # An answer without a length ends with its connection; a truncated one in chunks was already detected.
        if sent_bytes < end - start and (is_range or "Transfer-Encoding" not in answer.headers):
            raise TransientStorageError(
                f"the server's answer ended after {sent_bytes} of the {end - start} bytes from {start} on",
                url=redacted(self.found.url),
            )
        if not is_range:
            received += arriving
        return is_range

    def _sent_end(self, sent: re.Match[str] | None, start: int, end: int) -> int:
        if sent is None:
            raise self._refused(f"the server does not say which bytes it sent for {start}-{end - 1}")
        first, last = int(sent[1]), int(sent[2])
        if first != start or not first <= last < end:
            raise self._refused(f"the server sent bytes {first}-{last} for {start}-{end - 1}")
        return last + 1

    def _refused(self, what: str) -> StorageError:
        return StorageError(what, url=redacted(self.found.url), hint=_SERVE_RANGES)


class HttpFiles(FsspecFiles):
    """Files of web servers, which have no directories to list."""

    def no_listing(self, url: str) -> str:
        return _NAME_FILES

    def stat(self, url: str) -> FileStat:
        return answered(lambda: self._look_at(url), patience_s=LOOK_PATIENCE_S)

    def _look_at(self, url: str) -> FileStat:
        filesystem, path = self.client.locate(url)
        with self.client.translated(url, "look at"):
            info = filesystem.info(path)
            place = urlsplit(info.get("url", path))
            if (place.path or "/").endswith("/") and not place.query:
                raise StorageError("it is a directory of a web server", url=redacted(url), hint=_NAME_FILES)
            return _stat(url, info)

    def file_of(self, found: FileStat) -> RangedFile:
        return HttpFile(self.client, found)


class HttpBackend(FsspecBackend):
    """Web servers, by fsspec's client."""

    client_class = HttpClient
    files_class = HttpFiles


def _length(parts: list[bytes]) -> int:
    return sum(map(len, parts))


def _stat(url: str, info: dict[str, Any]) -> FileStat:
    modified = None
    with contextlib.suppress(ValueError):  # a malformed value of the server is ignored
        modified = parsedate_to_datetime(info["Last-Modified"]) if "Last-Modified" in info else None
    return stat_of(url, {**info, "last_modified": modified})
