"""Finds the output of a line, or of the record at a byte, of a file."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dagflow.api.context import VersionKey
from dagflow.api.sources import is_source_range
from dagflow.errors import DagflowError
from dagflow.journal.state import JournalState
from dagflow.journal.windows import Window
from dagflow.report.input_ranges import PLANNED, InputRange
from dagflow.report.manifest import TrackedFile, WindowManifest, merging_window
from dagflow.report.open_rejects import WindowRejects, rejects_of
from dagflow.storage.context import StorageContext
from dagflow.storage.file_kinds import (
    HEAD_BYTES,
    compression_name_of_content,
    compression_name_of_url,
    is_skippable,
)
from dagflow.storage.location import redacted
from dagflow.storage.objects import ObjectStore
from dagflow.web.checkpoints import Checkpoint
from dagflow.web.query import Query, RequestError

MAX_SHOWN = 5000
"""Number of ranges, rejects and outputs of one version that are shown."""

SEARCH_S = 5.0
"""About how many seconds one request searches a file for a line, or windows for the file's first byte."""

_CHUNK_BYTES = 4 << 20
_SEARCH_BYTES = 1 << 30


def found_in(
    versions: list[KnownVersion],
    manifests: dict[int, WindowManifest],
    checkpoint: Checkpoint,
    query: Query,
    store: ObjectStore,
    state: JournalState,
    *,
    is_compressed: bool,
) -> dict[str, Any]:
    """Find the output of a line, or of the record at a byte, of the newest version of a file.

    Args:
        versions: What is known of the versions of the file, the one that was read last first.
        manifests: The windows that have read them, by id.
        is_compressed: Whether the newest version is compressed, and offsets are those in its content.

    Returns:
        The offset in the content of the file, and a sentence; where they are known, the window, the output files and
        the tables.
    """
    newest = versions[0].part
    line = query.number("line", least=1)
    if line:
        try:
            if is_compressed:
                raise RequestError("the file is compressed, and lines of its content are not counted")
            offset = _offset_of_line(checkpoint, newest, line)
        except DagflowError as error:
            return {"offset": None, "sentence": f"Line {line:,} cannot be found: {error.message}."}
        what = f"Line {line:,} begins at byte {offset:,}"
    else:
        offset = query.number("offset")
        what = f"Byte {offset:,}" + (" of the decompressed content, if it is so long" if is_compressed else "")
    found = (_reader_of_content if is_compressed else _reader_of)(versions, manifests, offset)
    if found is None:
        why = "No window that was looked at has read it"
        if is_compressed:
            why = "It is not known which of the windows that were looked at has read it"
        return {"offset": offset, "sentence": f"{what}. {why}."}
    version, window_id = found
    inside = {
        number
        for number, part in enumerate(manifests[window_id].inputs)
        if part.url == newest.url and (is_compressed or part.start <= offset < part.end)
    }
    way = _way_of(manifests[window_id], inside, version.reject_at(offset), store, state)
    return {"offset": offset, **way, "sentence": f"{what}. {way['sentence']}"}


def looks_compressed(storage: StorageContext, url: str, *, asks_store: bool) -> bool:
    """Whether a file is compressed, by its first bytes; where it cannot be read any more, by its name.

    Args:
        asks_store: Whether the first bytes of a file in a store are read, too, which may take long.
    """
    if not asks_store and not storage.backend(url).is_local:
        return bool(compression_name_of_url(url))
    head = bytearray(HEAD_BYTES)
    try:
        with contextlib.closing(storage.open_file(url)) as content:
            begin = bytes(head[: content.read_into(0, memoryview(head))])
    except DagflowError:
        return bool(compression_name_of_url(url))
    return bool(compression_name_of_content(begin)) or is_skippable(begin)


