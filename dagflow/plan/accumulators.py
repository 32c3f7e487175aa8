"""The operators of a plan that may hold their results back over several windows, and the span of those results."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dagflow.api.capabilities import Accumulator
from dagflow.api.control import InputOperator
from dagflow.api.operator import Operator
from dagflow.api.refused_records import REJECTS
from dagflow.errors import PlanError, Problem, own_name
from dagflow.plan.added_operators import unifier_name
from dagflow.plan.logical import LogicalPlan


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
        _problem(plan, name) for name, operator in accumulators(plan.instances).items() if operator.over == "run"
    ]
    if problems:
        raise PlanError(problems)


def results_of_windows(plan: LogicalPlan) -> list[str]:
    """The operators, by the app's names, whose results over single windows reach an output without being combined."""
    over = {name: operator.over for name, operator in accumulators(plan.instances).items()}
    held = {name for name, each in over.items() if each != "window"}
    return [own_name(name) for name in over if name not in held and _reaches_an_end(plan, name, apart_from=held)]


def following_notices(plan: LogicalPlan) -> list[str]:
    names = [own_name(name) for name, each in accumulators(plan.instances).items() if each.over is None]
    return [
        f"operator '{name}' gives a result for each window while following; over: window says so as well, and "
        "over: {millis: 60000} gives one each minute"
        for name in names
    ]


def over_text(operator: Accumulator) -> str:
    return "run, and while following window" if operator.over is None else str(operator.over)


def _reaches_an_end(plan: LogicalPlan, name: str, apart_from: Collection[str]) -> bool:
    reached = [name]
    for operator in reached:
        if not plan.operators[operator].operator.output_ports.keys() - {REJECTS}:
            return True
        below = {edge.target.operator for edge in plan.edges if edge.source.operator == operator}
        reached += below.difference(apart_from, reached)
    return False


def _problem(plan: LogicalPlan, name: str) -> Problem:
    owner = own_name(name)
    text = (
        f"operator '{owner}': its result over the run is published at the end, and a run that follows has none; "
        "say over: window, or over: {millis: 60000} for a result each minute"
    )
    return plan.written(name).place.problem(text)
