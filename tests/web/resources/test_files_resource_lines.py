"""Where lines and bytes of files have gone: refused ones, those that are no record, and those of compressed files."""

from __future__ import annotations

import gzip
import uuid
from pathlib import Path
from typing import Any

import pytest

from dagflow.storage.context import StorageContext
from dagflow.web.resources.files_resource import looks_compressed
from tests.nightly import by_day
from tests.web.conftest import APP, ROWS, ask, finish, with_table

CONTENT = b"name,n\n" + b"".join(b"n%04d,%s\n" % (n, b"many" if n % 50 == 7 else b"%d" % n) for n in range(1000))


def found_of(name: str, **asked: str) -> dict[str, Any]:
    """Where a line or a byte of an input file has gone."""
    found: dict[str, Any] = ask("files/one", url=str(Path("in", name).absolute()), **asked)["found"]
    return found


@pytest.fixture
def compressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of 1,000 records, 20 of which are refused, most of them at offsets behind its stored size."""
    monkeypatch.chdir(tmp_path)
    Path("app.yaml").write_text(APP.replace("[.]csv'", "[.]csv([.]gz)?'"))
    Path("in").mkdir()
    Path("in/g.csv.gz").write_bytes(gzip.compress(CONTENT))
    finish()
    return Path("in/g.csv.gz")


@pytest.mark.parametrize("asks_store", [True, False])
def test_a_page_waits_for_a_store_only_where_it_is_asked_for_a_place(*, asks_store: bool) -> None:
    """A file that is not on this machine is classified by its name meanwhile."""
    storage, url = StorageContext.default(), f"memory://{uuid.uuid4().hex}/plain.csv"
    storage.objects(url.rpartition("/")[0]).create("plain.csv", gzip.compress(CONTENT))
    assert looks_compressed(storage, url, asks_store=asks_store) == asks_store


def test_all_rejects_of_a_compressed_file_are_its_own(compressed: Path) -> None:
    """Their offsets are those in the content, most of which its stored bytes do not have."""
    assert compressed.stat().st_size < len(CONTENT) / 2
    (row,) = ask("files")["files"]
    found = ask("files/one", url=row["url"])
    (version,) = found["versions"]
    assert row["rejected"] == version["rejected"] == len(version["rejects"]) == ask("rejects")["total"] == 20
    assert found["compressed"]
    for each in version["rejects"]:
        assert CONTENT[each["offset"] :].partition(b"\n")[0].endswith(b",many")


def test_a_byte_of_the_content_is_followed_where_one_window_read_it(compressed: Path) -> None:
    """A refused record is shown with its offset in the content, and a kept one is in the output of the only window."""
    kept, refused = CONTENT.index(b"n0900"), CONTENT.index(b"n0907")
    found = found_of("g.csv.gz", offset=str(kept))
    (window,) = ask("files")["files"][0]["windows"]
    assert found["window"] == window and any(b"n0900" in Path(name).read_bytes() for name in found["outputs"])
    found = found_of("g.csv.gz", offset=str(refused))
    assert f"Window {window} read it, and operator 'reader' refused it: column 'n'" in found["sentence"]
    assert found["outputs"] == []


def test_which_of_several_windows_read_a_compressed_byte_is_not_guessed(compressed: Path) -> None:
    """Content of a later version follows on that of an earlier one, in places that no window has recorded."""
    with compressed.open("ab") as file:
        file.write(gzip.compress(b"o0001,1\no0002,many\n"))
    finish()
    kept, refused = CONTENT.index(b"n0900"), len(CONTENT) + len(b"o0001,1\n")
    assert "not known which of the windows" in found_of("g.csv.gz", offset=str(kept))["sentence"]
    last = ask("windows")["windows"][0]["window"]
    assert found_of("g.csv.gz", offset=str(refused))["window"] == last
    versions = ask("files/one", url=str(compressed.absolute()))["versions"]
    assert [each["rejected"] for each in versions] == [1, 20]
    assert sorted(row["rejected"] for row in ask("files")["files"]) == [1, 20]


@pytest.mark.parametrize("name", by_day(1, ["g.csv.gz", "plain.csv"]))
def test_lines_of_a_compressed_file_are_not_counted(compressed: Path, name: str) -> None:
    """Newlines among its stored bytes are none of its lines, whatever its name is."""
    if not Path("in", name).exists():
        Path("in", name).write_bytes(compressed.read_bytes() + gzip.compress(b"other,1\n"))
        finish()
    sentence = found_of(name, line="2")["sentence"]
    assert sentence == "Line 2 cannot be found: the file is compressed, and lines of its content are not counted."


def test_lines_of_a_plain_file_are_followed_whatever_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first bytes show that it is not compressed; for a file that is gone only the name decides."""
    monkeypatch.chdir(tmp_path)
    text = APP.replace("[.]csv'", "[.]csv[.]gz'").replace("min_readers:", "compression: none\n      min_readers:")
    Path("app.yaml").write_text(text)
    Path("in").mkdir()
    Path("in/a.csv.gz").write_bytes(ROWS)
    finish()
    url = str(Path("in/a.csv.gz").absolute())
    assert not ask("files/one", url=url)["compressed"]
    found = found_of("a.csv.gz", line="2")
    assert found["sentence"].startswith("Line 2 begins at byte 7. Window 1 read it; ")
    Path("in/a.csv.gz").unlink()
    assert ask("files/one", url=url)["compressed"]


