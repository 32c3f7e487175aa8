"""Whether the output of windows can be made again: by a replay, by a run with --fresh, or by nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from dagflow.api.capabilities import KeptByFile
from dagflow.api.control import ControlOperator
from dagflow.api.operator import Operator
from dagflow.api.transactions import Target, targets_of
from dagflow.engine.control_graph import waits_for_results
from dagflow.engine.operator_state import is_stateful
from dagflow.engine.publishers import writer_of
from dagflow.engine.window_codec import taking_ports, why_not_taken
from dagflow.errors import ANOTHER_TABLE, PUT_BACK, START_OVER, DagflowError, JournalError, MissingError, own_name
from dagflow.execution.messages import TaskResult
from dagflow.journal.journal import Journal
from dagflow.journal.reader import committed_windows, read_state
from dagflow.journal.state import JournalState
from dagflow.journal.windows import Window, WindowPlan
from dagflow.late import compute as pc
from dagflow.metrics.counters import Counters
from dagflow.metrics.names import CLEANED, REMOVED_TOTALS, REPLACED_TOTALS
from dagflow.plan.accumulators import accumulators
from dagflow.plan.physical import PhysicalPlan
from dagflow.plan.placement import PlacedApp
from dagflow.report.app_changes import app_changes
from dagflow.report.manifest import inputs_of
from dagflow.report.open_rejects import refused_rows
from dagflow.storage.base import ObjectStore
from dagflow.storage.context import StorageContext
from dagflow.storage.location import redacted
from dagflow.suggestions import command_to_replay

_MOST_NAMED = 4
"""Changes that are named; a new app has many."""

_LOOKS_AT_ONCE = 16

_WAY_ON = "use another checkpoint and another output, or remove both yourself where copies of the files exist"


def removers_in(operators: Mapping[str, Operator]) -> list[str]:
    return [name for name, each in operators.items() if isinstance(each, ControlOperator) and each.removes_input]


def remover_of(operators: Mapping[str, Operator], state: JournalState) -> str:
    """An operator that removes source files, or has removed some and is no longer in the app; "" for none."""
    removers = removers_in(operators)
    removers += [name for name, counters in state.totals.operators.items() if CLEANED in counters.counts]
    return next(iter(removers), "")


def _way_back(state: JournalState) -> str:
    """What to do where windows cannot run again by themselves."""
    return PUT_BACK if remover_of({}, state) else START_OVER


def why_not_read_again(remover: str, checkpoint: str = "CHECKPOINT", windows: str = "--window N") -> JournalError:
    """The error that explains why windows of an app that removes source files cannot run again."""
    return JournalError(
        f"operator '{remover}' has removed the source files of what is published, or archived them",
        hint=f"put the source files back as they were, and let an app without operator '{remover}' read them again: "
        f"dagflow replay {checkpoint} --app APP {windows}",
    )


def why_not_alone(planned: WindowPlan, state: JournalState) -> JournalError | None:
    """Why a window cannot run again: its records are part of a result over several, or were refused by one long ago."""
    if planned.retries and min(planned.retries) <= state.forgotten:
        return JournalError(
            f"window {planned.window_id} has read refused records of window {min(planned.retries)} again, which is no "
            "longer kept",
            hint=_way_back(state),
        )
    if not (held := [*planned.holds, *planned.closes]):
        return None
    return JournalError(
        f"window {planned.window_id} is part of a result of operator '{held[0]}' over several windows, and "
        "cannot be processed again alone",
        hint=_way_back(state),
    )


def why_not_made_again(
    app: PlacedApp, state: JournalState, windows: Sequence[int], plans: Iterable[WindowPlan]
) -> DagflowError | None:
    """Why a replay would refuse windows, as far as that is known before it starts."""
    ports = taking_ports(app.plan)
    return (
        why_not_replayed(app)
        or _why_not_in_targets(state, targets_of(app.operators, app.storage), windows[0])
        or next(filter(None, (why_not_alone(each, state) or why_not_taken(each, ports) for each in plans)), None)
    )


def _why_not_in_targets(state: JournalState, targets: Mapping[str, Target], first: int) -> JournalError | None:
    """Why windows cannot run again: some of their output is in other targets than the app's, and stays there."""
    for name, receipt in state.receipts.items():
        is_same = name in targets and receipt.target in ("", targets[name].name)
        newest = receipt.elsewhere if is_same else receipt.window_id
        if newest >= first:
            place = "another table" if is_same or not receipt.target else receipt.target
            return JournalError(
                f"the output of operator '{name}' up to window {newest} is in {place}, and stays there",
                hint=ANOTHER_TABLE,
            )
    return None


_KEEP_BY_FILE = (
    "let on_change say supersede, with which totals are kept by file, and let the app name another checkpoint and "
    "another table"
)


