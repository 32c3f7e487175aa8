"""The options of the data source: those of a format, of a splitter and of a reader, by their names in YAML."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pydantic import BaseModel, ValidationError

from dagflow.api.properties import Variants, property_model
from dagflow.errors import PlanError, Problem
from dagflow.frozen import frozen
from dagflow.plan.load import logical_plan
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.physical import PortRef
from dagflow.spark.spark_rows import ADDED, BAD_RECORD, FILE, OFFSET, RECORDS, REJECTS, SparkRows
from dagflow.spec.app_reader import CodeReader, read_values
from dagflow.spec.app_spec import Endpoint, StreamSpec
from dagflow.spec.class_lookup import OPERATOR, find_class
from dagflow.spec.problems import Place, Problems
from dagflow.spec.yaml_parser import parse_text
from dagflow.spec.yaml_tree import Environment, plain
from dagflow.suggestions import nearest

FILES, READER, ROWS = "files", "read", "rows"
"""The operators of the source's app."""

BLOCKS = PortRef(READER, "blocks_metadata_input")

_SELECTION = ("recursive", "file_pattern", "ignore_pattern", "block_size", "batch_bytes", "batch_files")
_COMPLETE = ("cut_compressed", "settle_millis", "done_marker", "unterminated")
_FOLLOWING = ("scan_interval_millis", "existing", "latest_first", "on_change", "retain_seen", "batch_millis")
_READING = ("compression", "on_error", "on_vanished", "partition_values")
_LIMITS = {"maxfilespertrigger": "max_files_per_window", "maxbytespertrigger": "max_bytes_per_window"}
_STATES = ("checkpoint", "state")
_OWN = ("path", "paths", "record", "on_bad_record", FILE, OFFSET, "storage", *_STATES, *_LIMITS)

_STREAM_ONLY = (*_FOLLOWING, *_LIMITS, *_STATES)
_BAD_RECORDS = ("fail", "skip", "column")

BLOCK_BYTES = 16 << 20
"""Bytes of a block, unless an option says otherwise: Spark's tasks are to be even, and a block costs little."""

CHUNK_BYTES = 4 << 20
"""Bytes that a format reads at a time, at least: a batch costs Spark more than the second-level cache saves."""

WINDOW_BLOCKS, WINDOW_BYTES = 100_000, 64 << 30
"""What a window of a stream has at most without a limit: its plan is held in memory."""


@frozen
class SourceOptions:
    """The options of one source, checked as far as the app does not check them.

    Attributes:
        files: Properties of the splitter.
        reader: Properties of the reader.
        on_bad_record: What becomes of a refused record: fail, skip or column.
        has_file: Whether rows have the column `_file`.
        has_offset: Whether rows have the column `_offset`.
        state: Where a stream keeps its state; "" where no option says so.
        is_limited: Whether a batch of a stream has a limit.
        storage: The attribute `storage` of an app.
    """

    files: Mapping[str, Any]
    reader: Mapping[str, Any]
    on_bad_record: str
    has_file: bool
    has_offset: bool
    state: str
    is_limited: bool
    storage: Mapping[str, Any]
    for_streams: tuple[str, ...]

    @property
    def added(self) -> Any:
        """The columns that rows have beside those of the format, by Arrow's types."""
        wanted = {FILE: self.has_file, OFFSET: self.has_offset, BAD_RECORD: self.on_bad_record == "column"}
        return [pa.field(name, kind) for name, kind in ADDED.items() if wanted[name]]

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> SourceOptions:
        """Read options.

        Args:
            given: Values by name, in whatever case, as Spark has them: texts, in which lists and mappings are YAML.
                Values of other types are taken as they are.

        Raises:
            PlanError: An option is unknown, or has no value that it takes; the error lists all of them.
        """
        return _Reader({name.lower(): value for name, value in given.items()}).read()

    def require_batch(self) -> None:
        """Refuse options that only a stream has.

        Raises:
            PlanError: There are such options.
        """
        if self.for_streams:
            names = ", ".join(f"'{name}'" for name in self.for_streams)
            raise PlanError([Problem("", 0, 0, f"option {names}: only readStream takes it, and this is read")])

    def app(self, columns: Sequence[str] | None = None, *, follow: bool = False) -> LogicalPlan:
        """The app that lists files, cuts and reads them; the port of its rows stands for Spark.

        Args:
            columns: The columns that rows have; None for all.
            follow: Whether to keep watching for new files.

        Raises:
            AppError: The options have mistakes; the error lists all of them.
        """
        values = {
            "name": "spark-source",
            "attributes": {"storage": self.storage} if self.storage else {},
            "operators": {
                FILES: {"class": "FileSplitterInput", "properties": {**self.files, "follow": follow}},
                READER: {"class": "BlockReader", "properties": self.reader},
            },
            "streams": {"blocks": {"from": f"{FILES}.blocks_metadata_output", "to": str(BLOCKS)}},
        }
        place = Place("")
        spec, problems = read_values(values, place)
        assert spec is not None
        rows = CodeReader((), Problems()).operator(ROWS, SparkRows(columns=columns), 1, None, place)
        ports = {"messages": RECORDS, "errors": REJECTS} if self.on_bad_record != "fail" else {"messages": RECORDS}
        streams = {
            target: StreamSpec(target, (_end(READER, source),), (_end(ROWS, target),), place, None)
            for source, target in ports.items()
        }
        spec = replace(spec, operators={**spec.operators, ROWS: rows}, streams={**spec.streams, **streams})
        app = logical_plan(spec, problems)
        format = vars(app.operators[READER].operator)["format"]
        format.chunk_bytes = max(format.chunk_bytes, CHUNK_BYTES)
        return app


