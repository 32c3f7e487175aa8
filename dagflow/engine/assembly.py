"""The parts that plan, run and commit windows, assembled once for a run or a replay."""

from __future__ import annotations

from dagflow.engine.gone_versions import GoneVersions
from dagflow.engine.held_results import HeldResults
from dagflow.engine.operator_state import OperatorStates
from dagflow.engine.placed_app import PlacedApp
from dagflow.engine.segments import SegmentStore
from dagflow.engine.side_inputs import SideInputs
from dagflow.engine.window_codec import WindowCodec
from dagflow.engine.window_sizing import WindowSizing
from dagflow.journal.journal import Journal
from dagflow.plan.key_columns import arriving_key_families
from dagflow.plan.logical import LogicalPlan
from dagflow.runtime.base import LazyRuntime
from dagflow.storage.objects import ObjectStore
from dagflow.storage.pending import pending_tag


class Assembly:
    """The parts of one run, or replay; the states that earlier runs left are not restored in them.

    Args:
        app: The app.
        logical: The same app, as it was checked.
        journal: Open, with its epoch claimed.
        store: The checkpoint.
        runtime: Where tasks run.
        parallelism: Tasks that run at the same time, as far as is known before Spark starts.
        follows: Whether the run keeps watching for new input.
        is_replay: Whether windows run again, to replace what they have published.
    """

    def __init__(
        self,
        app: PlacedApp,
        logical: LogicalPlan,
        journal: Journal,
        store: ObjectStore,
        runtime: LazyRuntime,
        parallelism: int,
        *,
        follows: bool,
        is_replay: bool,
    ) -> None:
        self.app = app
        self.journal = journal
        self.store = store
        self.runtime = runtime
        self.is_replay = is_replay
        self.sizing = WindowSizing(parallelism)
        self.segments = SegmentStore(store, journal.epoch)
        self.states = OperatorStates(app.plan, app.operators, self.segments, arriving_key_families(logical))
        self.held = HeldResults(app.operators, app.facts, self.segments, composites=app.composites, follows=follows)
        self.side_inputs = SideInputs(app.operators, store, app.storage, journal.epoch)
        tag = pending_tag(journal.state.app_uuid, journal.epoch)
        self.codec = WindowCodec(app.plan, app.operators, tag, app.facts.fingerprint)
        self.gone = GoneVersions(app.storage)
