"""`dagflow validate`: every mistake of an app, without Spark."""

from __future__ import annotations

import click

from dagflow.cli import output
from dagflow.cli.figures import count
from dagflow.cli.shared_options import set_option, verbose_option
from dagflow.plan.load import load_app


@click.command("validate", short_help="Check an app whole, without Spark.")
@click.argument("app", metavar="APP")
@set_option
@verbose_option
def command(app: str, overrides: tuple[str, ...]) -> int:
    """Check APP whole, and report every mistake at once.

    Runs nothing and starts no Spark. Ends with exit code 2 where there is a mistake.
    """
    logical = load_app(app, overrides=list(overrides))
    operators = count(len(logical.operators), "operator")
    streams = count(len({edge.stream for edge in logical.edges}), "stream")
    output.note(f"{app}: app '{logical.name}' is valid: {operators}, {streams}")
    return 0
