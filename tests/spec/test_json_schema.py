"""The JSON Schema accepts what validate accepts, as far as a schema can check."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # its stubs are a package that nothing else needs
import pytest
import yaml

from dagflow.api.operator import Operator
from dagflow.api.ports import InputPort, OutputPort
from dagflow.spec.app_reader import APP_KEYS, ATTRIBUTE_KEYS
from dagflow.spec.class_description import KnownNames, known_names
from dagflow.spec.class_lookup import OPERATOR, built_in
from dagflow.spec.graph_reader import MODULE_KEYS, STREAM_KEYS, USE_KEYS
from dagflow.spec.json_schema import json_schema, module_schema
from dagflow.spec.operator_reader import OPERATOR_KEYS, POLICY_KEYS
from tests.nightly import by_day
from tests.visitors.test_sqlite_store import APP as SQLITE_APP

APPS = sorted(Path("apps").glob("*.yaml"))
BLOCK = re.compile(r"```(yaml|python)\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def validator() -> Any:
    """A validator of the schema, which is itself valid."""
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def app(**changes: Any) -> dict[str, Any]:
    splitter = {"class": "FileSplitterInput", "properties": {"files": "data", "block_size": "64MiB"}}
    reader = {"class": "BlockReader", "properties": {"max_readers": "${N:-4}"}, "partition": 4}
    streams = {"blocks": {"from": "a.out", "to": ["b.in"]}}
    return {"name": "x", "operators": {"a": splitter, "b": reader}, "streams": streams, **changes}


class EditorLoader(yaml.SafeLoader):
    """Reads as editors do, by YAML 1.2, where `on` is no truth value."""


EditorLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if not tag.endswith(":bool")]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
EditorLoader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("true|false"), list("tf"))


def complaints(schema: dict[str, Any], document: Any) -> list[str]:
    """What a schema has against a document."""
    return [
        f"{error.json_path}: {error.message}" for error in jsonschema.Draft202012Validator(schema).iter_errors(document)
    ]


def complaints_of(file: Path) -> list[str]:
    """What the schemas of all apps, or modules, and that of this very file have against it."""
    document = yaml.load(file.read_text(), EditorLoader)
    schema = json_schema if "name" in document else module_schema
    return complaints(schema(), document) + complaints(schema(known_names(str(file))), document)


@pytest.mark.parametrize("file", by_day(5, APPS), ids=lambda file: file.stem)
def test_the_apps_that_come_along_fit_the_schema(file: Path) -> None:
    """What a newcomer copies is shown without complaint in an editor."""
    assert complaints_of(file) == []


def apps_of(page: Path) -> list[str]:
    """The apps and modules that a page shows."""
    blocks = BLOCK.findall(page.read_text())
    return [text for language, text in blocks if language == "yaml" and "\noperators:" in text]


PAGES = [page for page in [Path("README.md"), *sorted(Path("docs").glob("*.md"))] if apps_of(page)]


@pytest.mark.parametrize("page", by_day(2, PAGES), ids=lambda page: page.stem)
def test_the_apps_and_modules_of_the_pages_fit_the_schema(page: Path, tmp_path: Path) -> None:
    """With the modules and the classes that the page has beside them."""
    files = {}
    for index, (language, text) in enumerate(BLOCK.findall(page.read_text())):
        named = re.match(r"# (\S+\.\w+)\n", text)
        files[tmp_path / (Path(named[1]).name if named else f"{index}.{language}")] = text
    for file, text in files.items():
        file.write_text(text)
    apps = [file for file, text in files.items() if text in apps_of(page)]
    with contextlib.chdir(tmp_path):
        assert {file.name: found for file in apps if (found := complaints_of(file))} == {}


def test_the_app_of_a_visitor_fits_the_schema(tmp_path: Path) -> None:
    """It names a store of its own."""
    (tmp_path / "app.yaml").write_text(SQLITE_APP.format(backend="my_stores.Sqlite", database="db"))
    assert complaints_of(tmp_path / "app.yaml") == []


def test_sizes_lists_and_references_to_the_environment_fit(validator: Any) -> None:
    """YAML may hold more than the checked value's type."""
    assert list(validator.iter_errors(app())) == []


@pytest.mark.parametrize(
    ("name", "properties"),
    [
        ("Check", {"expect": "a = '1'"}),
        ("Check", {"expect": True}),
        ("Check", {"expect": ["a > 0", "unique(a)"]}),
        ("TableWriter", {"table": "delta:t", "partition_by": "a", "metadata_columns": "window"}),
        (
            "TableWriter",
            {
                "table": "iceberg:a.b",
                "catalog": {"type": "sql", "uri": "sqlite:///c.db", "warehouse": "w", "echo": True},
            },
        ),
        ("CountBy", {"by": "a"}),
    ],
)
def test_the_only_item_of_a_list_may_stand_for_it(validator: Any, name: str, properties: dict[str, Any]) -> None:
    """What validate takes is not underlined in an editor."""
    written = app(operators={"a": {"class": name, "properties": properties}})
    assert list(validator.iter_errors(written)) == []
    built_in(OPERATOR)[name](**properties)


