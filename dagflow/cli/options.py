"""Options that several commands share, and what their values may look like."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(slots=True)
class Settings:
    """What holds for the whole command line.

    Attributes:
        is_verbose: Whether tracebacks and the log are shown.
    """

    is_verbose: bool = False


def verbose_option(function: F) -> F:
    """Add `-v/--verbose`, which counts wherever on the command line it stands."""

    def remember(context: click.Context, parameter: click.Parameter, value: bool) -> None:
        if value:
            context.ensure_object(Settings).is_verbose = True

    return click.option(
        "-v",
        "--verbose",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=remember,
        help="Show the log, and the traceback of an error; DAGFLOW_DEBUG=1 does the same.",
    )(function)


def set_option(function: F) -> F:
    """Add `--set`, which overrides properties of the app; the app's own checks name what is wrong with them."""
    return click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="OP.PROPERTY=VALUE",
        help="Override a property of an operator; VALUE is read as YAML. May be repeated.",
    )(function)


class Setting(click.ParamType):
    """`KEY=VALUE`, as a pair."""

    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Split at the first equals sign.

        Raises:
            click.BadParameter: There is none, or nothing before it.
        """
        if isinstance(value, tuple):
            return value
        key, equals, text = str(value).partition("=")
        if not equals or not key.strip():
            self.fail(f"{value!r} is not KEY=VALUE, for example spark.executor.memory=4g", param, ctx)
        return key.strip(), text


def unknown(what: str, name: str, valid: Iterable[str]) -> str:
    """A complaint about a name that does not exist, with the nearest one if one is close, else with all."""
    names = list(valid)
    near = difflib.get_close_matches(name, names, n=1) or [
        valid_name for valid_name in names if valid_name.lower() == name.lower()
    ]
    advice = f"did you mean '{near[0]}'?" if near else f"there are: {', '.join(names)}"
    return f"no {what} '{name}'; {advice}"
