"""State by key and partitions by key, before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.errors import PlanError
from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan
from tests.spec.apps import problems_of, wired

APP = """\
name: keyed
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: in}}}}
  reader: {{class: BlockReader}}
  unique: {{class: Deduplicator{properties}{partition}}}
  counter: {{class: KeyCounter, partition: parallel}}
  writer: {{class: RecordWriter, properties: {{path: out}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: unique.input}}
  first: {{from: unique.output, to: counter.input}}
  counts: {{from: counter.output, to: writer.input}}
"""


def load(tmp_path: Path, partition: str, properties: str = "") -> LogicalPlan:
    """Check the app."""
    path = tmp_path / "app.yaml"
    path.write_text(APP.format(partition=partition, properties=properties))
    return load_app(str(path))


@pytest.mark.parametrize(
    "partition", ["", ", partition: {by: record}", ", partition: {by: record, count: 3}", ", partition: 1"]
)
def test_state_by_key_lives_where_all_records_of_a_key_arrive(tmp_path: Path, partition: str) -> None:
    """Behind an exchange by key, or in the one partition that there is; also further down in the same stage."""
    plan = load(tmp_path, partition)
    assert plan.operators["unique"].partition not in (None, "parallel")
    assert plan.operators["counter"].partition == "parallel"


@pytest.mark.parametrize("partition", [", partition: parallel", ", partition: 2"])
def test_records_of_a_key_in_several_partitions_are_refused(tmp_path: Path, partition: str) -> None:
    """Each operator that keeps state by key is named, at its place, with what to write."""
    with pytest.raises(PlanError, match="operator 'unique' keeps state by key, and records of one key reach") as caught:
        load(tmp_path, partition)
    assert [problem.line for problem in caught.value.problems] == [5, 6]
    assert "partition: {by: record}, or partition: 1" in str(caught.value)


@pytest.mark.parametrize("partition", [", partition: parallel", ", partition: 2"])
def test_the_partition_that_is_advised_is_accepted(tmp_path: Path, partition: str) -> None:
    """The operator itself takes it, whatever the head of its stage takes in, as a reader does blocks."""
    with pytest.raises(PlanError, match=r"\n    give operator 'unique' partition: \{by: record\}, or partition: 1"):
        load(tmp_path, partition)
    for advised in ("{by: record}", "1"):
        assert load(tmp_path, f", partition: {advised}")


def test_without_a_partition_an_operator_joins_its_stage(tmp_path: Path) -> None:
    """Not behind the driver, nor where two stages meet, nor behind a broadcast, nor with state or a policy."""
    operators = (
        "near: {class: Step}\nfar: {class: Step, partition: 2}\nnext: {class: Step}\njoin: {class: Step}\n"
        "told: {class: Step}\n"
    )
    streams = (
        "a: {from: reader.records, to: [near.left, far.left]}\nb: {from: far.output, to: [next.left, join.left]}\n"
        "c: {from: near.output, to: join.right}\nd: {from: near.output, to: told.left, broadcast: true}"
    )
    path = tmp_path / "app.yaml"
    path.write_text(wired(operators, streams))
    partitions = {name: node.partition for name, node in load_app(path).operators.items()}
    assert partitions == {
        "source": None,
        "reader": None,
        "near": "parallel",
        "far": 2,
        "next": "parallel",
        "join": None,
        "told": None,
    }


def test_partitions_by_another_key_are_refused(tmp_path: Path) -> None:
    """The records of one host would reach the partitions of several users."""
    with pytest.raises(PlanError, match="keeps state by the key 'host', and its partitions are by 'user'"):
        load(tmp_path, ", partition: {by: user}", ", properties: {key: host}")


BROADCASTS = """\
name: suffixed
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: in}}}}
  reader: {{class: BlockReader}}
  suffixed: {{class: tests.engine.dags.Suffix, partition: {partition}}}
  unique: {{class: Deduplicator, partition: parallel}}
  writer: {{class: RecordWriter, properties: {{path: out}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: suffixed.input{broadcast}}}
  all: {{from: reader.messages, to: suffixed.other, broadcast: true}}
  passed: {{from: suffixed.output, to: unique.input}}
  first: {{from: unique.output, to: writer.input}}
"""


@pytest.mark.parametrize(
    ("partition", "broadcast"),
    [
        ("{by: record}", ""),
        ("{by: record, count: 2}", ""),
        ("{by: record, count: 1}", ", broadcast: true"),
        ("1", ", broadcast: true"),
    ],
)
def test_state_by_key_may_be_beside_a_broadcast(tmp_path: Path, partition: str, broadcast: str) -> None:
    """The records of a key arrive in one partition as well."""
    path = tmp_path / "app.yaml"
    path.write_text(BROADCASTS.format(partition=partition, broadcast=broadcast))
    assert load_app(str(path)).operators["unique"].partition == "parallel"


@pytest.mark.parametrize("partition", ["{by: record}", "{by: record, count: 2}"])
def test_state_by_key_of_broadcasts_alone_is_refused(tmp_path: Path, partition: str) -> None:
    """Each partition would keep all keys; both ways out are accepted above."""
    (problem,) = problems_of(tmp_path, BROADCASTS.format(partition=partition, broadcast=", broadcast: true"))
    assert problem.endswith(
        "operator 'unique' keeps state by key, and broadcasts bring the records of a key to all partitions\n"
        "    let a stream to operator 'suffixed' be no broadcast, or give it partition: 1"
    )


@pytest.mark.parametrize(
    ("operators", "streams", "expected"),
    [
        (
            "control: {class: Follower, partition: 2}",
            "a: {from: reader.done, to: control.input}",
            "5:69: operator 'control' (Follower) runs in the driver, once; it takes no partition",
        ),
        (
            "more: {class: PieceInput}\nstep: {class: Step, partition: parallel}",
            "a: {from: more.pieces, to: step.pieces}",
            "partition: parallel of operator 'step' needs an upstream operator that has partitions, and has none",
        ),
        (
            "more: {class: PieceInput}\nstep: {class: Step, partition: parallel}",
            "a: {from: more.pieces, to: step.pieces}\nb: {from: reader.records, to: step.left}",
            "partition: parallel of operator 'step' takes in from the driver as well, from 'more'",
        ),
        (
            "left: {class: Step, partition: 2}\nright: {class: Step, partition: 2}\n"
            "join: {class: Step, partition: parallel}",
            "a: {from: reader.records, to: [left.left, right.left]}\n"
            "b: {from: left.output, to: join.left}\nc: {from: right.output, to: join.right}",
            "partition: parallel of operator 'join' takes in from different stages, those of 'left' and 'right'",
        ),
        (
            "t: {class: TaggedSource}\nr2: {class: Reader, partition: {by: hots}}",
            "s: {from: t.tagged, to: r2.pieces}",
            "6:62: operator 'r2': stream 's' carries Tagged, which has no 'hots' to partition by; did you mean 'host'?",
        ),
    ],
)
def test_partitions_that_do_not_fit_are_one_problem(
    tmp_path: Path, operators: str, streams: str, expected: str
) -> None:
    """Partitions of an operator in the driver, of one that cannot be fused, and by keys that tuples do not have."""
    (problem,) = problems_of(tmp_path, wired(operators, streams))
    assert expected in problem
