"""Refused records: as they leave an operator, and where they lie, so that they can be read again."""

from __future__ import annotations

import base64
import functools
import json
from binascii import b2a_base64
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.errors import RecordError, cut_text
from dagflow.frozen import frozen
from dagflow.late import compute as pc

SHOWN_RECORDS = 10
"""Records of each reason whose bytes a task keeps: enough to see what is wrong with millions."""

SHOWN_BYTES = 256
MAX_REASONS = 1000
"""Bounds the memory of a task if an author's format gives each record a reason of its own."""

OTHER_REASONS = "other reasons"

GATHERED_RECORDS = 1 << 13
"""Records that are compressed together: what a task holds of the others is a few bytes each."""

PART_RECORDS = 1 << 16
"""About how many records are decompressed at a time."""

_TEXT = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_VALUE = f"(?:{_TEXT}|[-+]?[0-9][-+.0-9eE]*)"
_TYPED = r"(?s)^column '.*?' \(.*?\): "
_COLUMNS_VALUE = rf"(?s)^(column '.*?'(?: \(.*?\))?: (?:member '.*?': )*){_VALUE}( .*)$"
_NAME = rf"(?s)((?:column|member) {_TEXT})"
_NAMES_AND_VALUES = rf"{_NAME}|{_TEXT}|(^|[^\w-])[0-9]+\b"

