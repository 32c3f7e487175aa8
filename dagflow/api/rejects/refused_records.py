"""Positions of refused records, which an operator reports with its window, so that they can be read again."""

from __future__ import annotations

import functools
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

SHOWN_RECORDS = 10
"""Records of each reason whose bytes a task keeps: enough to see what is wrong with millions."""

SHOWN_BYTES = 256
MAX_REASONS = 1000
"""Bounds the memory of a task if an author's format gives each record a reason of its own."""

OTHER_REASONS = "other reasons"

_COLUMN = re.compile(r"column '.*?' \([^:]*\): ")
_TEXT = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_VALUE = re.compile(rf"(?:{_TEXT}|[-+]?[0-9][-+.0-9eE]*)(?= )")
_VALUES = re.compile(rf"(?<!column )(?<!member )(?:{_TEXT})|(?<![\w-])[0-9]+\b")

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


def general_reason(reason: str) -> str:
    """A reason without the values of its record, so that records with the same mistake have the same reason."""
    return _general(reason.partition(", in: ")[0])


@functools.lru_cache(1024)
def _general(reason: str) -> str:
    if (column := _COLUMN.match(reason)) is None:
        return _VALUES.sub("…", reason)
    # Only the value differs: the rest says what the type accepts.
    value = _VALUE.match(reason, column.end())
    return reason if value is None else f"{column[0]}…{reason[value.end() :]}"


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
        if not len(self):
            return b""
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd", unify_dictionaries=True)
        with pa.ipc.new_file(sink, _SCHEMA, options=options) as writer:
            writer.write_table(self.table.combine_chunks())
        return bytes(sink.getvalue().to_pybytes())

    @classmethod
    def from_bytes(cls, data: bytes) -> RefusedRecords:
        """The records from the bytes of to_bytes()."""
        return cls(pa.ipc.open_file(pa.py_buffer(data)).read_all()) if data else cls.none()


class RefusedLog:
    """Collects the records that an operator refuses in one task.

    Takes some 30 bytes for each record, and the bytes of a few for each reason.
    """

    def __init__(self) -> None:
        self._numbers = array("q")
        self._codes = array("i")
        self._code_by_reason: dict[str, int] = {}
        self._shown: Counter[int] = Counter()
        self._details: dict[int, tuple[str, bytes]] = {}
        self._kept: list[RefusedRecords] = []

    def add(self, block_id: int, offset: int, length: int, reason: str, raw: bytes) -> None:
        """Add one record.

        Args:
            block_id: Id of its block.
            offset: Its first byte in the content of the block's file.
            length: Its size in bytes.
            reason: Why it is refused.
            raw: Its bytes, or the first of them.
        """
        general = general_reason(reason)
        if general not in self._code_by_reason and len(self._code_by_reason) >= MAX_REASONS:
            general = OTHER_REASONS
        code = self._code_by_reason.setdefault(general, len(self._code_by_reason))
        if self._shown[code] < SHOWN_RECORDS:
            self._shown[code] += 1
            self._details[len(self._codes)] = (reason, raw[:SHOWN_BYTES])
        self._numbers.extend((block_id, offset, length))
        self._codes.append(code)

    def keep(self, records: RefusedRecords) -> None:
        """Add records that an earlier window has refused, and that stay refused."""
        if len(records):
            self._kept.append(records)

    def records(self) -> RefusedRecords:
        """All collected records."""
        if not self._codes:
            return RefusedRecords.concatenated(self._kept)
        columns = np.array(self._numbers, np.int64).reshape(-1, 3).T
        details: list[str | None] = [None] * len(self._codes)
        raws: list[bytes | None] = [None] * len(self._codes)
        for position, (detail, raw) in self._details.items():
            details[position], raws[position] = detail, raw
        reasons = pa.DictionaryArray.from_arrays(
            pa.array(np.array(self._codes, np.int32)), pa.array(list(self._code_by_reason), pa.string())
        )
        apps = pa.array([""] * len(self._codes), pa.string()).dictionary_encode()
        numbers = (pa.array(column.copy()) for column in columns)
        arrays = [*numbers, reasons, apps, pa.array(details, pa.string()), pa.array(raws, pa.binary())]
        own = RefusedRecords(pa.Table.from_arrays(arrays, schema=_SCHEMA))
        return RefusedRecords.concatenated([own, *self._kept])
