"""Patterns of an app: one dialect, in time linear in the text, and refused at the place of their mistake."""

from __future__ import annotations

import fnmatch
import os
import random
import re
from pathlib import Path

import pytest

from dagflow.api.regular_expressions import glob_matcher, why_refused
from dagflow.errors import AppError
from dagflow.plan.load import load_app
from dagflow.report.input_ranges import matcher_of
from operators.sink.merger import Grouping
from operators.splitter.scan.listed_files import ListedFiles
from operators.splitter.scan.scanner import Scanner
from operators.splitter.scan.selection import Selection
from tests.strangers.fuzzing import seeds

SLOW = "([a-z]+)+!"
"""Python's engine tries every way to cut a name into pieces: 2 to the power of its length."""

NAME = "a" * 200

APP = """\
name: odd
attributes: {{checkpoint: j}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: in{splitter}}}}}
  reader: {{class: BlockReader, properties: {{format: {format}}}}}
  kept: {{class: {operator}, partition: parallel}}
  writer: {{class: RecordWriter, properties: {{path: out}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: kept.input}}
  results: {{from: kept.output, to: writer.input}}
"""
FILTER = "RecordFilter, properties: {drop: {prefix: x}}"


def files_of(scanned: list[ListedFiles]) -> list[str]:
    """The locations of the files of a scan."""
    return [files.url(index) for files in scanned for index in range(len(files)) if not files.is_directory(index)]


def test_a_pattern_of_names_takes_the_time_of_their_length(tmp_path: Path) -> None:
    """In file_pattern, ignore_pattern, globs and groups, in the driver and in the threads of a scan."""
    for name in (NAME, f"{NAME}!"):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / NAME).touch()
        (tmp_path / "in" / name / f"{NAME}!").touch()
    selection = Selection(file_pattern=SLOW, ignore_pattern="([b-z]*|a)*y")
    scanned = list(Scanner([str(tmp_path / "in")], selection).scan())
    assert [Path(url).name for url in files_of(scanned)] == [f"{NAME}!"] * 2
    scanned = list(Scanner([str(tmp_path / "in")], Selection(ignore_pattern=SLOW)).scan())
    assert files_of(scanned) == [f"{tmp_path}/in/{NAME}/{NAME}"]
    assert Grouping(SLOW).group_of(NAME) == "other"
    assert not matcher_of("*a" * 30 + "!")("/" + NAME)
    assert not glob_matcher("[" * 20_000)(NAME)


@pytest.mark.parametrize(
    ("place", "text", "reason"),
    [
        ("splitter", ", file_pattern: 'a¦(?!b)'", "RE2 looks neither ahead nor behind"),
        ("splitter", r", ignore_pattern: '(a)¦\1'", "RE2 refers to no earlier group"),
        ("format", "{type: regex, pattern: '(a)¦++'}", "RE2 never goes back: leave out the second sign"),
        ("operator", "RecordFilter, properties: {drop: {regex: '[(?=]x¦(?=y)'}}", "neither ahead nor behind"),
        ("operator", "Parse, properties: {regex: '(?P<a>.)¦(?P=a)'}", "RE2 refers to no earlier group"),
        ("operator", r"Parse, properties: {regex: '(?P<a>.*)¦\Z'}", r"the end of the text is \\z"),
        ("operator", "FileMerger, properties: {path: out, group_by: '¦(?x)a'}", "the flags of RE2 are i, m, s and U"),
    ],
)
def test_what_the_dialect_lacks_is_a_problem_at_its_place(tmp_path: Path, place: str, text: str, reason: str) -> None:
    """The line and column of the part that is refused, and what to write instead."""
    app = APP.format(**{"splitter": "", "format": "lines", "operator": FILTER, place: text})
    line, written = next((number, each) for number, each in enumerate(app.splitlines(), 1) if "¦" in each)
    (tmp_path / "app.yaml").write_text(app.replace("¦", ""))
    with pytest.raises(AppError, match=reason) as refused:
        load_app(str(tmp_path / "app.yaml"))
    assert f"app.yaml:{line}:{written.index('¦') + 1}:" in str(refused.value)


def test_globs_mean_what_they_mean_to_python() -> None:
    """Any glob on any name, also one with a byte that is no text; only the time differs."""
    letters = "ab-!]^[*?\\.&~|é\n" + os.fsdecode(b"\xff")
    for seed in seeds(100):
        draw = random.Random(seed)
        glob = "".join(draw.choices(letters, k=draw.randrange(9)))
        # Where all ranges that a class begins with are empty, Python takes a ! behind them for one at its beginning.
        glob = re.sub(r"(\[(?:.-.)+)!", r"\1", glob, flags=re.DOTALL)
        names = ["".join(draw.choices(letters, k=draw.randrange(5))) for _ in range(20)]
        expected = [fnmatch.fnmatchcase(name, glob) for name in names]
        assert [glob_matcher(glob)(name) for name in names] == expected, (seed, glob, names)


def test_the_place_of_a_mistake_is_found_whatever_a_pattern_holds() -> None:
    """The message stays short, and patterns of any length are refused."""
    for part in ("[", "(", "[^]", "\\Q", "(?P<", "\\", "a{", "(?=", "[[:"):
        refused = why_refused(part * (19_000 // len(part)) + "(?=x)")
        assert refused is None or len(refused[0]) < 600
    assert why_refused("x" * 20_000) is None
    assert why_refused("x" * 20_001) is not None
