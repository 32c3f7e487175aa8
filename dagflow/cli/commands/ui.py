"""`dagflow ui` and `dagflow report`: pages about runs and checkpoints, from a server and in one file."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import click

from dagflow.cli import output
from dagflow.cli.locations import is_app_file, locate, require_journal, write_whole
from dagflow.cli.output import count
from dagflow.cli.shared_options import Settings, file_option, store_option
from dagflow.errors import JournalError, StorageError
from dagflow.web import UI_PORT, require_packages
from dagflow.web.api import report_data, single_page
from dagflow.web.checkpoints import Checkpoint
from dagflow.web.server import serving


@click.command("ui")
@click.argument("checkpoints", metavar="CHECKPOINT|APP…", nargs=-1, required=True)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="HOST", help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=UI_PORT,
    show_default=True,
    metavar="PORT",
    help="Port to listen on; 0 for any free one.",
)
@store_option
@click.pass_obj
def command(settings: Settings, checkpoints: tuple[str, ...], host: str, port: int, app: str | None) -> int:
    """Show pages about the journals at each CHECKPOINT, or of each app file APP, until Ctrl-C.

    Runs may be active, over, killed, or not yet started. Only reads: no run is disturbed. Accepts other machines only
    with --host; they need a token, which is printed with the address.
    """
    require_packages()
    shown = []
    for each in checkpoints:
        url, storage = locate(each, app, settings)
        named = app if app is not None else each if is_app_file(each) else ""
        # Pages may be opened before their run, and a location may be misspelt.
        try:
            require_journal(url, storage, each)
        except click.UsageError as error:
            output.note(f"{error.message}; the page waits for a run")
        except (JournalError, StorageError) as error:
            output.note(f"a checkpoint cannot be read: {error}")
        shown.append(Checkpoint(url, storage, named))
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: ended.set())
    with serving(shown, host, port) as address:
        output.note(f"{count(len(shown), 'checkpoint')} at {address.url} (Ctrl-C ends)")
        ended.wait()
    return 0


@click.command("report")
@click.argument("checkpoint", metavar="CHECKPOINT|APP")
@file_option(required=True, help="The HTML file to write.")
@store_option
@click.pass_obj
def report(settings: Settings, checkpoint: str, file: Path, app: str | None) -> int:
    """Write the pages of `dagflow ui` about CHECKPOINT, or that of the app file APP, into one FILE.

    It holds the state of this moment, opens in any browser without a server, and needs no network.
    """
    location, storage = locate(checkpoint, app, settings)
    require_journal(location, storage, checkpoint)
    resources = report_data(Checkpoint(location, storage, app or (checkpoint if is_app_file(checkpoint) else "")))
    page = settings.redact_document(single_page(resources))
    write_whole(file, page, "the report")
    output.note(f"wrote {file} ({output.size(len(page.encode()))}): open it in a browser")
    return 0
