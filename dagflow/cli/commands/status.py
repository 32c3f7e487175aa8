"""`dagflow status`: what a journal says."""

from __future__ import annotations

import json

import click

from dagflow.cli import output
from dagflow.cli.figures import size
from dagflow.cli.layout import definitions
from dagflow.cli.options import verbose_option
from dagflow.engine.result import RunSummary
from dagflow.engine.status import status
from dagflow.errors import MissingError


@click.command("status", short_help="Show what a journal says.")
@click.argument("checkpoint", metavar="CHECKPOINT")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@verbose_option
def command(checkpoint: str, as_json: bool) -> int:
    """Print what the journal at CHECKPOINT says about all runs so far.

    Reads only: a run that is under way is not disturbed.
    """
    try:
        summary = status(checkpoint)
    except MissingError as error:
        raise click.UsageError(f"there is no journal at '{error.url}'") from error
    output.result(json.dumps(summary.status_json()) if as_json else describe(summary))
    return 0


def describe(summary: RunSummary) -> str:
    """A journal's figures, one to a line."""
    rows = [
        ("app", summary.app),
        ("state", summary.state),
        ("windows", f"{summary.windows:,} (last planned {summary.last_planned}, committed {summary.last_committed})"),
        ("files", f"{summary.files:,}"),
        ("blocks", f"{summary.blocks:,}"),
        ("bytes", f"{summary.bytes:,} ({size(summary.bytes)})"),
        *((f"records {port}", f"{number:,}") for port, number in summary.records.items()),
        *((f"count {name}", f"{number:,}") for name, number in summary.counts.items()),
        ("rejected", f"{summary.rejected:,}"),
        *(
            (f"partitions {name}", f"{held.last} (between {held.min} and {held.max})")
            for name, held in summary.partitions.items()
        ),
        *((f"backlog {name}", f"{blocks:,}") for name, blocks in summary.backlog.items()),
    ]
    return definitions(rows)
