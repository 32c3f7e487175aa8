"""From a row of an output to the bytes that it is from, and back: by the journal, and by a run of the app apart.

No column says where a row is from. The journal knows the windows and inputs of its data file; the app runs again on
these, in a directory of its own and with origins, and gives the row with file and offset.
"""

from __future__ import annotations

import importlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dagflow.api.columns.json_values import readable_rows
from dagflow.api.ports import unbatched
from dagflow.api.sources import block_id_of, is_gone, is_source_range
from dagflow.api.transactions import ReplayableState, TransactionalSink
from dagflow.engine.apart import Apart, Output, apart_run, outputs_of, with_rows_kept
from dagflow.engine.corrections import sources_of, version_key_of
from dagflow.engine.partial_replay import works_record_by_record
from dagflow.engine.publishers import writer_of
from dagflow.engine.row_search import may_have, rows_where, select_of, with_texts
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.stop_request import StopRequest
from dagflow.errors import DagflowError, MissingError, own_name
from dagflow.frozen import frozen
from dagflow.journal.planned_tuples import planned_tuples
from dagflow.journal.reader import all_windows, read_journal
from dagflow.journal.state import JournalState
from dagflow.journal.windows import Window, WindowPlan
from dagflow.plan.accumulators import accumulators
from dagflow.plan.load import load_app, logical_plan
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.placement import PlacedApp
from dagflow.report.open_rejects import refused_rows
from dagflow.report.published_rows import partition_values, parts_of_file
from dagflow.report.traced_rows import AppThen, Source, Trace, TracedRow
from dagflow.spec.class_lookup import LIBRARY, search_path_of
from dagflow.storage.files import FileStat
from dagflow.storage.location import absolute, redacted
from dagflow.storage.objects import ObjectStore
from dagflow.storage.pending import PendingFile

MOST_FILES = 50
"""Files of a result that are tried one by one, at most, to find out which of them have a part in it."""

_LONGEST_DELIMITER = 64
"""Bytes behind a record, at most, that count as its own."""

_FILE, _OFFSET, _WINDOW = "_dagflow_file", "_dagflow_offset", "_dagflow_window"
_ORIGINS = (_FILE, _OFFSET, _WINDOW)

_DATA_FILE = "_dagflow_data_file"

_RESULT = "a result of several records; --where traces a row of it"


@frozen
class _Block:
    window: int
    tuple: Any
    is_corrected: bool

    @property
    def id(self) -> int:
        return block_id_of(self.tuple)


