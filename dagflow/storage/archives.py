"""Archives of files, zip and tar: their members, and each as a file of its own."""

from __future__ import annotations

import bz2
import contextlib
import importlib
import io
import logging
import lzma
import os
import posixpath
import stat
import struct
import sys
import tarfile
import tempfile
import threading
import weakref
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from typing import IO, Any, cast

from isal import igzip

from dagflow.errors import StorageError
from dagflow.frozen import frozen
from dagflow.storage.file_kinds import HEAD_BYTES, compression_name_of_content, compression_name_of_url
from dagflow.storage.files import PythonFile, ReadableFile
from dagflow.storage.location import is_archive_name, redacted

logger = logging.getLogger(__name__)

SMALL_BYTES = 1 << 20
"""Members of zip archives up to this length are decompressed and checked when they are opened."""

_STORED, _DEFLATED, _BZIP2, _LZMA, _ZSTD, _AES = 0, 8, 12, 14, 93, 99
_OTHER_METHODS = {1: "shrinking", 6: "imploding", 9: "Deflate64", 95: "xz", 98: "PPMd"}
_TAR = -1
_IS_ENCRYPTED = 0x1
_LOCAL_MARK, _LOCAL_BYTES = b"PK\x03\x04", 30
_GZIP_HEAD = bytes.fromhex("1f8b08000000000000ff")
_GZIP_TAIL_BYTES = 8
_COPY_BYTES = 1 << 20
_LEAVE_OUT = "on_error: skip on the reader leaves it out, and lists it; "


@frozen
class Member:
    """A file in an archive.

    Attributes:
        name: Its path in the archive, without `.` and `..`.
        start: Offset of its local header in a zip archive, of its first byte in a tar archive.
        stored_bytes: Its length as it is stored.
        content_bytes: Its length when it is decompressed.
        method: How it is compressed, by the numbers of zip; -1 in a tar archive.
        checksum: CRC-32 of its content in a zip archive.
        refusal: Why it cannot be read; "" if it can.
    """

    name: str
    start: int
    stored_bytes: int
    content_bytes: int
    method: int = _TAR
    checksum: int = 0
    refusal: str = ""

    @property
    def is_unpacked(self) -> bool:
        """Whether it is decompressed when it is opened; readers decompress others, as they do with compressed files.

        A reader decompresses a file once: a member that is a compressed file itself is left to it, and an archive too.
        """
        if self.method in (_TAR, _STORED, _DEFLATED, _BZIP2, _ZSTD) and self.content_bytes > SMALL_BYTES:
            return self.method > _STORED and (bool(compression_name_of_url(self.name)) or is_archive_name(self.name))
        return self.method != _TAR

    @property
    def size_bytes(self) -> int:
        """The length of the file that open_member() gives."""
        if self.is_unpacked and not self.refusal:
            return self.content_bytes
        return self.stored_bytes + (len(_GZIP_HEAD) + _GZIP_TAIL_BYTES if self.method == _DEFLATED else 0)


def members_of(archive: ReadableFile, url: str) -> list[Member]:
    """The files in an archive, by the bytes of their names; of several with one name the last, as unpacking leaves it.

    Args:
        archive: The archive; a tar archive without its compression.
        url: Its location, which says which kind of archive it is.
    """
    kind, read = ("zip", _zip_members) if url.lower().endswith(".zip") else ("tar", _tar_members)
    named: dict[str, Member] = {}
    hint = f"{_LEAVE_OUT}archives: whole on the splitter reads archives as files, without opening them"
    with _reported(f"it is no {kind} archive, or damaged", url, hint):
        for member in read(archive):
            # As unpacking does: no name leads out of the archive.
            if name := posixpath.normpath("/" + member.name)[1:].lstrip("/"):
                if name in named:
                    logger.warning("only the last member with a name is read url=%s!%s", redacted(url), name)
                named[name] = replace(member, name=name)
    return [named[name] for name in sorted(named, key=os.fsencode)]


def _zip_members(archive: ReadableFile) -> Iterator[Member]:
    for info in zipfile.ZipFile(PythonFile(archive, is_holder=False)).infolist():
        if info.is_dir() or stat.S_ISLNK(info.external_attr >> 16):
            continue
        method, refusal = info.compress_type, ""
        if info.flag_bits & _IS_ENCRYPTED:
            by = "AES" if method == _AES else "a password"
            refusal = f"it is encrypted by {by}, which dagflow does not read"
        elif method not in (_STORED, _DEFLATED, _BZIP2, _LZMA, _ZSTD):
            by = _OTHER_METHODS.get(method, f"method {method} of zip")
            refusal = f"it is compressed by {by}, which dagflow does not read"
        # Archives of Windows may separate names by what ends them there.
        name = info.filename.replace("\\", "/") if info.create_system == 0 else info.filename
        yield Member(name, info.header_offset, info.compress_size, info.file_size, method, info.CRC, refusal)


def _tar_members(archive: ReadableFile) -> Iterator[Member]:
    file = cast(IO[bytes], io.BufferedReader(PythonFile(archive, is_holder=False)))
    tar = tarfile.TarFile(fileobj=file)
    targets: dict[str, Member] = {}
    for info in tar:
        if info.islnk():
            refusal = f"it is a hard link to {info.linkname}, which is not before it in its archive"
            unknown = Member(info.name, info.offset_data, 0, 0, refusal=refusal)
            yield replace(targets.get(posixpath.normpath(info.linkname), unknown), name=info.name)
        elif info.isreg():
            refusal = "it is stored as a sparse file, which dagflow does not read" if info.issparse() else ""
            member = Member(info.name, info.offset_data, info.size, info.size, refusal=refusal)
            targets[posixpath.normpath(info.name)] = member
            yield member
    # The library takes a damaged header for the end.
    buffer, at = memoryview(bytearray(_COPY_BYTES)), tar.offset
    while count := archive.read_into(at, buffer):
        if any(buffer[:count]):
            raise tarfile.ReadError(f"it goes on behind its end at {at}, or the header there is damaged")
        at += count


