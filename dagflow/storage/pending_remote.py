"""Pending output on object stores: on S3 an upload that nobody completed yet, elsewhere a hidden name."""

from __future__ import annotations

import contextlib
import json
import os
import time
import zlib
from collections.abc import Collection
from typing import Any
from urllib.parse import quote

from typing_extensions import Buffer

from dagflow.errors import MissingError, StorageError
from dagflow.storage.location import join, name_of, parent, redacted
from dagflow.storage.pending import PENDING_DIRECTORY, PendingFile, PendingWriter
from dagflow.storage.remote import S3Location, filesystem_of, s3_location, translated_remote

_PART_BYTES = 16 << 20
# S3 takes at most 10 000 parts of at least 5 MiB: parts that grow reach its 5 TiB limit for an object.
_PARTS_PER_STEP = 200
_STALE_S = 7 * 24 * 3600.0
_IDENTITY = "dagflow-pending"
_COMPARE_BYTES = 8 << 20


def open_pending(final_url: str, directory_tag: str, checksum: bool) -> PendingWriter:
    """See pending.open_pending."""
    place = s3_location(final_url)
    if place is not None:
        return S3PendingWriter(final_url, place, directory_tag, checksum)
    return HiddenWriter(final_url, directory_tag, checksum)


def publish(pending: PendingFile) -> None:
    """See pending.publish."""
    place = s3_location(pending.final_url)
    if place is not None:
        _publish_s3(pending, place)
    else:
        _publish_hidden(pending)


def discard(pending: PendingFile) -> None:
    """See pending.discard."""
    place = s3_location(pending.final_url)
    if place is None:
        filesystem, path = filesystem_of(pending.pending_url)
        with translated_remote(pending.pending_url, "discard"), contextlib.suppress(FileNotFoundError):
            filesystem.rm_file(path)
        _remove_empty(filesystem, path)
        return
    upload = json.loads(pending.token)["upload"]
    if upload:
        _abort(place, place.key, upload)


def discard_rivals(pending: PendingFile) -> None:
    """See pending.discard_rivals."""
    place = s3_location(pending.final_url)
    if place is None:
        return
    own = json.loads(pending.token)["upload"]
    for upload in _uploads_of(place):
        if upload != own:
            _abort(place, place.key, upload)


def remove(url: str) -> None:
    """See pending.remove."""
    filesystem, path = filesystem_of(url)
    with translated_remote(url, "remove"):
        filesystem.rm_file(path)


def sweep(root_url: str, owner: str, before_epoch: int, keep: Collection[str], stale_s: float = _STALE_S) -> int:
    """See pending.sweep; stale_s is the age at which an upload is nobody's."""
    place = s3_location(root_url)
    if place is None:
        return _sweep_hidden(root_url, owner, before_epoch, keep)
    removed = 0
    kept_names = {name_of(url) for url in keep}
    for key, upload, initiated_s in _uploads(place, f"{place.key}/" if place.key else ""):
        if quote(upload, safe="") not in kept_names and time.time() - initiated_s > stale_s:
            _abort(place, key, upload)
            removed += 1
    return removed


