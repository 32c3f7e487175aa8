"""The operators of a plan that may hold their results back over several windows, and the span of those results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dagflow.api.capabilities import Accumulator
from dagflow.api.control import InputOperator
from dagflow.api.operator import Operator
from dagflow.api.refused_records import REJECTS
from dagflow.api.transactions import targets_of
from dagflow.errors import PlanError, own_name
from dagflow.plan.logical import LogicalPlan, reached, unifier_name
from dagflow.plan.physical import PhysicalPlan


def accumulators(operators: Mapping[str, Operator]) -> dict[str, Accumulator]:
    """The operators that give the results of all partitions, by name, without those that leave this to a unifier."""
    return {
        name: operator
        for name, operator in operators.items()
        if isinstance(operator, Accumulator)
        and not any(unifier_name(name, port) in operators for port in operator.output_ports)
    }


def wants_to_follow(plan: LogicalPlan) -> bool:
    return any(isinstance(each, InputOperator) and each.wants_to_follow() for each in plan.instances.values())


def require_ends(plan: LogicalPlan) -> None:
    """Refuse results over a run that keeps watching for new input: they would never be published."""
    problems = [
        plan.written(name).place.problem(
            f"operator '{own_name(name)}': its result over the run is published at the end, and a run that follows has "
            "none; say over: window, or over: {millis: 60000} for a result each minute"
        )
        for name, operator in accumulators(plan.instances).items()
        if operator.over == "run"
    ]
    if problems:
        raise PlanError(problems)


def require_single_use_of_totals(plan: LogicalPlan) -> None:
    """Refuse results that would count the totals of a group again each time that they are given."""
    over = {name: operator.over for name, operator in accumulators(plan.instances).items()}
    problems = [
        plan.written(name).place.problem(
            f"operator '{own_name(name)}' would count a group of operator '{own_name(total)}' again each time that "
            "over: all gives its new total; let it take the records themselves, or let that operator say over: run"
        )
        for total, span in over.items()
        if span == "all"
        for name in reached(total, plan.arcs)
        if name in over and own_name(name) != own_name(total)
    ]
    if problems:
        raise PlanError(problems)


def wrong_totals(plan: LogicalPlan) -> Iterator[str]:
    """Warnings about targets in which the results of an operator do not give one whole total for each group."""
    over = {name: operator.over for name, operator in accumulators(plan.instances).items()}
    if not over:
        return  # the client of a table takes long to import
    totals = [name for name, span in over.items() if span == "all"]
    targets = targets_of(plan.instances, plan.attributes.storage_context())
    otherwise = "window" if wants_to_follow(plan) else "run"
    for name, span in over.items():
        part = given if isinstance(given := span or otherwise, str) else "time"
        for sink in reached(name, plan.arcs, apart_from=totals):
            if sink not in targets or bool(targets[sink].keys) == (span == "all"):
                continue
            owner, table = own_name(name), targets[sink].name
            if span == "all":
                yield (
                    f"operator '{owner}' gives the new total of a group with each window that has records of it, and "
                    f"{table} keeps the earlier totals beside it; upsert_by, with the columns of by, keeps the newest "
                    "alone"
                )
            else:
                yield (
                    f"operator '{owner}' gives results of one {part} each, and {table} has the newest result of a "
                    f"group alone: a {part} replaces the totals of earlier ones, where it has some records of their "
                    "groups; an Aggregate with over: all, from the first run on, adds them up"
                )


def unused_records(plan: LogicalPlan) -> Iterator[str]:
    """Warnings about operators whose records go nowhere: they would be read, and not be read again."""
    used = {edge.source.operator for edge in plan.edges if edge.source.port != REJECTS}
    for name, operator in plan.instances.items():
        ports = [port.name for port in operator.output_ports.values() if port.carries_records and port.name != REJECTS]
        if ports and name not in used:
            yield (
                f"the records of operator '{own_name(name)}' go nowhere, for no stream leaves by its port "
                f"{' or '.join(ports)}; a last step such as `- write: out` keeps them"
            )


def has_totals_alone(plan: PhysicalPlan, operators: Mapping[str, Operator], sink: str) -> bool:
    """Whether all that a sink takes are totals over all runs, of which a later one is always the right one."""
    totals = {name for name, each in operators.items() if isinstance(each, Accumulator) and each.over == "all"}
    passed = [sink]
    for name in passed:
        if name in plan.control:
            return False
        passed += sorted({edge.source.operator for edge in plan.edges_to(name)}.difference(passed, totals))
    return True


def results_of_windows(plan: LogicalPlan) -> list[str]:
    """The operators, by the app's names, whose results over single windows reach an output without being combined."""
    over = {name: operator.over for name, operator in accumulators(plan.instances).items()}
    held = {name for name, each in over.items() if each != "window"}
    ends = {name for name, each in plan.instances.items() if not each.output_ports.keys() - {REJECTS}}
    return [own_name(name) for name in over if name not in held and not ends.isdisjoint(reached(name, plan.arcs, held))]


def following_notices(plan: LogicalPlan) -> list[str]:
    names = [own_name(name) for name, each in accumulators(plan.instances).items() if each.over is None]
    return [
        f"operator '{name}' gives a result for each window while following; over: window says so as well, and "
        "over: {millis: 60000} gives one each minute"
        for name in names
    ]


def over_text(operator: Accumulator) -> str:
    return "run, and while following window" if operator.over is None else str(operator.over)