def open_member(archive: ReadableFile, member: Member, url: str) -> ReadableFile:
    """A member as a file, which closes the archive.

    A long member that is compressed is a compressed file: of a deflated one, header and checksum make a gzip file.
    """
    if member.refusal:
        raise StorageError(member.refusal, url=redacted(url), hint=f"{_LEAVE_OUT}unpack it to read it")
    if member.method == _TAR:
        return ArchivedFile(archive, url, member.start, member.stored_bytes)
    header = bytearray(_LOCAL_BYTES)
    archive.read_into(member.start, memoryview(header))
    if header[:4] != _LOCAL_MARK:
        raise StorageError(f"its archive has no member at {member.start}, and is damaged", url=redacted(url))
    start = member.start + _LOCAL_BYTES + sum(struct.unpack("<HH", header[26:30]))
    if member.is_unpacked:
        with ArchivedFile(archive, url, start, member.stored_bytes) as stored:
            return _unpacked(stored, member, url)
    if member.method != _DEFLATED:
        return ArchivedFile(archive, url, start, member.stored_bytes)
    tail = member.checksum.to_bytes(4, "little") + (member.content_bytes & 0xFFFFFFFF).to_bytes(4, "little")
    return ArchivedFile(archive, url, start, member.stored_bytes, _GZIP_HEAD, tail)


def _unpacked(stored: ReadableFile, member: Member, url: str) -> Unpacked:
    info = zipfile.ZipInfo(member.name)
    info.compress_type, info.CRC = member.method, member.checksum
    info.compress_size, info.file_size = member.stored_bytes, member.content_bytes
    with _reported("its compressed bytes are damaged", url, f"{_LEAVE_OUT}copy its archive again to read it"):
        library: Any = zipfile
        if member.method == _ZSTD and sys.version_info < (3, 14):
            library = importlib.import_module("backports.zstd.zipfile")
        return Unpacked(library.ZipExtFile(PythonFile(stored, is_holder=False), "r", info))


def unpacked_tar(archive: ReadableFile, url: str) -> ReadableFile:
    """A tar archive without its compression: decompressed, and closed, if its first bytes show that it has any."""
    head = bytearray(HEAD_BYTES)
    archive.read_into(0, memoryview(head))
    compression = compression_name_of_content(bytes(head))
    if not compression:
        return archive
    readers: dict[str, Any] = {"gzip": igzip.open, "bzip2": bz2.BZ2File, "xz": lzma.LZMAFile}
    with archive, _reported("its compressed bytes are damaged", url, f"{_LEAVE_OUT}copy it again to read it"):
        if compression == "zstd":
            module = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
            readers["zstd"] = importlib.import_module(module).ZstdFile
        if compression not in readers:
            raise StorageError(f"tar archives compressed by {compression} are not read", url=redacted(url))
        return Unpacked(readers[compression](io.BufferedReader(PythonFile(archive, is_holder=False))))


@contextlib.contextmanager
def _reported(what: str, url: str, hint: str) -> Iterator[None]:
    """Report what the libraries raise for damaged bytes, which is of many classes, as errors of the store."""
    try:
        yield
    except (StorageError, MemoryError):
        raise
    except ImportError as error:
        hint = "install it with: pip install 'dagflow[compression]'"
        raise StorageError("zstd needs the package backports.zstd", url=redacted(url), hint=hint) from error
    except Exception as error:
        raise StorageError(f"{what}: {error}", url=redacted(url), hint=hint) from error


class ArchivedFile(ReadableFile):
    """A stretch of an archive, with other bytes before and behind it; closing it closes the archive."""

    def __init__(
        self, archive: ReadableFile, url: str, start: int, length: int, head: bytes = b"", tail: bytes = b""
    ) -> None:
        self._archive, self._url = archive, url
        self._start, self._length = start, length
        self._head, self._tail = head, tail

    @property
    def size_bytes(self) -> int:
        return len(self._head) + self._length + len(self._tail)

    def is_unchanged(self) -> bool | None:
        return self._archive.is_unchanged()

    def read_into(self, offset: int, buffer: memoryview) -> int:
        done, end = 0, len(self._head) + self._length
        if part := self._head[offset : offset + len(buffer)]:
            buffer[: len(part)] = part
            done = len(part)
        if (count := min(len(buffer) - done, end - offset - done)) > 0:
            at = self._start + offset + done - len(self._head)
            if self._archive.read_into(at, buffer[done : done + count]) < count:
                raise StorageError(f"its archive ends before byte {at + count}", url=redacted(self._url))
            done += count
        if done < len(buffer) and offset + done >= end:
            part = self._tail[offset + done - end :][: len(buffer) - done]
            buffer[done : done + len(part)] = part
            done += len(part)
        return done

    def close(self) -> None:
        self._archive.close()


class Unpacked(ReadableFile):
    """All bytes of a stream: in memory up to some, else in a temporary file."""

    def __init__(self, stream: IO[bytes] | io.RawIOBase, in_memory_bytes: int = SMALL_BYTES) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=in_memory_bytes)  # noqa: SIM115  # closed when this object goes
        self._one_reader = threading.Lock()
        weakref.finalize(self, self._file.close)
        self._size_bytes = 0
        while data := stream.read(_COPY_BYTES):
            self._file.write(data)
            self._size_bytes += len(data)

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def read_into(self, offset: int, buffer: memoryview) -> int:
        with self._one_reader:
            self._file.seek(offset)
            data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