def test_a_line_behind_the_last_newline_is_none(folder: Path) -> None:
    """A file whose last line ends with a newline has no line behind it; one that does not end has its last line."""
    lines = (folder / "in" / "a.csv").read_bytes().count(b"\n")
    assert f"Line {lines} begins at" in found_of("a.csv", line=str(lines))["sentence"]
    assert "has fewer lines" in found_of("a.csv", line=str(lines + 1))["sentence"]
    with (folder / "in" / "a.csv").open("ab") as file:
        file.write(b"hen,8")
    finish()
    assert f"Line {lines + 1} begins at" in found_of("a.csv", line=str(lines + 1))["sentence"]


def test_a_refused_line_is_in_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page says why its window refused it, and does not claim of a header what holds for records."""
    monkeypatch.chdir(tmp_path)
    Path("app.yaml").write_text(with_table(APP))
    Path("in").mkdir()
    Path("in/a.csv").write_bytes(ROWS + b"fox,many\ngnu,7\n")
    finish()
    found = found_of("a.csv", line="7")
    assert found["sentence"].startswith(
        f"Line 7 begins at byte 37. Window {found['window']} read it, and operator 'reader' refused it: column 'n'"
    )
    assert (found["outputs"], found["tables"], "ables" in found["sentence"]) == ([], {}, False)
    for line in ("1", "8"):
        assert found_of("a.csv", line=line)["sentence"].endswith(
            "merged and published its records. Tables have its records: table since version 0."
        )


def test_a_line_that_one_operator_refused_may_be_kept_by_others(folder: Path) -> None:
    """The page shows the refusal, and where the rest of the app has put what it kept."""
    text = APP.replace('Select, properties: {where: "n <> 1"}', 'Check, properties: {expect: "n <> 1"}')
    Path("app.yaml").write_text(text.replace("from: reader.errors", "from: filter.errors"))
    (folder / "in" / "b.csv").write_bytes(ROWS)
    finish()
    found = found_of("b.csv", line="3")
    begin, refusal, rest = found["sentence"].partition(" and operator 'filter' refused it: expected n <> 1. ")
    assert (begin, refusal != "") == (f"Line 3 begins at byte 13. Window {found['window']} read it,", True)
    assert rest.startswith(f"Window {found['window']} read it; its records are in ")
    assert found["outputs"]
