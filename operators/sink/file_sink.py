"""The files that a writer publishes: their directory, their names, and when they begin and end."""

from __future__ import annotations

import contextlib
import re
from array import array
from collections.abc import Iterable
from typing import Any

from dagflow.api.columns.column_typing import StreamColumns, type_name
from dagflow.api.context import OperatorContext, RunPreparation
from dagflow.api.records import RecordBatch
from dagflow.api.sources import WHOLE, FileSources, block_runs
from dagflow.errors import MissingError, StorageError
from dagflow.storage.location import absolute, join, name_of, parent, redacted
from operators.files.compression import compression_of_name
from operators.sink.formats.base import FileStream, SinkFormat

_EXTENSION = r"(\.\w+)*"

BLOCK_NAMES = re.compile(rf"[0-9a-f]{{16}}{_EXTENSION}")
"""The names of files that hold one block each, with any extension."""


def block_name(block_id: int) -> str:
    """The name of the file that holds the records of one block: its id in hex, so that names sort as blocks do."""
    return f"{block_id:016x}"


def numbered_names(prefix: str) -> re.Pattern[str]:
    """The names of numbered files, with any extension: prefix, window, partition, and number in the window."""
    return re.compile(rf"{prefix}-\d{{8}}-\d{{5}}-\d{{4}}{_EXTENSION}")


def window_names(prefix: str) -> re.Pattern[str]:
    """The names that window_name gives for a prefix, with any extension."""
    return re.compile(rf"{prefix}-\d{{8}}{_EXTENSION}")


def window_name(prefix: str, window_id: int) -> str:
    return f"{prefix}-{window_id:08d}"


def claim_directory(run: RunPreparation, root: str, names: re.Pattern[str]) -> None:
    """Take a directory for one writer of this run, unless it has files of such names that others have published."""
    run.claim(root)
    with contextlib.suppress(MissingError):
        # A group of merged files is a directory, which may have any name.
        require_own(run, root, (each.url for each in run.storage.list_directory(root) if not each.is_directory), names)


def require_own(run: RunPreparation, root: str, files: Iterable[str], names: re.Pattern[str]) -> None:
    """Refuse files that this checkpoint did not publish, and whose names a writer of this run may use."""
    urls = {url for url in files if names.fullmatch(name_of(url))}
    if urls:
        urls.difference_update(run.published)
    # If the journal has forgotten its oldest windows, their files look like others'. If it already publishes there,
    # they are taken for its own; should one be in the way, publishing refuses to replace it.
    if urls and not run.has_forgotten(root):
        first = name_of(min(urls))
        before = _place_before(run, root, min(urls))
        raise StorageError(
            f"holds files that this checkpoint did not publish and whose names it may need, such as {first}"
            + (f" and {len(urls) - 1} more" if len(urls) > 1 else "")
            + (f"; its own {first} is in {before}" if before else ""),
            url=root,
            hint="publish into another directory, or move them away"
            + (
                ". If all was moved or copied from there, put it back: input is read again under another path"
                if before
                else ""
            ),
        )


def _place_before(run: RunPreparation, root: str, url: str) -> str:
    """Where this checkpoint has published a file that seems to be here because the directory was moved; "" for nowhere.

    In that case none of its published files is below the root, and the directory has kept its name. The file's name
    alone proves little: all writers with files of their own number them alike.
    """
    root = absolute(root)
    kept = f"/{name_of(root)}{url.removeprefix(root)}"
    before = ""
    for published in run.published:
        if published.startswith(join(root, "")):
            return ""
        if not before and published.endswith(kept):
            before = redacted(parent(published))
    return before


