"""Groups of windows: when their rows become files of the table, and how these are merged from fragments."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from dagflow.api.context import ControlServices, OperatorContext
from dagflow.api.control import Grouper
from dagflow.api.ports import OutputPort
from dagflow.api.properties import Millis, Size
from dagflow.storage.pending import HeldFile
from operators.sink.columns.table_columns import names_in_order
from operators.sink.tables.fragments import Piece, pieces_of, united

FOLLOWING_MILLIS = 60_000
FOLLOWING_BYTES = 512 << 20
RUN_BYTES = 2 << 30

UPSERT_BYTES = 64 << 20
"""Bytes of fragments with keys in a group: the driver holds the newest rows of a group."""

MOST_FRAGMENTS = 4096
"""Largest number of held files of a group, which the snapshots of the journal name one by one."""

_SHRINKS_TO = 0.65
"""About the length of a data file, as a share of that of its fragments: zstd against lz4."""


class GroupLimits(BaseModel):
    """When the windows of a group become one transaction of the table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    every_millis: Annotated[
        Millis | None,
        Field(description="maximum milliseconds after the first window of a group; 0: each window by itself"),
    ] = None
    bytes: Annotated[Size | None, Field(ge=1, description="maximum bytes that wait in fragments")] = None


@dataclass(frozen=True, slots=True)
class MergeJob:
    """One data file to be merged from fragments.

    Attributes:
        operator: The writer of the table.
        columns: The names of the columns of all fragments.
        size_bytes: Bytes of the pieces.
        pieces: The pieces in order, by fragment: its URL, and start, end and checksum of each piece; see Piece.
        keys: Columns by whose values the rows replace others; then the file has the newest row of each key.
    """

    operator: str
    columns: tuple[str, ...]
    size_bytes: int
    pieces: tuple[tuple[str, tuple[tuple[int, int, int], ...]], ...]
    keys: tuple[str, ...] = ()

    def parts(self) -> Iterator[tuple[str, list[Piece]]]:
        """The fragments in order, each with the parts that the job needs of it."""
        for url, places in self.pieces:
            yield url, [Piece((), *place) for place in places]


class TableGroups(Grouper):
    """Emits merge jobs, when a group of windows is due: partition by partition, about one file each.

    Guarantee: rows that replace others, and rows that are added, are never in one group.
    """

    every_millis: Millis | None = None
    bytes: Size | None = None
    target_file_bytes: Size = 128 << 20

    jobs = OutputPort(MergeJob)

    clock: ClassVar[Callable[[], float]] = time.time

    _services: ControlServices
    _taken_through = 0

    def setup(self, context: OperatorContext) -> None:
        if context.control is not None:
            self._services = context.control

    @property
    def taken_through(self) -> int:
        return self._taken_through

    def _waiting(self) -> list[HeldFile]:
        return [held for held in self._services.held_files if held.window_id > self._taken_through]

    def emit_tuples(self) -> None:
        waiting = self._waiting()
        if waiting and self._is_due(waiting):
            self._emit(waiting)

    def emit_rest(self) -> None:
        # All jobs that were emitted before are planned, or their window was dropped: none is left out.
        self._taken_through = 0
        if waiting := self._waiting():
            self._emit(waiting)

    def _is_due(self, waiting: Sequence[HeldFile]) -> bool:
        follows = self._services.follow
        every_millis = FOLLOWING_MILLIS if self.every_millis is None and follows else self.every_millis
        most_bytes = self.bytes or (FOLLOWING_BYTES if follows else RUN_BYTES)
        age_millis = type(self).clock() * 1000 - waiting[0].held_ms
        return (
            (every_millis is not None and age_millis >= every_millis)
            or sum(held.file.size_bytes for held in waiting) >= most_bytes
            or len(waiting) >= MOST_FRAGMENTS
        )

    def _emit(self, waiting: Sequence[HeldFile]) -> None:
        # The app's keys may have changed meanwhile: fragments with the new keys become another group.
        keys = _keys_of(waiting[0])
        group = list(itertools.takewhile(lambda held: _keys_of(held) == keys, waiting))
        self._taken_through = group[-1].window_id
        for job in merge_jobs(group, self.target_file_bytes):
            self.jobs.emit(job)


def _keys_of(held: HeldFile) -> list[str]:
    """The columns by whose values rows of a fragment replace others."""
    return [] if held.file.facts is None else held.file.facts.keys


def merge_jobs(files: Sequence[HeldFile], target_bytes: int) -> list[MergeJob]:
    """The jobs that merge fragments to data files: as few per partition as the target allows, of about equal length.

    Args:
        files: The fragments, oldest first, at least one; all with the same keys.
        target_bytes: The length of a data file; those with keys are of any length, as each has all rows of its keys.
    """
    facts = [held.file.facts for held in files if held.file.facts is not None]
    names = united([each.schema for each in facts]).names
    columns = tuple(names_in_order(names, [each.decided for each in facts]))
    by_partition: dict[tuple[str | None, ...], list[tuple[str, Piece]]] = defaultdict(list)
    for held, each in zip(files, facts, strict=True):
        for piece in pieces_of(each.held):
            by_partition[piece.values].append((held.file.pending_url, piece))
    jobs = []
    for pieces in by_partition.values():
        total = sum(piece.end - piece.start for _, piece in pieces)
        count = 1 if facts[-1].keys else max(1, round(total * _SHRINKS_TO / target_bytes))
        shares: list[list[tuple[str, Piece]]] = [[] for _ in range(count)]
        position = 0
        for url, piece in pieces:
            # By its middle: the share that takes a piece has more than half of it.
            middle = position + (piece.end - piece.start) // 2
            shares[min(middle * count // total, count - 1)].append((url, piece))
            position += piece.end - piece.start
        newest = facts[-1]
        for share in filter(None, shares):
            fragments: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
            for url, piece in share:
                fragments[url].append((piece.start, piece.end, piece.crc32))
            jobs.append(
                MergeJob(
                    operator=newest.operator,
                    columns=columns,
                    size_bytes=sum(piece.end - piece.start for _, piece in share),
                    pieces=tuple((url, tuple(places)) for url, places in fragments.items()),
                    keys=tuple(newest.keys),
                )
            )
    return jobs
