"""Many small objects read whole, with as many requests under way as hide how long each takes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fsspec.asyn import sync

from dagflow.errors import SourceChangedError, StorageError, TransientStorageError
from dagflow.storage import remote_files
from dagflow.storage.location import redacted
from dagflow.storage.remote import (
    S3_CONNECTIONS,
    PreconditionError,
    S3Location,
    filesystem_of,
    is_s3,
    takes_several,
    translated_remote,
)
from dagflow.storage.small_files import SmallFiles

THREADS = 32
_ATTEMPTS = 3


def read_all(files: SmallFiles) -> Sequence[bytes | StorageError]:
    """The content of each file, or why there is none.

    Raises:
        TransientStorageError: The store may well succeed if asked again.
    """
    filesystem, path = filesystem_of(files.base)
    if is_s3(filesystem):
        place = S3Location(filesystem, path, files.base)
        contents: Sequence[bytes | StorageError] = sync(filesystem.loop, _gather, place, files)
    else:
        with ThreadPoolExecutor(THREADS if takes_several(filesystem) else 1) as threads:
            contents = list(threads.map(lambda index: _read(files, index), range(len(files.names))))
    for content in contents:
        if isinstance(content, TransientStorageError):
            raise content
    return contents


async def _gather(place: S3Location, files: SmallFiles) -> list[bytes | StorageError]:
    under_way = asyncio.Semaphore(S3_CONNECTIONS)

    async def fetch(index: int) -> bytes | StorageError:
        async with under_way:
            for _ in range(_ATTEMPTS - 1):
                content = await _get(place, files, index)
                if not isinstance(content, TransientStorageError):
                    return content
            return await _get(place, files, index)

    return await asyncio.gather(*map(fetch, range(len(files.names))))


async def _get(place: S3Location, files: SmallFiles, index: int) -> bytes | StorageError:
    """One object, which must have the planned etag."""
    expected = files.expected(index)
    key = f"{place.key}/{files.names[index]}" if place.key else files.names[index]
    condition: dict[str, Any] = {"IfMatch": f'"{expected.etag}"'} if expected.etag else {}
    try:
        with translated_remote(expected.url, "read"):
            answer = await place.filesystem._call_s3("get_object", Bucket=place.bucket, Key=key, **condition)
            async with answer["Body"] as body:
                content: bytes = await body.read()
    except PreconditionError:
        return SourceChangedError("the file was replaced after it was planned", url=redacted(expected.url))
    except StorageError as error:
        return error
    # A server that does not know the condition answers all the same.
    found = str(answer.get("ETag", "")).strip('"')
    if len(content) != expected.size_bytes or (expected.etag and found != expected.etag):
        return SourceChangedError(
            f"it had {expected.size_bytes} bytes and the etag {expected.etag}, now {len(content)} and {found}",
            url=redacted(expected.url),
        )
    return content


def _read(files: SmallFiles, index: int) -> bytes | StorageError:
    expected = files.expected(index)
    content = bytearray(expected.size_bytes)
    try:
        with remote_files.open_file(expected.url, expected) as file:
            file.read_into(0, memoryview(content))
    except StorageError as error:
        return error
    return bytes(content)
