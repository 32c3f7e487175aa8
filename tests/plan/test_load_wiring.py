"""Streams connect operators as their ports allow; what does not is named at its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.errors import PlanError, SpecError
from dagflow.plan.load import load_app
from dagflow.plan.placement import place
from dagflow.plan.render.explain import explain
from tests.spec.apps import SAMPLES, VALID, changed, problems_of, wired


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("from: source.pieces", "from: sorce.pieces", "20:18: there is no operator 'sorce'; did you mean 'source'?"),
        (
            "from: source.pieces",
            "from: source.peices",
            "20:18: operator 'source' (PieceInput) has no output port 'peices'; did",
        ),
        (
            "to: reader.pieces",
            "to: reader.piece",
            "20:37: operator 'reader' (Reader) has no input port 'piece'; did you",
        ),
        (
            "to: reader.pieces",
            "to: reader.done",
            "20:37: 'reader.done' is an output port, and 'to' takes an input port",
        ),
        (
            "from: reader.records",
            "from: reader.pieces",
            "'reader.pieces' is an input port, and 'from' takes an output port",
        ),
        (
            "from: reader.records",
            "from: sink.x",
            "operator 'sink' (Sink) has no output port 'x'\n    it has no output port",
        ),
        ("to: step.left", "to: step.pieces", "'reader.records' gives records, and 'step.pieces' takes FilePiece"),
        (
            "from: source.pieces",
            "from: source.others",
            "'source.others' gives Other, and 'reader.pieces' takes FilePiece",
        ),
    ],
)
def test_a_wrong_end_of_a_stream_is_one_problem(tmp_path: Path, old: str, new: str, expected: str) -> None:
    """Unknown operators and ports, wrong directions and types that do not fit; nothing follows from them."""
    problems = problems_of(tmp_path, changed(old, new))
    assert len(problems) == 1, problems
    assert expected in problems[0]


@pytest.mark.parametrize(
    ("operators", "streams", "expected"),
    [
        (
            "sink: {class: Sink, properties: {path: x}}",
            "",
            "5:3: loose port: input port 'input' of operator 'sink' (Sink)",
        ),
        (
            "sink: {class: RequiresOutput}",
            "s: {from: reader.records, to: sink.input}",
            "5:3: loose port: output port 'output' of operator 'sink' (RequiresOutput)",
        ),
        ("step: {class: Step}", "", "5:3: operator 'step' (Step) would never do anything: no stream reaches it"),
        ("none: {class: Portless}", "", "operator 'none' (Portless) would never do anything: it has no input port"),
        ("more: {class: PieceInput}", "", "5:3: operator 'more' (PieceInput) is connected to nothing"),
        (
            "step: {class: Step}",
            "b: {from: source.pieces, to: step.pieces}",
            "doubly connected port: stream 'pieces' leaves by 'source.pieces' already; give that stream's 'to' a list",
        ),
        (
            "more: {class: PieceInput}",
            "a: {from: more.pieces, to: reader.pieces}",
            "8:30: doubly connected port: stream 'pieces' reaches 'reader.pieces' already",
        ),
        (
            "step: {class: Step}",
            "a: {from: reader.records, to: [step.left, step.left]}",
            "doubly connected port: stream 'a' reaches 'step.left' already",
        ),
        (
            "control: {class: RecordControl}",
            "a: {from: reader.records, to: control.input}",
            "operator 'control' (RecordControl) runs in the driver, and cannot take in records, only metadata",
        ),
        (
            "more: {class: CountingInput}\nstep: {class: Step}",
            "a: {from: more.pieces, to: step.pieces}",
            "operator 'more' (CountingInput) is an input operator, and must not have the input port 'input'",
        ),
        (
            "deaf: {class: MethodlessPort}",
            "a: {from: reader.records, to: deaf.input}",
            "operator 'deaf' (MethodlessPort) has no method for its input port 'input'; mark one with @input.each or",
        ),
        (
            "x: {class: Step}\ny: {class: Step}\nz: {class: Step}",
            "a: {from: reader.records, to: x.left}\nb: {from: x.output, to: y.left}\n"
            "c: {from: y.output, to: z.left}\nd: {from: z.output, to: x.right}",
            "13:3: stream 'd' closes a cycle: 'x' -> 'y' -> 'z' -> 'x'",
        ),
        (
            "x: {class: Step}",
            "a: {from: reader.records, to: x.left}\nb: {from: x.output, to: x.right}",
            "stream 'b' closes a cycle: 'x' -> 'x'",
        ),
        (
            "sink: {class: Sink, properties: {path: x}, partition: parallel}",
            "s: {from: reader.records, to: sink.input, broadcast: true}",
            "8:45: broadcast of stream 's': operator 'sink' has partition: parallel",
        ),
        (
            "f: {class: Follower}",
            "s: {from: reader.done, to: f.input, broadcast: true}",
            "8:39: broadcast of stream 's': operator 'f' runs in the driver, once",
        ),
        (
            "sink: {class: Sink, properties: {path: x}}",
            "s: {from: [reader.records, reader.records], to: sink.input}",
            "8:30: 'reader.records' is already in 'from' of stream 's'",
        ),
        (
            "sink: {class: Sink, properties: {path: x}}",
            "s: {from: [reader.records, reader.done], to: sink.input}",
            "8:30: port types do not fit: 'reader.done' gives FilePiece, and 'sink.input' takes records",
        ),
    ],
)
def test_a_dag_that_cannot_run_is_refused(tmp_path: Path, operators: str, streams: str, expected: str) -> None:
    """One mistake in the wiring is one problem."""
    problems = problems_of(tmp_path, wired(operators, streams))
    assert len(problems) == 1, problems
    assert expected in problems[0]


def test_each_cycle_is_reported_once(tmp_path: Path) -> None:
    """Two cycles are two problems."""
    operators = "a: {class: Step}\nb: {class: Step}\nc: {class: Step}\nd: {class: Step}"
    streams = (
        "s: {from: reader.records, to: [a.left, c.left]}\nt: {from: a.output, to: b.left}\n"
        "u: {from: b.output, to: a.right}\nv: {from: c.output, to: d.left}\nw: {from: d.output, to: c.right}"
    )
    problems = problems_of(tmp_path, wired(operators, streams))
    assert [problem.partition("cycle: ")[2] for problem in problems] == ["'a' -> 'b' -> 'a'", "'c' -> 'd' -> 'c'"]


def test_an_app_needs_an_input_operator(tmp_path: Path) -> None:
    """Without one nothing would ever flow."""
    text = f"name: a\noperators:\n  x: {{class: {SAMPLES}.RequiresOutput}}\n  y: {{class: {SAMPLES}.RequiresOutput}}\n"
    text += "streams:\n  a: {from: x.output, to: y.input}\n  b: {from: y.output, to: x.input}\n"
    problems = problems_of(tmp_path, text)
    assert "1:1: no operator brings anything in" in problems[0] and "cycle" in problems[1] and len(problems) == 2


def test_an_input_operator_alone_is_an_app(tmp_path: Path) -> None:
    """It has nothing to be connected to."""
    assert problems_of(tmp_path, f"name: a\noperators:\n  x: {{class: {SAMPLES}.PieceInput}}\n") == []


def test_a_subclass_of_what_a_port_takes_fits(tmp_path: Path) -> None:
    """SmallPiece goes where FilePiece is taken."""
    (tmp_path / "app.yaml").write_text(VALID)
    plan = load_app(tmp_path / "app.yaml")
    assert [str(edge.source) for edge in plan.edges] == ["source.pieces", "reader.records", "step.output"]


def test_mistakes_of_form_and_of_wiring_come_together(tmp_path: Path) -> None:
    """SpecError where the form is wrong, with the wiring's mistakes; PlanError where only the wiring is."""
    file = tmp_path / "app.yaml"
    file.write_text(changed("limit: 3", "limt: 3").replace("to: step.left", "to: step.lefd"))
    with pytest.raises(SpecError, match=r"'limt'(?s:.*)'lefd'"):
        load_app(file)
    file.write_text(changed("to: step.left", "to: step.lefd"))
    with pytest.raises(PlanError, match="did you mean 'left'"):
        load_app(file)