class FileSink:
    """Writes records into files of one directory, which are published with their window.

    Guarantee: the same batches in a window give the same files; all of them end with the window.

    Args:
        prefix: Prefix of the names of numbered files.
        max_bytes: The size at which a numbered file ends and the next one begins; None for no limit.
        max_open: How many numbered files are open at the same time, of several directories or several layouts.
        suffix: Suffix of the names of numbered files, before the extension.
    """

    def __init__(
        self,
        context: OperatorContext,
        root: str,
        *,
        prefix: str = "part",
        max_bytes: int | None = None,
        max_open: int = 1,
        suffix: str = "",
    ) -> None:
        self._context = context
        self._root = root
        self._prefix = prefix
        self._max_bytes = max_bytes
        self._max_open = max_open
        self._suffix = suffix
        # By directory; the one whose last write is longest ago comes first.
        self._numbered: dict[str, list[_SinkFile]] = {}
        self._named: _SinkFile | None = None

    def begin_window(self, window_id: int) -> None:
        """Start the window's numbering of files."""
        self._window_id = window_id
        self._count = 0

    def write(self, batch: RecordBatch, format: SinkFormat, directory: str = "") -> None:
        """Append records to the numbered files of a directory below the root, or of the root itself.

        Raises:
            ValueError: The format cannot hold the records.
        """
        format = _format_for(batch, format)
        position, start = 0, WHOLE
        for rows in format.rows_of(batch):
            while len(rows):
                file = self._file_for(batch, format, directory)
                if start != WHOLE:
                    file.sources.start_at(start)
                taken = file.write(rows)
                if taken:
                    file.sources.add(batch, position, position + taken)
                position += taken
                start = WHOLE
                if taken == len(rows):
                    break
                start = file.sources.end_before(batch, position)
                self._end_numbered(directory, file)
                rows = rows.slice(taken)
        _require_all(format, position, batch)

    def write_named(self, batch: RecordBatch, format: SinkFormat, name: str) -> None:
        """Append records to the file of a name, whatever size it reaches; an empty batch only begins it.

        A file of another name ends the one before it. An empty raw batch begins none in a format of columns.

        Raises:
            ValueError: The format cannot hold the records, or not in one file with those written before.
        """
        format = _format_for(batch, format)
        if not len(batch) and batch.is_raw and format.layout_of(batch) is not None:
            # The batch announces a block without records, whose columns are unknown.
            return
        url = join(self._root, name + format.extension)
        if self._named is None or self._named.url != url:
            self._end_named()
            self._named = self._open(url, batch, format, None)
        elif not self._named.accepts(batch, format):
            columns = ", ".join(f"{field.name}: {type_name(field.type)}" for field in batch.to_arrow().schema)
            raise ValueError(
                f"file {name} cannot also hold records with other columns, which are {columns}; "
                "say file_name: part, which puts them into files of their own"
            )
        self._named.sources.add(batch, 0, len(batch))
        count = sum(self._named.write(rows) for rows in format.rows_of(batch) if len(rows))
        _require_all(format, count, batch)

    def _file_for(self, batch: RecordBatch, format: SinkFormat, directory: str) -> _SinkFile:
        files = self._numbered.pop(directory, [])
        self._numbered[directory] = files
        for file in files:
            if file.accepts(batch, format):
                return file
        if sum(map(len, self._numbered.values())) >= self._max_open:
            oldest = next(name for name, held in self._numbered.items() if held)
            self._end_numbered(oldest, self._numbered[oldest][0])
        partition = self._context.partition
        name = f"{self._prefix}-{self._window_id:08d}-{partition:05d}-{self._count:04d}"
        name = f"{name}{self._suffix}{format.extension}"
        self._count += 1
        url = join(self._root, directory, name) if directory else join(self._root, name)
        file = self._open(url, batch, format, self._max_bytes)
        self._numbered.setdefault(directory, []).append(file)
        return file

    def _open(self, url: str, batch: RecordBatch, format: SinkFormat, max_bytes: int | None) -> _SinkFile:
        if self._context.outputs is None:
            raise StorageError("nothing can be published here: this operator runs where windows are planned", url=url)
        return _SinkFile(url, FileStream(self._context.outputs, url), batch, format, max_bytes)

    def _end_numbered(self, directory: str, file: _SinkFile) -> None:
        files = self._numbered[directory]
        files.remove(file)
        if not files:
            del self._numbered[directory]
        file.close()

    def _end_named(self) -> None:
        if self._named is not None:
            self._named.close()
            self._named = None

    def end_window(self) -> None:
        self._end_named()
        for files in self._numbered.values():
            for file in files:
                file.close()
        self._numbered.clear()


