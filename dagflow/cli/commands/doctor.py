"""`dagflow doctor` and `dagflow warm`: checks this machine and the places of an app, and lets Spark start faster."""

from __future__ import annotations

import itertools
import time

import click

from dagflow.cli import output
from dagflow.cli.locations import load
from dagflow.cli.progress import operators_silenced
from dagflow.cli.shared_options import Settings, set_option
from dagflow.engine.app_checks import app_checks, machine_checks
from dagflow.runtime.start_checks import require_version


@click.command("doctor")
@click.argument("app", metavar="[APP]", required=False)
@set_option
@click.option("--spark/--no-spark", "starts_spark", default=True, help="Whether to start Spark for APP.")
@click.pass_obj
def command(settings: Settings, app: str | None, overrides: tuple[str, ...], starts_spark: bool) -> int:
    """Check this machine: packages, Java, open files, space; and what APP needs.

    For APP: the rights to list and read its input, and to create, list, read and delete where it writes, with the space
    and clock there; and whether Spark starts, with executors that have what the app needs. No data is touched. Ends
    with exit code 1 if a check fails.
    """
    logical = None if app is None else load(app, settings, overrides)
    is_wrong = False
    with operators_silenced(is_verbose=settings.is_verbose):
        of_app = () if logical is None else app_checks(logical, starts_spark=starts_spark)
        for check in itertools.chain(machine_checks(), of_app):
            text = f"ok     {check.name}: {output.on_one_line(check.detail)}"
            if check.error is not None:
                is_wrong = True
                text = f"wrong  {check.name}: {check.error}".replace("\n", "\n   ")
            output.result(settings.redact(text))
    return int(is_wrong)


@click.command("warm")
def warm() -> int:
    """Make local runs on Spark start faster: store Spark's Java classes as a memory image.

    It takes half a minute and 105 MB. Repeat it after you have installed another Java or another PySpark.
    """
    require_version()
    # Here, because no other command imports Spark before it needs it.
    from dagflow.runtime.spark_context import keep_classes

    started = time.monotonic()
    archive = keep_classes()
    size = archive.stat().st_size / 1e6
    output.result(f"kept Spark's classes in {archive} ({size:.0f} MB, {time.monotonic() - started:.0f} s)")
    return 0
