"""Runs an app for the command line: under a display, with signals, and with a summary at the end."""

from __future__ import annotations

import json
import logging
import os
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import NoReturn

from dagflow.cli import output
from dagflow.cli.commands.replay import show_differences
from dagflow.cli.display import Display
from dagflow.cli.locations import load, require_directory
from dagflow.cli.progress import display_for, logging_to
from dagflow.cli.render import warning
from dagflow.cli.run_log import RunLog, attached, error_fields, json_line, open_run_log
from dagflow.cli.shared_options import Redact, RunRequest, Settings
from dagflow.cli.signals import on_driver_thread, stop_on_signals
from dagflow.engine.limited_run import limited_run
from dagflow.engine.live_run import StopRequest, app_url_of
from dagflow.engine.run import run as engine_run
from dagflow.engine.run_setup import Observer, RunOptions
from dagflow.engine.what_if import if_run
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
from dagflow.runtime.spark_process import SparkProcess
from dagflow.runtime.task_server import TaskServer
from dagflow.spec.shown_text import is_date, shown_value
from dagflow.spec.spark_master import usable_cores
from dagflow.storage.location import absolute, redacted
from dagflow.telemetry.run_signals import MetricsAddress
from dagflow.web.checkpoints import Checkpoint
from dagflow.web.server import serving


def run_app(settings: Settings, asked: RunRequest, server: TaskServer | None, java: SparkProcess | None) -> int:
    if asked.checkpoint is not None:
        require_directory(asked.checkpoint)
    logical = load(asked.app, settings, asked.overrides)
    options = RunOptions(
        checkpoint=asked.checkpoint,
        master=asked.master,
        conf=asked.conf,
        follow=asked.follow,
        fresh=asked.fresh,
        take_over=asked.take_over,
        workers=asked.workers,
        server=server,
        java=java,
        metrics=MetricsAddress(*asked.metrics) if asked.metrics is not None else None,
        owns_process=True,
    )
    limit = f" --limit {asked.limit}" if asked.limit is not None else ""
    dates = _dates_of(logical)
    again = dates + resume_command(asked.app, asked.overrides, options) + limit
    replay = dates + replay_command(logical.attributes.checkpoint, asked.overrides, options)
    options = replace(options, replay_command=replay)
    is_json = asked.log_format == "json"
    if is_json:
        settings.line = partial(_as_json, logical.name, settings.redact)
    # A table that redraws itself and a debugger do not share a terminal.
    is_plain = asked.workers == 1
    display = display_for(logical.name, settings.redact, is_quiet=asked.quiet, is_plain=is_plain, as_json=is_json)
    log, started_s = open_run_log(logical.name, settings.redact), time.monotonic()
    try:
        with logging_to(display, is_verbose=settings.is_verbose), attached(log), display:
            with limited_run(logical, options, asked.limit) as (part, chosen):
                summary = watch(part, chosen, display, log, asked.ui_port)
            display.finish(summary)
    except Exception as error:
        _explain_failure(error, display, again, started_s, as_json=asked.as_json)
        if log is not None:
            log.end(str(error), error)
            if not isinstance(error, DagflowError) or error.exit_code != 2:
                error.add_note(f"    log of the run: {log.path}")
        raise
    if asked.as_json:
        output.result(json.dumps(summary.to_json()))
    if summary.state == "stopped":
        notes = [f"continue with: {again}"]
    elif asked.limit is not None:
        notes = ["a try-out: the app's own output and checkpoint are as they were"]
    else:
        looking = looking_command(asked.app, options, has_rejects=summary.rejected > 0)
        notes = [f"next: {looking}"] if summary.windows else []
    if log is not None:
        log.end(f"{summary.state}: {json.dumps(summary.to_json())}")
        notes.append(f"log of the run: {log.path}")
    is_strict = asked.strict or logical.attributes.strict
    return _concluded(settings, summary, notes, is_quiet=asked.quiet, is_strict=is_strict)


def _concluded(
    settings: Settings, summary: RunSnapshot, notes: Sequence[str], *, is_quiet: bool, is_strict: bool
) -> int:
    """Print what is to be said after a run, and return its exit code."""
    is_stopped = summary.state == "stopped"
    concerns = summary.concerns if is_strict and not is_stopped else ()
    # The summary has them; cron mails what is printed, and no exit codes.
    for concern in concerns if is_quiet else ():
        output.note(settings.line(settings.redact(f"{summary.app}: {warning(concern)}"), None))
    for note in notes if concerns or not is_quiet else ():
        output.note(settings.line(f"    {note}", None))
    return RunStoppedError.exit_code if is_stopped else next((each.exit_code for each in concerns), 0)


def if_app_ran(settings: Settings, asked: RunRequest) -> int:
    """Show what the next run of an app would change."""
    logical = load(asked.app, settings, asked.overrides)
    options = RunOptions(asked.checkpoint, asked.master, asked.conf, workers=asked.workers, take_over=asked.take_over)
    return show_differences(
        partial(if_run, logical), options, settings.redact, as_json=asked.as_json, is_quiet=asked.quiet
    )


