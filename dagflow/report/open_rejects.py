"""Which records of a checkpoint are refused: what windows have refused, and no later window has taken over."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.refused_records import RefusedRecords, blocks_in
from dagflow.api.sources import block_id_of, is_source_range
from dagflow.errors import JournalError, own_name
from dagflow.frozen import frozen, mutable
from dagflow.journal.reader import committed_windows, read_journal, read_state
from dagflow.journal.windows import Window, planned_blocks
from dagflow.late import compute as pc
from dagflow.report.input_ranges import matcher_of
from dagflow.report.published_rows import PublishedRows
from dagflow.storage.base import ObjectStore
from dagflow.storage.context import StorageContext
from dagflow.storage.location import as_text, redacted

SHOWN_TOGETHER = 10_000
"""Records that are made objects of Python at a time."""


@frozen
class RejectChoice:
    """A choice among the refused records.

    Attributes:
        reasons: Texts, one of which the reason holds, in any case; none for all reasons.
        files: A pattern of files, see matcher_of(); "" for all files.
    """

    reasons: tuple[str, ...] = ()
    files: str = ""

    def mask(self, rejects: WindowRejects) -> npt.NDArray[np.bool_]:
        records = rejects.records
        mask = np.ones(len(records), bool)
        if self.reasons:
            asked = [text.casefold() for text in self.reasons]
            mask &= records.matches("reason", lambda reason: any(text in reason.casefold() for text in asked))
        if self.files:
            matches = matcher_of(self.files)
            chosen = [block_id for block_id, block in rejects.blocks.items() if matches(block.url)]
            mask &= np.isin(records.numbers("block_id"), np.array(chosen, np.int64))
        return mask


@frozen
class WindowRejects:
    """What one operator refused in a window, or a part of that.

    Attributes:
        port: The input port that took the blocks, as "operator.port": of the operator, or of a reader before it.
        records: The records, each with the fingerprint of the app that refused it.
        blocks: The blocks that they and the operator's other records are in, by id.
    """

    window_id: int
    operator: str
    port: str
    records: RefusedRecords
    blocks: Mapping[int, Any]

    @property
    def can_be_read_again(self) -> bool:
        """Whether the operator reads the blocks itself, so that it can try single records."""
        return self.port.partition(".")[0] == self.operator

    def is_taken_over(self, retried: Container[int]) -> bool:
        """Whether a later window has taken the records over, as it has those of the windows in retried."""
        return self.can_be_read_again and self.window_id in retried


def open_rejects(checkpoint: str, storage: StorageContext) -> Iterator[WindowRejects]:
    """The refused records, window by window, in their order, without those of versions that were read anew since."""
    store = read_journal(storage, checkpoint)[0]
    begun = _last_beginnings(store)
    for rejects in rejects_in(store):
        old = [
            block_id
            for block_id, block in rejects.blocks.items()
            if is_source_range(block) and block.url in begun and rejects.window_id < begun[block.url].window_id
        ]
        is_open = ~np.isin(rejects.records.numbers("block_id"), np.array(old, np.int64))
        yield replace(rejects, records=rejects.records.where(is_open)) if old else rejects


class _Beginning(NamedTuple):
    version: Any
    window_id: int


def _last_beginnings(store: ObjectStore) -> dict[str, _Beginning]:
    """The last version of each file with refused records that was read from its beginning, by URL.

    What a file has grown by is another version, and part of the one before. A window that reads records again begins
    no version.
    """
    begun: dict[str, _Beginning] = {}
    for window in committed_windows(store):
        has_refused = window.intent is not None and bool(window.intent.refused)
        for _, _, part in planned_blocks(window.plan) if has_refused or begun else ():
            if not is_source_range(part) or part.start or not (has_refused or part.url in begun):
                continue
            if part.url not in begun or begun[part.url].version != part.version:
                begun[part.url] = _Beginning(part.version, window.plan.window_id)
    return begun


def rejects_in(store: ObjectStore) -> Iterator[WindowRejects]:
    retried = set(read_state(store).retried)
    for window in committed_windows(store):
        yield from (each for each in rejects_of(window) if not each.is_taken_over(retried))


def rejects_of(window: Window) -> Iterator[WindowRejects]:
    """What each operator refused in a window, in parts, whether or not a later one has taken it over."""
    parts: dict[str, list[bytes]] = defaultdict(list)
    for part in window.intent.refused if window.intent is not None else ():
        parts[part.operator].append(part.records)
    takers = {name.partition(".")[0] for name in window.plan.inputs}
    for operator, own in parts.items():
        ids = set().union(*map(blocks_in, own))
        port, blocks = "", {}
        for name, _, block in planned_blocks(window.plan):
            # Operators behind a reader refuse records of the blocks that it took.
            is_own = name.partition(".")[0] == operator or operator not in takers
            if is_own and block_id_of(block) in ids:
                port, blocks[block.block_id] = name, block
        if blocks.keys() != ids:
            raise JournalError(
                f"window {window.plan.window_id} has refused records of operator '{own_name(operator)}' in blocks "
                "of a class that cannot be imported here",
                hint="run this in the directory of the app's modules",
            )
        for records in itertools.chain.from_iterable(map(RefusedRecords.parts, own)):
            of_app = records.by_app(window.plan.config_hash)
            yield WindowRejects(window.plan.window_id, operator, port, of_app, blocks)


@mutable
class RejectGroup:
    """Refused records of one file with one reason.

    Attributes:
        reason: The reason, without the values of single records.
        bytes: How many bytes they have, without records whose length is not known: those with columns that an operator
            refused.
        sized: How many of the records have a known length above 0.
    """

    reason: str
    file: str
    records: int = 0
    bytes: int = 0
    sized: int = 0
    windows: list[int] = field(default_factory=list)


def grouped(rejects: Iterator[WindowRejects], choice: RejectChoice) -> list[RejectGroup]:
    """The chosen records by reason and file, the largest groups first."""
    groups: dict[tuple[str, str], RejectGroup] = {}
    for window in rejects:
        for block_id, reason, records, size_bytes, sized in window.records.where(choice.mask(window)).sums():
            key = reason, redacted(window.blocks[block_id].url)
            group = groups.setdefault(key, RejectGroup(*key))
            group.records += records
            group.bytes += size_bytes
            group.sized += sized
            if group.windows[-1:] != [window.window_id]:
                group.windows.append(window.window_id)
    return sorted(groups.values(), key=lambda group: (-group.records, group.reason, group.file))


@frozen
class ShownReject:
    """One refused record.

    Attributes:
        offset: Its first byte in the content of the file.
        reason: Why it is refused: with its values where they were kept.
        raw: Its first bytes; None where they were not kept.
    """

    file: str
    offset: int
    length: int
    reason: str
    raw: bytes | None
    window: int


def shown(rejects: Iterator[WindowRejects], choice: RejectChoice, most: int) -> Iterator[ShownReject]:
    """The first chosen records of each reason in each file.

    Args:
        most: How many of each reason and file; 0 for all.
    """
    taken: dict[tuple[str, str], int] = defaultdict(int)
    for window in rejects:
        chosen = window.records.where(choice.mask(window))
        for row in itertools.chain.from_iterable(
            map(pa.RecordBatch.to_pylist, chosen.table.to_batches(SHOWN_TOGETHER))
        ):
            file = redacted(window.blocks[row["block_id"]].url)
            key = row["reason"], file
            taken[key] += 1
            if most and taken[key] > most:
                continue
            reason = row["detail"] or row["reason"]
            yield ShownReject(file, row["offset"], row["length"], reason, row["raw"], window.window_id)


_TEXTS = dict.fromkeys(("operator", "reason"), pa.string())
_REFUSED = pa.schema({"file": pa.string(), "offset": pa.int64(), **_TEXTS, "record": pa.binary()})


def refused_rows(windows: Callable[[], Iterable[Window]], retried: Container[int]) -> PublishedRows:
    """The refused records of windows, as rows with file, offset, operator, reason and, for a few of them, record.

    Args:
        retried: The windows whose records a later one has taken over.
    """

    def parts() -> Iterator[pa.RecordBatch]:
        for window in windows():
            for rejects in rejects_of(window):
                if rejects.is_taken_over(retried):
                    continue
                table = rejects.records.table
                reasons = pc.coalesce(table.column("detail"), table.column("reason").cast(pa.string()))
                ids = table.column("block_id").dictionary_encode().combine_chunks()
                urls = [as_text(rejects.blocks[block_id].url) for block_id in ids.dictionary.to_pylist()]
                files = pa.array(urls, pa.string()).take(ids.indices)
                operators = pa.repeat(rejects.operator, len(table))
                columns = [files, table.column("offset"), operators, reasons, table.column("raw")]
                yield from pa.table(columns, schema=_REFUSED).combine_chunks().to_batches()

    return PublishedRows(_REFUSED, parts)
