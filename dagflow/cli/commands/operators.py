"""`dagflow operators`: the operators and partitioners for apps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from dagflow.cli import output
from dagflow.cli.output import definitions, paragraphs
from dagflow.spec.class_description import (
    ClassInfo,
    PortInfo,
    PropertyInfo,
    describe_module,
    describe_named,
    describe_operators,
    describe_partitioners,
)
from dagflow.spec.class_lookup import UnknownClassError

KINDS = {
    "input": "runs once, in the driver, and begins an app",
    "control": "runs once, in the driver",
    "partitioned": "runs in parallel, in Spark tasks",
    "partitioner": "decides, in the driver, how many partitions an operator has",
    "module": "a module, whose operators run as its file says",
}


@click.command("operators")
@click.argument("name", metavar="[NAME]", required=False)
def command(name: str | None) -> int:
    """List the built-in operators and partitioners, or show the ports and properties of one.

    NAME is what an app would write under `class`: a built-in's short name, or the dotted path of a
    class of your own, such as my_ops.DropComments; or the path of a module's YAML file.
    """
    if name is None:
        output.result(definitions((found.name, found.summary) for found in describe_operators()))
        output.result("")
        partitioners = ((found.name, found.summary) for found in describe_partitioners())
        output.result(definitions(partitioners, title="Partitioners, which an operator may name"))
        return 0
    try:
        is_module = name.endswith((".yaml", ".yml"))
        found = describe_module(name) if is_module else describe_named(name, (str(Path.cwd()),))
    except UnknownClassError as error:
        raise click.UsageError(str(error)) from error
    output.result("\n".join(_page(found)))
    return 0


def _page(found: ClassInfo) -> Iterator[str]:
    yield f"{found.name}: {KINDS[found.kind]}"
    yield ""
    yield paragraphs(found.details or "It has no description.")
    for title, ports in (("Input ports", found.inputs), ("Output ports", found.outputs)):
        if ports:
            yield ""
            yield definitions(((port.name, _port(port)) for port in ports), title=title)
    if found.properties:
        yield ""
        yield definitions(_properties(found.properties), title="Properties")


def _port(port: PortInfo) -> str:
    required = "required" if port.is_required else "optional"
    return f"{port.type}, {required}{_meaning(port.meaning)}"


def _properties(properties: Iterable[PropertyInfo], prefix: str = "") -> Iterator[tuple[str, str]]:
    for known in properties:
        default = "required" if known.is_required else f"default {known.default}"
        yield prefix + known.name, f"{known.type}, {default}{_meaning(known.meaning)}"
        yield from _properties(known.choices, f"{prefix}{known.name}.")


def _meaning(text: str) -> str:
    return f": {text}" if text else ""
