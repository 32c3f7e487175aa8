"""Compares the records that dagflow and others read from small files with any blocks.

    python -m benchmarks.conformance
    python -m benchmarks.conformance --beam-python /path/to/venv/bin/python

Every file of up to a few bytes over a small alphabet is read in blocks of every small size. A case is wrong if its
records, in any order, are not those of a parser that reads from left to right. The table shows the number of wrong
cases. dask's blocks are cut by fsspec. Apache Beam needs an environment of its own, named by its Python; without one
it is left out. Needs the extra `benchmark`.
"""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import peers

BLOCK_SIZES = range(1, 6)
UNSUPPORTED = "-"


@dataclass(frozen=True)
class Family:
    """Files of one format, and their records.

    Attributes:
        title: Row of the table.
        contents: The files.
        reference: A parser that reads from left to right.
        format: As dagflow takes it.
        delimiter: What ends records; "" for any newline.
        escape: The byte that makes a delimiter part of a record; "" without one.
        is_csv: Whether records are rows of fields.
    """

    title: str
    contents: list[bytes]
    reference: Callable[[bytes], list[Any]]
    format: dict[str, Any]
    delimiter: str = ""
    escape: str = ""
    is_csv: bool = False


class RefusedError(ValueError):
    """A contender does not accept a delimiter."""


def strings(alphabet: bytes, longest: int) -> list[bytes]:
    """Return all strings of one letter up to a length."""
    lengths = range(1, longest + 1)
    return [bytes(letters) for length in lengths for letters in itertools.product(alphabet, repeat=length)]


def split_at(delimiter: bytes) -> Callable[[bytes], list[bytes]]:
    """Return a parser of records that end with a delimiter."""

    def parse(content: bytes) -> list[bytes]:
        records = content.split(delimiter)
        return records if records[-1] else records[:-1]

    return parse


def split_newlines(content: bytes) -> list[bytes]:
    """Parse lines that end with LF, CR LF or CR."""
    records = re.split(rb"\r\n|\r|\n", content)
    return records if records[-1] else records[:-1]


def split_escaped(content: bytes) -> list[bytes]:
    """Parse lines in which a backslash makes the next character literal."""
    records = [b""]
    position = 0
    while position < len(content):
        width = 2 if content[position : position + 1] == b"\\" else 1
        if content[position : position + 1] == b"\n":
            records.append(b"")
        else:
            records[-1] += content[position : position + width]
        position += width
    return records if records[-1] else records[:-1]


def rows_of(content: bytes) -> list[tuple[str, ...]]:
    """Parse rows with Python's CSV parser."""
    return [tuple(row) for row in csv.reader(io.StringIO(content.decode(), newline="")) if row]


def exports() -> list[bytes]:
    """Return small CSV exports of two columns with quoted newlines, quotes and delimiters."""
    fields = ["a", "b\nc", "\n", 'd"e', "f,g", "\n\n", '"\n']
    rows = list(itertools.product(fields, repeat=2))
    made = []
    for first, second in zip(rows, rows[1:] + rows[:1], strict=True):
        for chosen in ([first], [first, second]):
            text = io.StringIO(newline="")
            csv.writer(text, lineterminator="\n").writerows(chosen)
            made.append(text.getvalue().encode())
    return made


def families() -> list[Family]:
    """Return the rows of the table."""

    def delimited(text: str, alphabet: bytes, longest: int) -> Family:
        delimiter = text.encode()
        format = {"type": "lines", "delimiter": text}
        return Family(repr(text)[1:-1], strings(alphabet, longest), split_at(delimiter), format, text)

    return [
        Family(r"\n, \r\n, \r", strings(b"a\n\r", 4), split_newlines, {"type": "lines"}),
        delimited("\n", b"a\n", 6),
        delimited("\r\n", b"a\r\n", 4),
        delimited("||", b"a|", 6),
        delimited("\n\n", b"a\n", 6),
        delimited("|+|", b"|+a", 5),
        delimited("aab", b"ab", 6),
        Family(r"\n, escaped by \\", strings(b"a\n\\", 4), split_escaped, {"type": "escaped_lines"}, "\n", "\\"),
        Family(
            r"csv, quoted \n", exports(), rows_of, {"type": "csv", "header": False, "columns": ["x", "y"]}, is_csv=True
        ),
    ]


