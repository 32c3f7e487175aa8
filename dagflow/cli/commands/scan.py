"""`dagflow scan`: look for new files now."""

from __future__ import annotations

import time

import click

from dagflow.cli import output
from dagflow.cli.locations import journal_required, locate
from dagflow.cli.shared_options import Seconds, Settings, store_option
from dagflow.engine.live_run import is_waiting, request_scan
from dagflow.errors import DagflowError
from dagflow.storage.context import StorageContext

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
def command(settings: Settings, checkpoint: str, wait_s: float, app: str | None) -> int:
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
