"""What an app writes is not what it reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.errors import StorageError
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.backends.local import local_file
from tests.cli.commands.inspected_app import invoke
from tests.nightly import by_day
from tests.storage.shared import put

APP = """\
name: apart
attributes: {{checkpoint: {root}/{checkpoint}}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: "{root}/{files}"{rules}}}}}
  reader: {{class: BlockReader}}
  writer: {{class: RecordWriter, properties: {{path: {root}/{output}}}}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: writer.input}}
"""


def app(root: Path, *, files: str = "in", rules: str = "", output: str = "out", checkpoint: str = "journal") -> Path:
    """An app file, and a file of two records for it."""
    (root / "in").mkdir(exist_ok=True)
    (root / "in" / "a.txt").write_bytes(b"one\ntwo\n")
    text = APP.format(root=root, files=files, rules=rules, output=output, checkpoint=checkpoint)
    (root / "app.yaml").write_text(text)
    return root / "app.yaml"


@pytest.mark.parametrize(
    ("locations", "complaint"),
    [
        ({"output": "in"}, "in: operator 'splitter' reads all that is below .*/in, and operator 'writer' publishes"),
        ({"output": "in/deep/out"}, "in/deep/out: operator 'splitter' reads all that is below .*/in, and operator"),
        ({"output": "in", "rules": ", recursive: false"}, "operator 'writer' publishes here"),
        ({"output": "_out", "files": ""}, "_out: operator 'splitter' reads all"),
        ({"checkpoint": "in/journal"}, "in/journal: operator 'splitter' reads .* and the checkpoint lies here"),
    ],
)
def test_an_app_that_would_read_what_it_writes_is_refused(
    tmp_path: Path, locations: dict[str, str], complaint: str
) -> None:
    """Each run would publish what the run before it has published, and never be done; nothing is read or written."""
    with pytest.raises(StorageError, match=complaint):
        run(load_app(app(tmp_path, **locations)), runtime=InlineRuntime)
    assert not list(tmp_path.rglob("part-*"))


@pytest.mark.parametrize(
    ("files", "locations"),
    [
        ("in/*", {"output": "in/out"}),
        ("in/*", {"output": "in"}),
        ("in/???", {"output": "in/out/deep"}),
        ("in/**", {"output": "in/deep/out"}),
        ("in/**/*", {"output": "in/out"}),
        ("in/*/*", {"output": "in/out"}),
        ("i?", {"output": "in/out"}),
        ("*", {"checkpoint": "deep/journal"}),
        ("*/*/*", {"checkpoint": "journal"}),
        ("in/[!a]*", {"checkpoint": "in/journal"}),
    ],
)
@pytest.mark.parametrize("exists", [False, True], ids=["new", "there"])
def test_a_glob_that_takes_in_what_the_app_writes_is_refused(
    tmp_path: Path, files: str, locations: dict[str, str], exists: bool
) -> None:
    """Whether the directory, or one above it, is there already or comes with the first run."""
    if exists:
        (tmp_path / next(iter(locations.values()))).mkdir(parents=True, exist_ok=True)
    with pytest.raises(StorageError, match=r"operator 'splitter' reads all that matches .*, and .* here\n"):
        run(load_app(app(tmp_path, files=files, **locations)), runtime=InlineRuntime)
    assert not list(tmp_path.rglob("part-*"))


@pytest.mark.parametrize(
    "locations",
    [
        {"output": "link/out"},
        {"output": "link"},
        {"files": "link", "output": "in/out"},
        {"files": "link/*", "output": "in/out"},
        {"files": "in/*", "output": "link/out"},
        {"files": "link", "checkpoint": "in/journal"},
        {"output": "link/far/out"},
        {"files": "link", "output": "in/far/deep/out"},
    ],
)
def test_an_app_that_reads_its_output_through_a_link_is_refused(tmp_path: Path, locations: dict[str, str]) -> None:
    """Under whatever name the directory is given; a link in the input may lead out of it."""
    path = app(tmp_path, **locations)
    (tmp_path / "link").symlink_to("in")
    (tmp_path / "far").mkdir()
    (tmp_path / "in" / "far").symlink_to("../far")
    with pytest.raises(StorageError, match=r"operator 'splitter' reads all that .* here, by way of a link"):
        run(load_app(path), runtime=InlineRuntime)
    assert not list(tmp_path.rglob("part-*"))


@pytest.mark.parametrize(
    ("link", "locations"),
    [
        ("..", {}),
        ("..", {"files": "in/*"}),
        ("../out", {}),
        ("../out", {"files": "in/**/*"}),
        ("../out", {"files": "in/*/*", "rules": ", file_pattern: 'part.*'"}),
        ("../out", {"files": "link"}),
        ("../far", {"output": "far/out"}),
        ("../far", {"checkpoint": "far/journal"}),
        ("../far/journal", {"checkpoint": "far/journal"}),
    ],
)
def test_a_link_in_the_input_does_not_lead_to_what_the_app_writes(
    tmp_path: Path, link: str, locations: dict[str, str]
) -> None:
    """What it leads to is not known before the run; a second run, and a third, find nothing new all the same."""
    path = app(tmp_path, **locations)
    (tmp_path / "far" / "out").mkdir(parents=True)
    (tmp_path / "link").symlink_to("in")
    (tmp_path / "in" / "to").symlink_to(link)
    (tmp_path / "in" / "deep").mkdir()
    (tmp_path / "in" / "deep" / "part-b").write_bytes(b"three\n")
    assert [run(load_app(path), runtime=InlineRuntime).windows for _ in range(3)] == [1, 0, 0]
    output = b"".join(part.read_bytes() for part in (tmp_path / locations.get("output", "out")).glob("part-*"))
    assert b"three" in output
    assert len(output.split()) == len(set(output.split()))


TWO_WRITERS = """\
name: apart
attributes: {{checkpoint: "{checkpoint}"}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: "{files}"}}}}
  reader: {{class: BlockReader}}
  writer: {{class: RecordWriter, properties: {{path: "{output}"}}}}
  other: {{class: RecordWriter, properties: {{path: "{other}"}}}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: [writer.input, other.input]}}