@pytest.mark.parametrize(
    "wrong",
    [
        app(nmae="x"),
        app(name="No Name"),
        app(operators={}),
        app(operators={"a": {"klass": "BlockReader"}}),
        app(operators={"a": {"class": "BlockRaeder"}}),
        app(operators={"a": {"class": "BlockReader", "properties": {"max_reader": 4}}}),
        app(operators={"a": {"class": "BlockReader", "properties": {"max_readers": "many"}}}),
        app(operators={"a": {"class": "BlockReader", "properties": {"max_readers": 0}}}),
        app(operators={"a": {"class": "FileSplitterInput", "properties": {"files": "x", "block_size": "5 parsecs"}}}),
        app(operators={"a": {"class": "FileSplitterInput", "properties": {}}}),
        app(operators={"a": {"class": "FileSplitterInput"}}),
        app(operators={"a": {"class": "BlockReader", "properties": {"format": "linse"}}}),
        app(operators={"a": {"class": "BlockReader", "properties": {"format": {"type": "linse"}}}}),
        app(operators={"a": {"class": "BlockReader", "properties": {"format": {"type": "lines", "delimeter": ";"}}}}),
        app(operators={"a": {"class": "BlockReader", "properties": {"format": {"type": "csv", "header": "perhaps"}}}}),
        app(operators={"a": {"class": "RecordWriter", "properties": {"path": "out", "format": "parqet"}}}),
        app(operators={"a": {"class": "BlockReader", "partitioner": {"class": "DeadlinePartitoner"}}}),
        app(
            operators={
                "a": {"class": "BlockReader", "partitioner": {"class": "DeadlinePartitioner", "properties": {"x": 1}}}
            }
        ),
        app(operators={"a": {"class": "BlockReader", "partition": 0}}),
        app(streams={"s": {"from": "a.b"}}),
        app(streams={"s": {"from": "a", "to": "b.c"}}),
        app(attributes={"window_millis": 0}),
        app(attributes={"durability": "powr"}),
        app(attributes={"spark": {"spark.master": "yarn"}}),
    ],
)
def test_what_validate_refuses_does_not_fit(validator: Any, wrong: dict[str, Any]) -> None:
    """Unknown names, wrong types, values out of range, ports that are none."""
    assert not validator.is_valid(wrong)


def test_exchanges_unions_and_modules_fit() -> None:
    """What an app says of how records travel, and of modules, is known to editors; a module's file too."""
    schema = jsonschema.Draft202012Validator(json_schema())
    keyed = {"class": "BlockReader", "partition": {"by": "host", "count": 3}}
    module = {"module": "m.yaml", "properties": {"anything": 1}}
    streams = {"s": {"from": ["a.x", "b.x"], "to": "c.y", "broadcast": True}}
    assert schema.is_valid(app(operators={"a": keyed, "m": module}, streams=streams))
    assert not schema.is_valid(app(operators={"a": {**keyed, "partition": {"count": 3}}}))
    assert not schema.is_valid(app(operators={"m": {**module, "class": "BlockReader"}}))
    inside = {"operators": {"f": {"class": "RecordFilter", "properties": {"keep": {"prefix": "a"}}}}}
    exposing = {**inside, "inputs": {"x": "f.input"}, "outputs": {"y": ["f.output"]}, "properties": {"p": "f.keep"}}
    of_module = jsonschema.Draft202012Validator(module_schema())
    assert of_module.is_valid(inside) and of_module.is_valid(exposing)
    assert not of_module.is_valid({**inside, "name": "x"}) and not of_module.is_valid({"inputs": {}})


def test_every_option_of_every_format_is_known_with_its_meaning(validator: Any) -> None:
    """Options of formats for readers and for writers."""
    definitions = json_schema()["$defs"]
    csv = definitions["operators.reader.formats.csv.Csv"]["properties"]
    assert csv["delimiter"]["description"] and csv["columns"]["description"]
    assert "null_values" in csv and "compression" not in csv
    assert "operators.sink.formats.parquet.ParquetSink" in definitions
    options = {"format": {"type": "csv", "delimiter": ";", "columns": {"a": "int64"}}}
    assert validator.is_valid(app(operators={"a": {"class": "BlockReader", "properties": options}}))
    own = {"format": {"type": "my_formats.Pairs", "anything": 1}}
    assert validator.is_valid(app(operators={"a": {"class": "BlockReader", "properties": own}}))


class OddNames(Operator):
    """Has properties that are called as what a schema says.

    Attributes:
        default: a text with a meaning
    """

    enum: int = 1
    const: str = "x"
    title: bool = False
    default: str
    examples: object = object()

    input = InputPort()
    output = OutputPort()


def test_a_class_of_ones_own_is_known_by_its_dotted_path() -> None:
    """With its properties, whatever they are called, and what they mean."""
    schema = json_schema(KnownNames(classes={"my_ops.OddNames": OddNames}))

    def fits(**properties: Any) -> bool:
        return not complaints(schema, app(operators={"a": {"class": "my_ops.OddNames", "properties": properties}}))

    assert schema["$defs"]["my_ops.OddNames"]["properties"]["default"]["description"] == "a text with a meaning"
    assert fits(default="x") and fits(default="x", enum=2, const="y", title=True, examples=[1])
    assert fits(default="${X}", enum="${N}")
    assert not fits() and not fits(default="x", enum="y") and not fits(default="x", defualt="x")
    assert not complaints(schema, app(operators={"a": {"class": "my_ops.Later", "properties": {"anything": 1}}}))


def test_the_schema_has_the_keys_that_apps_and_modules_may_have() -> None:
    """A key that a reader takes, and the schema does not, would be marked as a mistake."""
    top = json_schema()["properties"]
    operator = top["operators"]["additionalProperties"]["else"]["properties"]
    assert set(top) == set(APP_KEYS)
    assert set(top["attributes"]["properties"]) == set(ATTRIBUTE_KEYS)
    assert set(operator) == set(OPERATOR_KEYS)
    assert set(operator["partitioner"]["properties"]) == set(POLICY_KEYS)
    assert set(top["streams"]["additionalProperties"]["properties"]) == set(STREAM_KEYS)
    assert set(module_schema()["properties"]) == set(MODULE_KEYS)
    assert set(json_schema()["$defs"]["Module"]["properties"]) == set(USE_KEYS)
