"""The results of a preview so far."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from dagflow.api.context import Skipped
from dagflow.api.records import RecordBatch
from dagflow.api.rejects.reject import Reject
from dagflow.plan.physical import PortRef


@dataclass(frozen=True, slots=True)
class PreviewReject:
    """A record that a reader refused.

    Attributes:
        file: The file.
        offset: Its first byte in the content of the file.
        length: How many bytes it has.
        reason: Why it was refused.
        raw: Its bytes, or as many of its first bytes as were kept.
    """

    file: str
    offset: int
    length: int
    reason: str
    raw: bytes


@dataclass(slots=True)
class PreviewResults:
    """The results of a preview so far.

    Attributes:
        batches: Batches that arrived at the port, with at most as many records as are shown.
        count: Records that arrived at the port.
        at_end: How many of them were emitted at the end of the input.
        rejects: Refused records, as many as are shown.
        reject_count: How many records readers refused.
        rejecting: Operators that refused records.
        taken: Records that each operator took in.
        given: Records that were emitted, by port.
        urls: The files, as far as they had records.
        left_out: Ranges that were left out of files that cannot be read.
    """

    batches: list[RecordBatch] = field(default_factory=list)
    count: int = 0
    at_end: int = 0
    rejects: list[PreviewReject] = field(default_factory=list)
    reject_count: int = 0
    rejecting: list[str] = field(default_factory=list)
    taken: Counter[str] = field(default_factory=Counter)
    given: Counter[PortRef] = field(default_factory=Counter)
    urls: dict[str, None] = field(default_factory=dict)
    left_out: list[Skipped] = field(default_factory=list)


def reject_of(record: Any) -> PreviewReject | None:
    """The refused record that a reader describes; None where an author's port of that name emits something else."""
    try:
        reject = Reject.from_bytes(record)
    except ValueError:
        return None
    return PreviewReject(reject.url, reject.offset, reject.length, reject.reason, reject.raw)
