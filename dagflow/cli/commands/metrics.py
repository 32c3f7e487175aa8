"""`dagflow metrics`: a checkpoint as metrics of Prometheus."""

from __future__ import annotations

from pathlib import Path

import click

from dagflow.cli import output
from dagflow.cli.locations import locate
from dagflow.cli.shared_options import Settings, file_option, store_option
from dagflow.report.endpoints import metrics_text
from dagflow.report.reading import read_checkpoint


@click.command("metrics")
@click.argument("checkpoint", metavar="CHECKPOINT|APP")
@file_option(help="Write to FILE instead, whole or not at all, as the textfile collector of node_exporter needs it.")
@store_option
@click.pass_obj
def command(settings: Settings, checkpoint: str, file: Path | None, app: str | None) -> int:
    """Print the metrics of the journal at CHECKPOINT, or that of the app file APP, in Prometheus' text format.

    Only reads: an active run is not disturbed, and a run that is over can be read as well. A journal that cannot be
    read shows as `dagflow_checkpoint_readable 0`, and ends the command with 1.
    """
    location, storage = locate(checkpoint, app, settings)
    reading = read_checkpoint(location, storage)
    text = metrics_text([reading])
    if file is None:
        output.result(text.rstrip("\n"))
    else:
        output.write_whole(file, text, "the metrics")
    if reading.error:
        output.note(settings.redact(reading.error))
    return 1 if reading.error else 0