_SCHEMA = pa.schema(
    [
        ("block_id", pa.int64()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
        ("reason", pa.dictionary(pa.int32(), pa.string())),
        ("app", pa.dictionary(pa.int32(), pa.string())),
        ("detail", pa.string()),
        ("raw", pa.binary()),
    ]
)


def general_reasons(reasons: Sequence[str]) -> pa.DictionaryArray:
    """Reasons without the values of their records, so that records with the same mistake have the same reason."""
    # Most values are those of columns with a type, which a pattern without groups finds in a third of the time.
    texts = pc.replace_substring_regex(pa.array(reasons, pa.string()), rf"\): {_VALUE} ", "): … ", max_replacements=1)
    if pc.any(pc.match_substring(texts, "': ")).as_py():
        texts = pc.replace_substring_regex(texts, rf"': {_VALUE} ", "': … ", max_replacements=1)
    found = pc.list_element(pc.split_pattern(texts, ", in: ", max_splits=1), 0).dictionary_encode()
    different = pc.replace_substring_regex(found.dictionary, _COLUMNS_VALUE, r"\1…\2")
    # Where a column is named with its type, only the value differs: the rest says what the type accepts.
    plain = pc.replace_substring_regex(different, _NAMES_AND_VALUES, r"\1\2…")
    plain = pc.replace_substring_regex(plain, f"{_NAME}…", r"\1")
    general = pc.if_else(pc.match_substring_regex(different, _TYPED), different, plain).dictionary_encode()
    return pa.DictionaryArray.from_arrays(general.indices.take(found.indices), general.dictionary)


@dataclass(frozen=True, slots=True, eq=False)
class RefusedRecords:
    """Refused records of one operator, in columns.

    Attributes:
        table: A row for each record: block_id, offset and length of its bytes in the content of the block's file;
            reason, without values; app, the fingerprint of the app that refused it, or "" for the one that planned the
            window it is journaled with. A few rows of each reason also have detail, the reason in full, and raw, the
            first bytes.
    """

    table: Any

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @classmethod
    @functools.cache
    def none(cls) -> RefusedRecords:
        """No records."""
        return cls(_SCHEMA.empty_table())

    @classmethod
    def concatenated(cls, parts: Sequence[RefusedRecords]) -> RefusedRecords:
        """The records of several parts."""
        if not parts:
            return cls.none()
        return cls(pa.concat_tables([part.table for part in parts]).unify_dictionaries().combine_chunks())

    def numbers(self, column: str) -> npt.NDArray[np.int64]:
        """One of the columns block_id, offset and length."""
        return np.asarray(self.table.column(column).combine_chunks().to_numpy(zero_copy_only=False), np.int64)

    def matches(self, column: str, is_wanted: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
        """Which records have a wanted text in one of the columns reason and app; each text is checked once."""
        if not len(self):
            return np.zeros(0, bool)
        encoded = self.table.column(column).unify_dictionaries().combine_chunks()
        wanted = np.fromiter(map(is_wanted, encoded.dictionary.to_pylist()), bool)
        return np.asarray(wanted[encoded.indices.to_numpy()], bool)

    def sums(self) -> Iterator[tuple[int, str, int, int, int]]:
        """For each block and reason: block id, reason, number, bytes, and number of records that have bytes."""
        table = self.table.select(["block_id", "reason", "length"])
        table = table.set_column(1, "reason", table.column("reason").cast(pa.string()))
        table = table.append_column("has_bytes", pc.greater(table.column("length"), 0))
        # In one thread the groups keep the order of the records.
        found = table.group_by(["block_id", "reason"], use_threads=False).aggregate(
            [("length", "count"), ("length", "sum"), ("has_bytes", "sum")]
        )
        names = "block_id", "reason", "length_count", "length_sum", "has_bytes_sum"
        columns = (found.column(name).to_pylist() for name in names)
        yield from zip(*columns, strict=True)

    def where(self, mask: npt.NDArray[np.bool_]) -> RefusedRecords:
        """The records for which mask is true."""
        return RefusedRecords(self.table.filter(pa.array(mask)))

    def take(self, indices: npt.NDArray[np.int64]) -> RefusedRecords:
        """The records at the given positions, in that order."""
        return RefusedRecords(self.table.take(pa.array(indices)))

    def slice(self, start: int, end: int) -> RefusedRecords:
        """The records at the positions [start, end)."""
        return RefusedRecords(self.table.slice(start, end - start))

    def by_app(self, app: str) -> RefusedRecords:
        """The same, with an app for records that have none."""
        apps = self.table.column("app").cast(pa.string())
        return self._with_apps(pc.if_else(pc.equal(apps, ""), app, apps))

    def refused_again(self) -> RefusedRecords:
        """The same, refused by the app that plans the window that they are journaled with."""
        return self._with_apps(pa.chunked_array([pa.array([""] * len(self), pa.string())]))

    def _with_apps(self, apps: Any) -> RefusedRecords:
        position = self.table.schema.get_field_index("app")
        return RefusedRecords(self.table.set_column(position, "app", apps.dictionary_encode()).cast(_SCHEMA))

    def with_blocks(self, block_ids: npt.NDArray[np.int64]) -> RefusedRecords:
        """The same, with other ids of blocks."""
        return RefusedRecords(self.table.set_column(0, "block_id", pa.array(block_ids)))

    def to_bytes(self) -> bytes:
        """The records as Arrow IPC; b"" for none."""
        stream = _Stream()
        stream.write(self)
        return stream.close()

    @classmethod
    def from_bytes(cls, data: bytes) -> RefusedRecords:
        """The records from the bytes of to_bytes()."""
        return cls(pa.ipc.open_stream(pa.py_buffer(data)).read_all()) if data else cls.none()

    @classmethod
    def parts(cls, data: bytes) -> Iterator[RefusedRecords]:
        """The same, in parts of about PART_RECORDS."""
        held: list[pa.RecordBatch] = []
        for batch in pa.ipc.open_stream(pa.py_buffer(data)) if data else ():
            held.append(batch)
            if sum(map(len, held)) >= PART_RECORDS:
                yield cls(pa.Table.from_batches(held))
                held = []
        if held:
            yield cls(pa.Table.from_batches(held))


def blocks_in(data: bytes) -> set[int]:
    """The ids of the blocks of records in the bytes of RefusedRecords.to_bytes()."""
    options = pa.ipc.IpcReadOptions(included_fields=[0])
    batches = pa.ipc.open_stream(pa.py_buffer(data), options=options) if data else ()
    return set().union(*(pc.unique(batch.column(0)).to_pylist() for batch in batches))


class _Stream:
    """Writes records as Arrow IPC, compressed."""

    def __init__(self) -> None:
        self._sink = pa.BufferOutputStream()
        self._writer: Any = None

    def write(self, records: RefusedRecords) -> None:
        if len(records) and self._writer is None:
            self._writer = pa.ipc.new_stream(self._sink, _SCHEMA, options=pa.ipc.IpcWriteOptions(compression="zstd"))
        for batch in records.table.unify_dictionaries().combine_chunks().to_batches(GATHERED_RECORDS):
            self._writer.write_batch(batch)

    def close(self) -> bytes:
        if self._writer is None:
            return b""
        self._writer.close()
        return bytes(self._sink.getvalue().to_pybytes())


class RefusedLog:
    """Collects the records that an operator refuses in one task.

    Takes a few bytes for each record, and the bytes of a few for each reason.
    """

    def __init__(self) -> None:
        self._block_ids: list[int] = []
        self._offsets: list[int] = []
        self._lengths: list[int] = []
        self._reasons: list[str] = []
        self._raws: list[bytes] = []
        self._code_by_reason: dict[str, int] = {}
        self._shown: Counter[int] = Counter()
        self._kept: list[RefusedRecords] = []
        self._stream = _Stream()

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy of an operator with its context refuses records of its own.
        return RefusedLog, ()

    def add(
        self,
        block_id: int,
        offsets: Sequence[int],
        lengths: Sequence[int],
        reasons: Sequence[str],
        raws: Sequence[bytes],
    ) -> None:
        """Add records of one block."""
        for start in range(0, len(offsets), GATHERED_RECORDS):
            part = slice(start, start + GATHERED_RECORDS)
            self._offsets += offsets[part]
            self._lengths += lengths[part]
            self._reasons += reasons[part]
            self._raws += [raw[:SHOWN_BYTES] for raw in raws[part]]
            self._block_ids += [block_id] * (len(self._offsets) - len(self._block_ids))
            if len(self._offsets) >= GATHERED_RECORDS:
                self._gather()

    def keep(self, records: RefusedRecords) -> None:
        """Add records that an earlier window has refused, and that stay refused."""
        if len(records):
            self._kept.append(records)
            if sum(map(len, self._kept)) >= GATHERED_RECORDS:
                self._gather()

    def to_bytes(self) -> bytes:
        """All collected records, as of RefusedRecords.to_bytes(); nothing can be added any more."""
        self._gather()
        return self._stream.close()

    def _gather(self) -> None:
        if self._offsets:
            self._stream.write(self._newest())
            for column in (self._block_ids, self._offsets, self._lengths, self._reasons, self._raws):
                column.clear()
        self._stream.write(RefusedRecords.concatenated(self._kept))
        self._kept = []

    def _newest(self) -> RefusedRecords:
        general = general_reasons(self._reasons)
        codes = np.array([*map(self._code, general.dictionary.to_pylist())], np.int32)[general.indices.to_numpy()]
        count = len(codes)
        details: list[str | None] = [None] * count
        raws: list[bytes | None] = [None] * count
        for code in np.unique(codes).tolist():
            if (room := SHOWN_RECORDS - self._shown[code]) > 0:
                rows = np.flatnonzero(codes == code)[:room].tolist()
                self._shown[code] += len(rows)
                for row in rows:
                    details[row], raws[row] = self._reasons[row], self._raws[row]
        numbers = (pa.array(np.array(each, np.int64)) for each in (self._block_ids, self._offsets, self._lengths))
        reasons = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array([*self._code_by_reason], pa.string()))
        apps = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([""]))
        arrays = [*numbers, reasons, apps, pa.array(details, pa.string()), pa.array(raws, pa.binary())]
        return RefusedRecords(pa.Table.from_arrays(arrays, schema=_SCHEMA))

    def _code(self, reason: str) -> int:
        if reason not in self._code_by_reason and len(self._code_by_reason) >= MAX_REASONS:
            reason = OTHER_REASONS
        return self._code_by_reason.setdefault(reason, len(self._code_by_reason))


