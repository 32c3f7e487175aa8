"""`dagflow run`: read, publish, and account for it."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import NoReturn

import click

from dagflow.cli import output
from dagflow.cli.command_lines import replay_command, resume_command, status_command
from dagflow.cli.locations import load, require_directory
from dagflow.cli.progress import Display, display_for, logging_to
from dagflow.cli.shared_options import (
    Settings,
    conf_option,
    local_options,
    master_option,
    set_option,
    take_over_option,
    verbose_option,
)
from dagflow.cli.signals import on_driver_thread, stop_on_signals
from dagflow.engine.limited_run import limited_run
from dagflow.engine.run import RunOptions
from dagflow.engine.run import run as engine_run
from dagflow.engine.stop_request import StopRequest
from dagflow.errors import (
    DagflowError,
    JournalError,
    MissingError,
    OperatorError,
    ProcessEndedError,
    RecordError,
    RunStoppedError,
    TransientStorageError,
)
from dagflow.plan.logical import LogicalPlan
from dagflow.report.snapshot import RunSnapshot


@click.command("run")
@click.argument("app", metavar="APP")
@set_option
@click.option("--checkpoint", metavar="URL", help="Keep the journal here instead of where the app says.")
@local_options
@click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    help="With --local: a try-out that reads N records, and publishes below .dagflow/NAME.limit alone.",
)
@master_option
@conf_option
@click.option("--follow", is_flag=True, help="Keep watching for new input until stopped.")
@click.option("--fresh", is_flag=True, help="Start over: set the old journal aside, remove what it published.")
@take_over_option
@click.option("--json", "as_json", is_flag=True, help="Print the account as one JSON object on stdout.")
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
@verbose_option
@click.pass_obj
def command(
    settings: Settings,
    app: str,
    overrides: tuple[str, ...],
    checkpoint: str | None,
    workers: int | None,
    limit: int | None,
    master: str | None,
    conf: dict[str, str],
    follow: bool,
    fresh: bool,
    take_over: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Run APP until all input is processed and published.

    Started again, it continues: processed files are not read again, and a window that was planned but
    not committed is run again. The first SIGINT (Ctrl-C), SIGTERM or SIGHUP stops it cleanly, a second one
    at once. While another run is at work on the checkpoint it is refused; one that was killed does not block it.
    """
    if limit is not None and (workers is None or checkpoint is not None or follow or fresh):
        raise click.UsageError("--limit goes with --local, and takes neither --checkpoint, --follow nor --fresh")
    if checkpoint is not None:
        require_directory(checkpoint)
    logical = load(app, settings, overrides)
    options = RunOptions(checkpoint, master, conf, follow, fresh, take_over=take_over, workers=workers)
    again = resume_command(app, overrides, options) + (f" --limit {limit}" if limit is not None else "")
    options = replace(options, replay_command=replay_command(logical.attributes.checkpoint, overrides, options))
    # A table that redraws itself and a debugger do not share a terminal.
    display = display_for(logical.name, settings.redact, is_quiet=quiet, is_plain=workers == 1)
    try:
        with logging_to(display, is_verbose=settings.is_verbose), display:
            with limited_run(logical, options, limit) as (part, chosen):
                summary = watch(part, chosen, display)
            display.finish(summary)
    except Exception as error:
        _account_for_failure(error, display, again, as_json=as_json)
        raise
    if as_json:
        output.result(json.dumps(summary.to_json()))
    is_stopped = summary.state == "stopped"
    if is_stopped:
        note = f"continue with: {again}"
    elif limit is not None:
        note = "a try-out: the app's own output and checkpoint are as they were"
    else:
        note = f"next: {status_command(app, options)}" if summary.windows else ""
    if note and not quiet:
        output.note(f"    {note}")
    return RunStoppedError.exit_code if is_stopped else 0


def watch(logical: LogicalPlan, options: RunOptions, display: Display) -> RunSnapshot:
    """Run an app under a display, and let signals stop it.

    Returns:
        The figures at the end; state is "completed" or "stopped".

    Raises:
        DagflowError: The run failed.
    """
    stop = StopRequest()

    def ask() -> None:
        stop.request()
        display.stopping()

    def die() -> NoReturn:
        display.abandon()
        os._exit(RunStoppedError.exit_code)

    with stop_on_signals(ask, die):
        return on_driver_thread(lambda: engine_run(logical, options, display, stop))


def _account_for_failure(error: Exception, display: Display, again: str, *, as_json: bool) -> None:
    if isinstance(error, DagflowError) and error.exit_code == 2:
        return  # nothing was run
    if not isinstance(error, JournalError):  # its hint says what to do; or another driver goes on with the work
        error.add_note(f"    {'' if _may_pass(error) else 'mend that, and '}continue with: {again}")
    if as_json:
        last = display.last or RunSnapshot(display.app)
        state = "stopped" if isinstance(error, RunStoppedError) else "failed"
        output.result(json.dumps(replace(last, state=state).to_json()))


_MAY_PASS = TransientStorageError, ProcessEndedError, RunStoppedError


def _may_pass(error: Exception) -> bool:
    """Whether the same run may succeed another time, with nothing changed."""
    if not isinstance(error, DagflowError) or isinstance(error, _MAY_PASS):
        return True
    # An operator's code, a record or a location is to be mended without a word of advice, too.
    return not error.hint and not isinstance(error, (OperatorError, RecordError, MissingError))
