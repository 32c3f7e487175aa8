"""What a record format is: the class to extend for a format of one's own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

from pydantic import ValidationError

from dagflow.api.properties import set_properties
from dagflow.api.records import RecordBatch
from operators.files.metadata import BlockMetadata

CHUNK_BYTES = 1 << 20
"""How much is read at a time: a chunk stays in the second-level cache from the read to the write."""


class ByteSource(Protocol):
    """The bytes of one version of one file."""

    @property
    def size_bytes(self) -> int:
        """Length of the file in that version."""

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill buffer with the bytes from offset on.

        Returns:
            How many bytes were read: fewer than buffer takes only at the end of the file.

        Raises:
            StorageError: The store failed, or the file is no longer that version.
        """


class Prefix:
    """The first bytes of a source, as if no more were there.

    Args:
        source: The source.
        size_bytes: How many of its bytes.
    """

    def __init__(self, source: ByteSource, size_bytes: int) -> None:
        self._source = source
        self._size_bytes = min(size_bytes, source.size_bytes)

    @property
    def size_bytes(self) -> int:
        """See ByteSource."""
        return self._size_bytes

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """See ByteSource."""
        return self._source.read_into(offset, buffer[: max(0, self._size_bytes - offset)])


class Account(Protocol):
    """Where a format says what became of bytes that are in no record."""

    def reject(self, offset: int, length: int, reason: str, raw: bytes) -> None:
        """Refuse a stretch of bytes that should be a record.

        Args:
            offset: Its first byte in the file.
            length: How many bytes it has.
            reason: Why, as a lower-case clause.
            raw: Its bytes, or as many of its first bytes as are at hand.

        Raises:
            RecordError: Nobody listens to rejects.
        """

    def skip(self, offset: int, length: int, reason: str) -> None:
        """Pass over bytes that are not meant to be records, such as a header."""

    def leave_out(self) -> None:
        """Say that the file is in no output, after what became of its bytes: whoever cleans up must not remove it."""

    def delimit(self, length: int) -> None:
        """Count bytes that belong to records and do not lie in their batch, such as the length before a record."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a format made of raw records.

    Attributes:
        raw: The records that were accepted.
        columns: Their columns, one row per record, as a pyarrow.RecordBatch; None for a format without columns.
    """

    raw: RecordBatch
    columns: Any = None

    @property
    def batch(self) -> RecordBatch:
        """What flows on."""
        return self.raw if self.columns is None else self.raw.with_columns(self.columns)


class RecordFormat(ABC):
    """A record format: says where the records of a file begin and end.

    A subclass declares its options as annotated class attributes, as an operator does its properties,
    gives itself a name, and writes `read`. An instance reads many blocks one after the other; it may keep
    what helps with the next block of the same file, never anything that changes what a block gives.

    Guarantee: a record belongs to the block that holds its first byte. Whatever the cuts, the records
    of a file's blocks, in order, are the records of the file; each block is read for itself, without
    the help of any other.
    """

    name: ClassVar[str] = ""
    """What the format is called in YAML; "" for a base class."""

    needs_size: ClassVar[bool] = True
    """Whether `read` must know the size of the file before its end was seen; a compressed file is then
    decompressed as a whole before any of it is read."""

    # Without an annotation, so that it is no option: only tests have a reason to change it.
    chunk_bytes = CHUNK_BYTES
    """How much is read at a time, about; what a block gives does not depend on it."""

    def __init__(self, **options: Any) -> None:
        """Set the options.

        Args:
            options: Values as YAML would give them, by name.

        Raises:
            pydantic.ValidationError: An option is unknown, missing or of the wrong type.
            ValueError: check_options refused the values.
        """
        set_properties(self, options)
        self.check_options()

    def check_options(self) -> None:  # noqa: B027  # most formats have nothing to refuse
        """Refuse values that are wrong together; called last by the constructor.

        Raises:
            ValueError: What does not fit, naming the options.
        """

    @abstractmethod
    def read(self, source: ByteSource, block: BlockMetadata, account: Account) -> Iterator[RecordBatch]:
        """The records that begin in a block.

        Args:
            source: The file's bytes; may be read beyond the block, as far as its last record goes.
            block: The block.
            account: Takes in what is refused and what is passed over. Bytes of a record, or beside one, belong to
                the block that holds its first byte; all others to the block that they lie in.

        Yields:
            Raw batches in file order, with origin; never empty ones. A framed batch (see framing.py) holds its
            delimiters as they lie in the file.

        Raises:
            RecordError: The bytes are not what the format says, and nobody listens to rejects.
            StorageError: The source failed.
        """

    @property
    def adds_up(self) -> bool:
        """Whether each byte of a file is in one record, or beside one, exactly once; a run checks that it is."""
        return True

    def needs_prescan(self, block: BlockMetadata) -> bool:
        """Whether a first pass must look at a block, because where later blocks' records begin depends on it."""
        return False

    def prescan(self, source: ByteSource, block: BlockMetadata) -> Any:
        """Look at a block in a first pass, without knowing what lies before it.

        Returns:
            Something small and picklable, for exit_state.
        """
        return None

    def exit_state(self, entry_state: int, finding: Any) -> int:
        """The state in which a block is left, and the next one entered.

        Args:
            entry_state: The state in which the block is entered; 0 at the beginning of a file.
            finding: What survey gave for it.
        """
        return 0

    def settled_end(self, source: ByteSource) -> int | None:
        """Where the record begins that is in progress at the end of a file that may grow.

        Whatever is appended, a record begins there or the file ends there, and the records before it stay as
        they are. The default knows of no such place.

        Args:
            source: The file as it is.

        Returns:
            An offset up to the file's length, or None where the format cannot tell.

        Raises:
            StorageError: The source failed.
        """
        return None

    def parse(self, batch: RecordBatch, account: Account) -> Parsed:
        """Check the raw records of a batch that read gave, and make columns of them.

        The default accepts every record as it is.

        Raises:
            RecordError: A record is not what the format says, and nobody listens to rejects.
        """
        return Parsed(batch)


def entered(made: RecordFormat, source: ByteSource, block: BlockMetadata) -> BlockMetadata:
    """The block with its entry state, found by a survey of all that lies before it."""
    before = replace(block, start=0, end=block.start, is_last=False)
    if block.start == 0 or not made.needs_prescan(before):
        return block
    return replace(block, entry_state=made.exit_state(0, made.prescan(source, before)))


def option_problems(name: str, error: ValidationError) -> list[str]:
    """What pydantic found wrong with a format's options, in our words."""
    problems = []
    details = error.errors()
    # Where a value may be of several kinds, what its own kind finds wrong says more than that it is of no other.
    told = {detail["loc"][:1] for detail in details if detail["type"] == "value_error"}
    for detail in details:
        if detail["type"] != "value_error" and detail["loc"][:1] in told:
            continue
        # Kinds that pydantic has tried are no places in the app.
        where = ".".join(part for part in map(str, detail["loc"]) if "[" not in part)
        if detail["type"] == "missing":
            problems.append(f"format '{name}' needs option '{where}'")
        else:
            message = detail["msg"].removeprefix("Value error, ")
            problems.append(f"format '{name}', option '{where}': {message}; got {detail['input']!r}")
    return problems
