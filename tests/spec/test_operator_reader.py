"""Policies are named in an app, beside the operators whose partitions they decide."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dagflow.api.partitioning import BacklogStats, PartitionPolicy, StatsResponse
from dagflow.engine.run import run
from dagflow.errors import OperatorError
from dagflow.plan.load import load_app
from dagflow.report.reading import status
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from operators.deadline import DeadlinePartitioner
from tests.spec.apps import problems_of


class Nightly(PartitionPolicy):
    """An author's own."""

    size: int = 3

    def define_partitions(self, stats: BacklogStats) -> int:
        """The size."""
        return self.size


class PlainPolicy(PartitionPolicy):
    """An author's own that has no properties."""

    def define_partitions(self, stats: BacklogStats) -> int:
        """Two."""
        return 2


class MistakenPolicy(PartitionPolicy):
    """An author's own, which has a mistake."""

    mistake: str

    def define_partitions(self, stats: BacklogStats) -> int:
        """No whole number, once there are partitions."""
        return stats.partitions / 0.5 if stats.partitions else 1  # type: ignore[return-value]  # the mistake

    def process_stats(self, stats: BacklogStats) -> StatsResponse:
        """None where an answer is due, or a request for new partitions."""
        return None if self.mistake == "silent" else StatsResponse(True)  # type: ignore[return-value]  # the mistake


APP = """\
name: deadline
attributes: {checkpoint: ROOT/journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: ROOT/data, block_size: 10}}
  reader:
    class: BlockReader
    partitioner: {class: DeadlinePartitioner, properties: {target_millis: 5000, max_partitions: 4}}
  writer: {class: RecordWriter, properties: {path: ROOT/out}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: writer.input}
"""
HERE = "tests.spec.test_operator_reader"


def test_a_policy_takes_the_operators_place(tmp_path: Path) -> None:
    """Each plan has a fresh one, with the app's properties."""
    (tmp_path / "app.yaml").write_text(APP)
    one, two = (load_app(tmp_path / "app.yaml").operators["reader"].partitioner for _ in range(2))
    assert isinstance(one, DeadlinePartitioner) and one.max_partitions == 4 and one is not two


def test_a_run_asks_the_policy_and_its_journal_has_the_count(tmp_path: Path) -> None:
    """The count is the policy's, and status says so."""
    old = "DeadlinePartitioner, properties: {target_millis: 5000, max_partitions: 4}"
    text = APP.replace(old, f"{HERE}.Nightly, properties: {{size: 5}}").replace("ROOT", str(tmp_path))
    (tmp_path / "app.yaml").write_text(text)
    (tmp_path / "data").write_bytes(b"a\n" * 30)
    summary = run(load_app(tmp_path / "app.yaml"), runtime=InlineRuntime)
    assert summary.partitions["reader"].last == 5
    (decision,) = status(str(tmp_path / "journal"), StorageContext.default()).decisions
    assert (decision.window, decision.stage, decision.before, decision.after) == (1, "reader", 0, 5)
    assert (
        status(str(tmp_path / "journal"), StorageContext.default()).status_json()["decisions"][0]["reason"] == "start"
    )


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "DeadlinePartitioner",
            "DeadlinePartitoner",
            "7:26: partitioner of operator 'reader': there is no built-in partit",
        ),
        (
            "DeadlinePartitioner",
            "RecordFilter",
            "7:26: partitioner of operator 'reader': there is no built-in partitioner",
        ),
        ("DeadlinePartitioner", f"{HERE}.PlanePolicy", "has no class 'PlanePolicy'; did you mean 'PlainPolicy'?"),
        ("DeadlinePartitioner", f"{HERE}.BacklogStats", "is not a partitioner; derive it from dagflow.PartitionPolicy"),
        (
            "max_partitions: 4",
            "max_partitons: 4",
            "7:81: partitioner of operator 'reader' (DeadlinePartitioner) has no prop",
        ),
        ("max_partitions: 4", "max_partitions: no", "property 'max_partitions': expected a whole number, got 'no'"),
        ("max_partitions: 4", "min_partitions: 40", "min_partitions, 40, is above max_partitions, 16"),
        (
            "{class: DeadlinePartitioner, properties: {target_millis: 5000, max_partitions: 4}}",
            "4",
            "expected a map",
        ),
        ("    partitioner:", "    partition: 3\n    partitioner:", "8:5: operator 'reader' has a fixed number of part"),
        ("    partitioner:", "    partition: parallel\n    partitioner:", "8:5: operator 'reader' runs where its up"),
        (
            "block_size: 10}}",
            "block_size: 10}, partitioner: {class: StatelessPartitioner, properties: {count: 3}}}",
            "4:",
        ),
    ],
)
def test_a_wrong_partitioner_is_named_at_its_place(tmp_path: Path, old: str, new: str, expected: str) -> None:
    """Its class, its properties, and where it has nothing to decide."""
    assert APP.count(old) == 1
    problems = problems_of(tmp_path, APP.replace(old, new))
    assert any(expected in problem for problem in problems), problems


def test_a_key_leaves_the_count_to_a_policy(tmp_path: Path) -> None:
    """`by` without a count, together with a partitioner, is an app that is right; any policy will do."""
    text = APP.replace("    partitioner:", "    partition: {by: url}\n    partitioner:").replace("ROOT", str(tmp_path))
    text = text.replace(
        "DeadlinePartitioner, properties: {target_millis: 5000, max_partitions: 4}", f"{HERE}.PlainPolicy"
    )
    assert problems_of(tmp_path, text) == []


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ("silent", r"MistakenPolicy.process_stats\(\) raised AttributeError"),
        ("half", r"MistakenPolicy.define_partitions\(\) raised TypeError"),
    ],
)
def test_a_policy_that_fails_is_named(tmp_path: Path, mistake: str, said: str) -> None:
    """A mistake in an author's own policy is theirs, not one of dagflow."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("one\n")
    policy = f"partitioner: {{class: {HERE}.MistakenPolicy, properties: {{mistake: {mistake}}}}}"
    app = re.sub(r"partitioner: .*", policy, APP).replace("ROOT", str(tmp_path))
    (tmp_path / "app.yaml").write_text(app)
    with pytest.raises(OperatorError, match=f"operator 'reader': {said}"):
        run(load_app(tmp_path / "app.yaml"), runtime=InlineRuntime)


FORMAT = """\
from operators.sink.formats.text_format import RawSink


class Shouting(RawSink):
    name = "shouting"
    loud: bool = False
"""


def test_classes_that_properties_name_are_found_beside_the_app(tmp_path: Path) -> None:
    """A format is imported from there, its options are checked, and its module goes to the executors."""
    (tmp_path / "own_shouting.py").write_text(FORMAT)
    (tmp_path / "app.yaml").write_text(
        "name: shouting\n"
        "operators:\n"
        f"  splitter: {{class: FileSplitterInput, properties: {{files: {tmp_path}/data}}}}\n"
        "  reader: {class: BlockReader}\n"
        "  writer: {class: RecordWriter, properties: {path: out, format: {type: own_shouting.Shouting, loud: true}}}\n"
        "streams:\n"
        "  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}\n"
        "  records: {from: reader.messages, to: writer.input}\n"
    )
    logical = load_app(tmp_path / "app.yaml")
    assert getattr(logical.operators["writer"].operator, "format").loud  # noqa: B009  # of the author's own type
    assert logical.spec is not None
    assert logical.spec.user_modules() == [tmp_path / "own_shouting.py"]
