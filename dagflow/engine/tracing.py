"""From a row of an output to the bytes that it is from, and back: by the journal, and by a run of the app apart.

No column says where a row is from. The journal knows the windows and inputs of its data file; the app runs again on
these, in a directory of its own and with origins, and gives the row with file and offset.
"""

from __future__ import annotations

import importlib
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from dagflow.api.columns.json_values import readable_rows
from dagflow.api.ports import unbatched
from dagflow.api.sources import block_id_of, is_gone, is_source_range
from dagflow.api.transactions import ReplayableState, TransactionalSink
from dagflow.engine.apart import Apart, Output, apart_run, outputs_of, with_rows_kept
from dagflow.engine.corrections import sources_of, version_key_of
from dagflow.engine.kept_totals import is_by_file
from dagflow.engine.partial_replay import works_record_by_record
from dagflow.engine.publishers import writer_of
from dagflow.engine.row_search import equal_rows, may_have, rows_where, select_of, with_texts
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.stop_request import StopRequest
from dagflow.errors import DagflowError, MissingError, own_name
from dagflow.frozen import frozen
from dagflow.journal.planned_tuples import planned_tuples
from dagflow.journal.reader import all_windows, newest_windows, read_journal
from dagflow.journal.state import JournalState
from dagflow.journal.windows import Window, WindowPlan
from dagflow.late import compute as pc
from dagflow.plan.accumulators import accumulators
from dagflow.plan.load import load_app, logical_plan
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.placement import PlacedApp
from dagflow.report.open_rejects import refused_rows
from dagflow.report.published_rows import PublishedRows, partition_values, parts_of_file
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
    plan: WindowPlan
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
        there, files = self._matching(where, most)
        if not there:
            last = self.state.forgotten
            raise DagflowError(
                f"{self.output.name} has no row for which this is true: {where}",
                hint="rows of other programs are not known"
                + (f"; nor are those of windows up to {last}, which the journal does not keep" if last else ""),
            )
        found: list[TracedRow | None] = [None] * len(there)
        is_narrow = self._is_narrow
        for blocks in self._inputs_of(files):
            left = [number for number, row in enumerate(found) if row is None]
            with apart_run(self.app, self.options, self.stop) as apart:
                made, then = self._made(apart, blocks)
                known = equal_rows(made, [_values(there[number]) for number in left])
            for number, own in zip(left, known, strict=True):
                if own or files:
                    found[number] = self._traced(there[number], own, then, blocks, is_narrow)
            if None not in found:
                break
        unknown = "the app as it was does not give this row again"
        rows = [
            TracedRow(_values(row), [], False, (), unknown) if traced is None else traced
            for row, traced in zip(there, found, strict=True)
        ]
        return Trace(self.output.name, self._version(), rows, self._count)

    def of_bytes(self, url: str, offset: int, most: int) -> Trace:
        """The rows that the record at a byte of a file became.

        Raises:
            DagflowError: No window has read the byte.
        """
        own = [each for each in _blocks_of(self._windows()) if redacted(each.tuple.url) == redacted(url)]
        if not own:
            raise DagflowError(
                f"no window has read {redacted(url)}",
                hint="`dagflow status APP --files '*'` shows the files that were read",
            )
        # Of compressed files the content is longer than the file.
        with_byte = [each for each in own if each.tuple.start <= offset < each.tuple.end]
        chosen = with_byte or [each for each in own if not each.tuple.start]
        sources = [self._record_at(each, offset) for each in chosen]
        now = [each for each in sources if each.state == "read"] or sources
        if all(each.record is None and not each.problem for each in now):
            raise DagflowError(f"no record of {redacted(url)} has byte {offset:,}")
        refused, rows = "", list[TracedRow]()
        for block, source in zip(chosen, sources, strict=True):
            if not (block.is_corrected or source.offset is None):
                refused = self._refusal(block, source.offset) or refused
                rows += self._rows_of(block, source)
        return Trace(self.output.name, self._version(), rows[:most], len(rows), sources, refused)

    def _rows_of(self, block: _Block, source: Source) -> Iterator[TracedRow]:
        """The rows that a record has become; one without values where it is part of results."""
        files = self._files_with({block.id})
        is_made = has_origins = False
        with apart_run(self.app, self.options, self.stop) as apart:
            made, _ = self._made(apart, [block])
            for part in made.parts():
                is_made = is_made or len(part) > 0
                has_origins = has_origins or part[_FILE].null_count < len(part)
                is_own = pc.and_(pc.equal(part[_FILE], block.tuple.url), pc.equal(part[_OFFSET], source.offset))
                for row in readable_rows(part.filter(is_own)):
                    yield TracedRow(_values(row), [source], True, files)
        if is_made and not has_origins:
            yield TracedRow({}, [source], False, files, _RESULT)

    def _refusal(self, block: _Block, offset: int | None) -> str:
        """Why the window of a block has refused a record; "" where it has not."""
        window = next(all_windows(self.store, self.state, block.plan.window_id))
        for part in refused_rows(lambda: (window,), ()).parts():
            is_it = pc.and_(pc.equal(part["file"], redacted(block.tuple.url)), pc.equal(part["offset"], offset))
            for reason in part["reason"].filter(is_it).to_pylist():
                return str(reason)
        return ""

    def _windows(self) -> Iterator[Window]:
        return all_windows(self.store, self.state)

    def _version(self) -> str:
        receipt = self.state.receipts.get(self.operator)
        return "" if receipt is None else receipt.version

    def _matching(self, where: str, most: int) -> tuple[list[dict[str, Any]], set[str]]:
        """The first rows of the output, and their data files; no files where the journal does not know them."""
        target, condition = self.output.target, select_of(where).wanted_rows().condition
        all_files = (file for window in self._windows() if window.intent for file in window.intent.files)
        own = [file for file in all_files if self._is_own(file) and (condition is None or may_have(file, condition))]
        if target is not None:
            state = target.open(writer_of(self.state, self.operator))
            if self.output.keys or not isinstance(state, ReplayableState) or not self._is_there(own[:1]):
                return self._first(where, most, [("", self._rows_there())]), set()
            gone = {file.final_url for file in state.missing(own)}
            own = [file for file in own if file.final_url not in gone and self._is_there([file])]
        rows = self._first(where, most, ((file.final_url, self._parts_of(file)) for file in own))
        if not rows and target is not None:
            # Another program has made the data file that has it.
            return self._first(where, most, [("", self._rows_there())]), set()
        return rows, {row[_DATA_FILE] for row in rows}

    def _rows_there(self) -> Iterator[pa.Table]:
        assert self.output.target is not None
        for part in PublishedRows.of_stream(self.output.target.rows).parts():
            yield pa.Table.from_batches([part])

    def _first(self, where: str, most: int, files: Iterable[tuple[str, Iterable[pa.Table]]]) -> list[dict[str, Any]]:
        """The first rows for which a condition is true, each with its data file; counts all of them."""
        rows: list[dict[str, Any]] = []
        self._count = 0
        for url, parts in files:
            for found in (rows_where(part, where) for part in parts):
                self._count += len(found)
                if len(found) and len(rows) < most:
                    shown = readable_rows(found.slice(0, most - len(rows)))
                    rows += [{**row, _DATA_FILE: url} if url else row for row in shown]
        return rows

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

    @property
    def _is_narrow(self) -> bool:
        """Whether blocks alone give the same records as in their windows."""
        placed = PlacedApp.of(self.app, self.storage)
        has_totals = any(map(is_by_file, placed.operators.values()))
        return works_record_by_record(placed.plan, placed.operators) and not has_totals

    def _inputs_of(self, files: Collection[str]) -> Iterator[list[_Block]]:
        """The blocks that data files have records of; without files those of windows, the newest first, more and more.

        Yields:
            Blocks to run again together.
        """
        if not files:
            yield from self._newest_first()
            return
        ids: set[int] = set()
        whole: set[int] = set()
        for window in self._windows():
            for file, sources in sources_of(window.intent) if window.intent is not None else ():
                if file.final_url in files and sources is not None:
                    ids |= {each for each, n in zip(sources.ids(), sources.counts, strict=True) if n}
                elif file.final_url in files:
                    whole |= set(range(self._first_of(window.plan), window.plan.window_id + 1))
        is_narrow = self._is_narrow
        found: list[_Block] = []
        for window in self._windows():
            blocks = [each for each in _blocks_of([window]) if not each.is_corrected]
            named = [each for each in blocks if each.id in ids or window.plan.window_id in whole]
            found += named if is_narrow or not named else blocks
        yield found

    def _newest_first(self) -> Iterator[list[_Block]]:
        """The blocks of windows: of all together where results are of many, otherwise twice as many each time."""
        most = sys.maxsize if accumulators(self.app.instances) else 1
        held: list[_Block] = []
        windows = 0
        for window in newest_windows(self.store, self.state):
            held[:0] = [each for each in _blocks_of([window]) if not each.is_corrected]
            windows += 1
            if windows == most:
                yield held
                held, windows, most = [], 0, 2 * most
        if held:
            yield held

    def _first_of(self, planned: WindowPlan) -> int:
        """The first window whose records may be in what a window has published."""
        if any(each.over == "all" for each in accumulators(self.app.instances).values()):
            return 1
        first, before, ends = planned.window_id, 0, list[int]()
        for plan in (window.plan for window in self._windows()):
            if plan.window_id <= planned.window_id:
                before = max(plan.takes.values()) if plan.takes and plan.window_id < planned.window_id else before
                ends += [plan.window_id] if plan.closes else []
        first = before + 1 if planned.takes else first
        if any(end >= first for end in ends):
            first = max((end for end in ends if end < first), default=0) + 1
        return first

    def _files_with(self, ids: Collection[int]) -> list[str]:
        """The data files with records of blocks, as far as that is known."""
        found = (pair for window in self._windows() if window.intent for pair in sources_of(window.intent))
        return [
            redacted(file.final_url)
            for file, sources in found
            if self._is_own(file) and sources is not None and not set(sources.ids()).isdisjoint(ids)
        ]

    def _made(self, apart: Apart, blocks: Sequence[_Block]) -> tuple[PublishedRows, AppThen | None]:
        """The rows that the app makes of blocks, with their origins: the app of the newest of their windows."""
        chosen: dict[int, tuple[WindowPlan, set[int]]] = {}
        for block in blocks:
            chosen.setdefault(block.plan.window_id, (block.plan, set()))[1].add(block.id)
        then = self._app_of(blocks[-1].plan) if blocks else None
        apart.app = app = self._loaded(then, apart.directory)
        if not isinstance(app.instances[self.operator], TransactionalSink):
            apart.app = with_rows_kept(app, self.operator, apart.directory)
        apart.run([plan for plan, _ in chosen.values()], [ids for _, ids in chosen.values()])
        made = apart.rows_of(self.operator)
        origins = zip(_ORIGINS, (pa.string(), pa.int64(), pa.int64()), strict=True)
        return PublishedRows.together([made, PublishedRows(pa.schema([*origins]), tuple)]), then

    def _app_of(self, planned: WindowPlan) -> AppThen:
        fingerprint = planned.config_hash
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
        known: Sequence[dict[str, Any]],
        then: AppThen | None,
        blocks: Sequence[_Block],
        is_narrow: bool,
    ) -> TracedRow:
        """A row with its sources.

        Args:
            known: The made rows that equal it.
            blocks: The blocks that they are made of.
        """
        values = _values(row)
        origins = dict.fromkeys((each[_FILE], each[_OFFSET]) for each in known if each[_FILE])
        if row.get(_FILE) and row.get(_OFFSET) is not None:
            origins = dict.fromkeys([(row[_FILE], row[_OFFSET])])
        names = [redacted(row[_DATA_FILE])] if _DATA_FILE in row else []
        if origins:
            own = [
                self._record_at(block, offset) for url, offset in origins for block in _blocks_at(blocks, url, offset)
            ]
            note = "several records give such a row" if len(origins) > 1 else ""
            return TracedRow(values, own, True, names, note)
        taken = {block.tuple.url: block for block in blocks}
        note = "" if known else "the app as it was does not give this row again: its inputs are those of its windows"
        if known and not is_narrow:
            taken, note = self._with_part_in(values, blocks, then)
        return TracedRow(values, [self._source(block) for block in taken.values()], False, names, note)

    def _with_part_in(
        self, values: dict[str, Any], blocks: Sequence[_Block], then: AppThen | None
    ) -> tuple[dict[str, _Block], str]:
        """The files with records of the groups of a result: each is a window of its own in a run apart."""
        files: dict[str, list[_Block]] = defaultdict(list)
        for block in blocks:
            files[block.tuple.url].append(block)
        everything = {url: own[0] for url, own in files.items()}
        specs = {} if self.app.spec is None else self.app.spec.operators
        groups = [name for each in specs.values() for name in _names(each.properties.get("by", ()))]
        keys = [name for name in dict.fromkeys([*self.output.keys, *groups]) if name in values]
        if not keys or len(files) > MOST_FILES:
            return everything, "which of these files have a part in the row is not known"
        with apart_run(self.app, self.options, self.stop) as apart:
            app = with_rows_kept(self._loaded(then, apart.directory), self.operator, apart.directory)
            apart.app = _by_window(app)
            owners: list[tuple[str, WindowPlan, set[int]]] = []
            for url, own in files.items():
                plans = {block.plan.window_id: block.plan for block in own}
                for number, plan in plans.items():
                    owners.append((url, plan, {each.id for each in own if each.plan.window_id == number}))
            apart.run([plan for _, plan, _ in owners], [ids for _, _, ids in owners])
            (rows,) = equal_rows(apart.rows_of(self.operator), [{name: values[name] for name in keys}])
        numbers = {row.get(_WINDOW) for row in rows}
        found = {owner[0] for number, owner in enumerate(owners, 1) if number in numbers}
        return ({url: block for url, block in everything.items() if url in found}, "") if found else (everything, "")

    def _source(self, block: _Block) -> Source:
        part, version = block.tuple, block.tuple.version
        return Source(
            redacted(part.url),
            version.size_bytes,
            version.mtime_ns,
            version.etag,
            block.plan.window_id,
            "corrected" if block.is_corrected else "read",
            part.start,
            part.end,
            self._app_of(block.plan),
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
            for port, _, item in planned_tuples(block.plan)
        )


