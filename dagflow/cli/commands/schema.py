"""`dagflow schema`: the JSON Schema of apps for editors, and the history of the columns of tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime

import click

from dagflow.api.columns.column_typing import type_name
from dagflow.api.transactions import ColumnChange
from dagflow.cli import output
from dagflow.cli.locations import journal_required, locate
from dagflow.cli.shared_options import Settings, store_option
from dagflow.journal.reader import read_journal
from dagflow.journal.windows import ColumnHistory
from dagflow.spec.class_description import known_names
from dagflow.spec.json_schema import json_schema, module_schema

_HISTORY = "history"


@click.command("schema")
@click.argument("what", metavar="[APP|history]", required=False)
@click.argument("checkpoint", metavar="[CHECKPOINT]", required=False)
@click.option("--module", "of_module", is_flag=True, help="The schema of a module's file.")
@click.option("--json", "as_json", is_flag=True, help="With history: print one JSON object.")
@store_option
@click.pass_obj
def command(
    settings: Settings, what: str | None, checkpoint: str | None, of_module: bool, as_json: bool, app: str | None
) -> int:
    """Print the JSON Schema of the YAML, by which editors complete and check apps.

    With APP, it knows the ports of APP's operators, your own classes, and the modules that APP uses. Print it again
    after you have added an operator.

    dagflow schema history CHECKPOINT prints each change of a table's columns that the checkpoint has decided: window,
    time, table writer, column, its types before and after, and the record that asked for it, as file:offset.
    """
    if (checkpoint is not None) != (what == _HISTORY):
        raise click.UsageError("it takes APP, or history and a CHECKPOINT")
    if checkpoint is not None:
        location, storage = locate(checkpoint, app, settings)
        with journal_required(checkpoint):
            history = read_journal(storage, location)[1].columns
        # With types as an app writes them.
        changes = [
            replace(each.change, before=type_name(each.change.before), after=type_name(each.change.after))
            for each in history
        ]
        dated = list(zip(history, changes, strict=True))
        output.result(json.dumps({"changes": _as_json(dated)}) if as_json else _as_text(dated))
        return 0
    with output.reserved_for_results():
        known = None if what is None else known_names(what)
    output.result(json.dumps(module_schema(known) if of_module else json_schema(known), indent=1))
    return 0


def _as_json(dated: Sequence[tuple[ColumnHistory, ColumnChange]]) -> list[dict[str, object]]:
    return [
        {"window": each.window_id, "committed_ms": each.committed_ms, "operator": each.operator, **asdict(change)}
        for each, change in dated
    ]


def _as_text(dated: Sequence[tuple[ColumnHistory, ColumnChange]]) -> str:
    if not dated:
        return "no table has changed its columns"
    rows = [
        (
            f"window {each.window_id}",
            datetime.fromtimestamp(each.committed_ms / 1000, UTC).isoformat(sep=" ", timespec="seconds"),
            each.operator,
            change.column,
            f"{change.before} → {change.after}" if change.before else f"new: {change.after}",
            change.cause,
        )
        for each, change in dated
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
