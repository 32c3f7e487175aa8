"""Checks that the bytes of a completed run add up, and names the windows to reprocess where they do not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from dagflow.api.context import UNKNOWN_SUM
from dagflow.api.sources import accounting_key, is_source_range
from dagflow.engine.repeatable import remover_of, why_not_made_again
from dagflow.errors import ANOTHER_CHECKPOINT, START_OVER, DagflowError
from dagflow.journal.app_facts import without_checksums
from dagflow.journal.journal import Journal
from dagflow.journal.planned_tuples import planned_tuples
from dagflow.journal.windows import WindowPlan
from dagflow.plan.placement import PlacedApp
from dagflow.suggestions import window_options

_REPORT = "where it is one of dagflow itself, please report it with the app and the file"


@dataclass(slots=True)
class _Booked:
    """What the kept windows have booked under some keys of the byte accounting.

    Attributes:
        operators: The operators that have booked other than zero, by key.
        plans: The windows that have booked other than zero, or have read a part of a file in question, by id. In a
            format that loses bytes, a window's own sum is zero where the record across its end is as long as the
            lost bytes.
    """

    sums: Counter[str] = field(default_factory=Counter)
    operators: dict[str, set[str]] = field(default_factory=dict)
    plans: dict[int, WindowPlan] = field(default_factory=dict)


def require_bytes_add_up(app: PlacedApp, journal: Journal, replay_command: str) -> None:
    """Require that the byte accounting of a completed run comes to zero."""
    sums = journal.state.committed_state.byte_accounting
    if off := {key: value for key, value in sums.items() if value < UNKNOWN_SUM // 2}:
        _refuse(off, app, journal, replay_command)


def _refuse(off: Mapping[str, int], app: PlacedApp, journal: Journal, replay_command: str) -> NoReturn:
    booked = _booked(off, journal)
    key, value = min(off.items())
    who = " and ".join(_described(name, app) for name in sorted(booked.operators.get(key, ())))
    more = f"; {len(off) - 1:,} more sums are off as well" if len(off) > 1 else ""
    raise DagflowError(
        f"the byte accounting does not add up: {key}{who and f', read by {who},'} is off by {value}{more}",
        hint="this is a defect of a format or an operator; once it is fixed, "
        f"{_how_to_go_on(off, booked, app, journal, replay_command)}; {_REPORT}",
    )


def _booked(off: Mapping[str, int], journal: Journal) -> _Booked:
    found = _Booked()
    for window in journal.windows():
        own = {} if window.intent is None else window.intent.accounting
        concerned = [(name, key, sums[key]) for name, sums in own.items() for key in sums.keys() & off.keys()]
        for name, key, value in concerned:
            found.sums[key] += value
            found.operators.setdefault(key, set()).add(name)
        if concerned or _has_read(off, window.plan):
            found.plans[window.plan.window_id] = window.plan
    return found


def _has_read(keys: Mapping[str, int], plan: WindowPlan) -> bool:
    """Whether a window was to read a part of a file that one of these keys names."""
    ranges = (item for _, _, item in planned_tuples(plan) if is_source_range(item))
    return any(accounting_key(item) in keys for item in ranges)


def _how_to_go_on(
    off: Mapping[str, int], booked: _Booked, app: PlacedApp, journal: Journal, replay_command: str
) -> str:
    """What to do once the format is corrected, as the end of a clause."""
    has_removed = bool(remover_of(app.operators, journal.state))
    # --fresh is refused where it cannot reproduce, or name, all published output.
    over = ANOTHER_CHECKPOINT if has_removed or journal.state.forgotten else START_OVER
    # A replay cannot correct windows that are not kept any more.
    if has_removed or any(booked.sums[key] != value for key, value in off.items()):
        return over
    windows = sorted(booked.plans)
    if (obstacle := why_not_made_again(app, journal.state, windows, booked.plans.values())) is not None:
        return over if journal.state.forgotten else obstacle.hint or over
    return f"make again what was read with it: {replay_command} {window_options(windows)}, then run the app again"


def _described(name: str, app: PlacedApp) -> str:
    """An operator with its class, and with its format where it has one: that may have been corrected since the run."""
    operator = app.operators.get(name)
    facts = app.facts.operators.get(name)
    if operator is None or facts is None:
        return f"operator '{name}'"
    given = facts.properties.get("format")
    text = given if isinstance(given, str) else json.dumps(given)
    shown = "" if given is None else f" whose format is now {without_checksums(text)}"
    return f"operator '{name}' ({type(operator).__name__}){shown}"
