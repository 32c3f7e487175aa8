"""From a row of an output to the bytes that it is from, and back: by the journal, and by a run of the app apart.

No column says where a row is from. The journal knows the windows and inputs of its data file; the app runs again on
these, in a directory of its own and with origins, and gives the row with file and offset.
"""

from __future__ import annotations

import importlib
import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from dagflow.api.capabilities import RowCondition
from dagflow.api.columns.column_values import readable_rows
from dagflow.api.context import OperatorContext, version_key_of
from dagflow.api.records import RecordBatch
from dagflow.api.sources import UNKNOWN_BLOCK, FileSources, block_id_of, is_gone, is_source_range
from dagflow.api.transactions import ReplayableState, TransactionalSink
from dagflow.engine.corrections import sources_of
from dagflow.engine.live_run import StopRequest
from dagflow.engine.publishers import writer_of
from dagflow.engine.replay_scope import groups_merged_by
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.what_if import Output, apart_run, with_rows_kept
from dagflow.errors import DagflowError, MissingError, own_name
from dagflow.frozen import frozen
from dagflow.journal.reader import all_windows, newest_windows, read_journal
from dagflow.journal.windows import Window, WindowPlan, encode_tuples, planned_blocks
from dagflow.late import compute as pc
from dagflow.plan.accumulators import accumulators
from dagflow.plan.logical import LogicalPlan, reached
from dagflow.report.open_rejects import refused_rows
from dagflow.report.published_rows import partition_values, parts_of_file
from dagflow.spec.class_lookup import LIBRARY, OPERATOR, find_class
from dagflow.storage.files import FileStat
from dagflow.storage.location import as_text, redacted
from dagflow.storage.pending import FileFacts, PendingFile

MOST_FILES = 50
"""Files of a result that are tried one by one, at most, to find out which of them have a part in it."""

_LONGEST_DELIMITER = 64
"""Bytes behind a record, at most, that count as its own."""

_FILE, _OFFSET, _WINDOW = (f"_dagflow_{name}" for name in ("file", "offset", "window"))

Rows = list[dict[str, Any]]


@frozen
class AppThen:
    """The app that planned a window: whether the newest run had the same, and its YAML, "" where that is not kept."""

    file: str
    fingerprint: str
    is_newest: bool
    text: str


