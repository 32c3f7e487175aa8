"""`dagflow doctor`: whether this machine, and the places of an app, are as they must be."""

from __future__ import annotations

import click

from dagflow.cli import output
from dagflow.cli.locations import load
from dagflow.cli.progress import operators_silenced
from dagflow.cli.shared_options import Settings, set_option
from dagflow.engine.app_checks import MachineCheck, app_checks, machine_checks
from dagflow.errors import DagflowError


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
    failed = 0
    with operators_silenced(is_verbose=settings.is_verbose):
        for check in machine_checks():
            failed += _show_check(check, settings)
        for check in app_checks(logical, starts_spark=starts_spark) if logical is not None else ():
            failed += _show_check(check, settings)
    return int(failed > 0)


def _show_check(check: MachineCheck, settings: Settings) -> bool:
    """Print a check; whether something is wrong."""
    if check.error is None:
        output.result(settings.redact(f"ok     {check.name}: {output.on_one_line(check.detail)}"))
        return False
    output.result(settings.redact(f"wrong  {check.name}: {_indented(check.error)}"))
    return True


def _indented(error: DagflowError) -> str:
    return str(error).replace("\n", "\n   ")
