"""`dagflow status`: the state of a checkpoint, and what it has added to its tables."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, field
from typing import Any

import click

from dagflow.cli import output
from dagflow.cli.locations import journal_required, locate
from dagflow.cli.output import brief, clock, count, definitions, duration, on_one_line, part, size, version_text
from dagflow.cli.render import concern_lines, described_range, left_out_lines, waiting_lines
from dagflow.cli.shared_options import Settings, store_option
from dagflow.errors import own_name
from dagflow.frozen import frozen, mutable
from dagflow.journal.heartbeat import RunProgress, time_text
from dagflow.journal.reader import all_windows, read_journal, read_state
from dagflow.report.input_ranges import InputRange
from dagflow.report.manifest import Provenance, TrackedFile, WindowManifest, tracked_files, unmatched, window_manifest
from dagflow.report.reading import status
from dagflow.report.snapshot import DriverReport, RunSnapshot
from dagflow.storage.context import StorageContext
from dagflow.storage.location import redacted


@click.command("status")
@click.argument("checkpoint", metavar="CHECKPOINT|APP")
@click.option("--files", "pattern", metavar="GLOB", help="Show the state of the files that match GLOB.")
@click.option(
    "--window", "window_id", type=click.IntRange(min=1), metavar="N", help="Show what window N read and wrote."
)
@click.option(
    "--tables",
    "of_tables",
    is_flag=True,
    help="Show what windows added to tables, and the newest window that all tables show.",
)
@store_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def command(
    settings: Settings,
    checkpoint: str,
    pattern: str | None,
    window_id: int | None,
    of_tables: bool,
    app: str | None,
    as_json: bool,
) -> int:
    """Print what the journal at CHECKPOINT, or that of the app file APP, says about all runs so far.

    The first line says whether a run is active, and how the last one ended. Only reads: an active run is not
    disturbed. With --files: the version, state, windows and outputs of each file.
    With --window: which bytes of which file version became which output file. With --tables: the
    versions of tables by window, their files, and the newest window that all of them show.
    """
    if sum((pattern is not None, window_id is not None, of_tables)) > 1:
        raise click.UsageError("--files, --window and --tables cannot be given together")
    location, storage = locate(checkpoint, app, settings)
    with journal_required(checkpoint):
        if of_tables:
            tables = tables_status(location, storage)
            value, text = tables.to_json(), _describe_tables(tables)
        elif pattern is None and window_id is None:
            summary = status(location, storage)
            if summary.has_read_again:
                # Heavy, and seldom needed.
                from dagflow.engine.window_replay import with_old_rows

                summary = with_old_rows(summary, location, storage)
            _note_open(summary.reprocessing, summary.held_results)
            value, text = summary.status_json(), "" if as_json else _describe(summary)
        else:
            journal = read_state(storage.objects(location))
            _note_open(journal.reprocessing, journal.committed_state.held_results)
            if window_id is not None:
                manifest = window_manifest(location, window_id, storage)
                value, text = manifest.to_json(), "" if as_json else _describe_window(manifest)
            else:
                files = tracked_files(location, pattern or "", storage)
                value, text = {"files": [file.to_json() for file in files]}, _describe_files(files)
                text = text or f"{NOT_READ}: {unmatched(location, pattern or '', storage)}"
    output.result(json.dumps(value) if as_json else text)
    return 0


def _describe_tables(found: TablesStatus) -> str:
    if not found.tables:
        return "nothing was added to a table of Delta Lake or Iceberg"
    lines = [f"all tables show the windows up to {found.watermark:,}"]
    for name, table in found.tables.items():
        newest = f"{table.version}, with window {table.window_id:,}" if table.version else "shows nothing yet"
        lines += ["", f"target {name}: {newest}"]
        if table.files:
            mean = size(table.size_bytes / table.files)
            between = f"{size(table.least_bytes)} to {size(table.greatest_bytes)}, {mean} on average"
            lines.append(f"    {count(table.files, 'file')} of {count(table.records, 'record')}: {between}")
        if table.waiting_windows:
            lines.append(f"    {count(table.waiting_windows, 'window')} not shown yet: waiting for the rest of a group")
        lines += [f"    window {window_id:,}: {version}" for window_id, version in reversed(table.versions)]
    return "\n".join(lines)


def _note_open(windows: Collection[int], held_results: Iterable[str]) -> None:
    if windows:
        output.note(
            f"a replay has decided to replace the files of {count(len(windows), 'window')}, the first is "
            f"{min(windows)}, and has not finished; if it is not at work, the next run or replay finishes it"
        )
    for name in held_results:
        output.note(
            f"a result of operator '{own_name(name)}' over several windows is held back; a run to the end publishes it"
        )


NOT_READ = "no window has read such a file"

_HOW_KNOWN: dict[Provenance, str] = {
    "exact": "",
    "partition": "; of its records only the task is known, which read",
    "window": "; its records went through an exchange or the driver, and the window read",
}


def _describe_files(files: Sequence[TrackedFile]) -> str:
    """The state of files, a paragraph for each version of each."""
    lines = []
    for file in files:
        read, planned = file.ranges.read_bytes, file.ranges.planned_bytes
        amount = f"{count(planned or read)} of {count(file.part.size_bytes, 'byte')}"
        if planned and read:
            amount += f", {count(read)} were read"
        windows = f"{'window' if len(file.windows) == 1 else 'windows'} {', '.join(map(str, file.windows))}"
        lines += [
            on_one_line(redacted(file.part.url)),
            f"    {file.ranges.state}: {amount}, {version_text(file.part)}",
            f"    {windows}",
        ]
        lines += [f"    -> {on_one_line(url)}" for url in file.outputs]
        lines += [f"    held now by {table}" for table in file.tables]
    return "\n".join(lines)


def _describe_window(manifest: WindowManifest) -> str:
    retried = ", ".join(map(str, manifest.retries))
    about = f"; it reads the refused records of windows {retried} again" if retried else ""
    lines = [f"window {manifest.window_id}, {manifest.state}{about}"]
    lines += map(_range, manifest.inputs if not manifest.outputs else ())
    for made in manifest.outputs:
        checksum = "" if made.crc32 is None else f", crc32 {made.crc32:08x}"
        figures = f"{count(made.records, 'record')}, {count(made.size_bytes, 'byte')}{checksum}"
        lines += [f"{on_one_line(made.url)}: {figures}{_HOW_KNOWN[manifest.provenance_of(made)]}"]
        lines += [f"    from{_range(source)}" for source in manifest.sources_of(made)]
    lines += [f"target {name}: {version}" for name, version in manifest.receipts.items()]
    if manifest.held_records:
        merged = "wait to be merged" if manifest.merged_in is None else f"were merged by window {manifest.merged_in}"
        lines.append(f"{count(manifest.held_records, 'record')} {merged}")
    lines += [f"left out: {described_range(each)}" for each in manifest.skipped]
    return "\n".join(lines)


def _range(source: InputRange) -> str:
    extent = f"[{source.start}, {source.end}) of {count(source.size_bytes, 'byte')}"
    return f" {on_one_line(redacted(source.url))} {extent}, {version_text(source)}"


def _running_rows(progress: RunProgress) -> list[tuple[str, str]]:
    rates = progress.rates
    left = "" if rates.remaining_s is None else f", {clock(rates.remaining_s)} left"
    return [
        *(
            (
                "running",
                f"window {each.window_id:,}: {part(each.bytes_read, each.bytes)}, {count(each.records_read, 'record')},"
                f" {each.tasks_done:,}/{count(each.tasks, 'task')}, {duration(each.seconds)}",
            )
            for each in progress.windows
        ),
        *(
            (f"running {name}.{port}", count(number, "record"))
            for name, done in sorted(progress.operators.items())
            for port, number in sorted(done.records.items())
        ),
        ("rate", f"{size(rates.bytes_per_second)}/s, {brief(rates.records_per_second)} records/s{left}"),
        *((f"backlog {stage}", f"{tuples:,}") for stage, tuples in progress.backlog.items()),
    ]


def _describe(summary: RunSnapshot) -> str:
    driver = summary.driver
    in_progress = f" ({summary.files_in_progress:,} in progress)" if summary.files_in_progress else ""
    rows = [
        ("app", summary.app),
        ("state", summary.standing),
        *([] if driver is None else [(driver.heartbeat.command, describe_driver(driver))]),
        ("windows", f"{summary.windows:,} (last planned {summary.last_planned}, committed {summary.last_committed})"),
        ("files", f"{summary.files:,}{in_progress}"),
        ("blocks", f"{summary.blocks:,}"),
        ("bytes", f"{summary.bytes:,} ({size(summary.bytes)})"),
        *((f"records {port}", f"{number:,}") for port, number in summary.records.items()),
        *((f"count {on_one_line(name)}", f"{number:,}") for name, number in summary.counts.items()),
        ("rejected", f"{summary.rejected:,}"),
        *([] if summary.progress is None else _running_rows(summary.progress)),
        *(
            (f"partitions {name}", f"{held.last} (between {held.min} and {held.max})")
            for name, held in summary.partitions.items()
        ),
        *(
            (f"target {name}", f"{each.version}, with window {each.window_id}")
            for name, each in summary.targets.items()
        ),
        *(
            (
                f"waiting {name}",
                f"{count(each.records, 'record')} of {count(each.windows, 'window')}, {size(each.bytes)}",
            )
            for name, each in summary.groups.items()
        ),
        *(
            (f"window {each.window}", f"{each.stage} {each.before} -> {each.after}, at {each.backlog:,}: {each.reason}")
            for each in summary.decisions
        ),
    ]
    # Locations are not wrapped, so that they can be copied.
    stalls = [f"stalled: {each}" for each in driver.heartbeat.stalls] if driver is not None else []
    failure = [f"error: {driver.heartbeat.error}"] if driver is not None and driver.heartbeat.error else []
    urls = [f"output: {on_one_line(url)}" for url in summary.outputs]
    lines = [*concern_lines(summary), *map(on_one_line, summary.correction_texts)]
    lines += [*left_out_lines(summary), *waiting_lines(summary)]
    return "\n".join([definitions(rows), *lines, *urls, *stalls, *failure])


_AT_WORK = {"starting": "starts", "running": "at work", "waiting": "waits for new files", "stopping": "stops"}


def describe_driver(driver: DriverReport) -> str:
    who, moment = driver.heartbeat.who(), time_text(driver.heartbeat.beat_ms)
    clocks = "" if driver.is_same_machine else " by the clocks of two machines"
    age_s = driver.beat_age_s
    if driver.is_at_work and age_s < -1:
        clocks = " by the clock of its machine, which is ahead of this one"
        return f"{_AT_WORK[driver.state]}: {who}, last beat {-age_s:.0f} s from now{clocks}"
    if driver.is_at_work:
        return f"{_AT_WORK[driver.state]}: {who}, last beat {max(age_s, 0):.0f} s ago{clocks}"
    if driver.state == "stalled":
        return f"no heartbeat for {count(round(max(age_s, 0)), 'second')}{clocks}: {who}"
    if driver.state == "killed":
        return f"killed, it left no final status: {who}, last beat {moment}"
    return f"{driver.state} {moment}: {who}"


SHOWN_VERSIONS = 10
"""Number of newest windows whose versions are listed."""


@mutable
class TableStatus:
    """The files that one operator has added to its table.

    Attributes:
        version: The table's version with the newest window, or with a replay after it; "" before the first.
        window_id: Id of that window, 0 for none.
        files: How many data files were added; other programs may have compacted or removed some since.
        waiting_windows: Windows whose rows wait for a later one.
        versions: The newest windows, each with the version of the table that shows it.
    """

    version: str = ""
    window_id: int = 0
    files: int = 0
    size_bytes: int = 0
    least_bytes: int = 0
    greatest_bytes: int = 0
    records: int = 0
    waiting_windows: int = 0
    versions: list[tuple[int, str]] = field(default_factory=list)

    def add_file(self, size_bytes: int, records: int) -> None:
        self.least_bytes = min(self.least_bytes, size_bytes) if self.files else size_bytes
        self.greatest_bytes = max(self.greatest_bytes, size_bytes)
        self.files += 1
        self.size_bytes += size_bytes
        self.records += records


@frozen
class TablesStatus:
    """The files that a checkpoint has added to all of its tables.

    Attributes:
        watermark: The newest window that all tables show, with all before it; 0 for none.
    """

    watermark: int
    tables: dict[str, TableStatus]

    def to_json(self) -> dict[str, Any]:
        return {"watermark": self.watermark, "tables": {name: asdict(each) for name, each in self.tables.items()}}


def tables_status(checkpoint: str, storage: StorageContext) -> TablesStatus:
    """The files that windows have added to tables, as far as the journal keeps them."""
    store, state = read_journal(storage, checkpoint)
    tables = {name: TableStatus(receipt.version, receipt.window_id) for name, receipt in sorted(state.receipts.items())}
    for name, held in state.held.waiting.items():
        waiting = tables.setdefault(name, TableStatus())
        waiting.waiting_windows = len({each.window_id for each in held})
    for window in all_windows(store, state):
        # A window that is committed and not published is in no table, or not known to be.
        if window.intent is None or window.plan.window_id > state.last_done:
            continue
        for name, version in window.receipts.items():
            own = tables.setdefault(name, TableStatus())
            own.versions = [*own.versions, (window.plan.window_id, version)][-SHOWN_VERSIONS:]
        for file in window.intent.files:
            if file.facts is not None and file.facts.operator in tables:
                tables[file.facts.operator].add_file(file.size_bytes, file.records)
    return TablesStatus(state.held.published_through(state.last_done), tables)
