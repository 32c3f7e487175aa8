"""`dagflow schema`: what editors need to complete and check apps."""

from __future__ import annotations

import json

import click

from dagflow.cli import output
from dagflow.cli.options import verbose_option
from dagflow.spec.schema import json_schema


@click.command("schema", short_help="Print the JSON Schema of the YAML.")
@verbose_option
def command() -> int:
    """Print the JSON Schema of the YAML, for editors."""
    output.result(json.dumps(json_schema(), indent=2))
    return 0
