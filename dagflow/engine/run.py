"""Runs an app from its checkpoint: opens the journal, prepares the operators, and lets a driver process the input."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal

from dagflow.engine.assembly import Assembly
from dagflow.engine.control_graph import ControlGraph
from dagflow.engine.driver import Driver, RunControls
from dagflow.engine.live_run import app_url_of
from dagflow.engine.placed_app import PlacedApp
from dagflow.engine.preparation import dataset_locations
from dagflow.engine.reject_retry import RejectRetry
from dagflow.engine.repeatable import change_notices, require_repeatable
from dagflow.engine.run_control import control_operators, prints_captured
from dagflow.engine.run_setup import (
    Observer,
    OpenRun,
    RunOptions,
    RuntimeFactory,
    SilentObserver,
    open_journal,
    open_run,
    require_startable,
)
from dagflow.engine.stop_request import StopRequest
from dagflow.engine.window_committer import WindowCommitter
from dagflow.engine.window_planner import WindowPlanner, WindowSource
from dagflow.engine.window_runner import WindowRunner
from dagflow.errors import MissingError
from dagflow.journal.journal import Journal, set_aside
from dagflow.plan.accumulators import following_notices, require_ends, wants_to_follow
from dagflow.plan.logical import LogicalPlan
from dagflow.report.snapshot import RunSnapshot
from dagflow.spec.shown_text import text_to_keep
from dagflow.storage.objects import ObjectStore
from dagflow.telemetry.run_signals import RunSignals


def run(
    app: LogicalPlan,
    options: RunOptions = RunOptions(),  # noqa: B008  # frozen
    observer: Observer | None = None,
    stop: StopRequest | None = None,
    runtime: RuntimeFactory | None = None,
) -> RunSnapshot:
    """Run an app until all its input is processed and published, or until it is asked to stop.

    Args:
        app: The app, checked.
        options: Options of the run.
        observer: Receives the progress.
        stop: Asks the run to end early.
        runtime: Makes the runtime, where tasks run; None starts Spark.

    Returns:
        The run at its end; its state is "completed" or "stopped".

    Raises:
        PlanError: A result would never be published.
        LiveRunError: Another run is at work on the checkpoint; nothing was done.
        DagflowError: The run failed, and its journal is resumable; or it did not start, as Spark cannot start here.
    """
    require_startable(options, runtime)
    follows = _follows(app, options)
    observer, stop = observer or SilentObserver(), stop or StopRequest()
    command: Literal["run", "replay"] = "run" if options.rejects is None else "replay"
    journal_of = partial(_journal, app, options)
    with (
        open_run(app, options, command, observer.notice, stop, journal_of) as opened,
        _signals(opened, observer.notice, follows=follows) as signals,
    ):
        placed = PlacedApp.of(app, opened.storage)
        locations = opened.prepare()
        millis = app.attributes.window_millis if follows else None
        controls = RunControls(opened, observer, signals, millis, (*locations.outputs, opened.gate.store.url))
        for notice in following_notices(app) if follows else ():
            observer.notice(notice)
        with (
            opened.assembled(placed, locations, runtime, observer, follows=follows) as parts,
            control_operators(parts, controls) as control,
        ):
            return _drive(parts, control, controls)


def _follows(app: LogicalPlan, options: RunOptions) -> bool:
    """Whether the run watches for new input.

    Raises:
        PlanError: A result would never be published, because the run follows.
    """
    follows = not options.rejects and (options.follow or wants_to_follow(app))
    if follows:
        require_ends(app)
    return follows


def _signals(opened: OpenRun, notice: Callable[[str], None], *, follows: bool) -> RunSignals:
    return RunSignals(
        opened.app,
        opened.journal.url,
        opened.storage,
        opened.journal.state,
        follows=follows,
        address=opened.options.metrics,
        locations=lambda: dataset_locations(opened.app),
        notice=notice,
    )


def _journal(app: LogicalPlan, options: RunOptions, store: ObjectStore) -> Journal:
    if options.fresh:
        storage = app.attributes.storage_context()
        require_repeatable(PlacedApp.of(app, storage), store)
        for url in set_aside(store):
            with contextlib.suppress(MissingError):
                storage.backend(url).files.remove(url)
    return open_journal(app, store, source=app_url_of(app), text=text_to_keep(app_url_of(app)))


def _drive(parts: Assembly, control: ControlGraph, controls: RunControls) -> RunSnapshot:
    """Restore the states that earlier runs left, and let a driver run."""
    app, journal, store, runtime = parts.app, parts.journal, parts.store, parts.runtime
    options = controls.opened.options
    store.require_directory(store.url)
    committed, last_run = journal.state.committed_state, journal.state.operators
    parts.states.restore(committed.partitions, last_run)
    parts.held.restore(committed.held_results)
    earlier = {name for each in journal.state.before.values() for name in each.segment_names()}
    parts.segments.sweep(parts.states.segment_names | parts.held.segment_names | earlier)
    control.restore(journal.state.control_state, committed, last_run, journal.state.held.waiting)
    parts.side_inputs.sweep(journal.state.planned.values())
    source: WindowSource = control
    if options.rejects is not None:
        source = RejectRetry(control, app, store, lambda: journal.state, options.rejects, parts.held)
    runner = WindowRunner(parts)
    planner = WindowPlanner(parts, source, runner)
    journal.note_operators(app.operators)
    if options.rejects is None:
        for notice in change_notices(app, journal, options.replay_command):
            controls.observer.notice(notice)
        journal.note_app(app.facts)
    committer = WindowCommitter(parts, control)
    with prints_captured(control, None if options.owns_process else threading.get_ident()):
        done = Driver(parts, planner, runner, committer, controls).run()
        parts.side_inputs.sweep(journal.state.planned.values())
    start_s = runtime.start_s if runtime.is_local_spark else 0.0
    return replace(done, spark_start_s=start_s, log=runtime.log if runtime.start_s else "")
