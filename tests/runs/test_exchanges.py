"""Exchanges in whole runs, on the inline runtime and on Spark: by key, to all, from several streams."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from dagflow import InputPort, Operator, OutputPort
from dagflow.api.context import OperatorContext
from dagflow.api.partitioning import ByName
from dagflow.engine.run import run
from dagflow.engine.run_setup import RuntimeFactory
from dagflow.errors import DagflowError, OperatorError
from dagflow.runtime.local import InlineRuntime
from dagflow.spec.app_spec import KeyedPartition
from operators.reader.block_reader import BlockReader
from operators.sink.record_writer import RecordWriter
from operators.splitter.splitter import FileSplitterInput
from operators.transform.record_filter import RecordFilter
from tests.engine.dags import SampleNames, Suffix, by_partition, dag, files, lines
from tests.engine.sample_app import TextSource
from tests.execution.sample_operators import DropPrefixed, FirstByte, SampleWords, TextSample
from tests.operators.splitter.splitter_driver import write

TEXTS = [b"aa ab ba", b"ca", b"", b"ac bb " * 20, b"dd a b", b"#x e"]
WORDS = b" ".join(TEXTS).split()


class IgnoresPartitions(RecordWriter):
    """Writes one file, whatever the partition."""

    def setup(self, context: OperatorContext) -> None:
        """Forget the partition."""
        super().setup(replace(context, partition=0))


def test_equal_keys_meet_in_one_partition(tmp_path: Path, runtime: RuntimeFactory) -> None:
    """Every word arrives once, and no first letter is in two partitions, over all windows."""
    app = dag(
        tmp_path,
        {
            "source": TextSource(texts=TEXTS, per_window=4),
            "lines": (SampleWords(), 2),
            "writer": (RecordWriter(path=str(tmp_path / "out")), KeyedPartition(FirstByte(), 3)),
        },
        ["source.out lines.samples", "lines.records writer.input"],
    )
    run(app, runtime=runtime)
    assert lines(tmp_path / "out") == sorted(WORDS)
    parts = by_partition(tmp_path / "out")
    homes = Counter(letter for words in parts.values() for letter in {word[:1] for word in words})
    assert len(parts) > 1 and set(homes.values()) == {1}


def test_a_block_without_records_is_known_behind_a_key(tmp_path: Path) -> None:
    """It has no key, and any partition makes its file, as where nothing is partitioned."""
    for number, text in enumerate([b"#a\n", b"b\n", b"#c\n"]):
        write(tmp_path / "in" / str(number), text)
    app = dag(
        tmp_path,
        {
            "source": FileSplitterInput(files=[str(tmp_path / "in")], batch_bytes=0),
            "lines": (BlockReader(), 2),
            "kept": (RecordFilter(drop={"prefix": "#"}), "parallel"),
            "writer": (RecordWriter(path=str(tmp_path / "out"), file_name="block"), KeyedPartition(FirstByte(), 1)),
        },
        [
            *("source.blocks_metadata_output lines.blocks_metadata_input", "lines.messages kept.input"),
            "kept.output writer.input",
        ],
    )
    run(app, runtime=InlineRuntime)
    assert list(files(tmp_path / "out").values()) == [b"", b"b\n", b""]


def test_tuples_find_their_partition_by_an_attribute(tmp_path: Path, runtime: RuntimeFactory) -> None:
    """From the driver as well as from a stage: the two streams bring a name to the same place."""
    names = KeyedPartition(ByName("url"), 4)
    app = dag(
        tmp_path,
        {
            "source": TextSource(texts=[b"x"] * 12, per_window=12),
            "lines": (SampleWords(), 3),
            "first": (SampleNames(), names),
            "a": (RecordWriter(path=str(tmp_path / "a")), "parallel"),
            "second": (SampleNames(), names),
            "b": (RecordWriter(path=str(tmp_path / "b")), "parallel"),
        },
        [
            *("source.out lines.samples", "source.out first.samples", "first.output a.input"),
            *("lines.done second.samples", "second.output b.input"),
        ],
    )
    run(app, runtime=runtime)
    assert lines(tmp_path / "a") == lines(tmp_path / "b") == sorted(b"s%d" % number for number in range(12))
    parts = [{name: sorted(words) for name, words in by_partition(tmp_path / out).items()} for out in "ab"]
    assert parts[0] == parts[1] and len(parts[0]) > 1


def test_what_is_broadcast_is_in_every_partition(tmp_path: Path, runtime: RuntimeFactory) -> None:
    """Two partitions get all words of one stream, and share those of the other."""
    app = dag(
        tmp_path,
        {
            "source": TextSource(texts=TEXTS, per_window=3),
            "lines": (SampleWords(), 2),
            "both": (Suffix(text="!"), 2),
            "writer": (RecordWriter(path=str(tmp_path / "out")), "parallel"),
        },
        [
            "source.out lines.samples",
            "lines.records both.input",
            "lines.records both.other",
            "both.output writer.input",
        ],
        broadcast=["lines.records both.other"],
    )
    run(app, runtime=runtime)
    assert lines(tmp_path / "out") == sorted(word + b"!" for word in WORDS * 3)
    assert all(Counter(words) >= Counter(w + b"!" for w in WORDS) for words in by_partition(tmp_path / "out").values())


def test_the_driver_broadcasts_tuples(tmp_path: Path, runtime: RuntimeFactory) -> None:
    """Each of three partitions gets every tuple."""
    app = dag(
        tmp_path,
        {
            "source": TextSource(texts=[b"x"] * 5, per_window=2),
            "texts": (SampleNames(), 3),
            "writer": (RecordWriter(path=str(tmp_path / "out")), "parallel"),
        },
        ["source.out texts.samples", "texts.output writer.input"],
        broadcast=["source.out texts.samples"],
    )
    run(app, runtime=runtime)
    everything = [b"s0", b"s1", b"s2", b"s3", b"s4"]
    assert {name: sorted(words) for name, words in by_partition(tmp_path / "out").items()} == dict.fromkeys(
        ["00000", "00001", "00002"], everything
    )


class MarksRecords(Operator):
    """Marks each record with the names of the samples that the driver has sent."""

    input = InputPort()
    samples = InputPort(TextSample)
    output = OutputPort()

    def begin_window(self, window_id: int) -> None:
        """Forget the window before."""
        self.names: list[bytes] = []

    @samples.each
    def learn(self, sample: TextSample) -> None:
        """Note a name."""
        self.names.append(sample.url.encode())

    @input.each
    def mark(self, record: bytes) -> None:
        """Emit the record with all names."""
        self.output.emit(b":".join([record, *self.names]))


def test_what_the_driver_sends_to_a_later_stage_comes_before_records(tmp_path: Path, runtime: RuntimeFactory) -> None:
    """Every partition of the second level knows all tuples of the window when its first record arrives."""
    app = dag(
        tmp_path,
        {
            "source": TextSource(texts=[b"a b", b"c", b"d e f"], per_window=2),
            "lines": (SampleWords(), 2),
            "marking": (MarksRecords(), 3),
            "writer": (RecordWriter(path=str(tmp_path / "out")), "parallel"),
        },
        [
            *("source.out lines.samples", "source.out marking.samples"),
            *("lines.records marking.input", "marking.output writer.input"),
        ],
        broadcast=["source.out marking.samples"],
    )
    summary = run(app, runtime=runtime)
    assert lines(tmp_path / "out") == [b"a:s0:s1", b"b:s0:s1", b"c:s0:s1", b"d:s2", b"e:s2", b"f:s2"]
    assert summary.windows == 2


def test_several_sources_and_writers_make_one_commit(tmp_path: Path, runtime: RuntimeFactory) -> None:
    """Two splitters, a diamond, a union of three streams, and two writers in different stages: every record once."""
    app = dag(
        tmp_path,
        {
            "one": TextSource(texts=TEXTS, per_window=2),
            "two": TextSource(texts=[b"y z"], per_window=1),
            "lines": (SampleWords(), 2),
            "others": (SampleWords(), 1),
            "plain": (Suffix(), "parallel"),
            "kept": (DropPrefixed(prefix="#"), 3),
            "union": (Suffix(), None),
            "writer": (RecordWriter(path=str(tmp_path / "all")), "parallel"),
            "comments": (RecordWriter(path=str(tmp_path / "kept")), "parallel"),
        },
        [
            *("one.out lines.samples", "two.out others.samples"),
            *("lines.records plain.input", "lines.records kept.input"),
            *("plain.output union.input", "kept.output union.input", "others.records union.input"),
            *("union.output writer.input", "kept.output comments.input"),
        ],
    )
    summary = run(app, runtime=runtime)
    kept = [word for word in WORDS if not word.startswith(b"#")]
    assert lines(tmp_path / "all") == sorted([*WORDS, *kept, b"y", b"z"])
    assert lines(tmp_path / "kept") == sorted(kept)
    assert summary.windows == summary.last_committed == 3


def test_a_missing_column_ends_the_run_with_the_receivers_name(tmp_path: Path, runtime: RuntimeFactory) -> None:
    """Nothing is published of a window whose records could not find their partition."""
    app = dag(
        tmp_path,
        {
            "source": TextSource(texts=[b"a"]),
            "lines": (SampleWords(), 1),
            "writer": (RecordWriter(path=str(tmp_path / "out")), KeyedPartition(ByName("host"), 3)),
        },
        ["source.out lines.samples", "lines.records writer.input"],
    )
    with pytest.raises(OperatorError, match="operator 'writer': there is no column 'host' to partition by"):
        run(app, runtime=runtime)
    assert not (tmp_path / "out").is_dir() or files(tmp_path / "out") == {}


def test_two_tasks_that_wrote_one_name_are_refused(tmp_path: Path) -> None:
    """As writers of files per block would behind an exchange; the window is not committed."""
    app = dag(
        tmp_path,
        {
            "source": TextSource(texts=[b"a", b"b"]),
            "lines": (SampleWords(), 2),
            "writer": (IgnoresPartitions(path=str(tmp_path / "out")), 2),
        },
        ["source.out lines.samples", "lines.records writer.input"],
    )
    with pytest.raises(DagflowError, match=r"2 tasks wrote a file of the name .*part-00000001-00000-0000"):
        run(app, runtime=InlineRuntime)
    assert files(tmp_path / "out") == {}
