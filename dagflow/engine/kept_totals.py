"""Outputs that show totals whose state is kept by file: a correction gives new totals, and no window runs again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence

import pyarrow as pa

from dagflow.api.capabilities import KeptByFile
from dagflow.api.operator import Operator
from dagflow.api.transactions import Target
from dagflow.engine.operator_state import is_stateful
from dagflow.errors import JournalError, own_name
from dagflow.execution.messages import TaskResult
from dagflow.journal.windows import Window
from dagflow.late import compute as pc
from dagflow.metrics.counters import Counters
from dagflow.metrics.names import REMOVED_TOTALS, REPLACED_TOTALS
from dagflow.plan.physical import PhysicalPlan
from dagflow.plan.placement import PlacedApp
from dagflow.report.open_rejects import refused_rows
from dagflow.storage.location import redacted


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
