"""Copies of files, in progress or complete: the bytes that they share, and how long scans leave them for later ones."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import NamedTuple

from dagflow.errors import DagflowError
from dagflow.storage.context import StorageContext
from dagflow.storage.fingerprint import PROBED_BYTES, file_id_of, fingerprint_of_head_and_tail
from operators.files.compression import compression_of_name
from operators.files.metadata import FileVersion
from operators.files.rotation_names import earlier_paths
from operators.reader.byte_source import MeasuredFile
from operators.reader.compression.stream import OUTPUT_BYTES, DecompressedFile
from operators.splitter.changes.renames.cases import Continuing, log_decision
from operators.splitter.changes.renames.found_files import FoundFile, stat_behind_links
from operators.splitter.scan.listed_files import FilePrefix, InTasks, take_fingerprints
from operators.splitter.scan.scan_sources import Clock

COPY_GRACE_S = 1.0
"""Seconds for which a copy of a log beside it must stay unchanged to be a file of its own, not a rotation under way."""

INCOMPLETE_GRACE_S = 10.0
"""Seconds for a copy that is shorter than the log, because a compressing program may write slowly."""

MAX_REPEATS = 3
"""How many times a file that changes while it is scanned is left for another scan."""


class LeftFiles:
    """Files that are left for later scans: copies until they stay unchanged, and files that change during a scan.

    Attributes:
        has_more: Whether files that changed while they were scanned are left for a scan that follows at once.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Copies of files that still exist: the time since which each is unchanged.
        self._waiting: dict[bytes, tuple[FileVersion, float]] = {}
        self._still_waiting: dict[bytes, tuple[FileVersion, float]] = {}
        self._repeats: Counter[bytes] = Counter()
        self.has_more = False

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def begin_scan(self) -> None:
        self._still_waiting = {}
        self.has_more = False

    def end_scan(self) -> None:
        """End a scan, after it has left all files that it leaves."""
        self._waiting = self._still_waiting
        if not self.has_more:
            self._repeats.clear()

    def leave_for_next_scan(self, name: bytes) -> bool:
        """Leave a file, by its name in the index, for a scan at once; False if it was left MAX_REPEATS times."""
        if self.was_left_often(name):
            return False
        self._repeats[name] += 1
        self.has_more = True
        return True

    def was_left_often(self, name: bytes) -> bool:
        """Whether a file was left MAX_REPEATS times, so that the present answer counts."""
        return self._repeats[name] >= MAX_REPEATS

    def leave_new_copy(self, file: FoundFile, grace_s: float) -> bool:
        """Leave a copy that changed recently; returns whether it was left."""
        now_s = self._clock.elapsed_s()
        stat, since_s = self._waiting.get(file.name, (None, now_s))
        if stat != file.stat:
            since_s = now_s
        if now_s - since_s >= grace_s:
            return False
        self._still_waiting[file.name] = (file.stat, since_s)
        because = f"a copy of a log must stay unchanged for {grace_s:g} s"
        log_decision(os.fsdecode(file.path), Continuing.LATER.value, because)
        return True


def copy_graces(
    files: Sequence[FoundFile], beginnings: Beginnings, copies: Container[bytes]
) -> Iterator[tuple[FoundFile, float]]:
    """Files that may be copies of others in progress, and how many seconds they must stay unchanged.

    Args:
        files: The files; they continue no version that was taken.
        copies: The names of those that have all bytes of a version whose file still has them.
    """
    pairs = [(file, original) for file in files for original in _files_before(file)]
    compressed = [pair for pair in pairs if pair[0].is_compressed]
    beginnings.fetch_contents(ContentPrefix(file.path, original.size_bytes) for file, original in compressed)
    beginnings.fetch(prefix for pair in pairs for prefix in _prefixes(*pair, beginnings))
    shares: dict[int, list[float]] = {}
    for file, original in pairs:
        if (share := _share(file, original, beginnings)) is not None:
            shares.setdefault(id(file), []).append(share)
    for file in files:
        parts = shares.get(id(file), [])
        if parts or file.name in copies:
            yield file, INCOMPLETE_GRACE_S if min(parts, default=1) < 1 else COPY_GRACE_S


def _prefixes(file: FoundFile, original: FilePrefix, beginnings: Beginnings) -> Iterator[FilePrefix]:
    """The bytes to compare in a file and in another one, of which it may be a copy."""
    size_bytes = _size_within(file, original, beginnings)
    if size_bytes is not None:
        yield original._replace(size_bytes=size_bytes)
        if not file.is_compressed:
            yield file.prefix(size_bytes)


def _size_within(file: FoundFile, original: FilePrefix, beginnings: Beginnings) -> int | None:
    """The size of a file, or of its decompressed content; None if that is larger than another file."""
    if file.is_compressed:
        content = beginnings.content(ContentPrefix(file.path, original.size_bytes))
        return None if content.has_more else content.size_bytes
    size_bytes = file.stat.size_bytes
    return size_bytes if size_bytes <= original.size_bytes else None


def _share(file: FoundFile, original: FilePrefix, beginnings: Beginnings) -> float | None:
    """Which share of another file a file has, from its beginning on; None if it has other bytes."""
    if (size_bytes := _size_within(file, original, beginnings)) is None:
        return None
    if file.is_compressed:
        fingerprint = beginnings.content(ContentPrefix(file.path, original.size_bytes)).fingerprint
    else:
        fingerprint = beginnings.fingerprint(file.prefix(size_bytes))
    if size_bytes and beginnings.fingerprint(original._replace(size_bytes=size_bytes)) != fingerprint:
        return None
    return size_bytes / original.size_bytes if original.size_bytes else 1


def _files_before(file: FoundFile) -> Iterator[FilePrefix]:
    """Existing files under the former names of a file, of which it may be a copy."""
    for path in earlier_paths(file.path):
        now = stat_behind_links(path)
        if now is not None and path != file.path and not file.is_behind(path) and os.path.isfile(path):
            yield FilePrefix(path, now.st_size, file_id_of(now.st_ino))


class ContentPrefix(NamedTuple):
    """A compressed file, and how many of the first bytes of its content to fingerprint."""

    path: bytes
    size_bytes: int


class Content(NamedTuple):
    """The beginning of the content of a compressed file.

    Attributes:
        size_bytes: How many of the requested bytes could be decompressed.
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
        lacking = [(path, sorted(lengths)) for path, lengths in sizes.items()]
        if lacking and self._in_tasks is not None:
            reports = self._in_tasks(_contents_of, lacking)
        else:
            reports = [_contents_of(request) for request in lacking]
        for (path, asked), contents in zip(lacking, reports, strict=True):
            self._contents.update(
                (ContentPrefix(path, size), content) for size, content in zip(asked, contents, strict=True)
            )

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
    beginning, versions = _Beginning(), []
    try:
        with MeasuredFile(StorageContext.default().open_file(url)) as file:
            content = DecompressedFile(file, url, compression)
            for size in sizes:
                beginning.read_on(content, size)
                versions.append(beginning.version())
            beginning.read_on(content, sizes[-1] + 1)
    except (DagflowError, OSError):
        pass  # the content is incomplete or damaged: the part that could be read counts
    versions += [beginning.version()] * (len(sizes) - len(versions))
    return [Content(size, fingerprint, has_more=beginning.size_bytes > size) for size, fingerprint in versions]


class _Beginning:
    """How far some content was read."""

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
