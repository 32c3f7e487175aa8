"""A try-out of an app: a run of its first records, which publishes below a directory of its own."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from dagflow.api.control import ControlOperator
from dagflow.api.refused_records import REJECTS
from dagflow.api.transactions import TransactionalSink, file_targets_of
from dagflow.engine.preparation import LocationCollector
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import DagflowError, StorageError
from dagflow.execution.messages import RecordLimit
from dagflow.execution.task_outputs import OutputBounds
from dagflow.plan.load import logical_plan
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.physical import PortRef
from dagflow.report.statistics import is_record_source
from dagflow.spec.app_spec import AppSpec, OperatorSpec, StreamSpec
from dagflow.storage.location import absolute, redacted

_CHECKPOINT = "journal"

MOVE_IT = (
    "give it a location there with --set OPERATOR.PROPERTY=VALUE, or define properties_below() of "
    "dagflow.api.operator.Operator in its class"
)
"""Advice about an operator that publishes elsewhere."""


def try_out_directory(app: str) -> Path:
    """Where a try-out of an app publishes: a directory that is emptied first."""
    return Path(".dagflow") / f"{app}.limit"


@contextlib.contextmanager
def limited_run(app: LogicalPlan, options: RunOptions, records: int | None) -> Iterator[tuple[LogicalPlan, RunOptions]]:
    """Prepare a try-out; its checkpoint is removed at the end.

    Input is read as in a preview. What removes source files is left out.

    Args:
        records: How many records each reader reads; None for all, in a run of the app as it is.

    Yields:
        The app that publishes below the directory, and the options of a run of it.

    Raises:
        DagflowError: An operator would publish elsewhere, or the directory cannot be emptied.
    """
    if records is None:
        yield app, options
        return
    directory = try_out_directory(app.name)
    try:
        if directory.exists():
            shutil.rmtree(directory)
        directory.mkdir(parents=True)
    except OSError as error:
        raise StorageError(f"a try-out cannot be made here: {error.strerror or error}", url=str(directory)) from error
    bounds = OutputBounds(absolute(str(directory)), "a run with --limit", hint=MOVE_IT)
    plan = relocated_app(app, bounds)
    for operator in plan.instances.values():
        if isinstance(operator, ControlOperator):
            operator.begin_preview(None)
    checkpoint, record_limit = directory / _CHECKPOINT, RecordLimit(records, _record_sources(plan))
    try:
        # In one process: the tasks count together.
        limited = replace(options, checkpoint=str(checkpoint), workers=1, record_limit=record_limit)
        yield plan, replace(limited, output_bounds=bounds)
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)


def _record_sources(app: LogicalPlan) -> list[PortRef]:
    """The ports at which records are read: the output ports of operators that take in no records but refused ones."""
    return [
        PortRef(name, port)
        for name, node in app.operators.items()
        if not node.is_control and is_record_source(node.operator)
        for port, each in node.operator.output_ports.items()
        if each.carries_records and port != REJECTS
    ]


def relocated_app(app: LogicalPlan, bounds: OutputBounds, *, with_origins: bool = False) -> LogicalPlan:
    """The app that publishes below a directory, and removes no source files.

    Args:
        with_origins: Whether the rows of tables say where they are from, as far as they can.

    Raises:
        DagflowError: An operator would publish elsewhere.
    """
    if app.spec is None:
        raise DagflowError("only an app that is written as YAML, or as App, can be tried out")
    removers = {
        name for name, each in app.instances.items() if isinstance(each, ControlOperator) and each.removes_input
    }
    nodes = {**app.operators, **app.composites}
    operators: dict[str, OperatorSpec] = {}
    for name, spec in app.spec.operators.items():
        operator = nodes[name].operator
        if name not in removers:
            moved = dict(operator.properties_below(bounds.directory))
            if with_origins and isinstance(operator, TransactionalSink) and (origin := operator.row_origin()):
                moved |= origin.properties
            operators[name] = replace(spec, properties={**spec.properties, **moved})
    streams, attributes = _streams_without(removers, app.spec), app.spec.attributes.without_signals()
    plan = logical_plan(replace(app.spec, operators=operators, streams=streams, attributes=attributes))
    _require_inside(plan, bounds)
    return plan


def without_servers(app: LogicalPlan, directory: str) -> LogicalPlan:
    """The app with targets below a directory in place of those on servers."""
    targets = file_targets_of(app.instances, app.attributes.storage_context())
    moved = {
        name: app.operators[name].operator.properties_below(directory)
        for name, target in targets.items()
        if target.is_on_server
    }
    if app.spec is None or not moved:
        return app
    operators = {
        name: replace(spec, properties={**spec.properties, **moved.get(name, {})})
        for name, spec in app.spec.operators.items()
    }
    return logical_plan(replace(app.spec, operators=operators))


def _streams_without(names: set[str], spec: AppSpec) -> dict[str, StreamSpec]:
    streams = {}
    for name, stream in spec.streams.items():
        sources = tuple(end for end in stream.sources if end.operator not in names)
        targets = tuple(end for end in stream.targets if end.operator not in names)
        if sources and targets:
            streams[name] = replace(stream, sources=sources, targets=targets)
    return streams


def _require_inside(plan: LogicalPlan, bounds: OutputBounds) -> None:
    """Refuse an app with an operator that would publish elsewhere, as far as the operators say so."""
    for name, operator in plan.instances.items():
        collector = LocationCollector(plan.attributes.storage_context())
        collector.prepare({name: operator})
        for url in sorted(collector.outputs):
            if not bounds.include(url):
                raise DagflowError(
                    f"operator '{name}' publishes into {redacted(url)}, and {bounds.run} publishes into "
                    f"{bounds.directory} alone",
                    hint=bounds.hint,
                )
