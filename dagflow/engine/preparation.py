"""Lets the operators of an app check, before the first window, what they read and where they publish."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from dagflow.api.operator import Operator, defines
from dagflow.api.transactions import TransactionalSink
from dagflow.engine.publishers import writer_of
from dagflow.engine.repeatable import removers_in
from dagflow.errors import DagflowError, Problem, StorageError
from dagflow.execution.failures import located
from dagflow.frozen import frozen
from dagflow.journal.journal import Journal
from dagflow.journal.log import DIRECTORIES
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.stream_columns import require_columns
from dagflow.runtime.probe import RunLocations
from dagflow.storage.context import StorageContext
from dagflow.storage.location import absolute, join, redacted
from dagflow.storage.pending import PendingFile, pending_tag


@frozen
class InputLocation:
    """A location that an operator reads, perhaps every file in a directory; see RunPreparation.reads().

    Attributes:
        takes_in: Whether the operator reads everything in a given directory.
    """

    operator: str
    url: str
    glob: str
    takes_in: Callable[[str], bool]


class LocationCollector:
    """Collects where operators publish and what they read; see RunPreparation.

    Args:
        journal: Tells what earlier windows have published; then a location that two operators claim is refused. None
            where this is not known, and nothing is refused.
        again: Windows that are about to run again: their new output replaces what they have held back.

    Attributes:
        operator: The operator whose locations come next.
        outputs: Which operator publishes into each location.
        input_locations: Those of the inputs that may be everything in a directory.
    """

    def __init__(self, storage: StorageContext, journal: Journal | None = None, again: Collection[int] = ()) -> None:
        self.storage = storage
        self._journal = journal
        self._again = again
        self.operator = ""
        self.outputs: dict[str, str] = {}
        self.inputs: list[str] = []
        self.input_locations: list[InputLocation] = []

    def prepare(self, operators: Mapping[str, Operator]) -> None:
        """Let operators say where they publish and what they read, and check it."""
        for name, operator in operators.items():
            self.operator = name
            with located(name, operator.prepare):
                operator.prepare(self)

    @property
    def published(self) -> Iterable[str]:
        return () if self._journal is None else self._journal.published()

    @property
    def held_files(self) -> Sequence[PendingFile]:
        waiting = () if self._journal is None else self._journal.state.held.waiting.get(self.operator, ())
        return [held.file for held in waiting if held.window_id not in self._again]

    @property
    def writer(self) -> str:
        return "" if self._journal is None else writer_of(self._journal.state, self.operator)

    def has_forgotten(self, url: str) -> bool:
        if self._journal is None:
            return True
        return self._journal.state.forgotten > 0 and absolute(url) in self._journal.state.outputs

    def claim(self, url: str) -> None:
        url = absolute(url)
        self.outputs.setdefault(url, self.operator)
        owners = (owner for claimed, owner in self.outputs.items() if self.storage.named_like(claimed, url) == url)
        if self._journal is not None and (owner := next(owners)) != self.operator:
            raise StorageError(
                f"operators '{owner}' and '{self.operator}' would both publish here",
                url=redacted(url),
                hint="give each of them a path of its own",
            )

    def reads(
        self, url: str, takes_in: Callable[[str], bool] | None = None, *, glob: str = "", is_there: bool = True
    ) -> None:
        if is_there:
            self.inputs.append(absolute(url))
        if takes_in is not None:
            self.input_locations.append(InputLocation(self.operator, url, glob, takes_in))


def _require_apart(
    storage: StorageContext, inputs: Iterable[InputLocation], outputs: Mapping[str, str], checkpoint: str
) -> None:
    """Refuse an app that would read its own output or its checkpoint."""
    written_locations = [(url, f"operator '{owner}' publishes") for url, owner in outputs.items()]
    written_locations.append((checkpoint, "the checkpoint lies"))
    for location in inputs:
        for written, what in written_locations:
            place = storage.named_like(written, location.url)
            within = [place]
            if location.glob and written == checkpoint:
                # A glob may match objects in these directories, but nothing beside them.
                within += [join(place, directory) for directory in DIRECTORIES]
            if any(map(location.takes_in, within)):
                read = f"matches {redacted(location.glob)}" if location.glob else f"is below {redacted(location.url)}"
                is_below = join(absolute(place), "").startswith(join(absolute(location.url), ""))
                raise StorageError(
                    f"operator '{location.operator}' reads all that {read}, and {what} here"
                    f"{'' if is_below else ', by way of a link'}",
                    url=redacted(written),
                    hint="put it elsewhere, or leave it out with ignore_pattern or file_pattern",
                )


def _require_read_once(
    storage: StorageContext, inputs: Sequence[InputLocation], operators: Mapping[str, Operator]
) -> None:
    """Refuse an app that removes or archives source files that another of its operators may still have to read."""
    removers = removers_in(operators)
    for one, other in itertools.permutations(inputs, 2):
        if removers and one.operator != other.operator and one.takes_in(storage.named_like(_within(other), one.url)):
            raise StorageError(
                f"operators '{one.operator}' and '{other.operator}' both read here, and operator '{removers[0]}' "
                "removes or archives a file when one of them has read it",
                url=redacted(other.url),
                hint="let one operator read each file",
            )


def _within(location: InputLocation) -> str:
    """A directory in which an operator reads some of the files."""
    is_deeper = "/" in location.glob.removeprefix(join(location.url, ""))
    return join(location.url, "directory") if is_deeper else location.url


def require_paths_apart(app: LogicalPlan, paths: Mapping[str, str]) -> None:
    """Refuse an app whose paths show that it would read its own output, or the source files that it has archived."""
    storage = app.attributes.storage_context()
    collector = LocationCollector(storage)
    # Preparing other operators may change something outside of the app.
    collector.prepare({name: each for name, each in app.instances.items() if defines(each, "estimate")})
    _require_read_once(storage, collector.input_locations, app.instances)
    outputs = {absolute(path): owner for path, owner in paths.items()}
    _require_apart(storage, collector.input_locations, outputs, app.attributes.checkpoint)


def require_outside(storage: StorageContext, outputs: Iterable[str], checkpoint: str) -> None:
    """Refuse output inside of the checkpoint, which only its owner may enter, and which may be set aside as a whole."""
    inside = f"{absolute(checkpoint)}/"
    for url in outputs:
        if f"{absolute(storage.named_like(url, checkpoint))}/".startswith(inside):
            raise StorageError(
                f"output would lie in the checkpoint {redacted(absolute(checkpoint))}, which only its owner may enter",
                url=redacted(url),
                hint="give `checkpoint`, or the operator's path, another directory",
            )


def output_locations(app: LogicalPlan) -> set[str]:
    """The locations that the operators of an app publish into, redacted; empty where they cannot tell."""
    collector = LocationCollector(app.attributes.storage_context())
    try:
        collector.prepare(app.instances)
    except DagflowError:
        return set()  # the run itself says what is wrong
    return {redacted(url) for url in collector.outputs}


def dataset_locations(app: LogicalPlan) -> dict[str, tuple[list[str], list[str]]]:
    """The locations that each operator of an app reads, and those that it publishes into, as far as it can tell."""
    found = {}
    for name, operator in app.instances.items():
        collector = LocationCollector(app.attributes.storage_context())
        with contextlib.suppress(DagflowError):  # the run itself says what is wrong
            collector.prepare({name: operator})
        found[name] = collector.inputs, sorted(collector.outputs)
    return found


def target_problems(app: LogicalPlan, unseen: list[str] | None = None) -> list[Problem]:
    """The problems that make the transactional targets of an app unusable, as far as they can be read from here.

    Args:
        unseen: Takes what could not be looked at, and why.
    """
    collector, problems = LocationCollector(app.attributes.storage_context()), []
    for name, operator in app.instances.items():
        if isinstance(operator, TransactionalSink):
            try:
                collector.prepare({name: operator})
            except StorageError as error:  # the app may be valid where its target is not
                if unseen is not None:
                    unseen.append(f"the table of operator '{name}' could not be looked at: {error}")
            except DagflowError as error:
                problems.append(app.written(name).place.problem(f"operator '{name}': {error.message}"))
    return problems


def prepare(
    app: LogicalPlan, journal: Journal, checkpoint: str, storage: StorageContext, again: Collection[int] = ()
) -> RunLocations:
    """Let operators check the outside world before the first window.

    Args:
        again: Windows that are about to run again: their new output replaces what they have held back.

    Raises:
        PlanError: Records do not fit what an operator has found, such as the table that is to hold them.
    """
    preparation, operators = LocationCollector(storage, journal, again), app.instances
    preparation.prepare(operators)
    require_outside(storage, preparation.outputs, checkpoint)
    _require_apart(storage, preparation.input_locations, preparation.outputs, checkpoint)
    _require_read_once(storage, preparation.input_locations, operators)
    require_columns(app)
    journal.note_outputs(preparation.outputs)
    tag = pending_tag(journal.state.app_uuid, journal.epoch)
    return RunLocations(preparation.outputs, tuple(preparation.inputs), tag)