def _reader_of(
    versions: list[KnownVersion], manifests: dict[int, WindowManifest], offset: int
) -> tuple[KnownVersion, int] | None:
    """The window that has read a byte of the newest version, and the version that it read.

    The new window of an appended version reads from where the older version ended; the bytes before belong to the older
    version. A rewritten version is read from its first byte, and hides the older ones. A window that took over refused
    records has read only these records.
    """
    for version in versions:
        # The first byte of a refused record may have been read by another window than the one that refused the record.
        if (reject := version.reject_at(offset)) is not None:
            return version, int(reject["window"])
        refused_by = version.refused_before(offset)
        for place in version.ranges:
            retries = manifests[place["window"]].retries
            if place["start"] <= offset < place["end"] and (not retries or refused_by.intersection(retries)):
                return version, int(place["window"])
        if offset >= min((place["start"] for place in version.ranges), default=offset + 1):
            return None
    return None


def _reader_of_content(
    versions: list[KnownVersion], manifests: dict[int, WindowManifest], offset: int
) -> tuple[KnownVersion, int] | None:
    """The window that has read a byte of the content of a compressed file, or None where that is not known.

    Ranges of windows are offsets in the compressed file. The range of a byte of the content is known for refused
    records, and where one window has read the whole file.
    """
    readers: dict[int, KnownVersion] = {}
    for version in versions:
        if (reject := version.reject_at(offset)) is not None:
            return version, int(reject["window"])
        refused_by = version.refused_before(offset)
        for place in version.ranges:
            retries = manifests[place["window"]].retries
            if refused_by.intersection(retries):
                return version, int(place["window"])
            if not retries:
                readers[int(place["window"])] = version
        if any(place["start"] == 0 for place in version.ranges):
            break
    else:
        # Windows that were not looked at have read the first bytes of the file.
        return None
    if len(readers) != 1:
        return None
    ((window_id, version),) = readers.items()
    return version, window_id


def _way_of(
    manifest: WindowManifest,
    inside: set[int],
    reject: dict[str, Any] | None,
    store: ObjectStore,
    state: JournalState,
) -> dict[str, Any]:
    """Where a record is: the window, the output files, and the versions of tables that hold what was made of it.

    A line need not be a record, and operators may leave records out.

    Args:
        inside: Positions of its inputs that hold the record.
        reject: The refused record, where the window has refused it.
    """
    window_id, refusal = manifest.window_id, ""
    if reject is not None:
        refusal = f"Window {window_id} read it, and operator '{reject['operator']}' refused it: {reject['reason']}."
        if manifest.retries:
            refusal = f"Window {window_id} read it again, and it stays refused."
        # A record that a reader has refused reaches no operator but those that take refused records.
        if reject["operator"] in {part.port.partition(".")[0] for part in manifest.inputs}:
            return {"sentence": refusal, "window": window_id, "outputs": [], "tables": {}}
        refusal += " "
    outputs = [each.url for each in manifest.outputs if inside & set(manifest.positions_of(each))]
    tables = dict(manifest.receipts)
    if manifest.state == PLANNED:
        outcome = f"Window {window_id} is to read it."
    elif manifest.held_records:
        by = merging_window(store, state, window_id)
        outcome = f"Window {window_id} read it; "
        if by is None:
            outcome += "its records wait to be merged."
        else:
            outcome += f"window {by.plan.window_id} merged and published its records."
            tables = dict(by.receipts)
            # Files that the window published itself, and of the later window only files that it has merged.
            outputs += [
                redacted(each.final_url)
                for each in (by.intent.files if by.intent else [])
                if each.facts is not None and each.facts.operator in by.plan.takes
            ]
    else:
        outcome = f"Window {window_id} read it; its records are in {_one_of(outputs)}."
    shown = ", ".join(f"{name} since {version}" for name, version in tables.items())
    sentence = refusal + outcome + (f" Tables have its records: {shown}." if shown else "")
    return {"sentence": sentence, "window": window_id, "outputs": outputs[:MAX_SHOWN], "tables": tables}


def _one_of(outputs: list[str]) -> str:
    if not outputs:
        return "no output file"
    return "one output file" if len(outputs) == 1 else f"one of {len(outputs):,} output files"


