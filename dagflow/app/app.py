"""An app as an object of Python."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from dagflow.api.operator import Operator
from dagflow.api.partitioning import PartitionPolicy
from dagflow.api.ports import fits
from dagflow.api.properties import own_arguments, property_model
from dagflow.api.saved_values import difference
from dagflow.app.results import AppPlan, RunResult, run_watched
from dagflow.engine.limited_run import limited_run
from dagflow.engine.preview import Preview, preview
from dagflow.engine.preview_chain import DEFAULT_RECORDS, PreviewOptions
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import AppError, PlanError, Problem, SpecError
from dagflow.plan.load import logical_plan
from dagflow.plan.logical import LogicalPlan
from dagflow.runtime.start_checks import context_of
from dagflow.spec.app_reader import CodeReader, Overrides, read
from dagflow.spec.app_spec import AppSpec, Endpoint, StreamSpec
from dagflow.spec.class_lookup import folder_of_module, search_path_of
from dagflow.spec.operator_reader import declaration
from dagflow.spec.problems import Place, Problems, place_in_code
from dagflow.spec.spark_master import MASTER_SETTING, usable_cores
from dagflow.spec.step_reader import free_name


class App:
    """A DAG of operators with the attributes of an app.

    An app may be loaded, built, or loaded and extended. All checks are those of YAML; the place of a mistake is the
    line of Python that made it.

    Args:
        name: The app's name, of small letters, digits and '-'.
        attributes: The attributes of an app by name, such as checkpoint; see docs/dags.md.
    """

    def __init__(self, name: str, **attributes: Any) -> None:
        place = place_of_caller()
        folders = search_path_of(place.file) if Path(place.file).is_file() else (str(Path.cwd()),)
        self._problems = Problems()
        self._of_file: Sequence[Problem] = ()
        self._given: dict[str, tuple[Operator | PartitionPolicy, Place]] = {}
        self._reader = CodeReader(folders, self._problems)
        self._spec = self._reader.app(name, attributes, place)

    @classmethod
    def load(cls, path: str | os.PathLike[str], set: Overrides = ()) -> Self:
        """The app of a YAML file.

        Args:
            path: The file.
            set: Properties to set on top of it: values as YAML by "operator.property".

        Raises:
            SpecError: The file is no app at all. Other mistakes are reported by validate() and by methods that need the
                plan.
        """
        spec, problems = read(path, overrides=set)
        if spec is None:
            raise SpecError(problems)
        app = cls.__new__(cls)
        app._problems, app._of_file, app._spec, app._given = Problems(), problems, spec, {}
        app._reader = CodeReader(spec.search_path, app._problems)
        return app

    @property
    def name(self) -> str:
        """The app's name."""
        return self._spec.name

    @property
    def spec(self) -> AppSpec:
        """The app as it was written."""
        return self._spec

    def add(
        self,
        operator: Operator,
        name: str | None = None,
        *,
        partition: Any = None,
        partitioner: PartitionPolicy | None = None,
    ) -> AppOperator:
        """Add an operator.

        Args:
            operator: The operator; the app makes instances of its own with the same properties.
            name: Its name in the app; by default that of its class, as block_reader.
            partition: "parallel", a number, or a mapping such as {"by": "user", "count": 4}, as in YAML.
            partitioner: The policy that decides how many partitions it has.

        Returns:
            The operator in the app, to be connected.

        Raises:
            PlanError: The operator is no Operator instance, or the partitioner is no policy instance, but a class for
                example.
        """
        place = place_of_caller()
        require_instance(operator, Operator, place)
        if partitioner is not None:
            require_instance(partitioner, PartitionPolicy, place)
        name = name or free_name(_snake_case(type(operator).__name__), self._spec.operators, "_")
        if name in self._spec.operators:
            self._problems.add(place, f"there is an operator '{name}' already")
        added = self._reader.operator(name, operator, partition, partitioner, place)
        self._given[f"operator '{name}'"] = (operator, place)
        if partitioner is not None:
            self._given[f"partitioner of operator '{name}'"] = (partitioner, place)
        operators, folders = {**self._spec.operators, name: added}, self._spec.search_path
        folder = folder_of_module(type(operator).__module__)
        # Executors need its module, and a later run reports where the module has changed.
        folders += () if folder is None or folder in folders else (folder,)
        self._spec = replace(self._spec, operators=operators, search_path=folders)
        return AppOperator(self, name)

    def operator(self, name: str) -> AppOperator:
        """The operator of a name, to be connected.

        Raises:
            KeyError: The app has no operator of that name.
        """
        if name not in self._spec.operators:
            raise KeyError(f"app '{self.name}' has no operator '{name}'; it has {', '.join(self._spec.operators)}")
        return AppOperator(self, name)

    def stream(
        self, source: str | Sequence[str], to: str | Sequence[str], *, name: str | None = None, broadcast: bool = False
    ) -> None:
        """Connect ports, as a stream of YAML does.

        Args:
            source: An output port as "operator.port", or several.
            to: An input port, or several.
            name: The stream's name; by default one that names its first operators.
            broadcast: Whether every partition of the targets gets everything.
        """
        place = place_of_caller()
        sources, targets = self._ends(source, place), self._ends(to, place)
        first = "-".join(end.operator for end in (*sources[:1], *targets[:1]))
        name = name or free_name(first, self._spec.streams, "_")
        added = StreamSpec(name, sources, targets, place, place if broadcast else None)
        self._spec = replace(self._spec, streams={**self._spec.streams, name: added})

    def _ends(self, ports: str | Sequence[str], place: Place) -> tuple[Endpoint, ...]:
        ends = []
        for text in [ports] if isinstance(ports, str) else ports:
            operator, dot, port = text.rpartition(".")
            if dot:
                ends.append(Endpoint(operator, port, place, text))
            else:
                self._problems.add(place, f"expected operator.port, got '{text}'")
        return tuple(ends)

    def connect(self, source: AppPort, target: AppPort, *, broadcast: bool = False) -> None:
        """Connect two ports; a port that leads somewhere already then leads to both."""
        for stream in self._spec.streams.values():
            ends = [(end.operator, end.port) for end in stream.sources]
            if ends == [(source.operator, source.port)] and (stream.broadcast_place is not None) == broadcast:
                more = replace(stream, targets=(*stream.targets, *self._ends(str(target), place_of_caller())))
                self._spec = replace(self._spec, streams={**self._spec.streams, stream.name: more})
                return
        self.stream(str(source), str(target), broadcast=broadcast)

    def validate(self) -> list[Problem]:
        """Every mistake of the app, in order; none of a valid one."""
        try:
            self.logical()
        except AppError as error:
            return list(error.problems)
        return []

    def logical(self) -> LogicalPlan:
        """The checked DAG, with fresh operators.

        Raises:
            AppError: The app has mistakes; the error lists all of them.
        """
        lost = [p for owner, (each, place) in self._given.items() for p in lost_values(owner, each, place)]
        return logical_plan(self._spec, [*self._of_file, *self._problems.found, *lost])

    def plan(self) -> AppPlan:
        """The plan of a run: text, and a picture in a notebook.

        Raises:
            AppError: The app has mistakes.
        """
        return AppPlan(self.logical())

    def preview(
        self, at: str | None = None, records: int = DEFAULT_RECORDS, *, file: str | None = None, offset: int = 0
    ) -> Preview:
        """The first records that reach a port, without journal and output; see `dagflow preview`.

        Args:
            at: The port as "operator.port"; by default the input of the first operator that passes no records on.
            records: How many.
            file: The only file to read.
            offset: Where to begin in it.

        Raises:
            AppError: The app has mistakes, or the port is not there.
            DagflowError: The preview failed before anything was read.
        """
        return preview(self.logical(), PreviewOptions(at, records, file, offset))

    def run(
        self,
        *,
        local: bool = False,
        workers: int | None = None,
        limit: int | None = None,
        checkpoint: str | None = None,
        spark: Any = None,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        follow: bool = False,
        fresh: bool = False,
        take_over: bool = False,
        quiet: bool = False,
    ) -> RunResult:
        """Run the app until all input is processed and published; see `dagflow run`.

        Args:
            local: Whether to run in processes of this machine, without Spark.
            workers: With local, how many processes; 1 for this one, where debuggers work. By default one for each core.
            limit: With local, a try-out that reads so many records, and publishes below .dagflow/NAME.limit alone.
            checkpoint: Where the journal is, instead of where the app says.
            spark: The SparkSession, or SparkContext, to run in, with its master and its settings; it is left as it is.
                By default that of this process, such as a notebook's, where there is one.
            master: The Spark master, instead of the app's.
            conf: Spark's own settings.
            follow: Whether to keep watching for new input until interrupted.
            fresh: Whether to start over, and remove what was published.
            take_over: Whether to replace a run that is at work on the checkpoint.
            quiet: Whether to show no progress.

        Raises:
            AppError: The app has mistakes.
            DagflowError: The run failed; its journal is resumable.
            ValueError: Options do not go together.
            KeyboardInterrupt: The run was interrupted, and has stopped in order.
        """
        if workers is not None and not local:
            raise ValueError("workers goes with local=True; on Spark, master says how many tasks run at once")
        if workers is not None and workers < 1:
            raise ValueError(f"workers is {workers}, and must be at least 1")
        if limit is not None and (not local or checkpoint is not None or follow or fresh):
            raise ValueError("limit goes with local=True, and takes neither checkpoint, follow nor fresh")
        if limit is not None and limit < 1:
            raise ValueError(f"limit is {limit}, and must be at least 1")
        _require_one_spark(local, spark, master, conf or {})
        options = RunOptions(
            checkpoint=checkpoint,
            master=master,
            conf=conf or {},
            context=None if spark is None else context_of(spark),
            follow=follow,
            fresh=fresh,
            take_over=take_over,
            workers=(workers or usable_cores()) if local else None,
        )
        with limited_run(self.logical(), options, limit) as (part, chosen):
            return RunResult.of(run_watched(part, chosen, is_quiet=quiet))

    def __repr__(self) -> str:
        return f"App('{self.name}': {len(self._spec.operators)} operators, {len(self._spec.streams)} streams)"

    def _repr_html_(self) -> str:
        """The plan's picture, or the mistakes."""
        try:
            return self.plan()._repr_html_()
        except AppError as error:
            # Imported late: only notebooks need it.
            import html

            return f"<pre>{html.escape(str(error))}</pre>"


