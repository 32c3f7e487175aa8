"""`dagflow replay`: run windows again; and `--diff`, which only shows what a replay or a run would change."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import click

from dagflow.cli import output
from dagflow.cli.locations import is_app_file, journal_required, load, require_no_file_above
from dagflow.cli.output import count
from dagflow.cli.shared_options import (
    F,
    Redact,
    Settings,
    conf_option,
    local_options,
    master_option,
    set_option,
    take_over_option,
)
from dagflow.cli.signals import on_driver_thread, stop_requested_by_signals
from dagflow.engine.live_run import StopRequest
from dagflow.engine.replayer import ReplayedWindow
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.what_if import OutputDifferences, WhatIf, if_replayed
from dagflow.engine.window_replay import app_file, replay_windows, superseded_in, windows_of
from dagflow.errors import cut_text
from dagflow.plan.logical import LogicalPlan
from dagflow.report.manifest import matching_windows, unmatched
from dagflow.report.published_rows import RowChange, RowDifferences
from dagflow.spec.problems import quoted
from dagflow.spec.spark_master import usable_cores
from dagflow.storage.context import StorageContext

STOPPING = "stopping: nothing is replaced, unless all windows have run; a second signal (Ctrl-C) stops at once"


def _window_ranges(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> list[range]:
    ranges = []
    for value in values:
        match = re.fullmatch(r"([1-9][0-9]{0,17})(?:-([1-9][0-9]{0,17}))?", value, re.ASCII)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise click.BadParameter(f"{quoted(value)} is neither a window nor a range of windows, such as 3 or 3-12")
        ranges.append(range(int(match[1]), int(match[2] or match[1]) + 1))
    return ranges


def app_to_repeat(
    checkpoint: str, app: str | None, settings: Settings, overrides: Sequence[str]
) -> tuple[LogicalPlan, str, StorageContext]:
    """The app that runs again what a checkpoint has: the given one, or that of the last run; the checkpoint's location.

    Raises:
        MissingJournalError: No app is given, and there is no journal that names one.
    """
    if is_app_file(checkpoint):
        app = app or checkpoint
        checkpoint = load(checkpoint, settings, overrides).attributes.checkpoint
    logical = load(app or app_file(checkpoint, StorageContext.default()), settings, overrides)
    return logical, checkpoint, logical.attributes.storage_context()


def repeat_options(function: F) -> F:
    """Add the options by which windows are run again: the app, and, as fields of RunOptions, how it runs."""
    app = click.option("--app", metavar="APP", help="The app, if it is not the file that the last run used.")
    for option in (take_over_option, conf_option, master_option, local_options, set_option, app):
        function = option(function)
    return function


@click.command("replay")
@click.argument("checkpoint", metavar="CHECKPOINT|APP")
@click.option(
    "--window",
    "windows",
    callback=_window_ranges,
    multiple=True,
    metavar="N[-M]",
    help="Replay window N, or windows N to M. May be repeated.",
)
@click.option("--files", "pattern", metavar="GLOB", help="Replay every window that read a file that matches GLOB.")
@click.option(
    "--superseded",
    "takes_out",
    is_flag=True,
    help="Take out the records of all versions of files that were replaced and read again beside them.",
)
@click.option(
    "--diff",
    "is_diff",
    is_flag=True,
    help="Only show what would change, in all windows or the chosen ones; exit code 3 if something would.",
)
@repeat_options
@click.option("--json", "as_json", is_flag=True, help="Print the changes as one JSON object on stdout.")
@click.pass_obj
def command(
    settings: Settings,
    /,
    checkpoint: str,
    windows: list[range],
    pattern: str | None,
    takes_out: bool,
    is_diff: bool,
    app: str | None,
    overrides: tuple[str, ...],
    as_json: bool,
    **run: Any,
) -> int:
    """Run windows of CHECKPOINT, or of the app file APP, again, on the same blocks, with the app as it is today.

    The files that these windows have published are replaced, all of them or none; no other file is touched. The replay
    is refused while a run is active on the checkpoint. The input must be unchanged.
    SIGINT (Ctrl-C) or SIGTERM stops the replay, and nothing is replaced; a second one stops at once.
    """
    choices = [bool(windows), pattern is not None, takes_out].count(True)
    if choices > 1 or not (choices or is_diff):
        raise click.UsageError("give either --window, once or more, or --files, or --superseded")
    if is_diff and takes_out:
        raise click.UsageError("--diff takes --window or --files, and no --superseded")
    require_no_file_above(checkpoint)
    with journal_required(checkpoint):
        logical, checkpoint, storage = app_to_repeat(checkpoint, app, settings, overrides)
        lost = superseded_in(checkpoint, storage) if takes_out else {}
        if takes_out:
            chosen = sorted(lost)
        elif pattern is None:
            chosen = windows_of(windows, checkpoint, storage)
        else:
            chosen = list(matching_windows(checkpoint, pattern, storage))
    options = RunOptions(checkpoint=checkpoint, **run)
    if is_diff:
        those = chosen if windows or pattern is not None else None
        return show_differences(
            lambda local, stop: if_replayed(logical, local, those, stop), options, settings.redact, as_json=as_json
        )
    replayed: list[ReplayedWindow] = []

    def note(text: str) -> None:
        output.note(settings.redact(text))

    if chosen:
        with stop_requested_by_signals(STOPPING) as stop:
            replayed = on_driver_thread(lambda: replay_windows(logical, options, chosen, stop, notice=note, lost=lost))
        for window in replayed:
            note(describe(window))
    elif takes_out:
        note("no file was replaced and read again beside what was published of it")
    else:
        compared = unmatched(checkpoint, pattern or "", storage) or "one is planned that is to read it"
        note(f"no committed window has read such a file: {compared}")
    if as_json:
        output.result(json.dumps({"windows": [asdict(window) for window in replayed]}))
    return 0


def describe(window: ReplayedWindow) -> str:
    """The changes of a replay: a summary, and a line for each file that differs."""
    kinds = Counter(change.change for change in window.changes)
    if set(kinds) == {"unchanged"}:
        same = "file came out the same" if kinds.total() == 1 else "files came out the same"
        return f"window {window.window_id} was run again; its {kinds.total():,} {same}"
    lines = [f"window {window.window_id}: " + (", ".join(f"{n} {kind}" for kind, n in kinds.items()) or "no files")]
    for change in window.changes:
        if change.change != "unchanged":
            records = f"{change.records_before:,} -> {count(change.records_after, 'record')}"
            sizes = f"{change.size_before:,} -> {count(change.size_after, 'byte')}"
            lines.append(f"    {change.change} {change.url}: {records}, {sizes}")
    return "\n".join(lines)


WOULD_CHANGE = 3
_STOPPING = "stopping: nothing is changed; a second signal (Ctrl-C) stops at once"
_MOST_CHARACTERS = 100


def show_differences(
    look: Callable[[RunOptions, StopRequest], WhatIf],
    options: RunOptions,
    redact: Redact,
    *,
    as_json: bool,
    is_quiet: bool = False,
) -> int:
    """Compare in processes of this machine, print what would change, and return the exit code."""
    if options.master is not None or options.conf or options.take_over:
        raise click.UsageError("--diff runs as with --local, and takes none of --master, --conf and --take-over")
    options = replace(options, workers=options.workers or usable_cores())
    with stop_requested_by_signals(_STOPPING) as stop:
        found = on_driver_thread(lambda: look(options, stop))
    for line in () if is_quiet else lines_of(found):
        output.note(redact(line))
    if as_json:
        output.result(json.dumps(to_json(found), default=output.json_value))
    return WOULD_CHANGE if found.is_change else 0


def to_json(found: WhatIf) -> dict[str, Any]:
    """What `--json` prints."""
    tables = [
        {"operator": each.operator, "table": each.name, **asdict(each.rows), "rejects": _rejects(each.rejects)}
        for each in found.outputs
    ]
    return {"windows": found.windows, "changes": found.is_change, "tables": tables, "rejects": _rejects(found.rejects)}


def _rejects(found: RowDifferences) -> dict[str, Any]:
    """The refused records that would be accepted, as a comparison of both has them, and those that would be refused."""
    kinds = {"returning": (found.removed, "removed"), "refused": (found.added, "added")}
    return {
        name: {"count": number, "samples": [each.before or each.after for each in found.samples[kind]]}
        for name, (number, kind) in kinds.items()
    }


def lines_of(found: WhatIf) -> Iterator[str]:
    for each in found.outputs:
        yield from _lines_of_output(each)
        yield from _lines_of_rejects(each.rejects, "    ")
    if all(each.rejects.is_none for each in found.outputs):
        yield from _lines_of_rejects(found.rejects, "")
    changed = "" if found.is_change else ", and nothing would change"
    yield f"{count(found.windows, 'window')} ran apart; nothing was written{changed}"


def _lines_of_rejects(found: RowDifferences, indent: str) -> Iterator[str]:
    for what, own in zip(("accepted", "refused"), _rejects(found).values(), strict=True):
        if own["count"]:
            yield f"{indent}rejects: {count(own['count'], 'record')} would be {what}"
            yield from (f"{indent}    {each['file']}:{each['offset']}  {each['reason']}" for each in own["samples"])


def _lines_of_output(found: OutputDifferences) -> Iterator[str]:
    rows = found.rows
    if rows.is_none:
        yield f"{found.name}: no change of {count(rows.rows, 'row')}"
        return
    columns = ", ".join(f"{name} in {number:,}" for name, number in rows.columns.items())
    kinds = {"added": rows.added, "removed": rows.removed, "changed": rows.changed}
    parts = [f"{number:,} {kind}" for kind, number in kinds.items() if number]
    yield f"{found.name}: of {count(rows.rows, 'row')}: {', '.join(parts)}" + (f" ({columns})" if columns else "")
    yield f"    compared {rows.identity}"
    for kind, changes in rows.samples.items():
        yield from (f"    {kind} {_change(change, rows.keys)}" for change in changes)


def _change(change: RowChange, keys: Sequence[str]) -> str:
    offset = "" if change.offset is None else f":{change.offset}"
    place = "" if change.file is None else f"{change.file}{offset}  "
    before, after = change.before or {}, change.after or {}
    if change.columns:
        same = [f"{name} {after[name]}" for name in keys or [name for name in after if name not in change.columns][:1]]
        values = [*same, *(f"{name} {before.get(name)} -> {after.get(name)}" for name in change.columns)]
    else:
        values = [f"{name} {value}" for name, value in (change.after or before).items()]
    return place + cut_text(", ".join(values), _MOST_CHARACTERS)