def why_not_replayed(app: PlacedApp, *, by_file: bool = False) -> JournalError | None:
    """Why an app cannot replay windows: output depends on other windows, or is published apart from its window.

    Args:
        by_file: Whether windows run again only to lose versions of files, which totals by file lose by themselves.
    """
    removers = removers_in(app.operators)
    obstacle = _obstacle(app, removers, by_file=by_file)
    if removers and obstacle is not None:
        return JournalError(obstacle.message, hint=PUT_BACK)
    waiting = [name for name in waits_for_results(app.plan, app.operators) if name in removers]
    return why_not_read_again(waiting[0]) if waiting else obstacle


def _obstacle(app: PlacedApp, removers: Collection[str], *, by_file: bool) -> JournalError | None:
    """Why an app could not replay windows even if it did not remove source files."""
    targets = targets_of(app.operators, app.storage)
    if by_file and (why := why_not_by_file(app, targets)) is not None:
        return why
    spared = {name for name, each in app.operators.items() if by_file and is_by_file(each)}
    spared |= totals_by_output(app.plan, app.operators).keys() if by_file else set()
    for stage in app.plan.stages:
        for name in stage.operators:
            operator = app.operators[name]
            if is_stateful(operator) and name not in spared:
                may_be_by_file = isinstance(operator, KeptByFile) and not operator.is_by_file
                return JournalError(
                    f"operator '{name}' has state, and the journal does not keep the state before a window",
                    hint=_KEEP_BY_FILE if may_be_by_file else START_OVER,
                )
    for name, target in targets.items():
        if (reason := target.why_not_replayed) and name not in spared:
            return JournalError(f"operator '{name}' writes to {target.name}: {reason}", hint=ANOTHER_TABLE)
    for name in waits_for_results(app.plan, app.operators):
        if name not in removers:
            return JournalError(
                f"operator '{name}' works on the results of all windows in order, and cannot process one of them again",
                hint=START_OVER,
            )
    for name, each in accumulators(app.operators).items():
        if each.over != "window" and name not in spared:
            return JournalError(
                f"operator '{name}' gives results over several windows, and a window that is processed again "
                "would give one of its own",
                hint=f"say over: window, where each window is to give a result of its own; otherwise {START_OVER}",
            )
    return None


def _windows_in_targets(
    operators: Mapping[str, Operator], state: JournalState, storage: StorageContext
) -> Iterator[tuple[Target, int]]:
    """The targets that have windows of the journal, which cannot be removed from them, each with its newest window."""
    for name, target in targets_of(operators, storage).items():
        if marker := target.open(writer_of(state, name)).marker:
            yield target, marker


def require_repeatable(app: PlacedApp, store: ObjectStore) -> None:
    """Refuse to start over where published files cannot be made again, or windows cannot be removed from a target.

    Raises:
        JournalError: An operator of the app, now or in an earlier run, removes source files; or a source file is gone,
            or shorter than the part of it that was read; or a transactional target has windows of the journal.
    """
    try:
        state = read_state(store)
    except MissingError:
        return
    if state.last_committed and (remover := remover_of(app.operators, state)):
        raise JournalError(
            f"--fresh would remove what was published, and operator '{remover}' has removed the source files: "
            "it may be the only copy",
            url=redacted(store.url),
            hint=_WAY_ON,
        )
    for target, newest in _windows_in_targets(app.operators, state, app.storage):
        command = command_to_replay(redacted(store.url), range(1, newest + 1), is_local=state.is_local)
        raise JournalError(
            f"--fresh would write the rows of windows 1 to {newest} into {target.name} a second time",
            url=redacted(store.url),
            hint="let the app name another table, or rename or remove this one, and run again with --fresh"
            + ("" if why_not_replayed(app) else f"; or write its rows again: {command}"),
        )
    _require_sources(store, app.storage)


def _require_sources(store: ObjectStore, storage: StorageContext) -> None:
    """Refuse where a file is gone, or shorter than the part of it that was read, and its records would be removed.

    What tables have stays, but for rows that wait for their transaction.
    """

    def is_there(source: tuple[str, int]) -> bool:
        url, end = source
        found = storage.find(url)
        return found is not None and found.size_bytes >= end

    with ThreadPoolExecutor(_LOOKS_AT_ONCE) as pool:
        for window in committed_windows(store):
            intent = window.intent
            is_kept = intent is not None and intent.files and not intent.held and all(f.target for f in intent.files)
            sources = [] if is_kept else list(_sources(window).items())
            for (url, _), found in zip(sources, pool.map(is_there, sources), strict=True):
                if not found:
                    raise JournalError(
                        f"--fresh would remove what window {window.plan.window_id} has published of {redacted(url)}, "
                        "and what was read there is gone: it may be the only copy",
                        url=redacted(store.url),
                        hint=_WAY_ON,
                    )


def _sources(window: Window) -> dict[str, int]:
    """The files that a window has read, each with the end of the part that was read."""
    left_out = {} if window.intent is None else {(each.url, each.start): each.end for each in window.intent.skipped}
    ends: dict[str, int] = {}
    for _, part in inputs_of(window.plan):
        if left_out.get((part.url, part.start), -1) < part.end:
            # For a compressed file that was cut, ranges may be in its content, which is longer than the file.
            ends[part.url] = max(ends.get(part.url, 0), min(part.end, part.size_bytes))
    return ends


