"""`dagflow metrics`: a checkpoint as metrics of Prometheus."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

import click

from dagflow.cli import output
from dagflow.cli.locations import locate
from dagflow.cli.shared_options import Settings, store_option, verbose_option
from dagflow.errors import DagflowError
from dagflow.report.prometheus import metrics_text
from dagflow.report.reading import read_checkpoint


@click.command("metrics")
@click.argument("checkpoint", metavar="CHECKPOINT")
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write to FILE instead, whole or not at all, as the textfile collector of node_exporter needs it.",
)
@store_option
@verbose_option
@click.pass_obj
def command(settings: Settings, checkpoint: str, file: Path | None, app: str | None) -> int:
    """Print the metrics of the journal at CHECKPOINT, or of the app file CHECKPOINT, in Prometheus' text format.

    Reads only: a run that is under way is not disturbed, and one that is over can still be asked. A journal that cannot
    be read is told by `dagflow_checkpoint_readable 0`, and ends the command with 1.
    """
    location, storage = locate(checkpoint, app, settings)
    reading = read_checkpoint(location, storage)
    text = metrics_text([reading])
    if file is None:
        output.result(text.rstrip("\n"))
    else:
        write_whole(file, text)
    if reading.error:
        output.note(settings.redact(reading.error))
    return 1 if reading.error else 0


def write_whole(file: Path, text: str) -> None:
    """Put a text into the place of a file, so that a reader sees the old or the new one as a whole.

    Raises:
        DagflowError: It cannot be written.
    """
    name = ""
    try:
        # The collector reads *.prom: this name does not end so.
        descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
        with open(descriptor, "w", encoding="utf-8") as written:
            written.write(text)
        os.chmod(name, 0o644)  # the collector is another user
        os.replace(name, file)
    except OSError as error:
        if name:
            with contextlib.suppress(OSError):
                os.unlink(name)
        raise DagflowError(
            f"{file}: cannot write the metrics: {error.strerror or error}", hint="name a file in a writable directory"
        ) from error