def _format_for(batch: RecordBatch, format: SinkFormat) -> SinkFormat:
    format = format.for_batch(batch)
    if not batch.is_raw and len(set(names := batch.to_arrow().schema.names)) < len(names):
        format.check_columns(StreamColumns(batch.to_arrow().schema))
        raise ValueError(f"two columns have one name: {', '.join(names)}")
    return format


def _require_all(format: SinkFormat, count: int, batch: RecordBatch) -> None:
    """Refuse a format that made more or fewer rows than records: some would be lost, or counted wrongly."""
    if count != len(batch):
        raise ValueError(
            f"format '{format.name or type(format).__name__}' made {count} rows of {len(batch)} records; "
            "rows_of, or encode, must give one for each"
        )


class _SinkFile:
    """One file that is being written."""

    def __init__(
        self, url: str, stream: FileStream, batch: RecordBatch, format: SinkFormat, max_bytes: int | None
    ) -> None:
        self.url = url
        self.sources = SourceCollector()
        self._stream = stream
        self._format = format
        self._layout = format.layout_of(batch)
        self._encoder = format.start(stream, batch, max_bytes)
        self._records = 0

    def accepts(self, batch: RecordBatch, format: SinkFormat) -> bool:
        """Whether records of a batch may be added in a format."""
        return format is self._format and format.fits(batch, self._layout)

    def write(self, rows: Any) -> int:
        taken = self._encoder.write(rows)
        if not (taken or self._records):
            raise ValueError(f"format '{self._format.name}' begins a file and takes no record")
        self._records += taken
        return taken

    def close(self) -> None:
        """Hand the file to the window's commit."""
        if (runs := self.sources.runs()) is not None:
            self._encoder.note_blocks(*runs)
        self._encoder.finish()
        self._stream.facts = self._stream.facts or self._format.facts(self._layout)
        self._stream.close(records=self._records, sources=self.sources.found())


_MOST_RUNS = 1 << 18
"""Runs of records of one block that are kept in their order, which take 4 MiB of memory, unless blocks are as many."""


class SourceCollector:
    """The sources of one file."""

    def __init__(self) -> None:
        self._ids, self._counts = array("q"), array("q")
        self._is_known = self._is_in_order = True
        self._most_runs = _MOST_RUNS
        self._start = self._end = WHOLE

    def add(self, batch: RecordBatch, first: int, last: int) -> None:
        """Note the blocks of the records [first, last) of a batch, which go to the file.

        The batch may be empty: its blocks were read, and have no records.
        """
        found = block_runs(batch, first, last) if self._is_known else None
        if found is None:
            self._is_known = False
            return
        ids, counts = found
        # Batches of one block follow each other; its id is kept once.
        if len(ids) == 1 and self._ids and ids[0] == self._ids[-1]:
            self._counts[-1] += int(counts[0])
        else:
            self._ids.frombytes(ids.tobytes())
            self._counts.frombytes(counts.tobytes())
        if len(self._ids) > self._most_runs:
            sums = self.found()
            if sums is not None:
                self._ids, self._counts, self._is_in_order = array("q", sums.ids()), array("q", sums.counts), False
                # Blocks that are all different would otherwise be added up again for each batch.
                self._most_runs = max(_MOST_RUNS, 2 * len(self._ids))

    def end_before(self, batch: RecordBatch, position: int) -> int:
        """Note that a record goes to the next file; returns its offset where the file has records of the same block."""
        found = block_runs(batch, position, position + 1) if self._is_known else None
        is_shared = found is not None and len(self._ids) > 0 and max(self._ids) in found[0]
        if is_shared and (origin := batch.origin) is not None:
            block = batch.block_of(position)
            offset = int(origin.offsets(len(batch))[position])
            # In compressed files offsets are those in the content.
            if block.start < offset < block.end and compression_of_name(block.url) is None:
                self._end = offset
        return self._end

    def start_at(self, offset: int) -> None:
        """Start at the offset that end_before() has returned for the file before."""
        self._start = offset

    def runs(self) -> tuple[array[int], array[int]] | None:
        """The blocks in the order of the records, and how many records in a row are of each; None where not known."""
        return (self._ids, self._counts) if self._is_known and self._is_in_order else None

    def found(self) -> FileSources | None:
        """The sources; None where they are not known."""
        return FileSources.of(self._ids, self._counts, self._start, self._end) if self._is_known else None
