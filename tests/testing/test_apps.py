"""Whole apps on files that a test gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow import App, InputPort, Operator, OperatorContext, RecordBatch
from dagflow.errors import OperatorError
from dagflow.testing.apps import run_app
from operators.reader.block_reader import BlockReader
from operators.sink.record_writer import RecordWriter
from operators.splitter.splitter import FileSplitterInput

ROOT = Path(__file__).parents[2]
APP = ROOT / "apps" / "block_reader.yaml"


def test_an_app_runs_on_files_of_a_test(tmp_path: Path) -> None:
    """Its relative paths lead into a directory of the test's own, and nothing is left elsewhere."""
    before = Path.cwd()
    done = run_app(APP, {"data/logs/a.log": "one\n.two\n", "data/logs/b.log": b"three\n"})
    assert done.lines("out/records") == done.lines() == [b"one", b"three"]
    assert (done.records["reader.messages"], done.rejected) == (3, 0)
    assert all(path.startswith("out/records/") for path in done.files)
    assert Path.cwd() == before
    again = run_app(APP, {"data/logs/a.log": "one\n.two\n"}, set={"filter.drop": "{prefix: o}"})
    assert again.lines() == [b".two"]


def test_an_app_in_code_runs_as_well() -> None:
    """With fresh operators each time."""
    app = App("copy", checkpoint="journal")
    app.add(FileSplitterInput(files="in")).to(BlockReader(format="lines")).to(RecordWriter(path="out"))
    for text in ("a\n", "b\nc\n"):
        assert run_app(app, {"in/x.txt": text}).lines() == text.encode().splitlines()


def test_nothing_is_published_outside(tmp_path: Path) -> None:
    """An absolute path of an output, or of a file of the test, is refused before anything runs."""
    with pytest.raises(ValueError, match=f"operator 'writer' publishes into {tmp_path}: give it a relative path"):
        run_app(APP, {}, set={"writer.path": str(tmp_path)})
    with pytest.raises(ValueError, match="would lie outside"):
        run_app(APP, {"../x": "y"})
    assert list(tmp_path.iterdir()) == []


class UndeclaredPublisher(Operator):
    """Publishes what arrives, and says of no location that it does."""

    path: str

    input = InputPort()

    def setup(self, context: OperatorContext) -> None:
        """Keep where files are opened."""
        self._context = context

    @input.batch
    def take(self, batch: RecordBatch) -> None:
        """One file."""
        assert self._context.outputs is not None
        file = self._context.outputs.open(f"{self.path}/{self._context.partition}")
        file.write(b"".join(batch.to_pylist()))
        file.close(records=len(batch))


def test_nothing_is_published_outside_by_what_claims_nothing(tmp_path: Path) -> None:
    """Its file is refused when it is opened; with the relative path that the error advises it is there."""
    for path in (tmp_path / "out", "../out"):
        app = App("copy", checkpoint="journal")
        app.add(FileSplitterInput(files="in")).to(BlockReader(format="lines")).to(UndeclaredPublisher(path=str(path)))
        with pytest.raises(OperatorError, match=r"opens .*out/\d \(a test publishes into .* alone\)") as caught:
            run_app(app, {"in/x.txt": "a\n"})
        assert caught.value.hint == "give the operator a relative path with set"
    assert list(tmp_path.iterdir()) == []
    app = App("copy", checkpoint="journal")
    app.add(FileSplitterInput(files="in")).to(BlockReader(format="lines")).to(UndeclaredPublisher(path="out"))
    assert run_app(app, {"in/x.txt": "a\n"}).lines("out") == [b"a"]


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (["in/a", "in/a/b"], "the file in/a/b would lie where another file of the test lies"),
        (["in/a/b", "in/a"], "the file in/a would lie where another file of the test lies"),
        (["in/a", "./in//a"], "the file ./in//a would lie where another file of the test lies"),
        (["in/" + "n" * 300], "the file in/n+ cannot be written: File name too long"),
        (["in/a\0"], "cannot be written: embedded null byte"),
    ],
)
def test_files_that_cannot_lie_side_by_side_are_named(paths: list[str], message: str) -> None:
    """What the system says of them is no bug of dagflow."""
    with pytest.raises(ValueError, match=message):
        run_app(APP, dict.fromkeys(paths, "x"))
