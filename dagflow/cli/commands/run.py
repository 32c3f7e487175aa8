"""`dagflow run`: runs an app, and prints a summary."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from dagflow.cli.shared_options import (
    RunRequest,
    Settings,
    conf_option,
    local_options,
    master_option,
    set_option,
    take_over_option,
)
from dagflow.errors import DagflowError
from dagflow.runtime.spark_process import SparkProcess
from dagflow.runtime.spark_settings import process_settings
from dagflow.runtime.start_checks import is_submitted, remote_url
from dagflow.runtime.task_server import TaskServer
from dagflow.spec.head_reader import read_head
from dagflow.spec.problems import quoted
from dagflow.spec.spark_master import is_master
from dagflow.web import UI_PORT, require_packages

MAX_PORT = 65535


def _not_empty(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Refuse an empty value, as of an unset variable, which does not mean the app's own checkpoint."""
    if value == "":
        raise click.BadParameter("it is empty; expected a path or URL")
    return value


def _address(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, int] | None:
    """[HOST:]PORT as host and port."""
    if value is None:
        return None
    host, _, port = value.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > MAX_PORT:
        raise click.BadParameter(f"expected a port from 0 to {MAX_PORT}, or HOST:PORT, got {quoted(value)}")
    return host.strip("[]") or "127.0.0.1", int(port)


def _page_port(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    if not value.isascii() or not value.isdigit() or int(value) > MAX_PORT:
        raise click.BadParameter(
            f"expected a port from 0 to {MAX_PORT}, got {quoted(value)}; without a port, write --ui behind APP"
        )
    require_packages()
    return int(value)


@click.command("run")
@click.argument("app", metavar="APP")
@set_option
@click.option(
    "--checkpoint", metavar="URL", callback=_not_empty, help="Location of the journal; overrides the app's own."
)
@local_options
@click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    help="With --local: try the app on N records; publishes only below .dagflow/NAME.limit.",
)
@master_option
@conf_option
@click.option("--follow", is_flag=True, help="Keep watching for new input until stopped.")
@click.option("--fresh", is_flag=True, help="Start over: set the old journal aside, and remove its published output.")
@take_over_option
@click.option(
    "--ui",
    "ui_port",
    metavar="[PORT]",
    is_flag=False,
    flag_value=str(UI_PORT),
    callback=_page_port,
    help=f"Serve pages about the run to this machine during the run; default port: {UI_PORT}; 0 takes a free one.",
)
@click.option(
    "--metrics",
    metavar="[HOST:]PORT",
    callback=_address,
    help="Serve /metrics for Prometheus, /healthz and /readyz during the run; only to this machine unless HOST is "
    "given, such as 0.0.0.0. Port 0 takes a free one.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of messages on stderr: text or one JSON object a line.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object on stdout.")
@click.option("--strict", is_flag=True, help="End with an exit code of its own for each warning of the summary.")
@click.option(
    "--diff",
    "is_diff",
    is_flag=True,
    help="Only show what the run would change; ends with exit code 3 if something would.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
@click.pass_obj
def command(settings: Settings, /, **arguments: Any) -> int:
    """Run APP until all input is processed and published.

    Started again, it continues: processed files are not read again, and a window that was planned but
    not committed is run again. The first SIGINT (Ctrl-C), SIGTERM or SIGHUP stops it cleanly, a second one
    at once. A run is refused while another one is active on the checkpoint; a killed run does not block it.
    """
    asked = RunRequest(**arguments)
    is_limited = asked.limit is not None
    if is_limited and (asked.workers is None or asked.checkpoint is not None or asked.follow or asked.fresh):
        raise click.UsageError("--limit goes with --local, and takes neither --checkpoint, --follow nor --fresh")
    writing = is_limited, asked.follow, asked.fresh, asked.ui_port is not None, asked.metrics is not None
    if asked.is_diff and any(writing):
        raise click.UsageError("--diff takes none of --limit, --follow, --fresh, --ui and --metrics")
    workers = 1 if is_limited or asked.is_diff else asked.workers
    with prestarted(asked, workers) as (server, java):
        # Heavy: imported beside the process that was started.
        from dagflow.cli.app_run import if_app_ran, run_app

        return if_app_ran(settings, asked) if asked.is_diff else run_app(settings, asked, server, java)


@contextlib.contextmanager
def prestarted(asked: RunRequest, workers: int | None) -> Iterator[tuple[TaskServer | None, SparkProcess | None]]:
    """Start what a run needs, if it is likely to find work, before the rest of dagflow is imported.

    Without Spark, that is the server of tasks; else Spark's Java. The run reports the error of what did not start.
    """
    with contextlib.ExitStack() as stack:
        head = read_head(asked.app) if workers is None or workers > 1 else None
        server = java = None
        # Where the app was run before, there may be nothing new.
        if head is not None and (asked.fresh or not Path(asked.checkpoint or head.checkpoint).exists()):
            with contextlib.suppress(OSError, DagflowError):
                master = asked.master or head.master
                is_own = is_master(master) and not is_submitted() and not remote_url()
                is_open = head.runtime == "auto" and not (asked.master or asked.conf or asked.follow)
                if workers is not None or (is_open and is_own):
                    server = stack.enter_context(contextlib.closing(TaskServer()))
                elif is_own:
                    settings = process_settings(head.name, master, {**head.spark, **asked.conf})
                    java = SparkProcess(settings, has_log=True)
                    stack.callback(java.end)
        yield server, java
