"""`dagflow schema`: what editors need to complete and check apps."""

from __future__ import annotations

import json

import click

from dagflow.cli import output
from dagflow.cli.shared_options import verbose_option
from dagflow.spec.json_schema import json_schema, module_schema
from dagflow.spec.known_names import known_names


@click.command("schema")
@click.argument("app", metavar="[APP]", required=False)
@click.option("--module", "of_module", is_flag=True, help="The schema of a module's file.")
@verbose_option
def command(app: str | None, of_module: bool) -> int:
    """Print the JSON Schema of the YAML, by which editors complete and check apps.

    With APP, it knows the ports of APP's operators, your own classes, and the modules that APP uses. Print it again
    after you have added an operator.
    """
    with output.reserved_for_results():
        known = None if app is None else known_names(app)
    output.result(json.dumps(module_schema(known) if of_module else json_schema(known), indent=1))
    return 0
