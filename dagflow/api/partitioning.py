"""How many partitions an operator has, who decides, and which partition the records of a key go to.

The exchange that brings records of equal keys together and the state by key both use partitions_of() or
partitions_of_keys(), so that a key's state is always where its records arrive.

Source:
    Partitioner and its methods follow the Partitioner and the StatsListener of com.datatorrent.api of Apache Apex.
"""

from __future__ import annotations

import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from decimal import MAX_PREC, Context, Decimal
from enum import Enum
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.operator import Capability
from dagflow.api.properties import HasProperties
from dagflow.api.records import RecordBatch
from dagflow.frozen import frozen

MAX_PARTITIONS = 100_000
"""More than any cluster runs at once, and few enough to plan."""


@frozen
class BacklogStats:
    """The load of an operator at one moment.

    Attributes:
        now_millis: A monotonic clock.
        partitions: The current number of partitions.
        backlog: Tuples emitted to the operator and not yet processed.
        bytes_per_second: Measured throughput of one partition, 0.0 before the first measurement.
        unemitted_bytes: Bytes that control operators know they will emit after the backlog; there may be more.
        processed_bytes: Bytes that this run has processed and published.
    """

    now_millis: int
    partitions: int
    backlog: int
    backlog_bytes: int = 0
    bytes_per_second: float = 0.0
    unemitted_bytes: int = 0
    processed_bytes: int = 0

    @property
    def known_bytes(self) -> int:
        """All bytes that are known to wait, emitted or not."""
        return self.backlog_bytes + self.unemitted_bytes


@frozen
class StatsResponse:
    """The answer of process_stats.

    Attributes:
        reason: Why, for the journal and the user.
    """

    repartition: bool
    reason: str = ""


class Partitioner(Capability):
    """Declares an operator, or a policy, that decides how many partitions an operator has."""

    steers_by_speed: ClassVar[bool] = False
    """Whether it needs a measured speed: windows are then short from the first one on, so that a speed is known soon
    and decisions take effect soon."""

    @abstractmethod
    def define_partitions(self, stats: BacklogStats) -> int:
        """The number of partitions from now on, from 1 to 100,000.

        Called once at the start, with partitions = 0, and then whenever process_stats requests it.
        """

    def process_stats(self, stats: BacklogStats) -> StatsResponse:
        """Called in the driver before each window is planned: whether to call define_partitions again.

        The default requests no repartition; a policy that decides more than once overrides this.
        """
        return StatsResponse(False)


class PartitionPolicy(HasProperties, Partitioner):
    """Decides how many partitions an operator has, in place of the operator.

    A subclass declares properties as an operator does. An app names it as
    `partitioner: {class: my_policies.Nightly, properties: {...}}`. An instance is used in the driver for one run.
    """


class StreamCodec(ABC):
    """Returns the keys of the items that cross an exchange.

    An app names a codec as `partition: {by: my_codecs.FirstWord}`; it is constructed without arguments, and sent to
    the executors.

    Guarantee: items with equal keys arrive in the same partition of the operator, in every window with the same number
    of partitions, in every run and on every machine.
    """

    @abstractmethod
    def keys(self, items: Any) -> pa.Array:
        """The key of each item, in order; a null is a key like any other.

        Args:
            items: A RecordBatch, or a list of metadata tuples.

        Returns:
            One value per item: bytes, text, numbers, truth values, or dates and times without nanoseconds.
        """

    def __str__(self) -> str:
        """The text in a plan."""
        return type(self).__name__


@frozen
class ByName(StreamCodec):
    """The values of a column, or of an attribute of metadata tuples.

    Attributes:
        name: The column; `record` for a whole raw record.
    """

    name: str

    def keys(self, items: RecordBatch | Sequence[Any]) -> pa.Array:
        """The column's, or the attribute's, values; a LookupError if there is no such column or attribute."""
        if not len(items):
            # A batch without records may have any columns.
            return pa.nulls(0)
        if isinstance(items, RecordBatch):
            columns = items.to_arrow()
            self.require_in(columns.schema)
            return columns.column(self.name)
        try:
            return pa.array([getattr(item, self.name) for item in items])
        except AttributeError as error:
            kind = type(items[0]).__name__
            raise LookupError(f"there is no attribute '{self.name}' of {kind} to partition by") from error

    def require_in(self, schema: pa.Schema) -> None:
        """Refuse columns among which this one is missing by a LookupError that names them."""
        if self.name not in schema.names:
            has = ", ".join(schema.names)
            raise LookupError(f"there is no column '{self.name}' to partition by; the records have {has}")

    def __str__(self) -> str:
        return self.name


class BooleanKey(Enum):
    """A truth value as a key: Python's own equals a number, and would be found in place of 0 or 1."""

    FALSE = False
    TRUE = True

    def __str__(self) -> str:
        return str(self.value)


Key = bytes | str | int | float | Decimal | bool | BooleanKey | datetime | None
"""A possible key: a value of a column."""

_OF_ONE_FORM = frozenset((bytes, str, int))
_EXACT = Context(prec=MAX_PREC)


