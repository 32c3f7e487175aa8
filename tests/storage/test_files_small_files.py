"""Many small files into one buffer."""

from __future__ import annotations

import os
from pathlib import Path

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.errors import MissingError, SourceChangedError
from dagflow.storage.files import LoadedFiles, SmallFiles
from tests.storage.shared import STORAGE, filesystem_of


def planned(folder: str) -> SmallFiles:
    """All files of a directory as they are now."""
    found = list(STORAGE.list_directory(folder))
    names = [entry.url.rpartition("/")[2] for entry in found]
    columns = [entry.size_bytes for entry in found], [entry.mtime_ns for entry in found]
    etags = [entry.etag for entry in found]
    return SmallFiles(found[0].url.rpartition("/")[0] + "/", names, *columns, etags if any(etags) else ())


def loaded(files: SmallFiles, endings: bytes = b"") -> tuple[list[bytes], LoadedFiles]:
    """The contents that were read, by the borders, and the rest of the answer."""
    buffer = memoryview(bytearray(files.buffer_bytes))
    answer = STORAGE.backend(files.base).files.load(files, buffer, endings)
    pieces = zip(answer.borders, answer.borders[1:], strict=False)
    return [bytes(buffer[start:end]) for start, end in pieces], answer


@given(st.lists(st.binary(max_size=8), min_size=1, max_size=8), st.sampled_from([b"", b"\n", b"\n\r"]))
def test_each_file_is_read_whole_and_ended(contents: list[bytes], endings: bytes) -> None:
    """Contents stay apart; behind one that ends with none of the endings stands the first of them."""
    store = fsspec.filesystem("memory")
    for number, content in enumerate(contents):
        store.pipe_file(f"/whole-and-ended/{number:03}", content)
    try:
        found, answer = loaded(planned("memory://whole-and-ended"), endings)
    finally:
        store.rm("/whole-and-ended", recursive=True)
    ended = [c + endings[:1] if endings and c and c[-1:] not in map(bytes, zip(endings)) else c for c in contents]
    assert (found, answer.failures) == (ended, {})


def test_local_files_are_checked_after_they_are_read(tmp_path: Path) -> None:
    """Names may hold any byte; whatever is not the planned version leaves nothing in the buffer."""
    names = [b"a b", b"\xff\n", b"gone", b"grown", b"pipe", b"shrunk", b"touched", b"z"]
    for name in names:
        (tmp_path / os.fsdecode(name)).write_bytes(b"<" + name + b">")
    files = planned(str(tmp_path))
    (tmp_path / "gone").unlink()
    (tmp_path / "grown").write_bytes(b"<grown> and more")
    (tmp_path / "pipe").unlink()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "shrunk").write_bytes(b"<")
    os.utime(tmp_path / "touched", ns=(5, 5))
    found, answer = loaded(files)
    at = [os.fsencode(name) for name in files.names]
    good = {name: content for name, content in zip(at, found, strict=True) if content}
    assert good == {name: b"<" + name + b">" for name in (b"a b", b"\xff\n", b"z")}
    assert {at[index] for index in answer.failures} == {b"gone", b"grown", b"pipe", b"shrunk", b"touched"}
    assert isinstance(answer.failures[at.index(b"gone")], MissingError)
    assert isinstance(answer.failures[at.index(b"touched")], SourceChangedError)
    assert "now it has 16" in str(answer.failures[at.index(b"grown")])


@pytest.mark.parametrize("change", ["gone", "replaced"])
def test_an_object_that_changed_is_not_read(change: str, s3_root: str) -> None:
    """On a store with etags another content of the same length is another version."""
    filesystem, path = filesystem_of(f"{s3_root}/small")
    for name in ("a", "b", "c"):
        filesystem.pipe_file(f"{path}/{name}", name.encode() * 3)
    files = planned(f"{s3_root}/small")
    if change == "gone":
        filesystem.rm_file(f"{path}/b")
    else:
        filesystem.pipe_file(f"{path}/b", b"xyz")
    found, answer = loaded(files)
    assert found == [b"aaa", b"", b"ccc"]
    assert [type(error) for error in answer.failures.values()] == [
        MissingError if change == "gone" else SourceChangedError
    ]
