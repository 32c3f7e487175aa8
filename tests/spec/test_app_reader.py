"""The form of an app: every mistake at its place, with the nearest valid name."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.errors import SpecError
from dagflow.plan.load import load_app
from tests.spec.apps import SAMPLES, VALID, changed, problems_of, spec_of


def test_an_app_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Name, attributes, operators and streams come through with their defaults."""
    (tmp_path / "app.yaml").write_text(VALID)
    spec = spec_of(tmp_path / "app.yaml")
    assert (spec.name, spec.attributes.checkpoint, spec.attributes.window_millis) == ("sample", ".dagflow/sample", 500)
    assert spec.attributes.master == "local[*]" and spec.attributes.spark == {}
    assert list(spec.operators) == ["source", "reader", "step", "sink"]
    assert spec.operators["step"].partition == "parallel" and spec.operators["reader"].partition is None
    assert spec.operators["step"].properties == {"match": {"prefix": "."}, "ratios": [0.5, 1]}
    assert [end.port for end in spec.streams["kept"].targets] == ["input"]


def test_spark_settings_are_text_as_java_reads_it(tmp_path: Path) -> None:
    """Truth values are written small, numbers as they were typed."""
    settings = "{spark.a: True, spark.b: 8, spark.c: 1.50, spark.d: x}"
    text = changed("name: sample", f"name: sample\nattributes: {{spark: {settings}, checkpoint: 7}}")
    (tmp_path / "app.yaml").write_text(text)
    attributes = spec_of(tmp_path / "app.yaml").attributes
    assert attributes.spark == {"spark.a": "true", "spark.b": "8", "spark.c": "1.50", "spark.d": "x"}
    assert attributes.checkpoint == "7"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("name: sample", "nmae: sample", "1:1: an app has no 'nmae'; did you mean 'name'?"),
        ("name: sample", "nmae: sample", "1:1: 'name' is missing"),
        (
            "name: sample",
            "name: My App",
            "1:7: 'name': expected small letters, digits and '-', at most 200, got 'My App'",
        ),
        ("name: sample", "name: [a]", "1:7: 'name': expected text, got a list"),
        ("name: sample", "name: true", "1:7: 'name': expected text, got true"),
        ("operators:", "operator:", "2:1: an app has no 'operator'; did you mean 'operators'?"),
        ("operators:", "operator:", "'operators' is missing"),
        ("  reader:\n", "  rea.der:\n", "6:3: 'rea.der' is no name for an operator"),
        (f"class: {SAMPLES}.Reader", "klass: x", "7:5: operator 'reader' has no 'klass'; did you mean 'class'?"),
        (f"class: {SAMPLES}.Reader", "klass: x", "6:3: operator 'reader' has no class"),
        ("properties: {path: out}", "propertys: {path: out}", "has no 'propertys'; did you mean 'properties'?"),
        ("properties: {path: out}", "properties: [path]", "17:17: 'properties': expected a mapping, got a list"),
        (
            "{from: source.pieces,",
            "{form: source.pieces,",
            "20:12: stream 'pieces' has no 'form'; did you mean 'from'?",
        ),
        ("{from: source.pieces,", "{form: source.pieces,", "20:3: stream 'pieces' has no 'from'"),
        (
            "from: source.pieces",
            "from: source",
            "20:18: 'from' of stream 'pieces': expected operator.port, got 'source'",
        ),
        ("from: source.pieces", "from: a.b.c", "expected operator.port, got 'a.b.c'"),
        ("from: source.pieces", "from: [[source.pieces]]", "expected operator.port, got a list"),
        ("from: source.pieces", "from: []", "20:18: 'from' of stream 'pieces': expected a port or a list of ports"),
        ("to: reader.pieces}", "to: reader.pieces, broadcast: 3}", "20:63: 'broadcast' of stream 'pieces': expect"),
        ("[sink.input]", "[]", "expected a port or a list of ports, got an empty list"),
        ("[sink.input]", "[sink.input, {a: 1}]", "expected operator.port, got a mapping"),
        ("{from: source.pieces, to: reader.pieces}", "5", "20:11: stream 'pieces': expected a mapping with 'from' and"),
    ],
)
def test_a_mistake_is_named_at_its_place(tmp_path: Path, old: str, new: str, expected: str) -> None:
    """Line, column, what was found and what was expected."""
    problems = problems_of(tmp_path, changed(old, new))
    assert any(expected in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("{windowmillis: 5}", "has no 'windowmillis'; did you mean 'window_millis'?"),
        ("{window_millis: 0}", "expected a whole number from 1 to 86400000"),
        ("{window_millis: true}", "got true"),
        ("{stall_warning_millis: 0}", "expected a whole number from 1 to 86400000"),
        ("{task_timeout_millis: 5 s}", "'task_timeout_millis': expected a whole number from 1 to 86400000"),
        (
            "{master: 'local[0]'}",
            "2:22: 'master': expected a Spark master, such as local[4], local[*] or spark://host:7077, got 'local[0]'",
        ),
        ("{durability: powr}", "got 'powr'; did you mean 'power'?"),
        ("{roots: {Data: /x}}", "root 'Data': expected small letters, digits and"),
        (
            "{roots: {old: /x/y, data: /x}}",
            "2:22: root 'old' lies in root 'data'; name one of them only: everything below it moves with it",
        ),
        ("{roots: {one: /x, two: /x/}}", "2:31: root 'two' lies in root 'one'"),
        ("{roots: {data: [/x]}}", "root 'data': expected a path or URL"),
        ('{checkpoint: "a\\0"}', r"2:26: 'checkpoint': expected a path or URL without a NUL character, got 'a\x00'"),
        ('{roots: {data: "a\\0"}}', r"2:28: root 'data': expected a path or URL without a NUL character, got 'a\x00'"),
        ("{checkpoint: [a]}", "2:26: 'checkpoint': expected a path or URL, got a list"),
        (
            "{spark: {a: 1, spark.master: yarn}}",
            "2:28: 'spark' takes no 'spark.master'; write attributes: {master: ...}",
        ),
        ("{spark: {a: [1]}}", "2:25: Spark setting 'a': expected a single value"),
        ("5", "2:13: 'attributes': expected a mapping, got the number 5"),
    ],
)
def test_a_wrong_attribute_is_named_at_its_value(tmp_path: Path, attributes: str, expected: str) -> None:
    """Each attribute says what it takes, and what it was given."""
    (problem,) = problems_of(tmp_path, changed("name: sample", f"name: s\nattributes: {attributes}"))
    assert expected in problem


