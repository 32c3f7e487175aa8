"""Reads an app file into its logical plan, and collects every mistake in it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from dagflow.errors import AppError, PlanError, Problem, SpecError
from dagflow.plan.accumulators import require_ends, wants_to_follow
from dagflow.plan.composites import expanded
from dagflow.plan.groups import grouped
from dagflow.plan.logical import LogicalPlan, OperatorNode
from dagflow.plan.physical import Edge
from dagflow.plan.stream_columns import stream_columns
from dagflow.plan.unifiers import unified
from dagflow.plan.wiring import wire
from dagflow.spec.app_reader import Overrides, read
from dagflow.spec.app_spec import AppSpec
from dagflow.spec.problems import Problems, in_file_order


def check(
    path: str | os.PathLike[str],
    overrides: Overrides = (),
    *,
    search_path: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> list[Problem]:
    """Every mistake of an app, of its form and of its wiring, in file order; empty for a valid app.

    Args:
        path: The app file.
        overrides: Properties to set on top of the file.
        search_path: Where modules of the app's author are looked up.
        environ: The variables that the app may refer to; by default the process's.
    """
    try:
        load_app(path, overrides, search_path=search_path, environ=environ)
    except AppError as error:
        return list(error.problems)
    return []


def load_app(
    path: str | os.PathLike[str],
    overrides: Overrides = (),
    *,
    search_path: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> LogicalPlan:
    """The DAG of an app file.

    Args:
        path: The app file.
        overrides: Properties to set on top of the file: "op.property=VALUE" each.
        search_path: Where modules of the app's author are looked up; by default the working directory
            and beside the app file.
        environ: The variables that the app may refer to; by default the process's.

    Raises:
        SpecError: Every mistake, at least one of which is in the form of the app.
        PlanError: Every mistake; the app is well-formed, and cannot be wired.
    """
    return logical_plan(*read(path, overrides=overrides, search_path=search_path, environ=environ))


def logical_plan(spec: AppSpec | None, of_form: Sequence[Problem] = ()) -> LogicalPlan:
    """The DAG of an app that was read.

    Args:
        spec: The app as far as it was understood; None where too little was.
        of_form: The mistakes in its form.

    Raises:
        SpecError: Every mistake, at least one of which is in the form of the app.
        PlanError: Every mistake; the app is well-formed, and cannot be wired.
    """
    problems = Problems()
    edges = wire(spec, problems) if spec is not None else ()
    if of_form or spec is None:
        raise SpecError(in_file_order([*of_form, *problems.found]))
    if problems:
        raise PlanError(problems.found)
    return _planned(spec, edges)


def _planned(spec: AppSpec, edges: tuple[Edge, ...]) -> LogicalPlan:
    """The plan of an app without mistakes.

    Raises:
        PlanError: A unifier does not fit, or a result would never be published.
    """
    operators = {
        name: OperatorNode(name, operator.construct(), operator.partition, operator.construct_partitioner())
        for name, operator in spec.operators.items()
    }
    plan = grouped(unified(expanded(LogicalPlan(spec.name, spec.attributes, operators, edges, spec))))
    problems = Problems()
    stream_columns(plan, problems)
    if problems:
        raise PlanError(problems.found)
    if wants_to_follow(plan):
        require_ends(plan)
    return plan