"""


@pytest.mark.parametrize(
    ("locations", "complaint"),
    [
        ({"output": "s3a:IN/out"}, r"s3a:IN/out: .*'splitter' reads all that is below s3:IN, .* publishes here\n"),
        ({"files": "s3a:IN/*", "output": "s3:IN/out"}, r"s3:IN/out: .*'splitter' reads all that matches .* here\n"),
        ({"checkpoint": "s3a:IN/journal"}, r"'splitter' reads .*, and the checkpoint lies here\n"),
        ({"checkpoint": "s3:OUT", "output": "s3a:OUT/a"}, "output would lie in the checkpoint s3:OUT"),
        ({"output": "s3:OUT", "other": "s3a:OUT"}, "s3a:OUT: operators 'writer' and 'other' would both publish here"),
    ],
)
def test_a_bucket_is_one_place_by_all_its_schemes(
    tmp_path: Path, s3_root: str, locations: dict[str, str], complaint: str
) -> None:
    """What is written by one scheme is read by the other."""
    put(f"{s3_root}/in/a.txt", b"one\ntwo\n")
    usual = {"files": "s3:IN", "checkpoint": f"{tmp_path}/journal", "output": f"{tmp_path}/a", "other": f"{tmp_path}/b"}
    bucket = s3_root.removeprefix("s3:")
    text = TWO_WRITERS.format(**usual | locations).replace(":IN", f":{bucket}/in").replace(":OUT", f":{bucket}/out")
    (tmp_path / "app.yaml").write_text(text)
    complaint = complaint.replace(":IN", f":{bucket}/in").replace(":OUT", f":{bucket}/out")
    with pytest.raises(StorageError, match=complaint):
        run(load_app(tmp_path / "app.yaml"), runtime=InlineRuntime)


def test_what_would_be_read_once_the_app_has_made_it_is_refused(tmp_path: Path) -> None:
    """A location that is missing is waited for while following, and the output would be what comes."""
    path = app(tmp_path, output="later/out")
    text = path.read_text().replace(f'"{tmp_path}/in"', f"[{tmp_path}/in, {tmp_path}/later], follow: true")
    path.write_text(text)
    with pytest.raises(StorageError, match=r"reads all that is below .*/later, and operator 'writer' publishes here"):
        run(load_app(path), runtime=InlineRuntime)


@pytest.mark.parametrize(
    "locations",
    [
        {"output": "in/out", "files": "in/*"},
        {"output": "in/out", "files": "in/*", "rules": ", ignore_pattern: out"},
        {"output": "link/out", "rules": ", ignore_pattern: .*out"},
    ],
)
def test_validate_warns_of_an_app_that_reads_its_own_output(tmp_path: Path, locations: dict[str, str]) -> None:
    """As far as the paths show, and without a look at data; the app is valid where they are others."""
    path = app(tmp_path, **locations)
    (tmp_path / "link").symlink_to("in")
    code, _, shown = invoke("validate", str(path))
    assert (code, "operator 'splitter' reads all that" in shown) == (0, "rules" not in locations)


@pytest.mark.parametrize(
    "locations",
    by_day(
        5,
        [
            {"output": "in/out", "files": "in/*", "rules": ", ignore_pattern: out"},
            {"output": "in/out", "files": "in/?.txt"},
            {"output": "in/deep/out", "files": "in/*.txt"},
            {"output": "in/out", "files": "i*/*.txt"},
            {"output": "in/out", "files": "in/**/*.txt"},
            {"output": "in/.out", "files": "in/**"},
            {"output": "in-too", "files": "i?/*"},
            {"output": "in/out", "rules": ", recursive: false"},
            {"output": "in/out", "rules": ", ignore_pattern: out"},
            {"output": "in", "rules": ", file_pattern: '.*[.]txt'"},
            {"output": "in/out", "files": "in/*.txt"},
            {"output": "in/.hidden/out"},
            {"output": "in-too"},
            {"checkpoint": "in/.journal"},
        ],
    ),
)
def test_what_the_splitter_passes_over_may_be_written(tmp_path: Path, locations: dict[str, str]) -> None:
    """Where it does not look, or takes other names; and a second run finds nothing new."""
    path = app(tmp_path, **locations)
    assert run(load_app(path), runtime=InlineRuntime).windows == 1
    assert run(load_app(path), runtime=InlineRuntime).windows == 0
    parts = (tmp_path / locations.get("output", "out")).glob("part-*")
    assert sorted(b"".join(part.read_bytes() for part in parts).split()) == [b"one", b"two"]


def test_hosts_with_other_inode_numbers_end_in_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their tasks would leave out every file, and each next run would try again; nothing is published."""
    found = local_file.stat_of
    with monkeypatch.context() as patch:
        patch.setattr(local_file, "stat_of", lambda url, status: replace(found(url, status), file_id=status.st_ino + 1))
        with pytest.raises(StorageError, match=r"it is another file .*, and the driver sees it\n.*same inode numbers"):
            run(load_app(app(tmp_path, rules=", block_size: 4")), runtime=InlineRuntime)
    assert not list(tmp_path.rglob("part-*"))
    assert run(load_app(tmp_path / "app.yaml"), runtime=InlineRuntime).records["reader.messages"] == 2


