"""The pages of docs/ that are made: operators with their properties, options of commands, errors, the list of recipes.

`python -m tests.docs.reference` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click

from dagflow import errors
from dagflow.cli.commands.operators import KINDS
from dagflow.cli.main import command_line
from dagflow.spec.class_description import (
    ClassInfo,
    PropertyInfo,
    describe_named,
    describe_operators,
    describe_partitioners,
)

DOCS = Path(__file__).parents[2] / "docs"


def operators_page() -> str:
    """Each built-in operator and partitioner, with ports and properties."""
    lines = [
        "# Operators and their properties",
        "",
        "What `dagflow operators NAME` shows of each built-in class, in one page.",
    ]
    for found in [*describe_operators(), *describe_partitioners()]:
        lines += ["", *_operator(describe_named(found.name))]
    return "\n".join(lines) + "\n"


def _operator(operator: ClassInfo) -> Iterator[str]:
    yield f"## {operator.name}"
    yield ""
    yield f"It {KINDS[operator.kind]}."
    yield ""
    yield _text(operator.details)
    for title, ports in (("input port", operator.inputs), ("output port", operator.outputs)):
        needs = ("optional", "required")
        if any(port.meaning for port in ports):
            takes = "takes" if title == "input port" else "gives"
            rows = ((f"`{port.name}`", port.type, needs[port.is_required], port.meaning) for port in ports)
            yield ""
            yield from _table((title, takes, "", "meaning"), rows)
        elif ports:
            named = (f"`{port.name}` ({port.type}, {needs[port.is_required]})" for port in ports)
            yield ""
            yield f"{title.capitalize()}{'s' if len(ports) > 1 else ''}: {', '.join(named)}"
    if operator.properties:
        yield ""
        yield from _table(("property", "type", "default", "meaning"), _properties(operator.properties))


def _properties(properties: Iterable[PropertyInfo], prefix: str = "") -> Iterator[tuple[str, ...]]:
    for known in properties:
        default = "required" if known.is_required else f"`{known.default}`"
        yield f"`{prefix}{known.name}`", known.type, default, known.meaning
        yield from _properties(known.choices, f"{prefix}{known.name}.")


def options_page() -> str:
    """Each command with its arguments and options."""
    lines = [
        "# Options of the commands",
        "",
        "What `dagflow COMMAND --help` shows of each command, in one page. All take `--help`, and `--verbose`, which",
        "shows the log and the traceback of an error.",
    ]
    context = click.Context(command_line, info_name="dagflow")
    for path, command in _commands(command_line, context, "dagflow"):
        lines += ["", *_command(path, command)]
    return "\n".join(lines) + "\n"


def _commands(group: click.Group, context: click.Context, path: str) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        if isinstance(command, click.Group):
            yield from _commands(command, click.Context(command, context, name), f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _command(path: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=path)
    yield f"## {path}"
    yield ""
    yield f"`{' '.join([path, *command.collect_usage_pieces(context)])}`"
    yield ""
    yield _text(command.help or "")
    records = [record for option in command.get_params(context) if (record := option.get_help_record(context))]
    own = [(f"`{name}`", text) for name, text in records if text and not name.startswith(("-h,", "-v,"))]
    if own:
        yield ""
        yield from _table(("option", "meaning"), own)


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield _row(heads)
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield _row(row)


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(" ".join(_escaped(cell).split()) for cell in cells) + " |"


def _text(text: str) -> str:
    return "\n\n".join(" ".join(_escaped(part).split()) for part in re.split(r"\n\s*\n", text.strip("\b\n")))


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is, but for code."""
    parts = re.split(r"(`[^`]*`)", text.replace("|", "\\|"))
    return "".join(part if part.startswith("`") else re.sub(r"([<>*_\[\]])", r"\\\1", part) for part in parts)


def errors_page() -> str:
    """Each class of errors, below the one that it is a kind of."""
    lines = [
        "# Errors",
        "",
        "Each message says what is wrong, where, and what to do. On the command line it comes with an",
        "[exit code](trouble.md#exit-codes); in Python an error is an exception of `dagflow.errors`.",
        "",
        *_table(("error", "is a", "exit code", "meaning"), _errors(errors.DagflowError)),
    ]
    return "\n".join(lines) + "\n"


def _errors(kind: type[errors.DagflowError]) -> Iterator[tuple[str, ...]]:
    bases = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
    yield f"`{kind.__name__}`", bases, str(kind.exit_code), (kind.__doc__ or "").partition("\n\n")[0]
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from _errors(below)


def cookbook_page() -> str:
    """A link to each recipe, in the order of the site's menu."""
    lines = [
        "# All recipes",
        "",
        "Whole apps of about ten lines. Copy one, put your own path in the place of `data/…`, and run it",
        "([how to use them](files.md)).",
    ]
    for title, name in re.findall(
        r'"(.+)" = "cookbook/(?!index)(.+)"', (DOCS.parent / "zensical.toml").read_text("utf-8")
    ):
        lines += ["", f"**{title}**", ""]
        for recipe in re.findall("^## (.+)$", (DOCS / "cookbook" / name).read_text("utf-8"), re.MULTILINE):
            anchor = re.sub(r"[^\w\- ]", "", recipe.lower()).replace(" ", "-")
            lines.append(f"- [{recipe}]({name}#{anchor})")
    return "\n".join(lines) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "operators.md": operators_page,
    "options.md": options_page,
    "errors.md": errors_page,
    "cookbook/index.md": cookbook_page,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