@dataclass
class Tracer:
    """Follows rows and bytes of one output.

    Args:
        operator: The operator that writes the output.

    Raises:
        DagflowError: The journal cannot be read.
    """

    app: LogicalPlan
    options: RunOptions
    operator: str
    stop: StopRequest
    store: ObjectStore = field(init=False)
    state: JournalState = field(init=False)
    output: Output = field(init=False)

    def __post_init__(self) -> None:
        checkpoint = absolute(self.options.checkpoint or self.app.attributes.checkpoint)
        self.storage = self.app.attributes.storage_context()
        self.store, self.state = read_journal(self.storage, checkpoint)
        self.output = next(each for each in outputs_of(self.app) if each.operator == self.operator)

    def of_rows(self, where: str, most: int) -> Trace:
        """The rows for which a condition is true, each with what it is from.

        Args:
            where: An expression.
            most: How many rows are followed.

        Raises:
            DagflowError: No row is so, or the condition cannot be computed.
        """
        windows = list(all_windows(self.store, self.state))
        there, files = self._matching(windows, where)
        if not len(there):
            last = self.state.forgotten
            gone = f"; nor are those of windows up to {last}, which the journal does not keep" if last else ""
            raise DagflowError(
                f"{self.output.name} has no row for which this is true: {where}",
                hint=f"rows of other programs, and those in files that another program has made, are not known{gone}",
            )
        shown = there.slice(0, most)
        blocks, is_narrow = self._inputs_of(windows, files)
        with apart_run(self.app, self.options, self.stop) as apart:
            made, then = self._made(apart, windows, blocks)
            rows = [self._traced(row, made, then, windows, blocks, is_narrow) for row in _rows(shown)]
        return Trace(self.output.name, self._version(), rows, len(there))

    def of_bytes(self, url: str, offset: int, most: int) -> Trace:
        """The rows that the record at a byte of a file became.

        Raises:
            DagflowError: No window has read the byte.
        """
        windows = list(all_windows(self.store, self.state))
        own = [each for each in _blocks_of(windows) if redacted(each.tuple.url) == redacted(url)]
        if not own:
            raise DagflowError(
                f"no window has read {redacted(url)}",
                hint="`dagflow status APP --files '*'` shows the files that were read",
            )
        with_byte = [each for each in own if each.tuple.start <= offset < each.tuple.end]
        chosen = with_byte or [
            each for each in own if not each.tuple.start
        ]  # of compressed files: the content is longer
        sources = [self._record_at(each, offset) for each in chosen]
        now = [each for each in sources if each.state == "read"] or sources
        if all(each.record is None and not each.problem for each in now):
            raise DagflowError(f"no record of {redacted(url)} has byte {offset:,}")
        refused, rows = "", list[TracedRow]()
        for block, source in zip(chosen, sources, strict=True):
            if block.is_corrected or source.offset is None:
                continue
            window = next(each for each in windows if each.plan.window_id == block.window)
            refused = _refusal(window, redacted(url), source.offset) or refused
            blocks = {block.window: {block.id}}
            with apart_run(self.app, self.options, self.stop) as apart:
                made, _ = self._made(apart, windows, blocks)
            files = self._files_with(windows, {block.id})
            if not made.num_rows or made.column(_FILE).null_count == made.num_rows:
                result = TracedRow({}, [source], False, files, _RESULT)
                rows += [result] if made.num_rows else []
                continue
            is_own = [
                file == block.tuple.url and at == source.offset
                for file, at in zip(made[_FILE].to_pylist(), made[_OFFSET].to_pylist(), strict=True)
            ]
            own_rows = made.filter(pa.array(is_own, pa.bool_()))
            rows += [TracedRow(_values(row), [source], True, files) for row in _rows(own_rows)]
        return Trace(self.output.name, self._version(), rows[:most], len(rows), sources, refused)

    def _version(self) -> str:
        receipt = self.state.receipts.get(self.operator)
        return "" if receipt is None else receipt.version

    def _matching(self, windows: Sequence[Window], where: str) -> tuple[pa.Table, list[PendingFile]]:
        """The rows of the output, and its data files that have them; no files where the journal does not know them."""
        target, keys = self.output.target, self.output.keys
        own = [file for window in windows if window.intent for file in window.intent.files if self._is_own(file)]
        if target is not None:
            state = target.open(writer_of(self.state, self.operator))
            if keys or not isinstance(state, ReplayableState) or not self._is_there(own[:1]):
                found = target.rows()
                return (pa.table({}) if found is None else rows_where(found, where)), []
            gone = {file.final_url for file in state.missing(own)}
            own = [file for file in own if file.final_url not in gone]
        condition = select_of(where).wanted_rows().condition
        tables, files = [], []
        for file in own:
            if condition is not None and not may_have(file, condition):
                continue
            rows = [found for part in self._parts_of(file) if len(found := rows_where(part, where))]
            if rows:
                files.append(file)
                tables += [found.append_column(_DATA_FILE, _repeated(file.final_url, len(found))) for found in rows]
        return (pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})), files

    def _is_there(self, files: Sequence[PendingFile]) -> bool:
        """Whether data files are where they were written: a database takes their rows, and they are removed."""
        try:
            return all(self.storage.stat(file.final_url) for file in files)
        except MissingError:
            return False

    def _is_own(self, file: PendingFile) -> bool:
        if file.target:
            return file.target == self.operator
        return any(file.final_url.startswith(f"{location}/") for location in self.output.locations)

    def _parts_of(self, file: PendingFile) -> Iterator[pa.Table]:
        """The rows of a data file, in parts."""
        values = {} if file.facts is None else file.facts.partition
        values = values or partition_values(file.final_url.removeprefix(self.output.locations[0]))
        named = {name: value for name, value in values.items() if name.isidentifier()}
        for part in parts_of_file(self.storage, file.final_url, named):
            yield with_texts(pa.Table.from_batches([part]))

    def _inputs_of(self, windows: Sequence[Window], files: Sequence[PendingFile]) -> tuple[dict[int, set[int]], bool]:
        """The blocks that data files have records of, by window; and whether these alone give the same records."""
        placed = PlacedApp.of(self.app, self.storage)
        is_narrow = works_record_by_record(placed.plan, placed.operators)
        ids: set[int] = set()
        whole: set[int] = set() if files else {each.plan.window_id for each in windows}
        wanted = {file.final_url for file in files}
        for window in windows:
            for file, sources in sources_of(window.intent) if window.intent is not None else ():
                if file.final_url in wanted and sources is not None:
                    ids |= {each for each, n in zip(sources.ids(), sources.counts, strict=True) if n}
                elif file.final_url in wanted:
                    whole |= set(range(self._first_of(windows, window.plan), window.plan.window_id + 1))
        found: dict[int, set[int]] = defaultdict(set)
        for block in _blocks_of(windows):
            if not block.is_corrected and (block.id in ids or block.window in whole):
                found[block.window].add(block.id)
        if not is_narrow:
            for block in _blocks_of(windows):
                if block.window in found and not block.is_corrected:
                    found[block.window].add(block.id)
        return dict(found), is_narrow

    def _first_of(self, windows: Sequence[Window], planned: WindowPlan) -> int:
        """The first window whose records may be in what a window has published."""
        if any(each.over == "all" for each in accumulators(self.app.instances).values()):
            return 1
        first, plans = planned.window_id, [each.plan for each in windows if each.plan.window_id <= planned.window_id]
        if planned.takes:
            first = max((max(each.takes.values()) for each in plans[:-1] if each.takes), default=0) + 1
        ends = [each.window_id for each in plans if each.closes]
        if any(end >= first for end in ends):
            first = max((end for end in ends if end < first), default=0) + 1
        return first

    def _files_with(self, windows: Sequence[Window], ids: Collection[int]) -> list[str]:
        """The data files with records of blocks, as far as that is known."""
        found = (pair for window in windows if window.intent for pair in sources_of(window.intent))
        return [
            redacted(file.final_url)
            for file, sources in found
            if self._is_own(file) and sources is not None and not set(sources.ids()).isdisjoint(ids)
        ]

    def _made(
        self, apart: Apart, windows: Sequence[Window], blocks: Mapping[int, Collection[int]]
    ) -> tuple[pa.Table, AppThen | None]:
        """The rows that the app makes of blocks, with their origins: the app of the newest of their windows."""
        chosen = [window for window in windows if window.plan.window_id in blocks]
        then = self._app_of(chosen[-1]) if chosen else None
        apart.app = app = self._loaded(then, apart.directory)
        if not isinstance(app.instances[self.operator], TransactionalSink):
            apart.app = with_rows_kept(app, self.operator, apart.directory)
        apart.run([each.plan for each in chosen], [blocks[each.plan.window_id] for each in chosen])
        rows = with_texts(apart.rows_of(self.operator).read())
        for name, kind in zip(_ORIGINS, (pa.string(), pa.int64(), pa.int64()), strict=True):
            if name not in rows.column_names:
                rows = rows.append_column(name, pa.nulls(len(rows), kind))
        return rows, then

    def _app_of(self, window: Window) -> AppThen:
        fingerprint = window.plan.config_hash
        newest = "" if self.state.facts is None else self.state.facts.fingerprint
        text = self.state.apps.get(fingerprint, "")
        return AppThen(self.state.source, fingerprint, fingerprint == newest, text)

    def _loaded(self, then: AppThen | None, directory: str) -> LogicalPlan:
        """The app as it was, if it is not as it is now; today's where it does not load any more."""
        if then is None or not then.text:
            return self.app
        file = Path(directory, "app.yaml")
        file.write_text(then.text)
        try:
            return load_app(file, search_path=search_path_of(self.state.source))
        except DagflowError:
            return self.app

    def _traced(
        self,
        row: dict[str, Any],
        made: pa.Table,
        then: AppThen | None,
        windows: Sequence[Window],
        blocks: Mapping[int, Collection[int]],
        is_narrow: bool,
    ) -> TracedRow:
        """A row with its sources: the made row that equals it."""
        values = _values(row)
        known = [each for each in _rows(made) if _equal(values, each)]
        origins = dict.fromkeys((each[_FILE], each[_OFFSET]) for each in known if each[_FILE])
        by_url = {each.tuple.url: each for each in _blocks_of(windows) if each.id in blocks.get(each.window, ())}
        if row.get(_FILE) and row.get(_OFFSET) is not None:
            origins = dict.fromkeys([(row[_FILE], row[_OFFSET])])
        names = [redacted(row[_DATA_FILE])] if _DATA_FILE in row else []
        if origins:
            own = [
                self._record_at(block, offset)
                for url, offset in origins
                for block in self._blocks_at(windows, blocks, url, offset)
            ]
            note = "several records give such a row" if len(origins) > 1 else ""
            return TracedRow(values, own, True, names, note)
        taken = {url: block for url, block in by_url.items()}
        note = "" if known else "the app as it was does not give this row again: its inputs are those of its windows"
        if known and not is_narrow:
            taken, note = self._with_part_in(values, windows, blocks, then)
        return TracedRow(values, [self._source(block) for block in taken.values()], False, names, note)

    def _with_part_in(
        self,
        values: dict[str, Any],
        windows: Sequence[Window],
        blocks: Mapping[int, Collection[int]],
        then: AppThen | None,
    ) -> tuple[dict[str, _Block], str]:
        """The files with records of the groups of a result: each is a window of its own in a run apart."""
        files: dict[str, list[_Block]] = defaultdict(list)
        for block in _blocks_of(windows):
            if block.id in blocks.get(block.window, ()):
                files[block.tuple.url].append(block)
        everything = {url: own[0] for url, own in files.items()}
        specs = {} if self.app.spec is None else self.app.spec.operators
        groups = [name for each in specs.values() for name in _names(each.properties.get("by", ()))]
        keys = [name for name in dict.fromkeys([*self.output.keys, *groups]) if name in values]
        if not keys or len(files) > MOST_FILES:
            return everything, "which of these files have a part in the row is not known"
        plans = {window.plan.window_id: window.plan for window in windows}
        order = list(files)
        with apart_run(self.app, self.options, self.stop) as apart:
            app = with_rows_kept(self._loaded(then, apart.directory), self.operator, apart.directory)
            apart.app = _by_window(app)
            owners = []
            for url in order:
                for at in dict.fromkeys(block.window for block in files[url]):
                    owners.append((url, plans[at], {block.id for block in files[url] if block.window == at}))
            apart.run([plan for _, plan, _ in owners], [ids for _, _, ids in owners])
            rows = _rows(apart.rows_of(self.operator).read())
        wanted = {name: values[name] for name in keys}
        numbers = {row.get(_WINDOW) for row in rows if _equal(wanted, row)}
        found = {owner[0] for number, owner in enumerate(owners, 1) if number in numbers}
        return ({url: everything[url] for url in order if url in found}, "") if found else (everything, "")

    def _blocks_at(
        self, windows: Sequence[Window], blocks: Mapping[int, Collection[int]], url: str, offset: int
    ) -> Iterable[_Block]:
        own = [
            each
            for each in _blocks_of(windows)
            if redacted(each.tuple.url) == redacted(url) and each.id in blocks.get(each.window, ())
        ]
        return [each for each in own if each.tuple.start <= offset < each.tuple.end] or own[:1]

    def _source(self, block: _Block) -> Source:
        part, window = block.tuple, next(each for each in all_windows(self.store, self.state, block.window))
        version = part.version
        return Source(
            redacted(part.url),
            version.size_bytes,
            version.mtime_ns,
            version.etag,
            block.window,
            "corrected" if block.is_corrected else "read",
            part.start,
            part.end,
            self._app_of(window),
        )

    def _record_at(self, block: _Block, offset: int) -> Source:
        """The record of a block that has a byte."""
        source, part = self._source(block), block.tuple
        version = part.version
        stat = FileStat(part.url, version.size_bytes, version.mtime_ns, version.etag, file_id=version.file_id)
        try:
            if not self.storage.backend(part.url).files.has_version(stat):
                return replace(source, problem="this version of the file is not there any more")
            before: tuple[int, Any] | None = None
            is_last = True
            for at, record in self._records(block):
                if at > offset:
                    is_last = False
                    break
                before = at, record
        except (DagflowError, ValueError, ImportError) as error:
            return replace(source, problem=f"it cannot be read by itself: {error}", offset=offset)
        if before is None:
            return source
        at, record = before
        end = at + len(record) if isinstance(record, bytes) else None
        if is_last and offset > (at if end is None else end + _LONGEST_DELIMITER):
            return source
        return replace(source, offset=at, record=record, record_end=end)

    def _records(self, block: _Block) -> Iterator[tuple[int, Any]]:
        part = block.tuple
        reader = next(name for name in self.app.operators if self._reads(name, block))
        spec = self.app.spec.operators.get(reader) if self.app.spec is not None else None
        if spec is None or "format" not in spec.properties:
            raise ValueError(f"operator '{own_name(reader)}' has no format")
        read_block = importlib.import_module(LIBRARY).read_block
        format = spec.properties["format"]
        if isinstance(format, Mapping):
            # Not parsed, so that a refused record does not end the search.
            format = {name: value for name, value in format.items() if name != "columns"}
        yield from read_block(part.url, part.start, part.end, format)

    def _reads(self, name: str, block: _Block) -> bool:
        return any(
            port.partition(".")[0] == name and block.id in {block_id_of(each) for each in unbatched((item,))}
            for window in all_windows(self.store, self.state, block.window)
            if window.plan.window_id == block.window
            for port, _, item in planned_tuples(window.plan)
        )


