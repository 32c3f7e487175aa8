"""The `dagflow` command line: which commands there are, and how each of them ends."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NoReturn

import click

import dagflow
from dagflow.cli import output
from dagflow.cli.shared_options import Settings, unknown, verbose_option
from dagflow.cli.signals import end_by_second_signal
from dagflow.errors import DagflowError, RunStoppedError

COMMANDS = {
    "init": "Write an app for files that are there.",
    "infer": "Propose the columns of files, with evidence.",
    "run": "Read, process and publish, then exit.",
    "validate": "Check a whole app, without Spark.",
    "plan": "Show what would run, where, and how much.",
    "preview": "Show the first records, without Spark.",
    "test": "Run the tests of apps, without Spark.",
    "operators": "List operators and partitioners, or describe one.",
    "status": "Show the state of a run, and what the journal knows.",
    "ui": "Show pages about runs and checkpoints in a browser.",
    "report": "Write the pages about a checkpoint into one file.",
    "metrics": "Print the metrics of a checkpoint for Prometheus.",
    "check": "Check the health of a checkpoint, with an exit code.",
    "scan": "Ask a following run to look for new files now.",
    "replay": "Run windows again with today's app, and replace what they published.",
    "trace": "Show the bytes that rows of a table are from, and the rows of bytes.",
    "rejects": "List refused records, show them, and read them again with today's app.",
    "repair": "Let the next run plan an unpublishable window again.",
    "extract": "Extract a source file from merged files.",
    "schema": "Print the JSON Schema of the YAML, or how the columns of tables have changed.",
    "warm": "Store Spark's Java classes, so that later local runs start faster.",
    "doctor": "Check Java, packages, rights, disks, clock and executors.",
}
"""Each command with its description, in the order in which users need them: listing them imports none."""

_BESIDE = {"metrics": "check", "report": "ui", "scan": "repair", "warm": "doctor"}
"""Commands that are, under their own names, in the module of another one."""

_OBJECTS_OF_A_START = 150_000
"""A run makes 120,000 until it is at work, 150,000 on Spark; with a higher limit it would hold garbage for minutes."""


def _prints(text: Callable[[click.Context], str]) -> Callable[[click.Context, click.Parameter, bool], None]:
    """The callback of an option that prints a text and ends the command, as click's own do; it reports a full disk."""

    def show(context: click.Context, parameter: click.Parameter, value: bool) -> None:
        if value and not context.resilient_parsing:
            output.result(text(context))
            context.exit()

    return show


def _with_help(command: click.Command) -> click.Command:
    if command.add_help_option:
        command.add_help_option = False
        show = _prints(click.Context.get_help)
        names, about = ("-h", "--help"), "Show this message and exit."
        option = click.Option(names, is_flag=True, is_eager=True, expose_value=False, help=about, callback=show)
        command.params.append(option)
    return command


class CommandLine(click.Group):
    """Commands that are imported when they are asked for, and that end with dagflow's exit codes.

    Every error is printed once, here, in one shape.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"dagflow.cli.commands.{_BESIDE.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, cmd_name if cmd_name in _BESIDE else "command")
        return _with_help(verbose_option(command) if command.add_help_option else command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            raise click.UsageError(unknown("command", name, COMMANDS), ctx)
        return super().resolve_command(ctx, args)

    def main(  # type: ignore[override]  # click also has a mode in which this returns; here it never does
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        """Run a command and exit: 0 done, 1 the run failed, 2 app or command line wrong, 130 interrupted."""
        settings = Settings(is_verbose=bool(os.environ.get("DAGFLOW_DEBUG")))
        extra.update(standalone_mode=False, obj=settings)
        try:
            code = super().main(args, prog_name or "dagflow", **extra)
        except (click.Abort, KeyboardInterrupt):
            output.note("dagflow: interrupted")
            code = RunStoppedError.exit_code
            # Where the signal came within an exec() of text, as dataclasses are made by, Python would end by SIGINT and
            # not with the code. It forgets that with the next one.
            exec("")
        except (click.ClickException, DagflowError) as error:
            settings.note(error)
            output.explain(error, with_trace=settings.is_verbose, redact=settings.redact, line=settings.line)
            code = error.exit_code
        except Exception as error:
            lacking = _lacking(error)
            with_trace = lacking is None or settings.is_verbose
            output.explain(lacking or error, with_trace=with_trace, redact=settings.redact, line=settings.line)
            code = 1
        sys.exit(code or 0)


def _lacking(error: Exception) -> DagflowError | None:
    """What to say of a package that is not installed, as after pip install --no-deps; None for another error."""
    name = isinstance(error, ModuleNotFoundError) and error.name
    if not name or name.partition(".")[0] in ("dagflow", "operators"):
        return None
    return DagflowError(
        f"there is no module '{name}' in {sys.prefix}, and dagflow needs it",
        hint="install what is missing: pip install dagflow; beside the Spark of a platform, pip install the packages "
        "that docs/spark.md lists under Versions",
    )


@click.command("dagflow", cls=CommandLine, invoke_without_command=True)
@click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_prints(lambda context: f"dagflow {dagflow.__version__}"),
    help="Show the version and exit.",
)
@verbose_option
@click.pass_context
def command_line(context: click.Context) -> None:
    """Files into a data platform, every record exactly once.

    An app is one YAML file. `dagflow run APP` reads its input in parallel on Spark and publishes its
    output; started again, it continues where it stopped.
    """
    if context.invoked_subcommand is None:
        output.result(context.get_help())


_with_help(command_line)


def main() -> NoReturn:
    _open_closed_streams()
    _collect_late()
    # A task is a process with a core. NumPy would start threads for all cores, which spin before they sleep.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # To find its plug-ins, pydantic reads the metadata of all installed packages: a twentieth of a short command.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # `nohup` ignores it
        signal.signal(signal.SIGHUP, _interrupt)
    end_by_second_signal()
    try:
        command_line.main()
    finally:
        # The interpreter would look through all objects once more while it ends, for a tenth of a second.
        gc.freeze()


def _collect_late() -> None:
    """Let garbage be collected as usual once the process has started.

    Nearly all that a start makes stays: modules, classes, functions. By default it is looked at some two hundred times,
    for a tenth of the time of a short command.
    """
    usual = gc.get_threshold()

    def collect_as_usual(phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            gc.callbacks.remove(collect_as_usual)
            gc.set_threshold(*usual)

    gc.callbacks.append(collect_as_usual)
    gc.set_threshold(_OBJECTS_OF_A_START, *usual[1:])


def _open_closed_streams() -> None:
    """Keep files that are opened later from getting the descriptors of standard streams that the caller has closed.

    Otherwise the output of native code, Java or an operator would go into those files, also in processes that this one
    starts, which therefore inherit the placeholder.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # os.open takes the lowest free descriptor, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
