"""Many small objects read whole, with as many requests under way as hide how long each takes."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from dagflow.errors import StorageError, TransientStorageError
from dagflow.storage import remote_files
from dagflow.storage.files import FileStat, ReadableFile
from dagflow.storage.remote import S3_CONNECTIONS, S3Location, filesystem_of, is_s3, takes_several, translated_remote
from dagflow.storage.s3_objects import S3Objects, objects_of
from dagflow.storage.small_files import SmallFiles

THREADS = 32

Content = bytes | memoryview | StorageError


def read_all(files: SmallFiles) -> Sequence[Content]:
    """The content of each file, or why there is none.

    Raises:
        TransientStorageError: The store may well succeed if asked again.
        StorageError: It cannot be asked at all.
    """
    filesystem, path = filesystem_of(files.base)
    place = S3Location(filesystem, path, files.base) if is_s3(filesystem) else None
    objects = None
    # Without etags nothing would tell that what was read is what was planned.
    if place is not None and files.etags:
        with translated_remote(files.base, "open"):
            objects = objects_of(filesystem, place.bucket)

    def read(index: int) -> Content:
        if place is not None and objects is not None:
            content = _object(objects, place, files, index)
            if content is not None:
                return content
        return _read(files, index)

    threads = S3_CONNECTIONS if objects is not None else THREADS if takes_several(filesystem) else 1
    with ThreadPoolExecutor(threads) as pool:
        contents = list(pool.map(read, range(len(files.names))))
    for content in contents:
        if isinstance(content, TransientStorageError):
            raise content
    return contents


def _object(objects: S3Objects, place: S3Location, files: SmallFiles, index: int) -> memoryview | None:
    key = f"{place.key}/{files.names[index]}" if place.key else files.names[index]
    content = objects.read(key, files.etags[index]) if files.etags[index] else None
    return content if content is not None and len(content) == files.sizes[index] else None


def _read(files: SmallFiles, index: int) -> bytes | StorageError:
    expected = files.expected(index)
    content = bytearray(expected.size_bytes)
    try:
        with _opened(expected) as file:
            file.read_into(0, memoryview(content))
    except StorageError as error:
        return error
    return bytes(content)


def _opened(expected: FileStat) -> ReadableFile:
    # Where a read names its version, nobody has to look before; unless there is nothing to read.
    if expected.etag and expected.size_bytes:
        file = remote_files.planned_file(expected.url, expected)
        if file is not None and file.is_pinned:
            return file
    return remote_files.open_file(expected.url, expected)