def _blocks_at(blocks: Sequence[_Block], url: str, offset: int) -> Iterable[_Block]:
    own = [each for each in blocks if redacted(each.tuple.url) == redacted(url)]
    return [each for each in own if each.tuple.start <= offset < each.tuple.end] or own[:1]


def _blocks_of(windows: Iterable[Window]) -> Iterator[_Block]:
    """The blocks that windows have read, newest window last."""
    for window in windows:
        skipped = () if window.intent is None else window.intent.skipped
        corrected = {(each.version, each.start) for each in skipped if each.cause == "corrected"}
        left_out = {(each.version, each.start) for each in skipped if each.cause != "corrected"}
        for _, _, item in planned_tuples(window.plan):
            for part in filter(is_source_range, unbatched((item,))):
                place = version_key_of(part), part.start
                if place not in left_out and not is_gone(part):
                    yield _Block(window.plan, part, place in corrected)


def _by_window(app: LogicalPlan) -> LogicalPlan:
    """The app with results of single windows."""
    specs = {} if app.spec is None else app.spec.operators
    spans = {
        name: replace(specs[name], properties={**specs[name].properties, "over": "window"})
        for name in map(own_name, accumulators(app.instances))
        if name in specs
    }
    return app if app.spec is None else logical_plan(replace(app.spec, operators={**specs, **spans}))


def _values(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in (*_ORIGINS, _DATA_FILE)}


def _names(value: Any) -> Sequence[str]:
    return [value] if isinstance(value, str) else [each for each in value if isinstance(each, str)]
