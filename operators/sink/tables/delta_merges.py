"""Files of a Delta table that other programs have merged, and how they are in the table again; for the driver alone."""

from __future__ import annotations

import decimal
import itertools
import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from functools import cache, partial
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from dagflow.errors import MissingError
from dagflow.frozen import frozen
from dagflow.storage.files import PythonFile
from dagflow.storage.location import join, name_of
from operators.sink.tables.delta_log import DeltaLog
from operators.sink.tables.merges import Changes, Merge, MergeHistory
from operators.sink.tables.table_files import bound_as_json

_KEPT_S = 7 * 86_400
"""Seconds for which a table keeps removed files, unless its property says otherwise."""

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 7 * 86_400}


@frozen
class LoggedFile:
    """A file in an entry of the log.

    Attributes:
        path: Where it is below the table.
        size_bytes: Its length; -1 where the entry does not say it.
        partition: The values of the partition columns, as texts.
        version: The version that has added or removed it.
        removed_ms: When it was removed, in milliseconds since 1970; 0 where it was added.
    """

    path: str
    size_bytes: int
    partition: dict[str, str | None]
    version: int
    removed_ms: int


def history_of(log: DeltaLog, handle: DeltaTable) -> MergeHistory[LoggedFile]:
    """The history of a version of a table: the log tells it for as long as it has the entries."""
    since_ms = (time.time() - _kept_s(handle)) * 1000

    def can_be_shown(file: LoggedFile) -> bool:
        # A file that the table does not keep any longer may be gone at any moment.
        return file.removed_ms > since_ms and log.storage.has(join(log.table.location, file.path), file.size_bytes)

    return MergeHistory(_versions(log, handle.version()), can_be_shown)


def _versions(log: DeltaLog, newest: int) -> Iterator[Iterable[Changes[LoggedFile]]]:
    for version in range(newest, -1, -1):
        try:
            with log.storage.open_file(log.path(version)) as opened:
                lines = PythonFile(opened).readall().splitlines()
        except MissingError:
            return
        by_partition: dict[bytes, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
        for kind, action in itertools.chain.from_iterable(msgspec.json.decode(line).items() for line in lines):
            if kind in ("add", "remove"):
                values = msgspec.json.encode(action.get("partitionValues"), order="deterministic")
                by_partition[values].append((kind, action))
        yield [_changes(actions, version) for actions in by_partition.values()]


def _changes(actions: Iterable[tuple[str, dict[str, Any]]], version: int) -> Changes[LoggedFile]:
    files: dict[str, dict[str, LoggedFile]] = {"add": {}, "remove": {}}
    is_merge = True
    for kind, action in actions:
        path, values = unquote(action["path"]), action.get("partitionValues") or {}
        size, removed_ms = action.get("size") or -1, action.get("deletionTimestamp") or 0
        files[kind][name_of(path)] = LoggedFile(path, size, values, version, removed_ms)
        # With deleted rows a file is not what it was made as.
        is_merge &= not (action["dataChange"] or action.get("deletionVector"))
    return Changes(files["add"], files["remove"], is_merge)


def _kept_s(handle: DeltaTable) -> float:
    """Seconds for which a table keeps removed files at least."""
    text = handle.metadata().configuration.get("delta.deletedFileRetentionDuration")
    found = re.fullmatch(r"(?:interval )?(\d+) ([a-z]+?)s?", (text or "").strip().lower())
    return _KEPT_S if text is None else int(found[1]) * _UNITS.get(found[2], 0) if found else 0


def unmerging(
    log: DeltaLog, merges: Iterable[Merge[LoggedFile]], without: Collection[str]
) -> Iterator[AddAction | RemoveAction]:
    """The actions by which merged files, without some, take the place of the files that have their rows."""
    now_ms = time.time_ns() // 1_000_000
    statistics_at = cache(partial(_statistics, log))
    for merge in merges:
        for file in merge.after.values():
            yield RemoveAction(file.path, True, now_ms, file.size_bytes, file.partition)
        for file in (file for name, file in merge.before.items() if name not in without):
            # An empty text would be no JSON to readers.
            text = statistics_at(file.version - 1).get(name_of(file.path), "{}")
            # No change of data: their rows are in the table already.
            yield AddAction(file.path, file.size_bytes, file.partition, now_ms, False, text)


def _statistics(log: DeltaLog, version: int) -> dict[str, str]:
    """The statistics of the files of a version as JSON, by name, as far as the log reaches back to it."""
    try:
        handle = DeltaTable(log.table.location, version=version, storage_options=log.options())
    except DeltaError:
        return {}
    found = pa.table(handle.get_add_actions()).to_pylist()
    return {name_of(each["path"]): _text(each) for each in found if each.get("num_records") is not None}


def _text(action: dict[str, Any]) -> str:
    least, greatest = (_as_json(action.get(name) or {}, up=name == "max") for name in ("min", "max"))
    counts = {"numRecords": action["num_records"], "nullCount": _as_json(action.get("null_count") or {}, up=False)}
    return msgspec.json.encode({**counts, "minValues": least, "maxValues": greatest}).decode()


def _as_json(value: Any, *, up: bool) -> Any:
    """A statistic as a JSON value; by column, or by member of a column, without those that are null."""
    if isinstance(value, dict):
        return {name: _as_json(member, up=up) for name, member in value.items() if member is not None}
    found = bound_as_json(value, up=up)
    return msgspec.Raw(found.encode()) if isinstance(value, decimal.Decimal) else found