@frozen
class Source:
    """A block of a version of a file, [start, end), and a record in it.

    Attributes:
        state: "read", or "corrected" where a later version has taken its place.
        offset: The first byte of the record; None where it is not about one record.
        record_end: One past its last byte, without its delimiter; None where that is not known.
        record: Its bytes, or values by column where its format has rows; None where it cannot be read any more.
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
    """A row of an output: the records or the files that it is from, the data files that have it, and a note."""

    values: dict[str, Any]
    sources: Sequence[Source]
    is_of_record: bool
    files: Sequence[str]
    note: str = ""


@frozen
class Trace:
    """The first rows of an output, and how many there are; of bytes also the versions of their file, and a refusal."""

    table: str
    version: str
    count: int
    rows: Sequence[TracedRow]
    sources: Sequence[Source] = ()
    refused: str = ""


@frozen
class _Block:
    plan: WindowPlan
    reader: str
    id: int
    part: Any
    source: Source


class Tracer:
    """Follows rows and bytes of one output, by the journal of its app."""

    def __init__(self, app: LogicalPlan, output: Output, checkpoint: str, stop: StopRequest) -> None:
        self.app, self.output, self.stop = app, output, stop
        self.store, self.state = read_journal(self.output.storage, checkpoint)
        self.windows = partial(all_windows, self.store, self.state)
        totals = accumulators(self.app.instances).items()
        self.totals = {name: each for name, each in totals if self.output.operator in reached(name, self.app.arcs)}
        self.specs = {} if self.app.spec is None else self.app.spec.operators
        receipt = self.state.receipts.get(self.output.operator)
        self.version = "" if receipt is None else receipt.version

    def of_rows(self, where: str, most: int) -> Trace:
        """The first rows for which a condition is true, each with what it is from; an error if there are none."""
        rows, count, target = dict[str, Rows](), 0, self.output.target
        # Databases remove files whose rows they have taken, and other programs those that they have written anew.
        with suppress(*([] if target is None else [MissingError])):
            rows, count = _first(where, most, self._published)
        if not count and target is not None:
            parts = self.output.rows(self.store, self.state).parts()
            rows, count = _first(where, most, lambda _: zip(itertools.repeat(""), parts))
        if not count:
            others = "rows of other programs are not known"
            if self.state.forgotten:
                others += f"; nor are those of windows up to {self.state.forgotten}, which the journal does not keep"
            raise DagflowError(f"{self.output.name} has no row for which this is true: {where}", hint=others)
        traced = [row for url, group in rows.items() if group for row in self._traced(url, group)]
        return Trace(self.output.name, self.version, count, traced)

    def of_bytes(self, url: str, offset: int, most: int) -> Trace:
        """The rows that the record at a byte of a file became; an error if no window has read the byte."""
        chosen = _blocks_at(self._blocks(self.windows(), ("read", "corrected")), redacted(url), offset)
        if not chosen:
            hint = "`dagflow status APP --files '*'` shows the files that were read"
            raise DagflowError(f"no window has read {redacted(url)}", hint=hint)
        sources = [self._record_at(block, offset) for block in chosen]
        now = [source for source in sources if source.state == "read"] or sources
        if all(source.record is None and not source.problem for source in now):
            raise DagflowError(f"no record of {redacted(url)} has byte {offset:,}")
        refused, rows = "", list[TracedRow]()
        for block, source in zip(chosen, sources, strict=True):
            if source.state == "read" and source.offset is not None:
                refusals = refused_rows([next(self.windows(source.window))].__iter__, ()).parts()
                (found,) = _equal_rows(refusals, [{"file": source.file, "offset": source.offset}])
                refused = found[0]["reason"] if found else refused
                files = [redacted(file.final_url) for _, file, own in self._files() if own and block.id in own.ids()]
                place = {} if self.totals else {_FILE: block.part.url, _OFFSET: source.offset}
                (own_rows,) = _equal_rows(self._made([[block]]), [place])
                note = "a result of several records; --where traces a row of it"
                results = [TracedRow({}, [source], False, files, note)] if own_rows else []
                rows += results if self.totals else [TracedRow(_shown(row), [source], True, files) for row in own_rows]
        return Trace(self.output.name, self.version, len(rows), rows[:most], sources, "" if rows else refused)

    def _blocks(self, windows: Iterable[Window], states: Sequence[str] = ("read",)) -> Iterator[_Block]:
        """The blocks that windows have read, newest window last."""
        newest = "" if self.state.facts is None else self.state.facts.fingerprint
        for window in windows:
            plan, skipped = window.plan, () if window.intent is None else window.intent.skipped
            causes = {(each.version, each.start): each.cause for each in skipped}
            text = self.state.apps.get(plan.config_hash, "")
            then = AppThen(self.state.source, plan.config_hash, plan.config_hash == newest, text)
            for port, _, part in planned_blocks(plan):
                if not is_source_range(part) or is_gone(part):
                    continue
                version = version_key_of(part)
                if (state := causes.get((version, part.start), "read")) in states:
                    facts = redacted(version[0]), *version[1:], plan.window_id, state, part.start, part.end
                    yield _Block(plan, port.partition(".")[0], block_id_of(part), part, Source(*facts, then))

    def _files(self) -> Iterator[tuple[WindowPlan, PendingFile, FileSources | None]]:
        """The data files of the output, each with the window that has made it, and its sources where it has any."""
        below = tuple(f"{location}/" for location in self.output.locations)
        for window in self.windows():
            for file, sources in sources_of(window.intent) if window.intent is not None else ():
                if file.target == self.output.operator or (not file.target and file.final_url.startswith(below)):
                    yield window.plan, file, sources

    def _published(self, condition: RowCondition | None) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of data files for which a condition may be true; none if another program has changed one of them."""
        files, target = [file for _, file, _ in self._files()], self.output.target
        if condition is not None:
            files = [file for file in files if file.facts is None or condition.may_hold(*_bounds(file.facts))]
        if target is not None:
            state = target.open(writer_of(self.state, self.output.operator))
            if self.output.keys or not isinstance(state, ReplayableState) or state.missing(files):
                return
        for file in files:
            values = file.facts.partition if file.facts is not None else {}
            values = values or partition_values(file.final_url.removeprefix(self.output.locations[0]))
            named = {name: value for name, value in values.items() if name.isidentifier()}
            parts = parts_of_file(self.output.storage, file.final_url, named)
            yield from ((file.final_url, _with_texts(part)) for part in parts)

    def _traced(self, url: str, rows: Rows) -> list[TracedRow]:
        """The rows of one data file, "" where it is not known, each with what it is from.

        A result is looked for by its keys, in a run with a window for each file, where results are of single windows.
        """
        keys = {name for row in rows for name in row} - {_WINDOW}
        if self.totals:
            groups = [spec.properties.get("by", ()) for spec in self.specs.values()]
            keys &= {*self.output.keys}.union(*([by] if isinstance(by, str) else by for by in groups))
        traced, everything, data_files = dict[int, TracedRow](), list[Source](), [redacted(url)] if url else []
        for parts in self._behind(url):
            blocks = [*itertools.chain(*parts)]
            everything = _files_of(blocks)
            is_open = bool(self.totals) and (not keys or len(everything) > MOST_FILES)
            made = () if is_open or not parts else self._made(parts)
            left = {number: row for number, row in enumerate(rows) if number not in traced}
            known = _equal_rows(made, [{name: row[name] for name in keys & {*row}} for row in left.values()])
            for (number, row), equal in zip(left.items(), known, strict=True):
                places = dict.fromkeys((each[_FILE], each[_OFFSET]) for each in equal if each.get(_FILE))
                at = ((block, at) for url, at in places for block in _blocks_at(blocks, redacted(url), at))
                windows = sorted({each[_WINDOW] for each in equal if each.get(_WINDOW)})
                files = _files_of(block for number in windows for block in parts[number - 1]) or everything
                sources = [self._record_at(block, offset) for block, offset in at] or files
                missing = "" if equal else "which of these files have a part in the row is not known"
                note = "several records give such a row" if len(places) > 1 else missing
                if equal or self.totals:
                    traced[number] = TracedRow(_shown(row), sources, bool(places), data_files, note)
            if len(traced) == len(rows):
                break
        note = "the app as it was does not give this row again"
        note += ": its inputs are those of its windows" if url else ""
        unknown = TracedRow({}, everything if url else [], False, data_files, note)
        return [traced.get(number) or replace(unknown, values=_shown(row)) for number, row in enumerate(rows)]

    def _behind(self, url: str) -> Iterator[list[list[_Block]]]:
        """The blocks that the rows of a data file may be from, in parts.

        Where the file is not known, the blocks of the newest windows come first, then those of twice as many each time.
        """
        made = ((plan, sources) for plan, file, sources in self._files() if file.final_url == url)
        plan, sources = next(made, (WindowPlan(self.state.last_planned), None))
        if self.totals:
            plans = [window.plan for window in self.windows() if window.plan.window_id <= plan.window_id]
            merged = (group.windows.start for group in groups_merged_by(plans) if group.merged_by == plan.window_id)
            first, ends = min(merged, default=plan.window_id), [each.window_id for each in plans if each.closes]
            if first <= max(ends, default=0):
                first = max((end for end in ends if end < first), default=0) + 1
            if not url or any(each.over == "all" for each in self.totals.values()):
                first = 1
            by_file: dict[tuple[int, str], list[_Block]] = defaultdict(list)
            for block in self._blocks(each for each in self.windows(first) if each.plan.window_id <= plan.window_id):
                by_file[block.plan.window_id, block.part.url].append(block)
            yield [*by_file.values()]
        elif sources is not None:
            ids = {block_id for block_id, records in zip(sources.ids(), sources.counts, strict=True) if records}
            parts = ([*self._blocks([window])] for window in self.windows())
            whole = [blocks for blocks in parts if any(block.id in ids for block in blocks)]
            named = [[block for block in blocks if block.id in ids] for blocks in whole]
            yield from [named, whole] if named != whole else [named]
        else:
            newest, most = newest_windows(self.store, self.state, plan.window_id + 1), 1
            while held := [*itertools.islice(newest, most)]:
                yield [blocks for window in reversed(held) if (blocks := [*self._blocks([window])])]
                most *= 2

    def _made(self, parts: Sequence[Sequence[_Block]]) -> Iterator[pa.RecordBatch]:
        """The rows that the app of the newest block, or today's if that has no such output, makes of blocks."""
        operator, text = self.output.operator, parts[-1][0].source.app.text
        with apart_run(self.app, RunOptions(workers=1), self.stop) as apart:
            with suppress(DagflowError):
                then = apart.loaded(text, self.state.source)
                apart.app = then if operator in then.instances else self.app
            if self.totals or not isinstance(apart.app.instances[operator], TransactionalSink):
                apart.app = with_rows_kept(apart.app, operator, apart.directory, self.totals)
            apart.run([*map(_plan_of, parts)])
            yield from apart.rows_of(operator).parts()

    def _record_at(self, block: _Block, offset: int) -> Source:
        source, part, at, record = block.source, block.part, -1, None
        stat = FileStat.of(part.url, part.version)
        try:
            if not self.output.storage.backend(part.url).files.has_version(stat):
                return replace(source, problem="this version of the file is not there any more")
            format = self.specs[block.reader].properties.get("format") if block.reader in self.specs else None
            if format is None:
                raise ValueError(f"operator '{own_name(block.reader)}' has no format")
            if isinstance(format, Mapping):
                # Not parsed, so that a refused record does not end the search.
                format = {name: value for name, value in format.items() if name != "columns"}
            for start, content in importlib.import_module(LIBRARY).read_block(part.url, part.start, part.end, format):
                if start > offset:
                    break
                at, record = start, content
            else:
                length = len(record) + _LONGEST_DELIMITER if isinstance(record, bytes) else 0
                at = at if offset <= at + length else -1
        except (DagflowError, ValueError, ImportError) as error:
            return replace(source, problem=f"it cannot be read by itself: {error}", offset=offset)
        end = at + len(record) if isinstance(record, bytes) else None
        return replace(source, offset=at, record=record, record_end=end) if at >= 0 else source