def _as_json(app: str, redact: Redact, text: str, error: BaseException | None) -> str:
    level = "info" if error is None else "error"
    return json_line(app, level, text.strip(), **({} if error is None else error_fields(error, redact)))


class _Logged:
    def __init__(self, display: Display, log: RunLog) -> None:
        self.progress = display.progress
        self._display = display
        self._log = log

    def notice(self, text: str) -> None:
        self._log.say(logging.INFO, text)
        self._display.notice(text)


def watch(
    logical: LogicalPlan, options: RunOptions, display: Display, log: RunLog | None = None, ui_port: int | None = None
) -> RunSnapshot:
    """Run an app under a display, and let signals stop it."""
    stop = StopRequest()

    def ask() -> None:
        stop.request()
        display.stopping()

    def die() -> NoReturn:
        display.abandon()
        os._exit(RunStoppedError.exit_code)

    with stop_on_signals(ask, die):
        observer = display if log is None else _Logged(display, log)
        with live_pages(ui_port, logical, options, observer):
            return on_driver_thread(lambda: engine_run(logical, options, observer, stop))


def _explain_failure(error: Exception, display: Display, again: str, started_s: float, *, as_json: bool) -> None:
    if isinstance(error, DagflowError) and error.exit_code == 2:
        return  # nothing was run
    if not isinstance(error, JournalError):  # its hint says what to do; or another driver continues the run
        error.add_note(f"    {'' if _may_pass(error) else 'fix that, and '}continue with: {again}")
    if as_json:
        last = display.last or RunSnapshot(display.app)
        state = "stopped" if isinstance(error, RunStoppedError) else "failed"
        # The last figures may be older than the failure, and there may be none.
        failed = replace(last, state=state, seconds=time.monotonic() - started_s)
        output.result(json.dumps(failed.to_json()))


_MAY_PASS = TransientStorageError, ProcessEndedError, RunStoppedError


def _may_pass(error: Exception) -> bool:
    """Whether the same run may succeed another time, with nothing changed."""
    if not isinstance(error, DagflowError) or isinstance(error, _MAY_PASS):
        return True
    # An error of an operator's code, a record or a location must be fixed, even if it has no hint.
    return not error.hint and not isinstance(error, (OperatorError, RecordError, MissingError))


def resume_command(app: str, overrides: Sequence[str], options: RunOptions) -> str:
    """The command line that continues a run: the same one, without --fresh and without secrets."""
    words = ["dagflow", "run", app, *_settings(overrides, options)]
    if options.checkpoint is not None:
        words += ["--checkpoint", redacted(options.checkpoint)]
    if options.follow:
        words.append("--follow")
    return shlex.join(words)


def looking_command(app: str, options: RunOptions, *, has_rejects: bool) -> str:
    """The command line that shows the status of a checkpoint, or its refused records."""
    command = "rejects" if has_rejects else "status"
    return shlex.join(["dagflow", command, app if options.checkpoint is None else redacted(options.checkpoint)])


def replay_command(checkpoint: str, overrides: Sequence[str], options: RunOptions) -> str:
    """The command line that replays windows with the arguments of a run, without window ids and without secrets."""
    return shlex.join(["dagflow", "replay", redacted(options.checkpoint or checkpoint), *_settings(overrides, options)])


def _dates_of(logical: LogicalPlan) -> str:
    """What a command of a message begins with, so that it is about the same day, such as "DAY=2026-11-22 "; or ""."""
    values = {} if logical.spec is None else logical.spec.secrets
    dates = {name: value for value, name in values.items() if is_date(value, name)}
    return "".join(f"{name[2:-1]}={shlex.quote(value)} " for name, value in sorted(dates.items()))


def _settings(overrides: Sequence[str], options: RunOptions) -> list[str]:
    words = []
    for override in overrides:
        setting, _, value = override.partition("=")
        # The part before the dot is the name of an operator, and says nothing about the value.
        words += ["--set", f"{setting}={shown_value(setting.partition('.')[2], value)}"]
    if options.workers is not None:
        words += ["--local"] if options.workers == usable_cores() else ["--local", "--workers", f"{options.workers}"]
    if options.master is not None:
        words += ["--master", options.master]
    for key, value in options.conf.items():
        words += ["--conf", f"{key}={shown_value(key, value)}"]
    return words


@contextmanager
def live_pages(port: int | None, app: LogicalPlan, options: RunOptions, observer: Observer) -> Iterator[None]:
    """Serve pages about a run within the block, to this machine alone, from a process of their own."""
    if port is None:
        yield
        return
    checkpoint, storage = absolute(options.checkpoint or app.attributes.checkpoint), app.attributes.storage_context()
    place = Checkpoint(checkpoint, storage, app_url_of(app))
    with serving([place], port=port) as address:
        observer.notice(f"pages of the run: {address.url}")
        yield
