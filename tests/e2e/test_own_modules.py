"""An app with a package of its author's, whose modules read files beside them and are imported late."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.processes import dagflow_command

pytestmark = pytest.mark.e2e

APP = """\
name: own-modules
attributes: {checkpoint: journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: [in], blocks_threshold: 1}}
  reader: {class: BlockReader, properties: {format: lines, max_readers: 1}}
  tag: {class: own_package.tag.Tag, partition: parallel}
  writer: {class: RecordWriter, properties: {path: out, file_name: block}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: tag.input}
  tagged: {from: tag.output, to: writer.input}
"""

TAG = """\
import os
import tempfile
from pathlib import Path
from dagflow import InputPort, Operator, OutputPort

WORD = (Path(__file__).parent / "words" / "first.txt").read_bytes()


class Tag(Operator):
    "Works in a directory of its own, and imports a module with each file: of a package, and one beside it."

    input = InputPort()
    output = OutputPort()

    def setup(self, context):
        os.chdir(tempfile.mkdtemp())

    @input.each
    def tag(self, record):
        if record == b"1":
            from own_package.late import late
        else:
            from own_late import late
        self.output.emit(WORD + late(record))
"""

CLUSTER = ["--master", "local-cluster[1,1,1024]", "--conf", "spark.executor.memory=512m"]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(CLUSTER, marks=[pytest.mark.spark, pytest.mark.nightly], id="cluster"),
        pytest.param(["--master", "local[1]"], marks=[pytest.mark.spark, pytest.mark.nightly], id="Spark"),
        pytest.param(["--local", "--workers", "2"], id="local"),
    ],
)
def test_modules_find_files_beside_them_and_modules_that_are_late(tmp_path: Path, options: list[str]) -> None:
    """With every runtime, also where an operator has changed the directory, in each task of a process."""
    app, work = tmp_path / "app", tmp_path / "work"
    package = app / "own_package"
    for folder in (package / "words", work / "in"):
        folder.mkdir(parents=True)
    (package / "words" / "first.txt").write_bytes(b"word ")
    (package / "__init__.py").touch()
    (package / "tag.py").write_text(TAG)
    (package / "late.py").write_text("def late(record):\n    return b'late ' + record\n")
    (app / "own_late.py").write_text("def late(record):\n    return b'later ' + record\n")
    for number in (1, 2, 3):
        (work / "in" / str(number)).write_text(f"{number}\n")
    (app / "app.yaml").write_text(APP)
    done = dagflow_command(["run", "../app/app.yaml", *options], cwd=work, SPARK_LOCAL_IP="127.0.0.1")
    assert done.returncode == 0, done.stderr
    written = b"".join(file.read_bytes() for file in (work / "out").rglob("*") if file.is_file())
    assert sorted(written.splitlines()) == [b"word late 1", b"word later 2", b"word later 3"]
