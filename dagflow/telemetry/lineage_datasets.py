"""An app's roots and tables as datasets of OpenLineage, with their columns and where these come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import DatasetFacet, column_lineage_dataset, schema_dataset

from dagflow.api.columns.column_typing import ColumnTraced
from dagflow.api.rejects.reject import REJECTS
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.physical import Edge, PortRef
from dagflow.plan.stream_columns import stream_columns
from dagflow.report.statistics import is_record_source
from dagflow.spec.problems import Problems
from dagflow.storage.location import absolute, is_local, redacted

MOST_DATASETS: Final = 50
"""How many inputs, and how many outputs, are reported at most: an app names roots, and seldom many."""

MOST_COLUMNS: Final = 300
"""How many columns of a dataset are reported at most."""

DatasetLocations = Mapping[str, tuple[Sequence[str], Sequence[str]]]
"""The locations that each operator reads, and those that it publishes into."""

PRODUCER: Final = "urn:dagflow"

FieldOfInput = tuple[str, str, str]
"""A column of an input: the namespace and the name of the dataset, and its own name."""


def dataset_name(url: str) -> tuple[str, str]:
    """The namespace and name of a location, by the naming rules of OpenLineage."""
    shown = redacted(absolute(url))
    if is_local(shown):
        return "file", shown
    scheme, _, rest = shown.partition("://")
    authority, _, path = rest.partition("/")
    # Buckets hold keys, which begin with no slash; other stores hold paths.
    return f"{scheme}://{authority}", (f"/{path}" if scheme in ("hdfs", "sftp", "ssh") else path) or "/"


def datasets_of(app: LogicalPlan, locations: DatasetLocations) -> tuple[list[InputDataset], list[OutputDataset]]:
    """The inputs and outputs of an app.

    Args:
        app: The app.
        locations: The locations that its operators read and publish.
    """
    columns = _Columns(app, locations)
    inputs = [
        InputDataset(*dataset_name(url), facets=columns.read_by(name))
        for name, (read, _) in locations.items()
        for url in dict.fromkeys(read)
    ]
    outputs = [
        OutputDataset(*dataset_name(url), facets=columns.published_by(name))
        for name, (_, published) in locations.items()
        for url in dict.fromkeys(published)
    ]
    return inputs[:MOST_DATASETS], outputs[:MOST_DATASETS]


class _Columns:
    """Follows the columns of an app from its roots to its output."""

    def __init__(self, app: LogicalPlan, locations: DatasetLocations) -> None:
        self._app = app
        self._locations = locations
        self._known = stream_columns(app, Problems())
        self._found: dict[tuple[PortRef, str], tuple[FieldOfInput, ...]] = {}

    def read_by(self, splitter: str) -> dict[str, DatasetFacet]:
        """The columns of the records that are read from the files of a splitter."""
        for name in self._below(splitter):
            operator = self._app.operators[name].operator
            if is_record_source(operator):
                for port in operator.output_ports:
                    if port != REJECTS and (known := self._known.get(PortRef(name, port))) is not None:
                        return _described(known.schema)
        return {}

    def published_by(self, sink: str) -> dict[str, DatasetFacet]:
        """The columns that arrive at a sink, and the sources of each."""
        arriving = [(edge.source, self._known.get(edge.source)) for edge in self._into(sink)]
        schema = next((known.schema for _, known in arriving if known is not None), pa.schema([]))
        facets = _described(schema)
        made_of = {
            name: dict.fromkeys(part for source, _ in arriving for part in self._sources(source, name))
            for name in schema.names[:MOST_COLUMNS]
        }
        sources = {
            name: column_lineage_dataset.Fields(
                [column_lineage_dataset.InputField(*part, transformations=None) for part in parts]
            )
            for name, parts in made_of.items()
            if parts
        }
        if sources:
            lineage = column_lineage_dataset.ColumnLineageDatasetFacet(sources, dataset=None, producer=PRODUCER)
            facets["columnLineage"] = lineage
        return facets

    def _sources(self, port: PortRef, column: str) -> tuple[FieldOfInput, ...]:
        """The columns of inputs that a column of a stream is made of."""
        key = port, column
        if key not in self._found:
            self._found[key] = tuple(dict.fromkeys(self._traced(port, column)))
        return self._found[key]

    def _traced(self, port: PortRef, column: str) -> Iterator[FieldOfInput]:
        operator = self._app.operators[port.operator].operator
        if is_record_source(operator):
            for name in self._above(port.operator):
                yield from ((*dataset_name(url), column) for url in self._locations.get(name, ((), ()))[0])
            return
        if not isinstance(operator, ColumnTraced):
            return  # columns of an author's code have no known sources
        for edge in self._into(port.operator):
            arriving = self._known.get(edge.source)
            if arriving is not None:
                for name in operator.columns_used(port.port, column, arriving):
                    yield from self._sources(edge.source, name)

    def _into(self, operator: str) -> list[Edge]:
        return [edge for edge in self._app.edges if edge.target.operator == operator]

    def _below(self, operator: str) -> list[str]:
        return _reached(operator, [(edge.source.operator, edge.target.operator) for edge in self._app.edges])

    def _above(self, operator: str) -> list[str]:
        return _reached(operator, [(edge.target.operator, edge.source.operator) for edge in self._app.edges])


def _reached(start: str, arcs: Sequence[tuple[str, str]]) -> list[str]:
    """All operators that arcs lead to, the nearest first."""
    found = [start]
    for name in found:
        found += dict.fromkeys(end for begin, end in arcs if begin == name and end not in found)
    return found


def _described(schema: pa.Schema) -> dict[str, DatasetFacet]:
    """The facet of a dataset's columns with their types; nothing where they are not known."""
    fields = [
        schema_dataset.SchemaDatasetFacetFields(field.name, str(field.type), fields=None)
        for field in list(schema)[:MOST_COLUMNS]
    ]
    return {"schema": schema_dataset.SchemaDatasetFacet(fields, producer=PRODUCER)} if fields else {}