def _offset_of_line(checkpoint: Checkpoint, part: InputRange, line: int) -> int:
    """The offset of a line in a file as it is now, which must be the version that was read, or have grown since.

    Raises:
        RequestError: The file has changed, is shorter, or would take too long to count.
        StorageError: The file cannot be read.
    """
    found = checkpoint.storage.stat(part.url)
    if found.size_bytes < part.size_bytes or (found.size_bytes == part.size_bytes and found.mtime_ns != part.mtime_ns):
        raise RequestError("the file is not the version any more that was read")
    left, offset, deadline = line - 1, 0, time.monotonic() + SEARCH_S
    buffer = bytearray(_CHUNK_BYTES)
    with contextlib.closing(checkpoint.storage.open_file(part.url)) as content:
        while left:
            room = memoryview(buffer)[: max(min(_CHUNK_BYTES, part.size_bytes - offset), 0)]
            filled = content.read_into(offset, room)
            if not filled:
                raise RequestError("the version that was read has fewer lines")
            count = buffer.count(b"\n", 0, filled)
            if count >= left:
                offset += _after_newline(buffer, left)
                break
            left, offset = left - count, offset + filled
            if offset > _SEARCH_BYTES or time.monotonic() > deadline:
                raise RequestError(f"it lies behind byte {offset:,}, and a page counts lines no further")
    # Nothing is behind the last newline of the version, or it is empty.
    if offset >= part.size_bytes:
        raise RequestError("the version that was read has fewer lines")
    return offset


def _after_newline(buffer: bytearray, number: int) -> int:
    """The position behind the newline of a number, counted from 1."""
    place = -1
    for _ in range(number):
        place = buffer.index(b"\n", place + 1)
    return place + 1


@dataclass(slots=True)
class KnownVersion:
    """What the windows that were looked at have recorded of one version of a file.

    `retried` holds refused records that a later window has taken over, with their bytes and the window that had refused
    them. They are not among the rejects.
    """

    tracked: TrackedFile
    times: dict[str, int] = field(default_factory=dict)
    ranges: list[dict[str, Any]] = field(default_factory=list)
    rejects: list[dict[str, Any]] = field(default_factory=list)
    rejected: int = 0
    retried: list[tuple[range, int]] = field(default_factory=list)

    @property
    def part(self) -> InputRange:
        """A range of the version, which says what version it is."""
        return self.tracked.part

    def reject_at(self, offset: int) -> dict[str, Any] | None:
        """The refused record that has a byte of the content; None for none, or one that a later window took over."""
        return next((each for each in self.rejects if offset in bytes_of(each)), None)

    def refused_before(self, offset: int) -> set[int]:
        """The windows that had refused a record with a byte of the content, which a later window took over."""
        return {window_id for taken, window_id in self.retried if offset in taken}

    def to_json(self) -> dict[str, Any]:
        """The fields that every list of versions shows."""
        return {
            "url": redacted(self.part.url),
            "size_bytes": self.part.size_bytes,
            "mtime_ms": self.part.mtime_ns // 1_000_000,
            "etag": self.part.etag,
            "state": self.tracked.ranges.state,
            "windows": sorted(self.tracked.windows),
            "times": self.times,
            "rejected": self.rejected,
        }


def refused_in(window: Window) -> Iterator[tuple[WindowRejects, dict[int, VersionKey]]]:
    """What each operator refused in a window, with the version of the file that each block is of."""
    if window.intent is None or not window.intent.refused:
        return
    for rejects in rejects_of(window):
        # By block, because offsets of records in a compressed file are offsets in its content, and the ranges of
        # windows are offsets in the file as it is stored.
        yield rejects, {block_id: _version_of(block) for block_id, block in rejects.blocks.items()}


def _version_of(block: Any) -> VersionKey:
    if not is_source_range(block):
        return "", 0, 0, ""  # no list of versions has it
    return block.url, block.version.size_bytes, block.version.mtime_ns, block.version.etag


def bytes_of(reject: dict[str, Any]) -> range:
    """The byte range of a refused record in the content of its file, of at least one byte: some records are empty."""
    return range(reject["offset"], reject["offset"] + max(reject["length"], 1))