def _require_one_spark(local: bool, spark: Any, master: str | None, conf: Mapping[str, str]) -> None:
    if local and (master is not None or conf or spark is not None):
        raise ValueError("local=True runs without Spark, and takes neither spark, master nor conf")
    if spark is not None and (master is not None or conf):
        raise ValueError("a session has its master and its settings: spark goes with neither master nor conf")
    if MASTER_SETTING in conf:
        raise ValueError(f"conf takes no {MASTER_SETTING}; give the master with master=...")


class AppPort:
    """A port of an operator of an app.

    Attributes:
        operator: The operator's name.
        port: The port's name.
    """

    def __init__(self, app: App, operator: str, port: str) -> None:
        self._app = app
        self.operator = operator
        self.port = port

    def __str__(self) -> str:
        return f"{self.operator}.{self.port}"

    def to(self, target: Operator | AppOperator | AppPort, *, broadcast: bool = False, **options: Any) -> AppOperator:
        """Connect this output port; see AppOperator.to."""
        return self._app.operator(self.operator)._connect(self.port, target, broadcast, options)


class AppOperator:
    """An operator of an app, to be connected."""

    def __init__(self, app: App, name: str) -> None:
        self._app = app
        self.name = name

    def __getitem__(self, port: str) -> AppPort:
        return AppPort(self._app, self.name, port)

    def to(self, target: Operator | AppOperator | AppPort, *, broadcast: bool = False, **options: Any) -> AppOperator:
        """Connect this operator with another one, by the first ports that fit.

        Args:
            target: An operator, which is added, or an operator or a port of the app.
            broadcast: Whether every partition of the target gets everything.
            options: Further arguments of add() for an operator that is added: name, partition, partitioner.

        Returns:
            The target in the app.

        Raises:
            PlanError: The target is none of these, or no ports fit.
        """
        return self._connect(None, target, broadcast, options)

    def _connect(
        self, port: str | None, target: Operator | AppOperator | AppPort, broadcast: bool, options: dict[str, Any]
    ) -> AppOperator:
        if not isinstance(target, AppOperator | AppPort):
            target = self._app.add(target, **options)
        elif options:
            raise TypeError(f"{', '.join(options)}: only for an operator that is added here")
        if isinstance(target, AppPort):
            reached, inputs = self._app.operator(target.operator), [target.port]
        else:
            reached, inputs = target, list(target._class.input_ports)
        source, taken = self._fitting([port] if port else list(self._class.output_ports), reached, inputs)
        self._app.connect(source, taken, broadcast=broadcast)
        return reached

    @property
    def _class(self) -> type[Operator]:
        found = self._app.spec.operators[self.name].operator_class
        return found or Operator

    def _fitting(self, outputs: list[str], target: AppOperator, inputs: list[str]) -> tuple[AppPort, AppPort]:
        given, taken = self._class.output_ports, target._class.input_ports
        if len(outputs) == len(inputs) == 1:
            return self[outputs[0]], target[inputs[0]]  # the checks of the app say what is wrong with them
        for output in outputs:
            for input in inputs:
                if output in given and input in taken and fits(given[output], taken[input]):
                    return self[output], target[input]
        place = place_of_caller()
        message = (
            f"no output port of operator '{self.name}' ({', '.join(outputs) or 'it has none'}) fits an input port of "
            f"operator '{target.name}' ({', '.join(inputs) or 'it has none'})"
        )
        raise PlanError([place.problem(message)])


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


