"""`dagflow report`: a checkpoint as one page in a file."""

from __future__ import annotations

from pathlib import Path

import click

from dagflow.cli import output
from dagflow.cli.locations import is_app_file, locate, require_journal
from dagflow.cli.shared_options import Settings, file_option, store_option
from dagflow.web.api import report_data, single_page
from dagflow.web.checkpoints import Checkpoint


@click.command("report")
@click.argument("checkpoint", metavar="CHECKPOINT|APP")
@file_option(required=True, help="The HTML file to write.")
@store_option
@click.pass_obj
def command(settings: Settings, checkpoint: str, file: Path, app: str | None) -> int:
    """Write the pages of `dagflow ui` about CHECKPOINT, or that of the app file APP, into one FILE.

    It holds the state of this moment, opens in any browser without a server, and needs no network.
    """
    location, storage = locate(checkpoint, app, settings)
    require_journal(location, storage, checkpoint)
    resources = report_data(Checkpoint(location, storage, app or (checkpoint if is_app_file(checkpoint) else "")))
    page = settings.redact_document(single_page(resources))
    output.write_whole(file, page, "the report")
    output.note(f"wrote {file} ({output.size(len(page.encode()))}): open it in a browser")
    return 0