def _blocks_of(windows: Sequence[Window]) -> Iterator[_Block]:
    """The blocks that windows have read, newest window last."""
    for window in windows:
        skipped = () if window.intent is None else window.intent.skipped
        corrected = {(each.version, each.start) for each in skipped if each.cause == "corrected"}
        left_out = {(each.version, each.start) for each in skipped if each.cause != "corrected"}
        for _, _, item in planned_tuples(window.plan):
            for part in filter(is_source_range, unbatched((item,))):
                place = version_key_of(part), part.start
                if place not in left_out and not is_gone(part):
                    yield _Block(window.plan.window_id, part, place in corrected)


def _refusal(window: Window, file: str, offset: int) -> str:
    """Why a window has refused a record; "" where it has not."""
    for part in refused_rows(lambda: (window,), ()).parts():
        is_it = pc.and_(pc.equal(part["file"], file), pc.equal(part["offset"], offset))
        for reason in part["reason"].filter(is_it).to_pylist():
            return str(reason)
    return ""


def _by_window(app: LogicalPlan) -> LogicalPlan:
    """The app with results of single windows."""
    specs = {} if app.spec is None else app.spec.operators
    spans = {
        name: replace(specs[name], properties={**specs[name].properties, "over": "window"})
        for name in map(own_name, accumulators(app.instances))
        if name in specs
    }
    return app if app.spec is None else logical_plan(replace(app.spec, operators={**specs, **spans}))


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return readable_rows(table)


def _values(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in (*_ORIGINS, _DATA_FILE)}


def _repeated(value: str | None, count: int) -> pa.Array:
    return pa.array([value] * count, pa.string())


def _equal(values: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Whether a row has some values; a partition value is text in one and not in the other."""
    return all(name in row and (row[name] == value or str(row[name]) == str(value)) for name, value in values.items())


def _names(value: Any) -> Sequence[str]:
    return [value] if isinstance(value, str) else [each for each in value if isinstance(each, str)]