def change_notices(app: PlacedApp, journal: Journal, replay_command: str) -> list[str]:
    """The notices about a changed app; none where it has not changed."""
    state = journal.state
    if state.facts is None or not (changes := app_changes(state.facts, app.facts)):
        return []
    named = [change.text for change in changes[:_MOST_NAMED]]
    more = [f"and {len(changes) - _MOST_NAMED} more"] if len(changes) > _MOST_NAMED else []
    notices = [f"the app has changed since the run before: {'; '.join([*named, *more])}"]
    first, last = state.forgotten + 1, state.last_committed
    if last < first or not any(change.concerns_output for change in changes):
        return notices
    windows = f"window {last}" if first == last else f"windows {first} to {last}"
    said = f"the output of {windows} was made by the earlier app"
    if remover := remover_of(app.operators, state):
        return [*notices, f"{said}; nothing makes it again, because operator '{remover}' has removed the source files"]
    plans = [journal.window(each).plan for each in sorted({first, last})]
    obstacle = why_not_made_again(app, state, range(first, last + 1), plans)
    if obstacle is not None:
        occupied = [target.name for target, _ in _windows_in_targets(app.operators, state, app.storage)]
        where = f", into another place than {' or '.join(occupied)}," if occupied else ""
        return [*notices, f"{said}; only a run with --fresh{where} makes it again, because {obstacle.message}"]
    ids = str(last) if first == last else f"{first}-{last}"
    return [*notices, f"{said}; to make it again: {replay_command} --window {ids}"]


def is_by_file(operator: Operator) -> bool:
    return isinstance(operator, KeptByFile) and operator.is_by_file


def totals_by_output(plan: PhysicalPlan, operators: Mapping[str, Operator]) -> dict[str, list[str]]:
    """The operators that a stream of totals by file reaches at once, each with those that give the totals."""
    found: dict[str, list[str]] = {}
    for name in (name for stage in plan.stages for name in stage.operators):
        sources = [edge.source.operator for edge in plan.edges_to(name)]
        if totals := [each for each in sources if is_by_file(operators[each]) and is_stateful(operators[each])]:
            found[name] = totals
    return found


def why_not_by_file(app: PlacedApp, targets: Mapping[str, Target]) -> JournalError | None:
    """Why a correction could not bring the outputs of totals up to date."""
    for name, totals in totals_by_output(app.plan, app.operators).items():
        owner = app.operators[totals[0]]
        keys = sorted(owner.result_keys) if isinstance(owner, KeptByFile) else []
        if name not in targets or sorted(targets[name].keys) != keys or not keys:
            columns = f"upsert_by: [{', '.join(keys)}]" if keys else "keys: give the totals some with by"
            to = "its own next step" if own_name(totals[0]) == own_name(name) else f"operator '{own_name(name)}'"
            return JournalError(
                f"the totals of operator '{own_name(totals[0])}' go to {to}, and only a table right behind them with "
                f"{columns} can let totals go"
            )
        if others := [edge.source.operator for edge in app.plan.edges_to(name) if edge.source.operator not in totals]:
            return JournalError(
                f"operator '{own_name(name)}' takes the totals of operator '{own_name(totals[0])}', and rows of "
                f"operator '{own_name(others[0])}', which could not be taken out"
            )
    return None


def require_as_counted(
    before: Iterable[Window], after: Iterable[Window], retried: Container[int], lost: Iterable[str]
) -> None:
    """Refuse to run windows again for a correction, where the app refuses other records now than those not in totals.

    Args:
        before: The windows as they were.
        after: The same windows as they would be.
        retried: The windows whose refused records others have read again.
        lost: The files whose records leave.
    """
    urls, place = pa.array(map(redacted, lost), pa.string()), ["file", "offset", "operator"]
    refused = (refused_rows(lambda: before, retried), refused_rows(lambda: after, ()))
    tables = (pa.Table.from_batches(rows.parts(), rows.schema).select(place) for rows in refused)
    were, are = (
        table.filter(pc.invert(pc.is_in(table["file"], urls))).sort_by([(name, "ascending") for name in place])
        for table in tables
    )
    if not were.equals(are):
        raise JournalError(
            f"the app refuses {len(are):,} records now of files that were not corrected, and had refused {len(were):,}:"
            " totals that are kept by file would not follow",
            hint="run the app once as it was when it read them, which makes the correction; then change it, and read "
            "the refused records again with dagflow rejects replay",
        )


def totals_changed(
    results: Iterable[TaskResult], outputs: Mapping[str, Sequence[str]]
) -> tuple[Counter[str], Counter[str]]:
    """By output, how many totals a window has let go, and how many it has given."""
    counters = Counters()
    for result in results:
        counters.add(result.counters)
    out, given = Counter[str](), Counter[str]()
    for name, totals in outputs.items():
        for counted in map(counters.of, totals):
            out[name] += counted.counts.get(REPLACED_TOTALS, 0)
            given[name] += counted.records.get("output", 0) - counted.counts.get(REMOVED_TOTALS, 0)
    return out, given
