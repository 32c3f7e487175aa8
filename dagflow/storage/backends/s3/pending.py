"""Pending output on S3: an upload that is not completed yet."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, wait
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from typing_extensions import Buffer

from dagflow.errors import MissingError, StorageError
from dagflow.storage.backends.s3.client import S3Client, S3Location
from dagflow.storage.location import join, name_of, parent
from dagflow.storage.pending import (
    PENDING_DIRECTORY,
    Durability,
    PendingFile,
    PendingFiles,
    PendingWriter,
    conflict,
    is_earlier_tag,
    lost_output,
    request_threads,
)

_PART_BYTES = 8 << 20
# S3 takes at most 10 000 parts of at least 5 MiB: parts that grow reach its 5 TiB limit for an object.
_PARTS_PER_STEP = 75
# One part fills while others are sent: this hides the latency of a request, at 8 MiB of memory for each.
_UNDER_WAY = 6
_STALE_S = 7 * 24 * 3600.0
_IDENTITY = "dagflow-pending"
_OWNER = "dagflow-owner"


class S3PendingWriter(PendingWriter):
    """Uploads parts as they fill; only publish() makes an object of them.

    Guarantee: any process can publish what close() returned; the object has the upload's identity in its metadata, so
    that publish() recognises its own work.
    """

    def __init__(self, final_url: str, location: S3Location, tag: str, checksum: bool) -> None:
        super().__init__(final_url, checksum=checksum)
        self._location = location
        self._tag = tag
        self._identity = os.urandom(16).hex()
        self._upload: Future[str] | None = None
        self._parts: list[Future[dict[str, Any]]] = []
        self._buffer = bytearray()
        self._is_open = True

    def write(self, data: Buffer) -> None:
        view = memoryview(data).cast("B")
        if self._upload is None and view:
            # Started with the first byte, the upload has its id long before the first part is full.
            self._upload = request_threads().submit(self._begin)
        self._count(view)
        while view:
            room = _PART_BYTES * (1 + len(self._parts) // _PARTS_PER_STEP) - len(self._buffer)
            self._buffer += view[:room]
            view = view[room:]
            if self._upload and len(self._buffer) >= _PART_BYTES * (1 + len(self._parts) // _PARTS_PER_STEP):
                self._put_part(self._upload)

    def _begin(self) -> str:
        metadata = {_IDENTITY: self._identity, _OWNER: _owner(self._tag)}
        answer = self._location.call(
            "create_multipart_upload", "begin an upload", Key=self._location.key, Metadata=metadata
        )
        return str(answer["UploadId"])

    def _send(self, upload: Future[str], number: int, data: bytes) -> dict[str, Any]:
        # The upload was submitted before its parts, so a thread has it already: waiting here blocks no other.
        return self._location.call(
            "upload_part",
            "upload a part",
            Key=self._location.key,
            UploadId=upload.result(),
            PartNumber=number,
            Body=data,
        )

    def _put_part(self, upload: Future[str]) -> None:
        self._parts.append(request_threads().submit(self._send, upload, len(self._parts) + 1, bytes(self._buffer)))
        self._buffer = bytearray()
        if len(self._parts) >= _UNDER_WAY:
            self._parts[-_UNDER_WAY].result()  # bounds the memory, and reports a failure soon

    def end(self) -> int:
        if self._buffer and self._upload is not None:
            self._put_part(self._upload)
        return min(self._size_bytes, _UNDER_WAY * _PART_BYTES * (1 + len(self._parts) // _PARTS_PER_STEP))

    def close(self, *, records: int) -> PendingFile:
        self.end()
        upload = "" if self._upload is None else self._upload.result()
        etags = [part.result()["ETag"] for part in self._parts]
        self._is_open = False
        # An upload without parts cannot be completed: an empty file is created when it is published.
        name = quote(upload, safe="") or f"empty-{self._identity}"
        pending_url = join(parent(self._final), PENDING_DIRECTORY, self._tag, name)
        token = json.dumps({"id": self._identity, "upload": upload, "parts": etags})
        return self._written(pending_url, records, token)

    def abandon(self) -> None:
        if self._is_open and self._upload is not None:
            wait(self._parts)  # a part that arrives after the end of its upload would stay for ever
            with contextlib.suppress(StorageError):
                _abort(self._location, self._location.key, self._upload.result())
        self._is_open = False


class S3HeldWriter(S3PendingWriter):
    """Makes an object in a hidden directory, because an upload cannot be read before it is completed."""

    def __init__(self, final_url: str, url: str, location: S3Location, tag: str, checksum: bool) -> None:
        super().__init__(url, location, tag, checksum)
        self._beside = final_url

    def close(self, *, records: int) -> PendingFile:
        pending = super().close(records=records)
        _publish(pending, self._location, {})
        return replace(pending, final_url=self._beside, pending_url=pending.final_url, token="")


class S3PendingFiles(PendingFiles):
    """A multipart upload for each file, completed to publish it; held files are objects in hidden directories.

    An unfinished upload does not show which driver it belongs to: a sweep ends it if the checkpoint has already
    published its name, or if it is a week old.
    """

    def __init__(self, client: S3Client, stale_s: float = _STALE_S) -> None:
        self._client = client
        self._stale_s = stale_s

    def open(
        self, final_url: str, *, tag: str, durability: Durability = "process", checksum: bool = False
    ) -> S3PendingWriter:
        return S3PendingWriter(final_url, self._client.location(final_url), tag, checksum)

    def open_held(
        self, final_url: str, *, tag: str, durability: Durability = "process", checksum: bool = False
    ) -> S3HeldWriter:
        url = join(parent(final_url), PENDING_DIRECTORY, tag, os.urandom(16).hex())
        return S3HeldWriter(final_url, url, self._client.location(url), tag, checksum)

    def publish(self, pending: PendingFile, durability: Durability = "process") -> None:
        _publish(pending, self._client.location(pending.final_url), {"IfNoneMatch": "*"})

    def replace(self, pending: PendingFile, durability: Durability = "process") -> None:
        location = self._client.location(pending.final_url)
        if json.loads(pending.token)["upload"]:
            # An upload becomes an object once: a late driver cannot overwrite newer objects with it.
            return _publish(pending, location, {})
        # An empty object could be put again and again, so it only replaces the object that was seen there.
        head = _head(location, location.key)
        if head.get("Metadata", {}).get(_IDENTITY) != json.loads(pending.token)["id"]:
            _publish(pending, location, {"IfMatch": head["ETag"]} if head else {"IfNoneMatch": "*"})

    def is_whole(self, pending: PendingFile) -> bool:
        if not pending.token:
            held = self._client.location(pending.pending_url)
            return _head(held, held.key).get("ContentLength") == pending.size_bytes
        location, token = self._client.location(pending.final_url), json.loads(pending.token)
        if not token["upload"] or _head(location, location.key).get("Metadata", {}).get(_IDENTITY) == token["id"]:
            return True
        return token["upload"] in _uploads_of(location)

    def discard(self, pending: PendingFile) -> None:
        if not pending.token:
            return super().discard(pending)
        location, upload = self._client.location(pending.final_url), json.loads(pending.token)["upload"]
        if upload:
            _abort(location, location.key, upload)

    def discard_rivals(self, pending: PendingFile) -> None:
        location, own_upload = self._client.location(pending.final_url), json.loads(pending.token)["upload"]
        for upload in _uploads_of(location):
            if upload != own_upload:
                _abort(location, location.key, upload)

    def sweep(
        self,
        root_url: str,
        *,
        owner: str,
        before_epoch: int,
        require_right: Callable[[], None],
        keep: Collection[str] = (),
    ) -> int:
        swept = super().sweep(root_url, owner=owner, before_epoch=before_epoch, require_right=require_right, keep=keep)
        location, kept = self._client.location(root_url), set(map(name_of, keep))
        uploads = _uploads(location, location.prefix)
        uploads = [upload for upload in uploads if quote(upload[1], safe="") not in kept]
        if not uploads:
            return swept
        # Checked after the listing: without a later driver, none of these can be an upload of a later driver's tasks.
        require_right()

        def end(key: str, upload: str, initiated_s: float) -> bool:
            # Under a name that another checkpoint has published, an upload may belong to that checkpoint.
            is_stale = time.time() - initiated_s > self._stale_s
            is_held = is_earlier_tag(name_of(parent(key)), owner, before_epoch)
            is_over = is_stale or is_held or _head(location, key).get("Metadata", {}).get(_OWNER) == owner
            if is_over:
                _abort(location, key, upload)
            return is_over

        ended = [request_threads().submit(end, *upload) for upload in uploads]
        return swept + sum(future.result() for future in ended)

    def remove(self, pending_url: str) -> None:
        held = self._client.location(pending_url)
        held.call("delete_object", "discard", Key=held.key)

    def pending_urls(self, root_url: str) -> Iterator[str]:
        location = self._client.location(root_url)
        for page in location.list("list held files", Prefix=f"{location.prefix}{PENDING_DIRECTORY}/"):
            yield from (join(root_url, entry["Key"][len(location.prefix) :]) for entry in page.get("Contents", ()))


def _head(location: S3Location, key: str) -> dict[str, Any]:
    try:
        return location.call("head_object", "look at", Key=key)
    except MissingError:
        return {}


def _publish(pending: PendingFile, location: S3Location, condition: dict[str, str]) -> None:
    token = json.loads(pending.token)
    try:
        if not token["upload"]:
            metadata = {_IDENTITY: token["id"], _OWNER: _owner(name_of(parent(pending.pending_url)))}
            location.call("put_object", "publish", Key=location.key, Body=b"", Metadata=metadata, **condition)
            return
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(token["parts"], start=1)]
        location.call(
            "complete_multipart_upload",
            "publish",
            Key=location.key,
            UploadId=token["upload"],
            MultipartUpload={"Parts": parts},
            **condition,
        )
    except StorageError as error:
        _require_own(pending, location, token["id"], token["upload"], error)


def _require_own(pending: PendingFile, location: S3Location, identity: str, upload: str, error: StorageError) -> None:
    head = _head(location, location.key)
    if not head:
        # An empty file has no upload that could be lost.
        if isinstance(error, MissingError) or (upload and upload not in _uploads_of(location)):
            raise lost_output(pending) from error
        raise error from None
    if head.get("Metadata", {}).get(_IDENTITY) != identity:
        raise conflict(pending) from error


def _uploads_of(location: S3Location) -> list[str]:
    return [upload for key, upload, _ in _uploads(location, location.key) if key == location.key]


def _uploads(location: S3Location, prefix: str) -> list[tuple[str, str, float]]:
    uploads: list[tuple[str, str, float]] = []
    marker: dict[str, str] = {}
    while True:
        page = location.call("list_multipart_uploads", "list unfinished uploads", Prefix=prefix, **marker)
        uploads += [(u["Key"], u["UploadId"], u["Initiated"].timestamp()) for u in page.get("Uploads", ())]
        if not page.get("IsTruncated"):
            return uploads
        marker = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}


def _abort(location: S3Location, key: str, upload: str) -> None:
    with contextlib.suppress(MissingError):
        location.call("abort_multipart_upload", "abort an upload", Key=key, UploadId=upload)


def _owner(tag: str) -> str:
    return tag.rpartition("-")[0]
