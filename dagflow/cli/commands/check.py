"""`dagflow check` and `dagflow metrics`: whether a checkpoint is well, as an exit code and as metrics of Prometheus."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from dagflow.cli import output
from dagflow.cli.locations import attributes_of, is_app_file, locate, size_in_bytes, write_whole
from dagflow.cli.shared_options import Seconds, Settings, file_option, store_option
from dagflow.errors import DagflowError
from dagflow.report.endpoints import metrics_text, reason_against
from dagflow.report.reading import WAIT_S, RecentRejects, exceeded_limits, read_checkpoint, recent_rejects
from dagflow.spec.app_reader import share_of
from dagflow.spec.app_spec import AlertSettings
from dagflow.spec.problems import quoted


def _share(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    share = None if value is None else share_of(value)
    if value is not None and share is None:
        raise click.BadParameter(f"expected a share from 0% to 100%, such as 1%, got {quoted(value)}")
    return share


@click.command("check")
@click.argument("checkpoint", metavar="CHECKPOINT|APP")
@click.option(
    "--max-age",
    type=Seconds(),
    metavar="SECONDS",
    help="Maximum age of the oldest unpublished input, and maximum time since a run looked for input.",
)
@click.option("--max-rejects", callback=_share, metavar="SHARE", help="Maximum share of refused records, such as 1%.")
@click.option(
    "--max-backlog",
    callback=size_in_bytes,
    metavar="SIZE",
    help="Maximum size of input that is not committed, such as 10GiB.",
)
@store_option
@click.pass_obj
def command(
    settings: Settings,
    checkpoint: str,
    max_age: float | None,
    max_rejects: float | None,
    max_backlog: int | None,
    app: str | None,
) -> int:
    """Print one line about the health of CHECKPOINT, or of the checkpoint of the app file APP.

    Ends with 0 if it is healthy, and with 1 if not: the journal cannot be read, the newest run failed, was killed,
    or is stalled, a limit is exceeded, or the end of a file has waited for its rest for longer than --max-age, or an
    hour. Limits that are not given are those of the app's `alerts`, if an app is given. The figures after the bar are
    in the format of Nagios.
    """
    location, storage = locate(checkpoint, app, settings)
    given = checkpoint if is_app_file(checkpoint) else app
    limits = (None if given is None else attributes_of(given, settings).alerts) or AlertSettings()
    limits = replace(
        limits,
        freshness_millis=limits.freshness_millis if max_age is None else int(max_age * 1000),
        rejects=limits.rejects if max_rejects is None else max_rejects,
        backlog_bytes=limits.backlog_bytes if max_backlog is None else max_backlog,
    )
    reading = read_checkpoint(location, storage, with_archive=True)
    allowed_s = WAIT_S if limits.freshness_millis is None else limits.freshness_millis / 1000
    snapshot, recent = reading.snapshot, RecentRejects()
    # Reading windows may take seconds, where many lie in one object of the archive.
    if snapshot is not None and limits.rejects is not None:
        try:
            recent = recent_rejects(location, storage, snapshot.run_start, snapshot.last_committed)
        except DagflowError as error:
            output.note(f"the rejects of the newest windows are not known: {error}")
    exceeded = (each.text for each in exceeded_limits(reading, limits, recent))
    reasons = list(filter(None, [reason_against(reading), reading.waits_too_long(allowed_s), *exceeded]))
    name, state, figures = reading.checkpoint, "", ""
    if snapshot is not None:
        name, state = snapshot.app, snapshot.state
        age = "" if limits.freshness_millis is None else f"{limits.freshness_millis / 1000:g}"
        rejects = "" if limits.rejects is None else f"rejects={recent.share * 100:.4g}%;{limits.rejects * 100:g} "
        backlog = "" if limits.backlog_bytes is None else f"{limits.backlog_bytes}"
        figures = (
            f" | age={reading.age_s:.1f}s;{age} {rejects}"
            f"backlog={snapshot.backlog_bytes}B;{backlog} windows={snapshot.last_committed}c"
        )
    line = f"DAGFLOW {'NOT OK' if reasons else 'OK'} - {name}: {'; '.join(reasons) or state}"
    # Text after a bar is read as figures.
    output.result(settings.redact(line).replace("|", "/") + figures)
    return 1 if reasons else 0


@click.command("metrics")
@click.argument("checkpoint", metavar="CHECKPOINT|APP")
@file_option(help="Write to FILE instead, whole or not at all, as the textfile collector of node_exporter needs it.")
@store_option
@click.pass_obj
def metrics(settings: Settings, checkpoint: str, file: Path | None, app: str | None) -> int:
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
        write_whole(file, text, "the metrics")
    if reading.error:
        output.note(settings.redact(reading.error))
    return 1 if reading.error else 0