def canonical(key: Key) -> Key:
    """The canonical form of a key: the same for all keys equal to it, and for no others.

    Numbers are equal regardless of their types and digits: 2, 2.0 and a decimal 2.00 are 2. There is one NaN. A truth
    value is no number. Timestamps with time zones are equal if they are the same instant.
    """
    if type(key) in _OF_ONE_FORM:
        return key
    if isinstance(key, bool):
        return BooleanKey(key)
    if isinstance(key, datetime):
        return _with_fixed_offset(key)
    if not isinstance(key, float | Decimal):
        return key
    if key != key:
        # This object itself: dicts find it by identity, since no NaN equals another.
        return math.nan
    # No column of whole numbers has larger ones, and they would have up to 309 digits.
    if -(1 << 63) <= key < 1 << 64 and int(key) == key:
        return int(key)
    if isinstance(key, float):
        return key
    near = float(key)
    return near if near == key else key.normalize(_EXACT)


def _with_fixed_offset(key: datetime) -> datetime:
    # In the hour that a time zone repeats, a time of that zone equals no time of another zone, not even the one
    # restored from a checkpoint (PEP 495). With a fixed offset times are equal whenever their instants are.
    offset = key.utcoffset()
    return key if offset is None else key.replace(tzinfo=timezone(offset), fold=0)


def key_bytes(key: Key) -> bytes:
    """A key as text in UTF-8, or its own bytes: 2.0 as 2, a timestamp with the offset of its time zone."""
    if isinstance(key, bytes):
        return key
    key = canonical(key)
    return b"" if key is None else str(key).encode("utf-8", "surrogateescape")


def instant_of(moment: datetime) -> timedelta | None:
    """The time from the beginning of year 1 in UTC, less than 0 for some times of year 1; None without a zone.

    Times with zones are the same instant if these are equal. Python's own comparison differs in the hour that a zone
    repeats (PEP 495), and the first and last times of its calendar cannot be converted to UTC.
    """
    offset = moment.utcoffset()
    return None if offset is None else moment.replace(tzinfo=None) - datetime.min - offset


def _hashed_bytes(key: Key) -> bytes:
    """The bytes that a key is hashed by: equal keys have equal bytes, regardless of their types and time zones."""
    if isinstance(key, datetime) and (instant := instant_of(key)) is not None:
        return str(instant).encode()
    return key_bytes(key)


def _mixed(hashes: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    # A checksum of similar keys differs in regular ways, which a remainder would show; this is MurmurHash3's
    # finalizer, after which every bit depends on every other.
    hashes = hashes ^ (hashes >> np.uint32(16))
    hashes = hashes * np.uint32(0x85EBCA6B)
    hashes = hashes ^ (hashes >> np.uint32(13))
    hashes = hashes * np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))


def hashes_of(keys: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.uint32]:
    """A hash of each key in a column; each different key is hashed once."""
    column = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    encoded = column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode("encode")
    unique: list[Any] = encoded.dictionary.to_pylist()
    hashes = _hashes_of(unique)
    codes = encoded.indices
    if codes.null_count:
        hashes = np.append(hashes, _hashes_of([None]))
        codes = codes.fill_null(len(unique))
    positions: npt.NDArray[np.int64] = codes.to_numpy(zero_copy_only=False)
    return hashes[positions]


def _hashes_of(keys: Iterable[Key]) -> npt.NDArray[np.uint32]:
    return _mixed(np.fromiter((zlib.crc32(_hashed_bytes(key)) for key in keys), np.uint32))


def partitions_of(keys: pa.Array | pa.ChunkedArray, partitions: int) -> npt.NDArray[np.int64]:
    """The 0-based partition of each key in a column.

    Args:
        keys: A column of bytes, text, numbers, booleans, or dates and times without nanoseconds; may contain nulls,
            which are a key like any other.
    """
    return (hashes_of(keys) % np.uint32(partitions)).astype(np.int64)


def partitions_of_keys(keys: Iterable[Key], partitions: int) -> list[int]:
    """The 0-based partition of each of many keys, also of different types; the same as by partitions_of()."""
    found: list[int] = (_hashes_of(keys) % np.uint32(partitions)).tolist()
    return found


NUMBERS = "numbers"
TEXT = "text"
BYTES = "bytes"
TRUTH_VALUES = "truth values"
DATES = "dates"
TIMES = "times of day"
DURATIONS = "durations"
TIMESTAMPS = "timestamps without a time zone"
INSTANTS = "timestamps with a time zone"

_types = pa.types
_ARROW_TYPES = {
    NUMBERS: (_types.is_integer, _types.is_floating, _types.is_decimal),
    TRUTH_VALUES: (_types.is_boolean,),
    TEXT: (_types.is_string, _types.is_large_string, _types.is_string_view),
    BYTES: (_types.is_binary, _types.is_large_binary, _types.is_binary_view, _types.is_fixed_size_binary),
    DATES: (_types.is_date,),
    TIMES: (_types.is_time,),
    DURATIONS: (_types.is_duration,),
}


def family_of_type(kind: pa.DataType) -> str | None:
    """The family of the values of a column, in words; None where it is not known."""
    if pa.types.is_dictionary(kind):
        return family_of_type(kind.value_type)
    if pa.types.is_timestamp(kind):
        return TIMESTAMPS if kind.tz is None else INSTANTS
    families = _ARROW_TYPES.items()
    return next((family for family, tests in families if any(is_kind(kind) for is_kind in tests)), None)