class S3PendingWriter:
    """Uploads parts as they fill; only publish() makes an object of them.

    Guarantee: what close() returned can be published by any process; the object carries the upload's identity
    in its metadata, so that publish() knows its own work again.
    """

    def __init__(self, final_url: str, place: S3Location, directory_tag: str, checksum: bool) -> None:
        self._final = final_url
        self._place = place
        self._tag = directory_tag
        self._crc32 = 0 if checksum else None
        self._identity = os.urandom(16).hex()
        self._upload = ""
        self._parts: list[str] = []
        self._size_bytes = 0
        self._buffer = bytearray()
        self._is_open = True

    def write(self, data: Buffer) -> None:
        """See PendingWriter."""
        view = memoryview(data).cast("B")
        if self._crc32 is not None:
            self._crc32 = zlib.crc32(view, self._crc32)
        self._size_bytes += len(view)
        while view:
            room = _PART_BYTES * (1 + len(self._parts) // _PARTS_PER_STEP) - len(self._buffer)
            self._buffer += view[:room]
            view = view[room:]
            if len(self._buffer) >= _PART_BYTES * (1 + len(self._parts) // _PARTS_PER_STEP):
                self._put_part()

    def _put_part(self) -> None:
        if not self._upload:
            answer = self._place.call(
                "create_multipart_upload",
                "begin an upload",
                Key=self._place.key,
                Metadata={_IDENTITY: self._identity},
            )
            self._upload = answer["UploadId"]
        answer = self._place.call(
            "upload_part",
            "upload a part",
            Key=self._place.key,
            UploadId=self._upload,
            PartNumber=len(self._parts) + 1,
            Body=bytes(self._buffer),
        )
        self._parts.append(answer["ETag"])
        self._buffer = bytearray()

    def close(self, *, records: int) -> PendingFile:
        """See PendingWriter."""
        if self._buffer:
            self._put_part()
        self._is_open = False
        # An upload without parts cannot be completed: an empty file is created when it is published.
        name = quote(self._upload, safe="") or f"empty-{self._identity}"
        pending_url = join(parent(self._final), PENDING_DIRECTORY, self._tag, name)
        token = json.dumps({"id": self._identity, "upload": self._upload, "parts": self._parts})
        return PendingFile(self._final, pending_url, self._size_bytes, records, self._crc32, token)

    def abandon(self) -> None:
        """See PendingWriter."""
        if self._is_open and self._upload:
            with contextlib.suppress(StorageError):
                _abort(self._place, self._place.key, self._upload)
        self._is_open = False


def _publish_s3(pending: PendingFile, place: S3Location) -> None:
    token = json.loads(pending.token)
    try:
        if not token["upload"]:
            place.call(
                "put_object", "publish", Key=place.key, Body=b"", IfNoneMatch="*", Metadata={_IDENTITY: token["id"]}
            )
            return
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(token["parts"], start=1)]
        place.call(
            "complete_multipart_upload",
            "publish",
            Key=place.key,
            UploadId=token["upload"],
            MultipartUpload={"Parts": parts},
            IfNoneMatch="*",
        )
    except StorageError as error:
        _settle(pending, place, token["id"], token["upload"], error)


def _settle(pending: PendingFile, place: S3Location, identity: str, upload: str, error: StorageError) -> None:
    """Find out what became of a publication that the store did not confirm."""
    try:
        found = place.call("head_object", "look at", Key=place.key)
    except MissingError:
        # An empty file has no upload that could be lost.
        if isinstance(error, MissingError) or (upload and upload not in _uploads_of(place)):
            raise _lost_output(pending) from error
        raise error from None
    if found.get("Metadata", {}).get(_IDENTITY) != identity:
        raise _conflict(pending) from error


def _uploads_of(place: S3Location) -> list[str]:
    return [upload for key, upload, _ in _uploads(place, place.key) if key == place.key]


def _uploads(place: S3Location, prefix: str) -> list[tuple[str, str, float]]:
    found: list[tuple[str, str, float]] = []
    marker: dict[str, str] = {}
    while True:
        page = place.call("list_multipart_uploads", "list unfinished uploads", Prefix=prefix, **marker)
        found += [(u["Key"], u["UploadId"], u["Initiated"].timestamp()) for u in page.get("Uploads", ())]
        if not page.get("IsTruncated"):
            return found
        marker = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}


def _abort(place: S3Location, key: str, upload: str) -> None:
    with contextlib.suppress(MissingError):
        place.call("abort_multipart_upload", "abort an upload", Key=key, UploadId=upload)


