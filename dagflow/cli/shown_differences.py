"""Shows what a replay or a run would change, for `--diff`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import click

from dagflow.cli import output
from dagflow.cli.output import count
from dagflow.cli.shared_options import Redact
from dagflow.cli.signals import on_driver_thread, stop_requested_by_signals
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.stop_request import StopRequest
from dagflow.engine.what_if import OutputDifferences, WhatIf
from dagflow.errors import cut_text
from dagflow.report.row_differences import RowChange, RowDifferences
from dagflow.spec.spark_master import usable_cores

WOULD_CHANGE = 3
"""The exit code where something would change."""

_STOPPING = "stopping: nothing is changed; a second signal (Ctrl-C) stops at once"
_MOST_CHARACTERS = 100


def show(
    look: Callable[[RunOptions, StopRequest], WhatIf],
    options: RunOptions,
    redact: Redact,
    *,
    as_json: bool,
    is_quiet: bool = False,
) -> int:
    """Compare in processes of this machine, print what would change, and return the exit code.

    Raises:
        UsageError: The options are those of a run on Spark.
    """
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
    """The changes in words."""
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