def test_a_stream_may_come_from_several_ports(tmp_path: Path) -> None:
    """One edge from each source to each target; a port that has a stream already may take part in others."""
    operators = (
        "keyed: {class: Sink, properties: {path: x}, partition: {by: host, count: 3}}\n"
        "step: {class: Step}\nsink: {class: Sink, properties: {path: x}, partition: 2}"
    )
    streams = (
        "plain: {from: reader.records, to: step.left}\n"
        "union: {from: [reader.records, step.output], to: [keyed.input, step.right]}\n"
        "everywhere: {from: reader.records, to: sink.input, broadcast: true}"
    )
    problems = problems_of(tmp_path, wired(operators, streams))
    assert problems == ["11:3: stream 'union' closes a cycle: 'step' -> 'step'"]
    logical = load_app(write(tmp_path, wired(operators, streams.replace(", step.right]", "]"))))
    arcs = [(str(edge.source), str(edge.target), edge.is_broadcast) for edge in logical.edges[1:]]
    assert arcs == [
        ("reader.records", "step.left", False),
        ("reader.records", "keyed.input", False),
        ("step.output", "keyed.input", False),
        ("reader.records", "sink.input", True),
    ]
    routings = {str(e.edge.target): e.routing for stage in place(logical).stages for e in stage.inputs}
    assert routings["keyed.input"] == "by_key" and routings["sink.input"] == "to_all"
    assert place(logical).stage_of("keyed").fixed_partitions == 3
    text = explain(logical, place(logical))
    assert "  keyed (Sink, partition: by host, count 3)\n" in text
    assert "union: output -> keyed.input, shuffle, by host\n" in text
    assert "everywhere: records -> sink.input, shuffle, to all partitions\n" in text


def write(folder: Path, text: str) -> Path:
    """An app file."""
    file = folder / "app.yaml"
    file.write_text(text)
    return file
