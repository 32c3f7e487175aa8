"""What editors learn from an app: ports, classes of the author's, modules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # its stubs are a package that nothing else needs
import pytest

from dagflow.errors import SpecError
from dagflow.spec.class_description import known_names
from dagflow.spec.json_schema import json_schema, module_schema

OWN = """\
from typing import Annotated

from pydantic import Field

from dagflow import InputPort, Operator, OutputPort
from tests.visitors.pairs_format import Pairs


class {name}(Operator):
    \"\"\"Drops comments.

    Ports:
        input: lines with comments
    \"\"\"

    prefix: Annotated[str, Field(description="how a comment begins")] = "."

    input = InputPort()
    output = OutputPort()


class Beside{name}(Operator):
    \"\"\"Is named by no app yet.\"\"\"

    input = InputPort()


class _Private{name}(Operator):
    \"\"\"Is for its own module alone.\"\"\"


class Broken{name}(Operator):
    \"\"\"Declares a property of no type that there is.\"\"\"

    __annotations__ = {{"what": "Nonsense"}}


class Wide(Pairs):
    \"\"\"A format with an option.\"\"\"

    gap: int = 0
"""
APP = """\
name: x
operators:
  splitter: {class: FileSplitterInput, properties: {files: [data]}}
  reader: {class: BlockReader, properties: {format: {type: MODULE.Wide, gap: 2}}}
  drop: {class: MODULE.MyDrop, properties: {prefx: "#"}}
  common: {module: common.yaml}
  lost: {class: no_such_module.Nowhere}
streams: [nonsense]
"""
COMMON = """\
description: what several apps do
inputs: {lines: f.input}
outputs: {kept: f.output}
properties: {keep: f.keep}
operators:
  f: {class: RecordFilter, properties: {keep: {prefix: a}}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An app with mistakes, its author's module, and a module that it uses."""
    module = f"ops_of_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{module}.py").write_text(OWN.format(name="MyDrop"))
    (tmp_path / "common.yaml").write_text(COMMON)
    (tmp_path / "app.yaml").write_text(APP.replace("MODULE", module))
    return tmp_path / "app.yaml"


def test_an_app_brings_along_classes_modules_and_ports(file: Path) -> None:
    """As far as it is understood; what is wrong with it does no harm."""
    known = known_names(str(file))
    module = f"ops_of_{file.parent.name}".replace("-", "_")
    assert set(known.classes) == {f"{module}.MyDrop", f"{module}.BesideMyDrop"}
    assert set(known.modules) == {"common.yaml"}
    assert set(known.operators) == {"splitter", "reader", "drop", "common"}
    assert known.types == {f"{module}.Wide"}
    jsonschema.Draft202012Validator.check_schema(json_schema(known))


def complaints(file: Path, **changes: Any) -> list[str]:
    """What the app's own schema has against an app with other operators or streams."""
    app = {"name": "x", "operators": {"s": {"class": "FileSplitterInput", "properties": {"files": "x"}}}, **changes}
    errors = jsonschema.Draft202012Validator(json_schema(known_names(str(file)))).iter_errors(app)
    return [f"{error.json_path}: {error.message}" for error in errors]


def test_a_stream_takes_the_ports_that_an_operator_has(file: Path) -> None:
    """One of a known operator must be there; one of an operator that was added later may be anything."""

    def fits(source: object, target: object) -> bool:
        return not complaints(file, streams={"s": {"from": source, "to": target}})

    assert fits("reader.messages", ["drop.input", "common.lines"])
    assert fits("common.kept", "added.anything") and fits("${FROM}", "drop.input")
    assert not fits("reader.mesages", "drop.input") and not fits("reader.messages", "drop.output")
    assert not fits("reader.messages", ["drop.input", "common.nothing"]) and not fits("drop.input", "drop.input")
    assert not fits("common/f.output", "drop") and not fits("reader.messages", [])


def test_own_classes_formats_and_modules_take_what_they_declare(file: Path) -> None:
    """Their properties and options are known by name."""
    module = f"ops_of_{file.parent.name}".replace("-", "_")

    def fits(**operator: Any) -> bool:
        return not complaints(file, operators={"a": operator})

    def reads(**options: Any) -> bool:
        return fits(**{"class": "BlockReader", "properties": {"format": {"type": f"{module}.Wide", **options}}})

    assert fits(**{"class": f"{module}.MyDrop", "properties": {"prefix": "#"}})
    assert not fits(**{"class": f"{module}.MyDrop", "properties": {"prefx": "#"}})
    assert reads(gap=3) and not reads(gpa=3) and not reads(gap="wide")
    assert fits(module="common.yaml", properties={"keep": {"prefix": "b"}})
    assert not fits(module="common.yaml", properties={"kep": {}}) and fits(module="other.yaml", properties={"x": 1})


def test_ports_have_their_meaning(file: Path) -> None:
    """As the author's docstring says."""
    choices = json_schema(known_names(str(file)))["$defs"]["Targets"]["anyOf"][0]
    meanings = dict(zip(choices["enum"], choices["markdownEnumDescriptions"], strict=True))
    assert meanings["drop.input"] == "records: lines with comments"


def test_the_file_of_a_module_brings_along_its_own(file: Path) -> None:
    """Its inputs are input ports inside."""
    schema = module_schema(known_names(str(file.parent / "common.yaml")))
    validator = jsonschema.Draft202012Validator(schema)
    filters = {"operators": {"f": {"class": "RecordFilter"}}}
    assert validator.is_valid({**filters, "inputs": {"x": "f.input"}, "outputs": {"y": ["f.output"]}})
    assert not validator.is_valid({**filters, "inputs": {"x": "f.output"}})


@pytest.mark.parametrize("text", ["[a, b]", "a: b: c", None])
def test_what_is_no_mapping_is_refused(tmp_path: Path, text: str | None) -> None:
    """A file that cannot be read says nothing; the error has the place of the mistake."""
    if text is not None:
        (tmp_path / "app.yaml").write_text(text)
    with pytest.raises(SpecError, match=r"app\.yaml"):
        known_names(str(tmp_path / "app.yaml"))