TWO_SPLITTERS = """\
name: apart
attributes: {{checkpoint: {root}/journal}}
operators:
  one: {{class: FileSplitterInput, properties: {{files: "{root}/in"{rules}}}}}
  two: {{class: FileSplitterInput, properties: {{files: "{root}/{other}"}}}}
  reader: {{class: BlockReader}}
  writer: {{class: RecordWriter, properties: {{path: {root}/out}}}}
  cleaner: {{class: SourceCleaner, properties: {{action: remove}}}}
streams:
  blocks: {{from: [one.blocks_metadata_output, two.blocks_metadata_output], to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: writer.input}}
  read: {{from: reader.blocks_metadata_output, to: cleaner.input}}
"""


def two_splitters(root: Path, other: str, rules: str = "") -> Path:
    """An app that removes what two splitters read, and a file for each."""
    for path in (root / "in" / "a.txt", root / "in" / "deep" / "b.txt", root / "elsewhere" / "c.txt"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("one\ntwo\n")
    (root / "link").symlink_to("in")
    (root / "app.yaml").write_text(TWO_SPLITTERS.format(root=root, other=other, rules=rules))
    return root / "app.yaml"


@pytest.mark.parametrize(
    ("other", "rules"),
    [
        *(("in", ""), ("in/*.txt", ""), ("in/deep", ""), ("in/*/*.txt", ""), ("in/a.txt", ""), ("link/deep", "")),
        ("in", ", recursive: false"),
    ],
)
def test_files_are_not_removed_that_two_splitters_read(tmp_path: Path, other: str, rules: str) -> None:
    """One of them would miss what goes when the other is done; validate says so too, and nothing is read."""
    path = two_splitters(tmp_path, other, rules)
    with pytest.raises(StorageError, match=r"operators '\w+' and '\w+' both read here, and operator 'cleaner'"):
        run(load_app(path), runtime=InlineRuntime)
    assert "both read here" in "".join(invoke("validate", str(path))[1:])
    assert (tmp_path / "in" / "a.txt").exists()


@pytest.mark.parametrize(
    ("other", "rules"),
    [("elsewhere", ""), ("in/deep", ", recursive: false"), ("in/*/*.txt", ", recursive: false")],
)
def test_files_are_removed_of_which_each_has_one_splitter(tmp_path: Path, other: str, rules: str) -> None:
    """However near they are."""
    run(load_app(two_splitters(tmp_path, other, rules)), runtime=InlineRuntime)
    assert not (tmp_path / "in" / "a.txt").exists()
    assert (tmp_path / "in" / "deep" / "b.txt").exists() == (other == "elsewhere" and bool(rules))


def test_files_named_by_two_schemes_are_not_put_away_for_one_reader(tmp_path: Path, s3_root: str) -> None:
    """They are the same files, and the other operator would find none of them."""
    put(f"{s3_root}/in/a.txt", b"one\ntwo\n")
    text = TWO_SPLITTERS.format(root=s3_root, other="in", rules="").replace('"s3:', '"s3a:', 1)
    (tmp_path / "app.yaml").write_text(text)
    with pytest.raises(StorageError, match="'one' and 'two' both read here, and operator 'cleaner' removes"):
        run(load_app(tmp_path / "app.yaml"), runtime=InlineRuntime)
