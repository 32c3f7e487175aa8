"""`dagflow validate`: every mistake of an app, without Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import click

from dagflow.api.properties import Published, marked, property_model
from dagflow.cli import output
from dagflow.cli.locations import load, note_beside
from dagflow.cli.output import count
from dagflow.cli.shared_options import Settings, set_option
from dagflow.engine.corrections import correction_problems
from dagflow.engine.preparation import require_outside, require_paths_apart, target_problems
from dagflow.engine.preview import first_errors, header_problems
from dagflow.engine.window_sizing import estimate
from dagflow.errors import DagflowError, MissingError, PlanError, StorageError, own_name
from dagflow.plan.accumulators import results_of_windows, unused_records, wants_to_follow, wrong_totals
from dagflow.plan.logical import LogicalPlan
from dagflow.runtime.base import in_thread
from dagflow.spec.spark_master import SparkMaster
from dagflow.storage.location import absolute

_WITHIN_S = 0.3
"""How long the input is looked at for a warning."""

_ANSWER_S = 1.0
"""How long a store may take to answer."""

T = TypeVar("T")


@click.command("validate")
@click.argument("app", metavar="APP")
@set_option
@click.pass_obj
def command(settings: Settings, app: str, overrides: tuple[str, ...]) -> int:
    """Check the whole app, also against its output tables and the headers of its input; report all mistakes at once.

    Runs nothing and starts no Spark. Ends with exit code 2 if there is a mistake.
    """
    logical = load(app, settings, overrides)
    # Targets first: what they are is compared with the columns of headers.
    unseen: list[str] = []
    problems = [*target_problems(logical, unseen), *correction_problems(logical)]
    if problems := [*problems, *(in_time(lambda: header_problems(logical), _ANSWER_S) or ())]:
        raise PlanError(problems)
    # As the app has them: what is inside of a module has a "/" in its name.
    operators = count(len({own_name(name).partition("/")[0] for name in logical.operators}), "operator")
    outer = [edge for edge in logical.edges if own_name(edge.source.operator) != own_name(edge.target.operator)]
    streams = count(len({edge.stream for edge in outer if "/" not in edge.stream}), "stream")
    output.note(f"{app}: app '{logical.name}' is valid: {operators}, {streams}")
    for warning in (*unseen, *warnings_of(logical, app)):
        output.note(settings.redact(f"warning: {warning}"))
    return 0


def warnings_of(logical: LogicalPlan, app: str) -> Iterator[str]:
    """Warnings about what is allowed, and is perhaps not meant."""
    storage = logical.attributes.storage_context()
    owners: dict[str, str] = {}
    for name, operator in logical.instances.items():
        # Nothing but the paths is looked at: what operators do before a run may touch the world.
        published = marked(property_model(type(operator)), Published)
        paths = [path for each in published if (path := getattr(operator, each))]
        try:
            for each in paths:
                if (owner := owners.setdefault(absolute(each), name)) != name:
                    yield f"operators '{owner}' and '{name}' would both publish in {each}; give each a path of its own"
            require_outside(storage, paths, logical.attributes.checkpoint)
            for each in paths:
                # A store that cannot be reached from here, such as for lack of its package, is refused; a slow one not.
                if not storage.backend(each).is_local:
                    with contextlib.suppress(MissingError):
                        in_time(partial(storage.stat, absolute(each)), _ANSWER_S)
        except StorageError as error:
            yield f"operator '{name}': {error}"
    try:
        in_time(lambda: require_paths_apart(logical, owners), _ANSWER_S)
    except DagflowError as error:
        yield str(error)
    yield from unused_records(logical)
    yield from in_time(lambda: [*wrong_totals(logical)], _ANSWER_S) or ()
    yield from _input_warnings(logical, app)


def _input_warnings(logical: LogicalPlan, app: str) -> Iterator[str]:
    """Warnings about the input that is there now; none where its store takes long to answer."""
    parallelism = SparkMaster.parse(logical.attributes.master).parallelism
    try:
        found = in_time(lambda: estimate(logical, parallelism=parallelism, within_s=_WITHIN_S), _ANSWER_S)
    except DagflowError as error:
        # The app may be valid where its input is not.
        note_beside(error, app)
        notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
        yield f"the input cannot be read now: {error}{notes}"
        return
    if found is None:
        return
    if not found.input.files:
        yield "there is no input now: the named locations have no file that the app reads"
    if found.input.unreadable:
        yield found.input.unreadable
    elif found.input.files:
        for refused in in_time(lambda: [*first_errors(logical)], _ANSWER_S) or ():
            yield f"a run would end at the first file: {refused}"
    if found.windows > 1 and not wants_to_follow(logical):
        for name in results_of_windows(logical):
            yield (
                f"operator '{name}' gives a result for each window, and a run over all input takes at least "
                f"{found.windows:,} windows; over: run gives one result"
            )


def in_time(work: Callable[[], T], within_s: float) -> T | None:
    """The result of work on a thread of its own; None where it takes longer, and continues until the process ends."""
    try:
        return in_thread(work, "look").result(within_s)
    except TimeoutError:
        return None