_HERE = str(Path(__file__).parent) + os.sep


def place_of_caller() -> Place:
    """The line of the innermost code that does not belong to this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return place_in_code(frame.f_code.co_filename, frame.f_lineno)


def require_instance(given: object, kind: type[Operator] | type[PartitionPolicy], place: Place) -> None:
    """Refuse an object that is no operator, or no policy, but the class itself for example."""
    if isinstance(given, kind):
        return
    if isinstance(given, type) and issubclass(given, kind):
        found = f"the class {given.__name__}; construct it, with {given.__name__}(…)"
    else:
        found = f"the class {given.__name__}" if isinstance(given, type) else f"a {type(given).__name__}"
    message = f"an instance of {kind.__name__} is expected, and this is {found}"
    raise PlanError([place.problem(message)])


def lost_values(owner: str, given: Operator | PartitionPolicy, place: Place) -> list[Problem]:
    """Problems for the values of an operator or a policy that the app's own instances would lack.

    The app makes instances with the same properties. They lack arguments of the constructor that are no properties,
    and properties that were set later.
    """
    cls = type(given)
    own = []
    try:
        names = property_model(cls).model_fields
        own = own_arguments(given)
        constructed: Any = cls(**given.given_properties)
    except Exception:  # the plan constructs the operator as well, and reports what its constructor raises
        return [_kept_back(owner, cls, each, each.name in names, place) for each in own]
    # An argument may have become a property of another name, or be what it is by default.
    if own and difference(given.__getstate__(), constructed.__getstate__()) is not None:
        return [_kept_back(owner, cls, each, each.name in names, place) for each in own]
    changed = [each for each in names if difference(getattr(constructed, each), getattr(given, each)) is not None]
    return [
        place.problem(
            f"{owner}: its property '{each}' was set after {cls.__name__}(…) had made it, and the app makes "
            f"instances of its own: give it to {cls.__name__}({each}=…)"
        )
        for each in changed
    ]


def _kept_back(owner: str, cls: type[Any], argument: inspect.Parameter, is_property: bool, place: Place) -> Problem:
    """Advice about an argument that a constructor has not handed on."""
    if is_property:
        what = "does not hand it on"
        advice = f"let it call super().__init__({argument.name}={argument.name}, …)"
    elif argument.kind is argument.VAR_POSITIONAL:
        what = "these are no properties"
        advice = "declare a property for each of them in the class body, and give it by name"
    else:
        what = "it is no property"
        advice = f"declare {_declared(argument)} in the class body in its place"
    message = (
        f"{owner}: {cls.__name__}.__init__() was given '{argument.name}' and {what}, and the app makes "
        f"instances of its own with the properties alone: {advice}"
    )
    return place.problem(message)


def _declared(argument: inspect.Parameter) -> str:
    """How a class body declares a property for an argument, of the type that the argument has."""
    if argument.annotation is argument.empty or argument.default is argument.empty:
        return declaration(argument.name, argument.default)
    kind = argument.annotation
    kind = kind if isinstance(kind, str) else inspect.formatannotation(kind)
    return f"`{argument.name}: {kind} = {argument.default!r}`"
