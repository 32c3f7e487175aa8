"""`dagflow validate`: every mistake of an app, without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import click

from dagflow.cli import output
from dagflow.cli.figures import count
from dagflow.cli.shared_options import set_option, verbose_option
from dagflow.engine.estimate import estimate
from dagflow.engine.preparation import require_outside, target_problems
from dagflow.errors import DagflowError, PlanError, StorageError
from dagflow.plan.accumulators import results_of_windows, wants_to_follow
from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan
from dagflow.spec.spark_master import SparkMaster

_WITHIN_S = 0.3
"""How long the input is looked at for a warning."""


@click.command("validate")
@click.argument("app", metavar="APP")
@set_option
@verbose_option
def command(app: str, overrides: tuple[str, ...]) -> int:
    """Check APP whole, and report every mistake at once; tables that it writes to, too.

    Runs nothing and starts no Spark. Ends with exit code 2 where there is a mistake.
    """
    logical = load_app(app, overrides=list(overrides))
    if problems := target_problems(logical):
        raise PlanError(problems)
    operators = count(len(logical.operators), "operator")
    streams = count(len({edge.stream for edge in logical.edges}), "stream")
    output.note(f"{app}: app '{logical.name}' is valid: {operators}, {streams}")
    for warning in warnings_of(logical):
        output.note(f"warning: {warning}")
    return 0


def warnings_of(logical: LogicalPlan) -> Iterator[str]:
    """What is allowed, and perhaps not meant."""
    for name, operator in logical.instances.items():
        # Nothing but the paths is looked at: what operators do before a run may touch the world.
        path = getattr(operator, "path", "")
        try:
            require_outside([path] if isinstance(path, str) and path else [], logical.attributes.checkpoint)
        except StorageError as error:
            yield f"operator '{name}': {error}"
    names = results_of_windows(logical)
    if not names or wants_to_follow(logical):
        return
    try:
        parallelism = SparkMaster.parse(logical.attributes.master).parallelism
        found = estimate(logical, parallelism=parallelism, within_s=_WITHIN_S)
    except DagflowError:
        return  # the app may be valid where its input is not
    if found is not None and found.windows > 1:
        for name in names:
            yield (
                f"operator '{name}' gives a result for each window, and a run over all input takes at least "
                f"{found.windows:,} windows; over: run gives one result"
            )
