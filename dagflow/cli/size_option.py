"""Options whose values are sizes.

Kept apart from the options of `dagflow run`, which are imported before Java is started: parsing sizes takes long to
import.
"""

from __future__ import annotations

import click

from dagflow.api.properties import parse_size


def size_in_bytes(context: click.Context, option: click.Parameter, value: str) -> int:
    try:
        return parse_size(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