def _end(operator: str, port: str) -> Endpoint:
    return Endpoint(operator, port, Place(""), f"{operator}.{port}")


class _Reader:
    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given
        self._problems: list[str] = []
        self._files = property_model(find_class("FileSplitterInput", (), OPERATOR))
        self._reader = property_model(find_class("BlockReader", (), OPERATOR))

    def read(self) -> SourceOptions:
        format = self._format()
        taken = {*_OWN, *_SELECTION, *_COMPLETE, *_FOLLOWING, *_READING}
        # The format names its own options where it does not know one.
        for name in self._given.keys() - taken - format.keys():
            if close := nearest(name, taken):
                self._problems.append(f"there is no option '{name}'; did you mean '{close}'?")
            else:
                format[name] = self._given[name]
        files = {
            "block_size": BLOCK_BYTES,
            "blocks_threshold": WINDOW_BLOCKS,
            "max_bytes_per_window": WINDOW_BYTES,
            **self._properties(self._files, (*_SELECTION, *_COMPLETE, *_FOLLOWING)),
            **{limit: self._given[name] for name, limit in _LIMITS.items() if name in self._given},
            "files": self._paths(),
        }
        bad = self._given.get("on_bad_record", "fail")
        if bad not in _BAD_RECORDS:
            self._problems.append(f"option 'on_bad_record': expected {' or '.join(_BAD_RECORDS)}; got {bad!r}")
        state = str(self._given.get("state", ""))
        if not state and (checkpoint := str(self._given.get("checkpoint", ""))):
            state = f"{checkpoint.rstrip('/')}/dagflow"
        storage = self._plain("storage") or {}
        has_file, has_offset = self._flag(FILE), self._flag(OFFSET)
        if self._problems:
            raise PlanError([Problem("", 0, 0, message) for message in sorted(self._problems)])
        return SourceOptions(
            files=files,
            # What is left out is in no report that a reader of rows would see.
            reader={"on_vanished": "fail", **self._properties(self._reader, _READING), "format": format},
            on_bad_record=bad,
            has_file=has_file,
            has_offset=has_offset,
            state=state,
            is_limited=any(name in self._given for name in _LIMITS),
            storage=storage,
            for_streams=tuple(name for name in _STREAM_ONLY if name in self._given),
        )

    def _paths(self) -> list[str]:
        """The paths of load(path), or of load([path, path]), which Spark joins as JSON."""
        given: Any = self._given.get("path") or self._given.get("paths") or []
        if isinstance(given, str):
            given = json.loads(given) if "path" not in self._given else [given]
        if not given:
            self._problems.append("there is no path: load(path) takes a file, a directory or a glob")
        return list(map(str, given))

    def _format(self) -> dict[str, Any]:
        """The format with its options, as YAML has it."""
        if {"record", "type"} <= self._given.keys():
            self._problems.append("options 'record' and 'type' both name the format; give one")
        record = self._given.get("record", self._given.get("type", "lines"))
        if isinstance(record, str) and record.lstrip().startswith("{"):
            record = self._plain("record")
        format = dict(record) if isinstance(record, Mapping) else {"type": record}
        variants = next(each for each in self._reader.model_fields["format"].metadata if isinstance(each, Variants))
        try:
            model = property_model(variants.find(str(format["type"])))
        except (KeyError, ValueError):
            return format  # the app names what is wrong with it
        return {**self._properties(model, tuple(model.model_fields)), **format}

    def _properties(self, model: type[BaseModel], names: tuple[str, ...]) -> dict[str, Any]:
        return {name: typed(model, name, self._given[name]) for name in names if name in self._given}

    def _plain(self, name: str) -> Any:
        value = self._given.get(name)
        return parsed(value) if isinstance(value, str) else value

    def _flag(self, name: str) -> bool:
        value = self._plain(name)
        if value not in (None, True, False):
            self._problems.append(f"option '{name}': expected true or false; got {value!r}")
        return bool(value)


def typed(model: type[BaseModel], name: str, value: Any) -> Any:
    """The value of an option that Spark has as text: the text where the property is text, otherwise what YAML reads."""
    if not isinstance(value, str):
        return value
    try:
        checked = model.__pydantic_validator__.validate_assignment(model.model_construct(), name, value)
    except ValidationError:
        return parsed(value)
    return value if isinstance(getattr(checked, name), str) else parsed(value)


def parsed(text: str) -> Any:
    """What YAML reads in a text; the text itself where it is no YAML."""
    problems = Problems()
    node = parse_text(text, "", Environment({}), problems, has_lines=False)
    return text if node is None or problems else plain(node)