MAX_REASON = 1024
REJECTS = "errors"
"""The port at which an operator emits what it refuses."""

TAKE_REJECTS = "add `rejects: DIRECTORY` to the app"
"""What to do so that refused records leave at the port."""


@frozen
class Reject:
    """A refused record, with its position and the reason.

    Attributes:
        url: The file that it comes from; "" for none.
        offset: Its first byte in the content of the file.
        length: Its size there in bytes; negative where it is not known.
        raw: Its bytes, or as many of its first bytes as were kept; for a record with columns, a JSON object.
    """

    url: str
    offset: int
    length: int
    reason: str
    raw: bytes

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", cut_text(self.reason, MAX_REASON))

    def error(self, hint: str) -> RecordError:
        """The error if such a record ends the run."""
        return RecordError(self.reason, url=self.url, offset=self.offset, length=self.length, hint=hint)

    def to_bytes(self) -> bytes:
        """The reject as one JSON object in UTF-8, with raw in base64."""
        return encoded(self.url, [self.offset], [self.length], [self.reason], [self.raw])[0]

    @classmethod
    def from_bytes(cls, data: bytes) -> Reject:
        """The reject from the bytes of to_bytes()."""
        try:
            facts = json.loads(data)
            raw = base64.b64decode(facts["raw"])
            return cls(facts["url"], int(facts["offset"]), int(facts["length"]), facts["reason"], raw)
        except (TypeError, KeyError) as error:
            raise ValueError(f"no reject: {error}") from error


def encoded(
    url: str, offsets: Sequence[int], lengths: Sequence[int], reasons: Sequence[str], raws: Sequence[bytes]
) -> list[bytes]:
    """Refused records of one file as to_bytes() gives each."""
    # Put together by hand, which is ten times as fast as a dict for each: a run may refuse millions.
    beginning = f'{{"url": {quoted(url)}, "offset": '.encode()
    return [
        b'%b%d, "length": %d, "reason": %b, "raw": "%b"}'
        % (beginning, offset, length, quoted(reason).encode(), b2a_base64(raw, newline=False))
        for offset, length, reason, raw in zip(offsets, lengths, reasons, raws, strict=True)
    ]


def cut_reasons(reasons: Sequence[str]) -> Sequence[str]:
    """Reasons of a length that can be kept for each record: they may quote a value that is as long as a file."""
    if max(map(len, reasons), default=0) <= MAX_REASON:
        return reasons
    return [cut_text(reason, MAX_REASON) for reason in reasons]