Read = Callable[[Family, str, int], list[list[Any]]]
"""Reads all files of a family, which lie in a folder, in blocks of a size."""


def cell(family: Family, folder: Path, read: Read | None) -> str:
    """How many cases of all are wrong; what cannot be compared is left out."""
    if read is None:
        return UNSUPPORTED
    wrong = 0
    try:
        for size in BLOCK_SIZES:
            for content, found in zip(family.contents, read(family, str(folder), size), strict=True):
                wrong += Counter(found) != Counter(family.reference(content))
    except RefusedError:
        return "refused"
    return f"{wrong} of {len(BLOCK_SIZES) * len(family.contents)}"


def names_of(family: Family) -> list[str]:
    """The names of a family's files."""
    return [f"{index:05d}" for index in range(len(family.contents))]


def by_dagflow(family: Family, folder: str, size: int) -> list[list[Any]]:
    """Each block read for itself, as a task reads it."""
    from operators.files.metadata import BlockMetadata, FileVersion
    from operators.reader.formats import RECORD_FORMATS
    from operators.reader.formats.base import ByteAccounting, with_entry_state
    from operators.testing import MemorySource

    made = RECORD_FORMATS.make(family.format)
    found: list[list[Any]] = []
    for content in family.contents:
        source = MemorySource(content)
        records: list[Any] = []
        for start in range(0, len(content), size):
            end = min(start + size, len(content))
            block = BlockMetadata(0, folder, FileVersion(len(content)), start, end, end == len(content))
            accounting = ByteAccounting(folder, Counter(), None)
            for batch in made.read(source, with_entry_state(made, source, block), accounting):
                parsed = made.parse(batch, accounting).batch
                if family.is_csv:
                    records += [tuple(row.values()) for row in parsed.to_arrow().to_pylist()]
                else:
                    records += parsed.to_pylist()
        found.append(records)
    return found


class SparkContender:
    """Spark's own sources, all files of a family in one job per block size."""

    def __init__(self, work: Path) -> None:
        from pyspark.sql import SparkSession

        from dagflow.runtime.spark_context import start_context

        self.spark = SparkSession(start_context("conformance", "local[2]", {}, work / "spark.log"))

    def read(self, family: Family, folder: str, size: int) -> list[list[Any]]:
        """Read the files in partitions of a size."""
        from pyspark.sql import functions as f

        conf = self.spark.conf
        conf.set("spark.sql.files.maxPartitionBytes", size)
        conf.set("spark.sql.files.openCostInBytes", size)
        if family.is_csv:
            reader = self.spark.read.option("multiLine", True).option("escape", '"')
            frame = reader.option("lineSep", "\n").schema("x string, y string").csv(folder)
        else:
            reader = self.spark.read.option("lineSep", family.delimiter) if family.delimiter else self.spark.read
            frame = reader.text(folder)
        columns: list[Any] = [f.element_at(f.split(f.input_file_name(), "/"), -1).alias("name"), *frame.columns]
        found: dict[str, list[Any]] = {name: [] for name in names_of(family)}
        for row in frame.select(*columns).collect():
            values = tuple(value or "" for value in row[1:])
            found[row[0]].append(values if family.is_csv else values[0].encode())
        return list(found.values())


def by_dask(family: Family, folder: str, size: int) -> list[list[Any]]:
    """Dask's blocks, cut by fsspec at delimiters; each is then split."""
    from importlib import import_module

    # Neither declares its public names.
    dask: Any = import_module("dask")
    read_bytes: Any = import_module("dask.bytes").read_bytes
    delimiter = family.delimiter.encode()
    paths = [f"{folder}/{name}" for name in names_of(family)]
    _, files = read_bytes(paths, delimiter=delimiter, blocksize=size, sample=False)
    blocks = dask.compute(*files, scheduler="sync")
    return [[record for block in of_file if block for record in split_at(delimiter)(block)] for of_file in blocks]