def _first(
    where: str, most: int, rows_of: Callable[[RowCondition | None], Iterable[tuple[str, pa.RecordBatch]]]
) -> tuple[dict[str, Rows], int]:
    """The first rows for which an expression is true, by data file, and how many there are."""
    try:
        select = find_class("Select", (), OPERATOR)(where=where)
    except ValidationError as error:
        raise DagflowError(f"--where: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from error
    kept, rows, count = list[pa.RecordBatch](), defaultdict[str, Rows](list), 0
    select.output.connect(lambda batch: kept.append(batch.to_arrow()))
    select.setup(OperatorContext(connected=frozenset({"output"})))
    for url, part in rows_of(select.wanted_rows().condition):
        try:
            select.take(RecordBatch(part))
        except (ValueError, LookupError, pa.ArrowException, DagflowError) as error:
            raise DagflowError(f"--where: {error}", hint=f"the columns are {', '.join(part.schema.names)}") from error
        found = kept.pop()
        rows[url] += readable_rows(found[: max(most - count, 0)])
        count += len(found)
    return rows, count


def _blocks_at(blocks: Iterable[_Block], file: str, offset: int) -> list[_Block]:
    """The blocks with a byte of a file; of compressed files, whose content is longer, the first ones."""
    own = [block for block in blocks if as_text(block.source.file) == as_text(file)]
    with_byte = [block for block in own if block.part.start <= offset < block.part.end]
    return with_byte or [block for block in own if not block.part.start]


def _files_of(blocks: Iterable[_Block]) -> list[Source]:
    return [*{block.part.url: block.source for block in blocks}.values()]


def _plan_of(blocks: Sequence[_Block]) -> WindowPlan:
    """The plan of a window that reads some of its blocks; refused records are read again all together."""
    plan, ids = replace(blocks[0].plan, retries=[]), {UNKNOWN_BLOCK, *(block.id for block in blocks)}
    inputs = {}
    for port, group in itertools.groupby(planned_blocks(plan), lambda planned: planned[0]):
        items = [item for _, _, item in group if block_id_of(item) in ids]
        if items and not blocks[0].plan.retries:
            inputs[port] = replace(plan.inputs[port], tuples=encode_tuples(type(items[0]), items), lengths=None)
    return replace(plan, inputs=inputs) if inputs else plan


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in (_FILE, _OFFSET, _WINDOW)}


