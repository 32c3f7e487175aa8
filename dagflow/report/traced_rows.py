"""What `dagflow trace` finds: the bytes that rows are from, and the rows that bytes became."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dagflow.frozen import frozen


@frozen
class AppThen:
    """The app that planned a window.

    Attributes:
        file: Its file.
        fingerprint: Identifies it; see AppFacts.
        is_newest: Whether the newest run had the same app.
        text: Its YAML without secrets; "" where it is not kept.
    """

    file: str
    fingerprint: str
    is_newest: bool
    text: str


@frozen
class Source:
    """A part of a version of a file.

    Attributes:
        window: The window that has read it.
        state: "read", or "corrected" where a later version has taken its place.
        start: The first byte of the block.
        end: One past its last byte.
        offset: The first byte of the record; None where it is not about one record.
        record_end: One past its last byte, without its delimiter; None where that is not known.
        record: The record: bytes, or values by column where its format has rows; None where it cannot be read any more.
        problem: Why it cannot be read; "" where it can.
    """

    file: str
    size_bytes: int
    mtime_ns: int
    etag: str
    window: int
    state: str
    start: int
    end: int
    app: AppThen
    offset: int | None = None
    record_end: int | None = None
    record: Any = None
    problem: str = ""


@frozen
class TracedRow:
    """A row of an output.

    Attributes:
        sources: Where it is from: its record, or the files that have a part in it.
        is_of_record: Whether it is of one record.
        files: The data files that have it.
        note: What else is to be said; "" for nothing.
    """

    values: dict[str, Any]
    sources: Sequence[Source]
    is_of_record: bool
    files: Sequence[str] = ()
    note: str = ""


@frozen
class Trace:
    """What was found.

    Attributes:
        output: The name of the output, such as "table delta:/srv/out/orders".
        version: The target's name for its present state; "" for none.
        rows: The rows, at most as many as were asked for.
        count: How many rows there are.
        sources: Of bytes: the versions of the file with them.
        refused: Of bytes: why the record was refused; "" where it was not.
    """

    output: str
    version: str
    rows: Sequence[TracedRow]
    count: int
    sources: Sequence[Source] = ()
    refused: str = ""
