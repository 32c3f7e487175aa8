"""Options that several commands share, and the checks of their values."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from dagflow.frozen import frozen, mutable
from dagflow.spec.problems import quoted
from dagflow.spec.spark_master import MASTER_SETTING, MASTERS, is_master, usable_cores
from dagflow.suggestions import did_you_mean

F = TypeVar("F", bound=Callable[..., Any])
Redact = Callable[[str], str]
LogFormat = Literal["text", "json"]

MAX_WORKERS = 1024
"""More processes than a machine has cores, and few enough to start."""


MAX_SECONDS = 10**10
"""Centuries; a number of seconds up to it can be counted in milliseconds."""


class Seconds(click.FloatRange):
    """A number of seconds, from 0 on."""

    def __init__(self) -> None:
        super().__init__(min=0, max=MAX_SECONDS)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number; "nan", which is in any range, is refused as well."""
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail("nan is no number of seconds", param, ctx)
        return seconds


@mutable
class Settings:
    """Settings of the whole command line.

    Attributes:
        redact_document: The same for documents, such as a page with scripts.
        note: Adds a suggestion to an error; set once an app is loaded.
        line: Makes a message, and the error that it is about, the line that is printed; set where stderr is for
            programs.
    """

    is_verbose: bool = False
    redact: Redact = str
    redact_document: Redact = str
    note: Callable[[BaseException], None] = lambda error: None
    line: Callable[[str, BaseException | None], str] = lambda text, error: text


@frozen
class RunRequest:
    app: str
    overrides: tuple[str, ...] = ()
    checkpoint: str | None = None
    workers: int | None = None
    limit: int | None = None
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    follow: bool = False
    fresh: bool = False
    take_over: bool = False
    as_json: bool = False
    quiet: bool = False
    strict: bool = False
    is_diff: bool = False
    metrics: tuple[str, int] | None = None
    log_format: LogFormat = "text"
    ui_port: int | None = None


def verbose_option(function: F) -> F:
    """Add `-v/--verbose`, which may be anywhere on the command line."""

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


set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="OP.PROPERTY=VALUE",
    help="Override a property of an operator; VALUE is read as YAML. May be repeated.",
)
"""Overrides properties of the app; the app's own checks report mistakes in them."""

take_over_option = click.option(
    "--take-over", is_flag=True, help="Replace the active run on the checkpoint; it ends with an error."
)
"""For commands that refuse to begin while a run is at work."""

file_option = partial(
    click.option, "-o", "--output", "file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE"
)

store_option = click.option(
    "--app",
    metavar="APP",
    help="An app whose attribute `storage` says how to reach the checkpoint; default: the environment.",
)
"""For commands that read a checkpoint and no app."""


def _pairs(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    for value, (key, equals, _) in zip(values, pairs, strict=True):
        if not equals or not key.strip():
            raise click.BadParameter(f"{quoted(value)} is not KEY=VALUE, for example spark.executor.memory=4g")
        if key.strip() == MASTER_SETTING:
            raise click.BadParameter(f"it takes no {MASTER_SETTING}; give the master with --master")
    return {key.strip(): text for key, _, text in pairs}


conf_option = click.option(
    "--conf",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_pairs,
    help="Set one of Spark's own settings. May be repeated.",
)
"""Given to the command as a mapping."""


def _known_master(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not is_master(value):
        raise click.BadParameter(f"expected {MASTERS}, got {quoted(value)}")
    return value


master_option = click.option(
    "--master", metavar="URL", callback=_known_master, help="Spark master, for example local[4] or spark://host:7077."
)


def local_options(function: F) -> F:
    """Add `--local` and `--workers N`, given to the command as `workers`: a count, or None for Spark."""

    def counted(context: click.Context, parameter: click.Parameter, value: int | None) -> int | None:
        if not context.params.pop("is_local"):
            if value is not None:
                raise click.BadParameter("it goes with --local; on Spark, --master says how many tasks run at once")
            return None
        if context.params.get("master") or context.params.get("conf"):
            raise click.UsageError("--local runs without Spark, and takes neither --master nor --conf")
        return value or usable_cores()

    workers = click.option(
        "--workers",
        type=click.IntRange(1, MAX_WORKERS),
        metavar="N",
        callback=counted,
        help="With --local: number of processes; 1 runs the tasks in this one, so that breakpoint() works. Default: "
        "one per core.",
    )
    # Eager options are read first, in the order of the command.
    local = click.option(
        "--local", "is_local", is_flag=True, is_eager=True, help="Run in processes of this machine, without Spark."
    )
    return workers(local(function))


def unknown(what: str, name: str, valid: Collection[str]) -> str:
    """A complaint about a name that does not exist, with the nearest one if one is close, else with all."""
    advice = did_you_mean(name, valid) or f"; there are: {', '.join(valid)}"
    return f"there is no {what} {quoted(name)}{advice}"
