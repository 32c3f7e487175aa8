"""`dagflow repair` and `dagflow scan`: ask the next run to plan a window again, and a run at work to look for files."""

from __future__ import annotations

import json
import time
from dataclasses import asdict

import click

from dagflow.cli import output
from dagflow.cli.locations import is_app_file, journal_required, locate
from dagflow.cli.output import count
from dagflow.cli.shared_options import Seconds, Settings, store_option
from dagflow.engine.live_run import is_waiting, request_scan
from dagflow.engine.window_repair import RepairedWindow, repair
from dagflow.errors import DagflowError, MissingError
from dagflow.journal.reader import read_state
from dagflow.storage.context import StorageContext
from dagflow.suggestions import command_to_run


@click.command("repair")
@click.argument("checkpoint", metavar="CHECKPOINT|APP")
@click.option(
    "--window", "window_id", type=click.IntRange(1), required=True, metavar="N", help="The window to plan again."
)
@store_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object on stdout.")
@click.pass_obj
def command(settings: Settings, checkpoint: str, window_id: int, app: str | None, as_json: bool) -> int:
    """Let the next run plan window N of CHECKPOINT, or of APP, again.

    For a window that is committed and cannot be published, because a file that waited is gone or damaged, or because
    its table does not take it: its commit is taken back. The next run reads the same blocks again with the app as it
    is then, and replaces the files that the window has published with the new ones. Rows of a group wait again, and
    are made to fit the table that the app names then. Nothing is lost, and nothing is there twice.
    A window that is planned and not committed is planned again. Windows that need no repair are refused.
    """
    location, storage = locate(checkpoint, app, settings)
    try:
        repaired = repair(location, window_id, storage)
    except MissingError as error:
        raise click.UsageError(str(error)) from error
    output.note(settings.redact(describe(repaired)))
    state = read_state(storage.objects(location))
    app = checkpoint if is_app_file(checkpoint) else app
    output.note(f"    continue with: {command_to_run(app or state.source, is_local=state.is_local)}")
    if as_json:
        output.result(json.dumps(asdict(repaired)))
    return 0


def describe(repaired: RepairedWindow) -> str:
    if not (repaired.lost or repaired.kept):
        return f"window {repaired.window_id} was planned and not committed; the next run plans it again"
    lost = f"{count(len(repaired.lost), 'file')} of it cannot be" if repaired.lost else "it is not wholly"
    lines = [
        f"window {repaired.window_id} was committed, and {lost} published; the commit is taken back, and the next run "
        "plans the window again"
    ]
    lines += [f"    lost {url}" for url in repaired.lost]
    lines += [f"    to be replaced {url}" for url in repaired.kept]
    return "\n".join(lines)


_LOOK_S = 0.2


@click.command("scan")
@click.argument("checkpoint", metavar="CHECKPOINT|APP")
@click.option(
    "--wait",
    "wait_s",
    type=Seconds(),
    default=0.0,
    metavar="SECONDS",
    help="Wait at most this many seconds for a run to take the request; exit code 1 if none does.",
)
@store_option
@click.pass_obj
def scan(settings: Settings, checkpoint: str, wait_s: float, app: str | None) -> int:
    """Ask the following run on CHECKPOINT, or that of the app file APP, to scan now, not after its interval.

    The run looks for requests once a second. With --wait the command ends when a run has taken the
    request, and fails when none has in that time. If no run is active, the next one takes it.
    """
    location, storage = locate(checkpoint, app, settings)
    with journal_required(checkpoint):
        request = request_scan(location, storage)
    output.note(_answer(location, request, wait_s, storage))
    return 0


def _answer(checkpoint: str, request: str, wait_s: float, storage: StorageContext) -> str:
    deadline_s = time.monotonic() + wait_s
    while is_waiting(checkpoint, request, storage):
        if time.monotonic() >= deadline_s:
            if wait_s:
                raise DagflowError(
                    f"no run has taken the request in {wait_s:g} s",
                    hint="see whether a run with --follow is at work on this checkpoint; the next one takes it",
                )
            return "asked for a scan; a run that follows takes it within a second or two"
        time.sleep(_LOOK_S)
    return "a run has taken the request, and scans"