class HiddenWriter:
    """Writes under a hidden name beside the final one.

    Guarantee: readers that leave out names with a leading dot see nothing; how safe the later move is depends
    on the store, and on a single driver.
    """

    def __init__(self, final_url: str, directory_tag: str, checksum: bool) -> None:
        self._final = final_url
        self._url = join(parent(final_url), PENDING_DIRECTORY, directory_tag, os.urandom(16).hex())
        self._crc32 = 0 if checksum else None
        self._size_bytes = 0
        self._filesystem, self._path = filesystem_of(self._url)
        with translated_remote(self._url, "open"):
            self._filesystem.makedirs(self._path.rpartition("/")[0], exist_ok=True)
            self._file: Any = self._filesystem.open(self._path, "wb")

    def write(self, data: Buffer) -> None:
        """See PendingWriter."""
        view = memoryview(data).cast("B")
        with translated_remote(self._url, "write"):
            self._file.write(view)
        self._size_bytes += len(view)
        if self._crc32 is not None:
            self._crc32 = zlib.crc32(view, self._crc32)

    def close(self, *, records: int) -> PendingFile:
        """See PendingWriter."""
        with translated_remote(self._url, "complete"):
            self._file.close()
        self._file = None
        return PendingFile(self._final, self._url, self._size_bytes, records, self._crc32)

    def abandon(self) -> None:
        """See PendingWriter."""
        if self._file is None:
            return
        file, self._file = self._file, None
        with contextlib.suppress(Exception):  # whatever the client raises: the file is not wanted
            file.close()
        with contextlib.suppress(Exception):
            self._filesystem.rm_file(self._path)
        _remove_empty(self._filesystem, self._path)


def _publish_hidden(pending: PendingFile) -> None:
    filesystem, source = filesystem_of(pending.pending_url)
    target = filesystem_of(pending.final_url)[1]
    with translated_remote(pending.final_url, "publish"):
        is_staged, is_published = filesystem.exists(source), filesystem.exists(target)
        if not is_published:
            if not is_staged:
                raise _lost_output(pending)
            filesystem.mv(source, target)
        elif is_staged:
            # A move that copies may die half-way: the copy is made whole again, anything else stays.
            if not _is_same(filesystem, source, target):
                raise _conflict(pending)
            filesystem.rm_file(source)
        elif filesystem.size(target) != pending.size_bytes:
            raise _conflict(pending)
    _remove_empty(filesystem, source)


def _is_same(filesystem: Any, first: str, second: str) -> bool:
    size_bytes = filesystem.size(first)
    return size_bytes == filesystem.size(second) and all(
        filesystem.cat_file(first, start=start, end=start + _COMPARE_BYTES)
        == filesystem.cat_file(second, start=start, end=start + _COMPARE_BYTES)
        for start in range(0, size_bytes, _COMPARE_BYTES)
    )


def _sweep_hidden(root_url: str, owner: str, before_epoch: int, keep: Collection[str]) -> int:
    filesystem, root = filesystem_of(root_url)
    kept = {filesystem_of(url)[1] for url in keep}
    removed = 0
    with translated_remote(root_url, "sweep"):
        if not filesystem.isdir(root):
            return 0
        for above, _, names in list(filesystem.walk(root)):
            tag_owner, _, epoch = name_of(above).rpartition("-")
            is_ours = name_of(parent(above)) == PENDING_DIRECTORY and tag_owner == owner and epoch.isdigit()
            if not is_ours or int(epoch) >= before_epoch:
                continue
            for path in (join(above, name) for name in names):
                if path not in kept:
                    filesystem.rm_file(path)
                    removed += 1
                    _remove_empty(filesystem, path)
    return removed


def _remove_empty(filesystem: Any, path: str) -> None:
    directory = path.rpartition("/")[0]
    with contextlib.suppress(Exception):  # each client says in its own way that a directory is not empty
        filesystem.rmdir(directory)
        filesystem.rmdir(directory.rpartition("/")[0])


def _lost_output(pending: PendingFile) -> StorageError:
    return StorageError(
        f"output was lost: neither this file nor its pending upload {redacted(pending.pending_url)} exists",
        url=redacted(pending.final_url),
        hint="somebody removed it after its window was committed; put it back, or start over with --fresh",
    )


def _conflict(pending: PendingFile) -> StorageError:
    return StorageError(
        f"the name is taken by another file than the {pending.size_bytes} bytes to be published",
        url=redacted(pending.final_url),
        hint="move the file that is in the way, and run again",
    )
