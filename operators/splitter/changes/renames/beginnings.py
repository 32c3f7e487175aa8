"""The beginnings of files and of their content, which tasks report: the driver itself opens none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dagflow.errors import DagflowError
from dagflow.storage.context import StorageContext
from dagflow.storage.fingerprint import PROBED_BYTES, fingerprint_of_head_and_tail
from operators.files.compression import compression_of_name
from operators.reader.byte_source import MeasuredFile
from operators.reader.compression.stream import OUTPUT_BYTES, DecompressedFile
from operators.splitter.index.fingerprinting import FilePrefix, take_fingerprints
from operators.splitter.scan.workers import InTasks


class ContentPrefix(NamedTuple):
    """A compressed file, and how many of the first bytes of its content to fingerprint."""

    path: bytes
    size_bytes: int


class Content(NamedTuple):
    """The beginning of the content of a compressed file.

    Attributes:
        size_bytes: How many of the requested bytes could be decompressed.
        fingerprint: Fingerprint of these bytes; see storage.fingerprint.
        has_more: Whether more content follows.
    """

    size_bytes: int
    fingerprint: int
    has_more: bool


NO_CONTENT = Content(0, 0, False)


class Beginnings:
    """Fingerprints of files, requested together if possible, and only once each.

    Args:
        in_tasks: Applies a function in tasks; None to do it in this process.
    """

    def __init__(self, in_tasks: InTasks | None) -> None:
        self._in_tasks = in_tasks
        self._fingerprints: dict[FilePrefix, int] = {}
        self._contents: dict[ContentPrefix, Content] = {}

    def fetch(self, wanted: Iterable[FilePrefix]) -> None:
        lacking = [prefix for prefix in dict.fromkeys(wanted) if prefix not in self._fingerprints]
        self._fingerprints.update(zip(lacking, take_fingerprints(lacking, self._in_tasks), strict=True))

    def fingerprint(self, prefix: FilePrefix) -> int:
        """The fingerprint of the first bytes of a file; UNKNOWN if it has fewer, or is another file now."""
        self.fetch([prefix])
        return self._fingerprints[prefix]

    def fetch_contents(self, wanted: Iterable[ContentPrefix]) -> None:
        sizes: dict[bytes, set[int]] = {}
        for prefix in wanted:
            if prefix not in self._contents:
                sizes.setdefault(prefix.path, set()).add(prefix.size_bytes)
        lacking = [(path, sorted(each)) for path, each in sizes.items()]
        if lacking and self._in_tasks is not None:
            found = self._in_tasks(_contents_of, lacking)
        else:
            found = [_contents_of(each) for each in lacking]
        for (path, asked), contents in zip(lacking, found, strict=True):
            self._contents.update((ContentPrefix(path, size), each) for size, each in zip(asked, contents, strict=True))

    def content(self, prefix: ContentPrefix) -> Content:
        self.fetch_contents([prefix])
        return self._contents[prefix]


def _contents_of(wanted: tuple[bytes, Sequence[int]]) -> list[Content]:
    """Beginnings of a compressed file's content, whose sizes ascend, in one pass; runs in a task."""
    path, sizes = wanted
    url = path.decode(errors="surrogateescape")
    compression = compression_of_name(url)
    if compression is None:
        return [NO_CONTENT] * len(sizes)
    beginning, found = _Beginning(), []
    try:
        with MeasuredFile(StorageContext.default().open_file(url)) as file:
            content = DecompressedFile(file, url, compression)
            for size in sizes:
                beginning.read_on(content, size)
                found.append(beginning.version())
            beginning.read_on(content, sizes[-1] + 1)
    except (DagflowError, OSError):
        pass  # the content is incomplete or damaged: the part that could be read counts
    found += [beginning.version()] * (len(sizes) - len(found))
    return [Content(size, own, has_more=beginning.size_bytes > size) for size, own in found]


class _Beginning:
    """How far some content was read.

    Attributes:
        size_bytes: Number of bytes that were read.
    """

    def __init__(self) -> None:
        self.size_bytes = 0
        self._head, self._tail = bytearray(), bytearray()

    def read_on(self, content: DecompressedFile, until: int) -> None:
        while self.size_bytes < until:
            piece = _read(content, self.size_bytes, min(OUTPUT_BYTES, until - self.size_bytes))
            if not piece:
                return
            missing = max(0, PROBED_BYTES - len(self._head))
            self._head += piece[:missing]
            self._tail = (self._tail + piece[missing:])[-PROBED_BYTES:]
            self.size_bytes += len(piece)

    def version(self) -> tuple[int, int]:
        return self.size_bytes, fingerprint_of_head_and_tail(self._head, self._tail)


def _read(content: DecompressedFile, offset: int, length: int) -> bytes:
    """Some bytes of the content; fewer if the rest is damaged."""
    buffer = memoryview(bytearray(length))
    while length:
        try:
            return bytes(buffer[: content.read_into(offset, buffer[:length])])
        except DagflowError:
            length //= 2
    return b""
