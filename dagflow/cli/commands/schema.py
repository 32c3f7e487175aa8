"""`dagflow schema`: what editors need to complete and check apps."""

from __future__ import annotations

import json

import click

from dagflow.cli import output
from dagflow.cli.shared_options import verbose_option
from dagflow.spec.json_schema import json_schema, module_schema


@click.command("schema")
@click.option("--module", "of_module", is_flag=True, help="The schema of a module's file.")
@verbose_option
def command(of_module: bool) -> int:
    """Print the JSON Schema of the YAML, for editors."""
    output.result(json.dumps(module_schema() if of_module else json_schema(), indent=2))
    return 0