@pytest.mark.parametrize(
    ("partition", "expected"),
    [
        ("paralel", "did you mean 'parallel'?"),
        ("0", "18:16: partition of operator 'sink'"),
        ("{of: key}", "has no 'of'"),
        ("true", "got true"),
    ],
)
def test_a_wrong_partition_is_named_at_its_value(tmp_path: Path, partition: str, expected: str) -> None:
    """It is parallel, a count, or a key."""
    sink = "properties: {path: out}\n    partition: "
    problems = problems_of(tmp_path, changed(f"{sink}parallel", sink + partition))
    assert any(expected in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "- a\n- b\n",
            "1:1: an app is a mapping with name, attributes, steps, rejects, operators, streams, tests; got a list",
        ),
        (
            "just text",
            "an app is a mapping with name, attributes, steps, rejects, operators, streams, tests; got 'just text'",
        ),
        ("---\n", "got nothing"),
        ("name: a\noperators: {}\n", "2:12: 'operators' is empty"),
        ("name: a\noperators:\n", "'operators' is empty"),
    ],
)
def test_what_is_no_app_is_said_to_be_none(tmp_path: Path, text: str, message: str) -> None:
    """A list, a text, nothing, and an app of nothing."""
    assert any(message in problem for problem in problems_of(tmp_path, text))


def test_all_mistakes_are_reported_at_once_in_file_order(tmp_path: Path) -> None:
    """One mistake in each part of the app gives one problem each, the command line's first."""
    text = (
        VALID.replace("name: sample", "name: Sample\nextra: 1")
        .replace("limit: 3", "limt: 3")
        .replace("Step\n", "Stepp\n")
        .replace("to: reader.pieces", "to: reader.piecs")
    )
    problems = problems_of(tmp_path, text, ["nowhere.x=1"])
    heads = [problem.split(":")[0] for problem in problems]
    assert len(problems) == 6 and heads == ["--set nowhere.x", "1", "2", "9", "11", "21"], problems


def test_load_raises_all_of_them(tmp_path: Path) -> None:
    """The exception carries the problems, and shows each with file, line and column."""
    file = tmp_path / "app.yaml"
    file.write_text(changed("limit: 3", "limt: 3"))
    with pytest.raises(
        SpecError, match=r"app\.yaml:8:18: operator 'reader' \(Reader\) has no property 'limt'"
    ) as raised:
        load_app(file)
    assert raised.value.exit_code == 2 and len(raised.value.problems) == 1