def _bounds(facts: FileFacts) -> list[pa.RecordBatch]:
    """The least and the greatest numbers in the columns of a data file."""
    return [
        pa.RecordBatch.from_pylist([{name: value for name, value in side.items() if type(value) in (int, float)}])
        for side in (facts.least, facts.greatest)
    ]


def _with_texts(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with text in place of bytes; lines are called as raw records are, or are the members of JSON."""
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    for name, column in columns.items():
        if column.type in (pa.binary(), pa.large_binary()):
            texts = [None if each is None else each.decode(errors="backslashreplace") for each in column.to_pylist()]
            columns[name] = pa.array(texts, pa.string())
    if [*columns] == ["line"]:
        with suppress(ValueError, AttributeError, pa.ArrowException):
            return pa.RecordBatch.from_pylist([json.loads(line) for line in columns["line"].to_pylist()])
        columns = {"record": columns["line"]}
    return pa.record_batch(columns)


def _equal_rows(parts: Iterable[pa.RecordBatch], wanted: Rows) -> list[Rows]:
    """For each of some rows, given by values, the rows that have these values; a partition's may be text in one."""
    found: list[Rows] = [[] for _ in wanted]
    for part in map(_with_texts, parts):
        for field in part.schema:
            # What Arrow can tell apart need not become objects of Python.
            known = [row[field.name] for row in wanted if type(row.get(field.name)) is int]
            if len(known) == len(wanted) and pa.array(known).type == field.type:
                part = part.filter(pc.is_in(part[field.name], pa.array(known)))
        for row, (own, values) in itertools.product(readable_rows(part), [*zip(found, wanted, strict=True)]):
            if all(name in row and (row[name] == each or str(row[name]) == str(each)) for name, each in values.items()):
                own.append(row)
    return found
