"""Files that dagflow cannot read as text are named for what they are, wherever they are read."""

from __future__ import annotations

import io
import lzma
import sqlite3
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest

from dagflow.errors import DagflowError
from dagflow.storage.file_kinds import kind_of_content
from operators import read_block
from tests.strangers.test_high_ratios import compressed, steps_of

NAMED = {"header": False, "columns": ["a", "b"]}


def zipped() -> bytes:
    """A zip archive."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a.csv", "a,b\n1,2\n")
    return out.getvalue()


def tarred() -> bytes:
    """A tar archive."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        member = tarfile.TarInfo("a.csv")
        member.size = 8
        archive.addfile(member, io.BytesIO(b"a,b\n1,2\n"))
    return out.getvalue()


def written(write: Any) -> bytes:
    """What Arrow writes of a table."""
    out = io.BytesIO()
    write(pa.table({"a": [1, 2]}), out)
    return out.getvalue()


def database(directory: Path) -> bytes:
    """A database of SQLite."""
    connection = sqlite3.connect(directory / "db")
    connection.execute("create table t (a)")
    connection.close()
    return (directory / "db").read_bytes()


def files(directory: Path) -> dict[str, tuple[str, bytes]]:
    """The name of a file and its bytes, by what the message says."""
    return {
        "a zip archive": ("a.csv", zipped()),
        "a 7z archive": ("a.7z", b"7z\xbc\xaf\x27\x1c\0\4" + b"\n" * 30),
        "a rar archive": ("a.rar", b"Rar!\x1a\x07\x01\0" + b"\n" * 30),
        "a tar archive": ("a.log", tarred()),
        "a tar archive ": ("a.tgz", compressed("gz", tarred())),
        "compressed by compress": ("a.log.Z", b"\x1f\x9d\x90" + b"\n" * 30),
        "compressed by Brotli": ("a.br", b"\x0b\x02\x80a\n\x03"),
        "compressed as .lzma": ("a.txt", lzma.compress(b"a\n" * 99, lzma.FORMAT_ALONE)),
        "compressed by LZMA": ("a.lzma", b"a\n"),
        "Parquet": ("a", written(pa.parquet.write_table)),
        "ORC": ("b", written(pa.orc.write_table)),
        "ORC ": ("c", b"ORC%\0\0\n\x07" + b"\n" * 30),  # its first stripe is compressed
        "Avro": ("a.json", b"Obj\x01\x04\x16avro.schema" + b"\n" * 30),
        "SQLite": ("a.txt", database(directory)),
        "PDF": ("a", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"),
        "a picture": ("a", b"\x89PNG\r\n\x1a\n" + b"\0" * 30),
    }


@pytest.mark.parametrize("format", ["lines", "csv", "json_lines", {"type": "xml", "tag": "a"}])
def test_a_file_that_is_no_text_is_named(format: Any, tmp_path: Path) -> None:
    """Neither its bytes are read as text, nor is the author told to name an encoding."""
    for what, (name, content) in files(tmp_path).items():
        path = tmp_path / what.strip() / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        with pytest.raises(DagflowError, match=f"it is .*{what.strip()}.*, and .* read"):
            steps_of(path, format)


@pytest.mark.parametrize("format", ["lines", "csv", "json_lines"])
def test_a_file_that_is_no_text_is_read_if_the_app_says_so(format: str, tmp_path: Path) -> None:
    """Then its bytes are records, or rejects, as those of any other file."""
    path = tmp_path / "a.log"
    path.write_bytes(b"PK\x03\x04\n1\n")
    steps = steps_of(path, {"type": format, "binary": "allow"})
    assert sum(len(batch) for step in steps for batch in step.batches) == (2 if format == "lines" else 1)


def test_formats_of_bytes_take_all_files(tmp_path: Path) -> None:
    """A merge of pictures, say, is none of its business."""
    for what, (name, content) in files(tmp_path).items():
        path = tmp_path / what.strip() / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        assert sum(len(batch) for step in steps_of(path, "whole_file") for batch in step.batches) == 1


@pytest.mark.parametrize(
    "text",
    [b"PAR1,ORC,1\n", b"ORC,1\n", b"PKZIP is old\n", b"]\n", b"GIF8 is none\n", b"ustar " * 60, b"II*\n", b"LZ\n"],
)
def test_text_that_begins_like_another_file_is_text(text: bytes) -> None:
    """A few letters are no mark of anything."""
    assert kind_of_content(text) == ""


@pytest.mark.parametrize(
    ("name", "suffix"), [("a.snappy", ".snappy"), ("a.SZ", ".sz"), ("a.tgz", ".tgz"), ("a.bgz", ".bgz")]
)
def test_the_suffix_that_a_file_has_is_named(name: str, suffix: str, tmp_path: Path) -> None:
    """And not another one of the same compression."""
    (tmp_path / name).write_bytes(b"plain\n")
    with pytest.raises(DagflowError, match=f"its name ends in {suffix}, but its content is not"):
        steps_of(tmp_path / name, "lines")


def widely(suffix: str, data: bytes) -> bytes:
    """Data compressed with a window of 512 MiB."""
    if suffix == "xz":
        return lzma.compress(data, filters=[{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 512 << 20}])
    # The header of a frame, whose window is 512 MiB, and one block with the data as they are.
    block = (len(data) << 3 | 1).to_bytes(3, "little") + data
    return b"\x28\xb5\x2f\xfd\x00" + bytes([19 << 3]) + block


@pytest.mark.parametrize("suffix", ["zst", "xz"])
def test_a_window_that_is_too_large_is_named_and_a_smaller_one_is_read(suffix: str, tmp_path: Path) -> None:
    """The file is not damaged."""
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(widely(suffix, b"a\n"))
    with pytest.raises(DagflowError, match="a window of more than 128 MiB, which must be held to read it"):
        steps_of(path, "lines")
    path.write_bytes(compressed(suffix, b"a\n"))
    assert sum(len(batch) for step in steps_of(path, "lines") for batch in step.batches) == 1


@pytest.mark.parametrize(
    ("text", "format", "message"),
    [
        ('{"a": 1, "b": 2}\n' * 3, {}, "an object of JSON; read such files with the format json_lines"),
        ('{"a": 1, "b": 2}\n' * 3, NAMED, "an object of JSON; read such files with the format json_lines"),
        ('[{"a": 1, "b": 2},\n{"a": 3}]\n', {}, "a document of JSON; read such files with the format json"),
        ('[{"a": 1}, {"a": 2}]', NAMED, "a document of JSON; read such files with the format json"),
        ('[\n{"a": 1, "b": 2}\n]\n', NAMED, "a document of JSON; read such files with the format json"),
        ('{\n  "a": [\n    1\n  ]\n}\n', {}, "a document of JSON; read such files with the format json"),
        ('{\n  "a": [\n    1\n  ]\n}\n', NAMED, "a document of JSON; read such files with the format json"),
        ('<?xml version="1.0"?>\n<a/>\n', {}, "XML; read such files with the format xml"),
        ('<orders day="1">\n<o/>\n</orders>\n', {}, "XML; read such files with the format xml"),
        ('<orders day="1">\n<o/>\n</orders>\n', NAMED, "XML; read such files with the format xml"),
        ('<!DOCTYPE orders SYSTEM "o.dtd">\n<orders/>\n', {}, "XML; read such files with the format xml"),
        ("<!doctype html>\n<p>sign in</p>\n", {}, "a page of HTML, as a server sends in place of a file"),
        ("<html><head>\n<p>sign in</p>\n", NAMED, "a page of HTML, as a server sends in place of a file"),
        ("a;b\n1;2\n", {}, "it is one name, a;b: is the delimiter ';'"),
        ("a\tb\n1\t2\n", {}, "it is one name, a\tb: is the delimiter '.t'"),
        ("a,b\n1,2\n", {"delimiter": ";"}, "it is one name, a,b: is the delimiter ','"),
    ],
)
def test_a_file_of_another_format_is_not_read_as_csv(
    text: str, format: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """Its rows would be garbage without a word; the message says what reads it."""
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DagflowError, match=message):
        list(read_block(str(tmp_path / "a.csv"), 0, 1 << 20, {"type": "csv", **format}))


@pytest.mark.parametrize(
    "text", ['"a;b"\n1\n', "a\n1;2\n", "a,b\n{x,[\n", '{""a"": 1}\n1\n', "<b>,b\n1,2\n", "<5\n1\n"]
)
def test_odd_csv_is_csv_all_the_same(text: str, tmp_path: Path) -> None:
    """A name in quotes may hold any character, and a field may begin with a bracket."""
    (tmp_path / "a.csv").write_text(text)
    assert len(list(read_block(str(tmp_path / "a.csv"), 0, 1 << 20, "csv"))) == 1
