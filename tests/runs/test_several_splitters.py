"""Several splitters in one app."""

from __future__ import annotations

import json
from pathlib import Path

from dagflow.engine.run import run
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from tests.engine.dags import files, lines

APP = """\
name: two
attributes: {{checkpoint: {root}/journal}}
operators:
  a: {{class: FileSplitterInput, properties: {{files: {root}/a, block_size: 8}}}}
  b: {{class: FileSplitterInput, properties: {{files: {root}/b, block_size: 8}}}}
  reader: {{class: BlockReader}}
  blocks: {{class: RecordWriter, properties: {{path: {root}/blocks, file_name: block}}, partition: parallel}}
  parts: {{class: RecordWriter, properties: {{path: {root}/parts}}}}
  completion: {{class: FileCompletion}}
  done: {{class: MetadataWriter, properties: {{path: {root}/done}}}}
streams:
  found: {{from: [a.blocks_metadata_output, b.blocks_metadata_output], to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: [blocks.input, parts.input]}}
  files: {{from: [a.files_metadata_output, b.files_metadata_output], to: completion.files_metadata_input}}
  read: {{from: reader.blocks_metadata_output, to: completion.blocks_metadata_input}}
  complete: {{from: completion.output, to: done.input}}
"""


def test_two_splitters_may_feed_one_reader_and_two_writers(tmp_path: Path) -> None:
    """Blocks of both are distinguished, every record is published in both places, every file is reported once."""
    texts = {"a/x": b"one\ntwo\nthree\nfour\n", "b/x": b"five\nsix\n", "b/y": b"seven\neight\nnine\n"}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(text)
    (tmp_path / "app.yaml").write_text(APP.format(root=tmp_path))
    summary = run(load_app(tmp_path / "app.yaml"), runtime=InlineRuntime)
    words = sorted(b"one two three four five six seven eight nine".split())
    assert lines(tmp_path / "blocks") == lines(tmp_path / "parts") == words
    assert len(files(tmp_path / "blocks")) == summary.blocks == 3 + 2 + 3
    completed = [Path(json.loads(line)["url"]).relative_to(tmp_path) for line in lines(tmp_path / "done")]
    assert sorted(map(str, completed)) == ["a/x", "b/x", "b/y"]
    assert summary.windows == 1 and run(load_app(tmp_path / "app.yaml"), runtime=InlineRuntime).windows == 0


GROWING = """\
name: growing
attributes: {{checkpoint: {root}/journal}}
operators:
{splitters}  reader: {{class: BlockReader}}
  writer: {{class: RecordWriter, properties: {{path: {root}/out, file_name: block}}, partition: parallel}}
streams:
  found: {{from: [{ports}], to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: writer.input}}
"""


def test_a_splitter_that_is_put_before_others_takes_none_of_their_ids(tmp_path: Path) -> None:
    """Output is named by them: a record of it would be taken for one that is there, or stand in its way.

    Nor do those that come to an app from which a splitter was taken out.
    """
    for name in "abc":
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_bytes(b"the same\n")
    for number, names in enumerate((["b"], ["a", "b"], ["a"], ["c", "a"]), 1):
        splitters = [
            f"  {each}: {{class: FileSplitterInput, properties: {{files: {tmp_path}/{each}}}}}\n" for each in names
        ]
        ports = ", ".join(f"{each}.blocks_metadata_output" for each in names)
        (tmp_path / "app.yaml").write_text(GROWING.format(root=tmp_path, splitters="".join(splitters), ports=ports))
        run(load_app(tmp_path / "app.yaml"), runtime=InlineRuntime)
        assert len(lines(tmp_path / "out")) == min(number, 3 if number > 3 else 2)
