"""Source files that are removed when the results over several windows that they are in are published."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from deltalake import DeltaTable

from dagflow.engine.run import run
from dagflow.errors import DagflowError
from dagflow.plan.load import load_app
from tests.engine.test_held_results import results
from tests.engine.test_operator_state import until

CLEANED = """\
name: cleaned
attributes: {checkpoint: ROOT/journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: [ROOT/in], max_files_per_window: 2}}
  reader: {class: BlockReader}
  count: {class: CountBy, properties: {by: record, over: OVER}, partition: parallel}
  NEXT
  cleaner: {class: SourceCleaner, properties: {action: remove}}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: count.input}
  counts: {from: count.output, to: next.input}
  read: {from: reader.blocks_metadata_output, to: cleaner.input}
"""
SINKS = {
    "files": "next: {class: RecordWriter, properties: {path: ROOT/out}}",
    "results": "next: {class: TopN, properties: {by: count, n: 100, over: run}}\n"
    "  writer: {class: RecordWriter, properties: {path: ROOT/out}}",
    "table": 'next: {class: TableWriter, properties: {table: "delta:ROOT/out", commit: {every_millis: 3600000}}}',
}


def published_words(root: Path) -> set[str]:
    """The words that readers of the output can see."""
    if (root / "out" / "_delta_log").exists():
        return {word.decode() for word in DeltaTable(str(root / "out")).to_pyarrow_table()["record"].to_pylist()}
    return {word for result in results(root) for word in result}


@pytest.mark.parametrize(("over", "sink"), [("run", "files"), ("{millis: 1}", "results"), ("{millis: 1}", "table")])
def test_source_files_stay_until_the_results_of_them_are_published(tmp_path: Path, over: str, sink: str) -> None:
    """Also where these are held once more, in the results of results or for the next commit of a table."""
    (tmp_path / "in").mkdir()
    words = {f"w{number}" for number in range(8)}
    for word in words:
        (tmp_path / "in" / word).write_text(f"{word}\n")
    text = CLEANED.replace("OVER", over).replace("NEXT", SINKS[sink]).replace("ROOT", str(tmp_path))
    if sink == "results":
        text += "  best: {from: next.output, to: writer.input}\n"
    (tmp_path / "app.yaml").write_text(text)
    for last in itertools.count(1):
        try:
            run(load_app(str(tmp_path / "app.yaml")), runtime=until(last))
            break
        except DagflowError as error:
            assert "the lights went out" in str(error)
        assert words - {path.name for path in (tmp_path / "in").iterdir()} <= published_words(tmp_path)
    assert last > 4
    assert (published_words(tmp_path), list((tmp_path / "in").iterdir())) == (words, [])
