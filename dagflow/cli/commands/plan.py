"""`dagflow plan`: the stages of a run, their partitions, and an estimate of the input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from dagflow.api.partitioning import MAX_PARTITIONS, BacklogStats, Partitioner
from dagflow.cli import output
from dagflow.cli.locations import load, size_in_bytes
from dagflow.cli.output import definitions, duration
from dagflow.cli.shared_options import Settings, set_option
from dagflow.engine.scaling import SimulationStep, asked_for, defined, read_trace, simulate
from dagflow.engine.window_sizing import estimate
from dagflow.errors import DagflowError, own_name
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.physical import PhysicalPlan
from dagflow.plan.placement import place
from dagflow.plan.render.explain import FORMATS, Format, explain
from dagflow.spec.spark_master import SparkMaster

_STEPS = 64
_ENDLESS = 1 << 60  # a backlog, in tuples and in bytes, that no partitioner takes for a small one

WIDTH = 64
"""Columns of the drawing; with its labels it fits a terminal of 80."""


@click.command("plan")
@click.argument("app", metavar="APP")
@set_option
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True, help="Output format.")
@click.option(
    "--simulate",
    "trace",
    metavar="TRACE",
    help="Simulate the partitioners on a trace of a backlog: CSV or JSON with millis, backlog, bytes.",
)
@click.option(
    "--bytes-per-second",
    "rate",
    metavar="SIZE",
    default="64MiB",
    show_default=True,
    callback=size_in_bytes,
    help="With --simulate: the speed of one partition, if the trace has no speed.",
)
@click.pass_obj
def command(
    settings: Settings, app: str, overrides: tuple[str, ...], form: Format, trace: str | None, rate: int
) -> int:
    """Show what APP would run: its operators and streams, stages, partitions and exchanges.

    With an estimate of the files, blocks, bytes and windows of all input, as if no run had read any of it: the
    checkpoint is ignored. Runs nothing.

    With --simulate: the number of partitions over time, for each operator that decides it by itself.
    """
    logical = load(app, settings, overrides)
    physical = place(logical)
    if trace is not None:
        output.result("\n\n".join(_simulated(logical, physical, trace, rate)))
        return 0
    found = _estimate(logical, settings)
    counts = partitions(logical, physical)
    shown = explain(logical, physical, format=form, partitions=counts, estimate=found, redact=settings.redact)
    output.result(shown.rstrip("\n"))
    return 0


def partitions(logical: LogicalPlan, physical: PhysicalPlan) -> dict[str, int | str]:
    """How many partitions each stage would have, by its head: a count, or "least to most"."""
    counts: dict[str, int | str] = {}
    for stage in physical.stages:
        head = _decider(logical, stage.head)
        if stage.fixed_partitions is None and isinstance(head, Partitioner):
            counts[stage.head] = _range(stage.head, head)
        else:
            counts[stage.head] = stage.fixed_partitions or SparkMaster.parse(logical.attributes.master).parallelism
    return counts


def _decider(logical: LogicalPlan, name: str) -> object:
    node = logical.operators[name]
    return node.partitioner or node.operator


def _simulated(logical: LogicalPlan, physical: PhysicalPlan, trace: str, rate: int) -> Iterator[str]:
    samples = read_trace(trace, rate)
    is_any = False
    for stage in physical.stages:
        decider = _decider(logical, stage.head)
        if stage.fixed_partitions is None and isinstance(decider, Partitioner):
            is_any = True
            steps = simulate(stage.head, decider, samples)
            title = f"partitions of '{own_name(stage.head)}', decided by {type(decider).__name__}"
            yield f"{title}\n\n{chart(steps)}"
            yield definitions(decisions(steps), title="Decisions")
    if not is_any:
        raise click.UsageError("no operator of the app decides how many partitions it has")


def _range(name: str, head: Partitioner) -> int | str:
    least = most = defined(name, head, BacklogStats(0, 0, 0))
    # A policy may go up in steps, each of which needs another call. One without an upper limit would never end, and may
    # ask for more than a run that has less to do.
    for _ in range(_STEPS):
        asked = asked_for(name, head, BacklogStats(0, most, _ENDLESS, _ENDLESS, 1.0))
        most = max(most, min(asked, MAX_PARTITIONS))
    return least if most <= least else f"{least} to {most}"


def _estimate(logical: LogicalPlan, settings: Settings) -> str:
    try:
        found = estimate(logical, parallelism=SparkMaster.parse(logical.attributes.master).parallelism)
    except DagflowError as error:
        # The plan holds whether or not its input is within reach, for example on the author's machine.
        output.note(settings.redact(f"no estimate: {error}"))
        return ""
    if found is None:
        return ""
    if found.input.is_partial:
        output.note("the estimate is a lower bound: there is more input than could be counted in a moment")
    if found.input.uncut:
        files = "1 compressed file is" if found.input.uncut == 1 else f"{found.input.uncut:,} compressed files are"
        output.note(f"{files} larger than a block and cannot be cut: one task reads each as a whole")
    return str(found)


def chart(steps: Sequence[SimulationStep]) -> str:
    """The number of partitions over time, largest count on top; each column shows the most within its time."""
    start, end = steps[0].millis, steps[-1].millis
    columns = _columns(steps, start, max(end - start, 1))
    lines = [
        f"{level:>6} |{''.join('█' if count >= level else ' ' for count in columns).rstrip()}"
        for level in sorted(set(columns), reverse=True)
    ]
    length = duration((end - start) / 1000)
    return "\n".join([*lines, f"       +{'-' * WIDTH}", f"        0{length:>{WIDTH - 1}}"])


def _columns(steps: Sequence[SimulationStep], start: int, length: int) -> list[int]:
    columns = [0] * WIDTH
    held = steps[0].partitions
    position = 0
    for step in steps:
        column = min((step.millis - start) * WIDTH // length, WIDTH - 1)
        for index in range(position, column + 1):
            columns[index] = max(columns[index], held)
        columns[column] = max(columns[column], step.partitions)
        position, held = column + 1, step.partitions
    columns[position:] = [max(count, held) for count in columns[position:]]
    return columns


def decisions(steps: Sequence[SimulationStep]) -> Iterator[tuple[str, str]]:
    """Each change: when, and from what to what, with the backlog and the reason."""
    start = steps[0].millis
    for step in steps:
        if step.decision is not None:
            change = step.decision
            yield (
                duration((step.millis - start) / 1000),
                f"{change.before} -> {change.after}, backlog {change.backlog:,}: {change.reason}",
            )