def by_peer(name: str) -> Read:
    """Read with one of the peers, in blocks of about a size, as far as it lets its user say that."""

    def read(family: Family, folder: str, size: int) -> list[list[Any]]:
        found: list[list[Any]] = []
        for file in names_of(family):
            source = peers.PeerSource(f"{folder}/{file}", {"x": "string", "y": "string"}, True, (), size, False)
            try:
                rows = source.rows_by(name, "SELECT x, y FROM source").to_pylist()
                found.append([(row["x"] or "", row["y"] or "") for row in rows])
            except Exception as error:
                found.append([str(error)])
        return found

    return read


BEAM = """
import json, sys
from apache_beam.io.range_trackers import OffsetRangeTracker
from apache_beam.io.textio import _TextSource
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.coders import coders
import apache_beam
job = json.load(sys.stdin)
options = {"delimiter": job["delimiter"].encode() if job["delimiter"] else None}
if job["escape"]:
    options["escapechar"] = job["escape"].encode()
found = []
for path, length in job["files"]:
    try:
        source = _TextSource(path, 0, CompressionTypes.UNCOMPRESSED, True, coders.BytesCoder(), **options)
    except ValueError as error:
        found = str(error)
        break
    records = []
    for start in range(0, length, job["size"]):
        tracker = OffsetRangeTracker(start, min(start + job["size"], length))
        records += [record.hex() for record in source.read_records(path, tracker)]
    found.append(records)
print(json.dumps([apache_beam.__version__, found]))
"""


class BeamContender:
    """The source behind Apache Beam's ReadFromText, given one range of offsets after the other."""

    def __init__(self, python: str) -> None:
        self.python = python
        self.version = ""

    def read(self, family: Family, folder: str, size: int) -> list[list[Any]]:
        """Read the files in ranges of a size."""
        files = [
            [f"{folder}/{name}", len(content)] for name, content in zip(names_of(family), family.contents, strict=True)
        ]
        job = {"files": files, "size": size, "delimiter": family.delimiter, "escape": family.escape}
        command = [self.python, "-c", BEAM]
        done = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True, check=True)
        self.version, found = json.loads(done.stdout.splitlines()[-1])
        if isinstance(found, str):
            raise RefusedError(found)
        return [[bytes.fromhex(record) for record in records] for records in found]


def versions(beam: BeamContender | None) -> Iterator[str]:
    """Yield the versions of all contenders."""
    from importlib.metadata import version

    yield f"Python {sys.version.split()[0]}, pyspark {version('pyspark')}"
    yield f"dask {version('dask')}, fsspec {version('fsspec')}"
    if beam is not None:
        yield f"apache-beam {beam.version}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beam-python", help="Python of an environment that has apache-beam")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        spark = SparkContender(work)
        beam = BeamContender(arguments.beam_python) if arguments.beam_python else None
        heads = ("records end with", "dagflow", "Spark", "dask", "Beam", *peers.installed())
        print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}", flush=True)
        for number, family in enumerate(families()):
            folder = work / str(number)
            folder.mkdir()
            for file, content in zip(names_of(family), family.contents, strict=True):
                (folder / file).write_bytes(content)

            is_plain = bool(family.delimiter) and not family.escape
            cells = [
                cell(family, folder, by_dagflow),
                cell(family, folder, None if family.escape else spark.read),
                cell(family, folder, by_dask if is_plain else None),
                cell(family, folder, beam.read if beam and family.delimiter else None),
                *(cell(family, folder, by_peer(name) if family.is_csv else None) for name in peers.installed()),
            ]
            title = family.title.replace("|", r"\|")
            print(f"| `{title}` | {' | '.join(cells)} |", flush=True)
    print("\n" + "; ".join(versions(beam)))


if __name__ == "__main__":
    main()
