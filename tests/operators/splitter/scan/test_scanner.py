from __future__ import annotations

import os
import re
import socket
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dagflow.errors import MissingError, StorageError
from operators.splitter.scan.listed_files import InTasks
from operators.splitter.scan.scanner import Scanner
from operators.splitter.scan.selection import Selection
from tests.operators.splitter.splitter_driver import FollowingDriver, each, write


def scan(*locations: Path | str, recursive: bool = True, **patterns: str) -> list[str]:
    """The files that a scan finds, as URLs; and the law that keys ascend and no key comes twice."""
    selection = Selection(recursive, **patterns)
    found = list(Scanner([str(location) for location in locations], selection).scan())
    keys = [key for files in found for key in files.keys]
    assert keys == sorted(set(keys))
    return [one.url(0) for one in each(found) if not one.is_directory(0)]


def below(root: Path, *locations: Path | str, recursive: bool = True, **patterns: str) -> list[str]:
    """The same, by their paths below root."""
    return [os.path.relpath(url, root) for url in scan(*locations, recursive=recursive, **patterns)]


names = st.text(st.sampled_from("ab-.0[*é "), min_size=1, max_size=3).filter(lambda name: name.strip(".") != "")
trees = st.lists(st.lists(names, min_size=1, max_size=4).map(tuple), max_size=12, unique=True)


def grow(root: Path, paths: list[tuple[str, ...]]) -> None:
    """Make files at paths, except where one would have to be a file and a directory."""
    for parts in paths:
        try:
            write(root.joinpath(*parts))
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            continue


@given(paths=trees)
def test_a_scan_finds_what_a_walk_of_the_file_system_finds(
    tmp_path_factory: pytest.TempPathFactory, paths: list[tuple[str, ...]]
) -> None:
    """For any tree: every file whose path has no hidden part, by the bytes of the path."""
    root = tmp_path_factory.mktemp("tree")
    grow(root, paths)
    walked = [os.path.join(directory, name) for directory, _, names in os.walk(root) for name in names]
    visible = [url for url in walked if not re.search(r"/\.", url[len(str(root)) :])]
    assert scan(root) == sorted(visible, key=os.fsencode)


@given(
    paths=trees, pattern=st.sampled_from(["a*", "*/a*", "**/a", "**", "a/**/b", "[ab]/*", "*-*", "?", "**/*/?", "[[]*"])
)
def test_a_glob_means_what_pathlib_says(
    tmp_path_factory: pytest.TempPathFactory, paths: list[tuple[str, ...]], pattern: str
) -> None:
    """For any tree and glob: the files that pathlib matches, and all below the directories that it matches."""
    root = tmp_path_factory.mktemp("tree")
    grow(root, [tuple(part.replace(".", "_.") for part in parts) for parts in paths])
    assume(not (root / pattern).exists())  # a name that exists is itself, not a glob
    expected = set()
    for match in root.glob(pattern):
        inside = match.rglob("*") if match.is_dir() else [match]
        expected |= {str(path) for path in inside if path.is_file()}
    try:
        found = scan(root / pattern)
    except MissingError:
        found = []
    assert found == sorted(expected, key=os.fsencode)


@given(
    paths=trees,
    pattern=st.sampled_from(["*", "a*", "*/a*", "**/a", "a/**/b", "**", "*-*/**", "**/[ab]*/**/b"]),
    patterns=st.fixed_dictionaries({}, optional={"file_pattern": st.just("a.*"), "ignore_pattern": st.just(".*b")}),
    recursive=st.booleans(),
)
def test_a_hidden_file_beside_others_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    paths: list[tuple[str, ...]],
    pattern: str,
    patterns: dict[str, str],
    recursive: bool,
) -> None:
    """Names that are examined one by one, because one of them is hidden, are selected as all at once are."""
    root = tmp_path_factory.mktemp("tree")
    grow(root, [tuple(part.replace(".", "_.") for part in parts) for parts in paths])

    def found() -> tuple[list[str], Counter[str]]:
        counters: Counter[str] = Counter()
        selection = Selection(recursive, **patterns)
        scanner = Scanner([f"{root}/{pattern}"], selection, counters)
        try:
            return [one.url(0) for one in each(scanner.scan())], counters
        except MissingError:
            return [], counters

    before, counted = found()
    for directory, _, _ in list(os.walk(root)):
        write(Path(directory) / ".hidden")
    after, counted_after = found()
    assert after == before
    assert counted_after["ignored"] >= counted["ignored"]


@pytest.mark.parametrize(
    "name",
    ["a b", "[", "[123]", "%", "ke ep2 %", "a\nb", "é", "*", "?", "'\"", "#", "a:b", "~"],
)
def test_a_special_name_is_read_when_named_and_when_scanned(tmp_path: Path, name: str) -> None:
    """A name that exists is itself, whatever it would mean as a glob."""
    path = write(tmp_path / name)
    assert scan(path) == [str(path)]
    assert scan(tmp_path) == [str(path)]


def test_a_directory_with_brackets_is_taken_literally_where_it_exists(tmp_path: Path) -> None:
    """Only what does not exist is read as a glob; brackets around one character escape it."""
    write(tmp_path / "[1]" / "x")
    write(tmp_path / "1" / "y")
    assert below(tmp_path, tmp_path / "[1]") == ["[1]/x"]
    assert below(tmp_path, tmp_path / "[[]1]/*") == ["[1]/x"]
    assert below(tmp_path, tmp_path / "[1]*") == ["1/y"]


def test_a_name_that_is_no_text_is_read(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 reach the reader as surrogates, from which the name can be made again."""
    path = os.fsencode(tmp_path) + b"/\xff\xfe"
    with open(path, "wb") as file:
        file.write(b"x")
    [url] = scan(tmp_path)
    assert os.fsencode(url) == path
    assert scan(os.fsdecode(os.fsencode(tmp_path) + b"/\xff*")) == [url]


@pytest.mark.parametrize(
    "name",
    [
        *(".hidden", "_SUCCESS", "_temporary", "part-0._COPYING_", "half.tmp", ".x/y", "_temporary/y"),
        *("a.part", "a.partial", "a.filepart", "a.crdownload", "a.swp", "a.swx", "a.swo", "a~", "#a#", "x.tmp/y"),
    ],
)
def test_hidden_and_unfinished_names_are_skipped_unless_named(tmp_path: Path, name: str) -> None:
    """A scan counts what it passes over; a file that is named by its own path is read."""
    path = write(tmp_path / name)
    counters: Counter[str] = Counter()
    assert list(Scanner([str(tmp_path)], Selection(), counters).scan()) == []
    assert counters == {"ignored": 1}
    assert scan(path) == [str(path)]
    assert scan(tmp_path, path) == [str(path)]
    assert scan(path.parent) == ([str(path)] if path.parent != tmp_path else [])


@pytest.mark.parametrize(
    "name",
    [
        "__init__.py",
        "_private.txt",
        "_vendor/y",
        "__main__",
        "a_b",
        "a._",
        "tmp",
        "x.tmp2",
        "part",
        "a.part1",
        "#a",
        "a#",
        "~a",
    ],
)
def test_names_that_only_look_hidden_are_read(tmp_path: Path, name: str) -> None:
    """An underscore before a name with an extension is no marker of another system."""
    write(tmp_path / name)
    assert below(tmp_path, tmp_path) == [name]


def test_a_glob_takes_in_hidden_names_only_where_it_asks_for_them(tmp_path: Path) -> None:
    """As in a shell, a star does not stand for a leading dot."""
    for name in (".a", "a", ".d/b", "e/b"):
        write(tmp_path / name)
    assert below(tmp_path, tmp_path / "*") == ["a", "e/b"]
    assert below(tmp_path, tmp_path / ".*") == [".a", ".d/b"]
    assert below(tmp_path, tmp_path / "**/b") == ["e/b"]


def test_a_scan_that_is_not_recursive_stays_in_its_directory(tmp_path: Path) -> None:
    """The same goes for directories that a glob matches."""
    for name in ("a", "sub/b", "sub/deep/c"):
        write(tmp_path / name)
    assert below(tmp_path, tmp_path, recursive=False) == ["a"]
    assert below(tmp_path, tmp_path / "s*", recursive=False) == ["sub/b"]
    assert below(tmp_path, tmp_path / "**" / "c", recursive=False) == ["sub/deep/c"]


def test_links_to_what_lies_elsewhere_are_followed_and_loops_are_cut(tmp_path: Path) -> None:
    """What they lead to is read under the link's name; one that leads back up ends there."""
    write(tmp_path / "in" / "a")
    write(tmp_path / "other" / "b")
    (tmp_path / "in" / "file").symlink_to(tmp_path / "other" / "b")
    (tmp_path / "in" / "dir").symlink_to(tmp_path / "other")
    (tmp_path / "in" / "loop").symlink_to(".")
    (tmp_path / "in" / "sub").mkdir()
    (tmp_path / "in" / "sub" / "up").symlink_to("..")
    (tmp_path / "in" / "nowhere").symlink_to("gone")
    (tmp_path / "in" / "itself").symlink_to("itself")
    assert below(tmp_path / "in", tmp_path / "in") == ["a", "dir/b", "file"]


LINKS = [
    # Locations, patterns, what a link called "link" leads to; whether it is passed over.
    (["in"], {}, "in/app-1.log", True),
    (["in"], {}, "in/sub", True),
    (["in"], {}, "in", True),
    (["in"], {}, "other/b", False),
    (["in"], {}, "other", False),
    (["in"], {}, "in/.hidden", False),
    (["in"], {"ignore_pattern": "app-.*"}, "in/app-1.log", False),
    (["in"], {"ignore_pattern": "sub"}, "in/sub/x", False),
    (["in/*"], {}, "in/app-1.log", True),
    (["in/l*"], {}, "in/app-1.log", False),
    (["in/s*", "in/link"], {}, "in/sub/x", True),
    (["in/link", "in/app-1.log"], {}, "in/app-1.log", True),
    (["in/link"], {}, "in/app-1.log", False),
    (["in/link", "in/sub"], {}, "in/sub", True),
    (["in", "other/b"], {}, "other/b", True),
]


@pytest.mark.parametrize(("locations", "patterns", "target", "is_passed_over"), LINKS)
def test_a_link_to_what_is_read_under_its_own_name_is_passed_over(
    tmp_path: Path,
    locations: list[str],
    patterns: dict[str, str],
    target: str,
    is_passed_over: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each file is read once, also one that only the link names; what is passed over is counted, and said once."""
    for name in ("in/app-1.log", "in/sub/x", "in/.hidden", "other/b"):
        write(tmp_path / name)
    (tmp_path / "in" / "link").symlink_to(tmp_path / target)
    counters: Counter[str] = Counter()
    selection = Selection(True, **patterns)
    scanner = Scanner([str(tmp_path / location) for location in locations], selection, counters)
    scans = [[one.url(0) for one in each(scanner.scan()) if not one.is_directory(0)] for _ in range(2)]
    assert scans[0] == scans[1]
    real = [os.path.realpath(path) for path in scans[0]]
    assert len(real) == len(set(real))
    assert any(path.startswith(f"{tmp_path}/in/link") for path in scans[0]) == (not is_passed_over)
    said = f"a link to something that is read under its own name, left out path={tmp_path}/in/link"
    assert [record.getMessage().rstrip("/") for record in caplog.records].count(said) == is_passed_over
    assert (counters["ignored"] > 0) or not is_passed_over


def test_files_behind_a_link_are_passed_over_one_by_one(tmp_path: Path) -> None:
    """A link leads to a directory; only some of its files are read under their own names."""
    for name in ("in/x", "other/a.log", "other/b.txt", "other/deep/c.log"):
        write(tmp_path / name)
    (tmp_path / "in" / "link").symlink_to(tmp_path / "other")
    assert below(tmp_path, tmp_path / "in", tmp_path / "other" / "*.log") == [
        *("in/link/b.txt", "in/link/deep/c.log", "in/x", "other/a.log")
    ]


@pytest.mark.parametrize("tolerates_missing", [False, True])
@pytest.mark.parametrize("in_tasks", [None, lambda function, items: list(map(function, items))])
@pytest.mark.parametrize("target", ["a/x", "gone", "link"])
def test_a_link_that_leads_nowhere_leaves_out_nothing_else(
    tmp_path: Path,
    target: str,
    in_tasks: InTasks | None,
    tolerates_missing: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Through a file, to nothing or to itself, in the root or below: scans say it once, and go on."""
    for directory in (tmp_path, tmp_path / "sub"):
        write(directory / "a")
        write(directory / "z")
        (directory / "link").symlink_to(target)
    scanner = Scanner([str(tmp_path)], Selection(), tolerates_missing=tolerates_missing, in_tasks=in_tasks)
    for _ in range(2):
        found = [one.relative_path(0) for one in each(scanner.scan()) if not one.is_directory(0)]
        assert found == ["a", "sub/a", "sub/z", "z"]
    assert sorted(record.getMessage() for record in caplog.records) == [
        f"a link that leads nowhere, left out path={directory}/link" for directory in (tmp_path, tmp_path / "sub")
    ]


def test_pipes_and_sockets_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A scan does not block on them; the first one says that they were there."""
    os.mkfifo(tmp_path / "pipe")
    scanner = Scanner([str(tmp_path)], Selection())
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        assert [list(scanner.scan()) for _ in range(3)] == [[]] * 3
    assert [record.getMessage() for record in caplog.records] == [
        f"neither file nor directory, left out path={tmp_path}/{name}" for name in ("pipe", "socket")
    ]
    with pytest.raises(MissingError, match="neither a file nor a directory"):
        scan(tmp_path / "pipe")


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that every user may enter, while the test runs as one who owns nothing."""
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        write(Path(directory) / "closed" / "a")
        os.chmod(Path(directory) / "closed", 0o000)
        if user == 0:
            os.seteuid(65534)
        try:
            yield Path(directory)
        finally:
            os.seteuid(user)
            os.chmod(Path(directory) / "closed", 0o755)


def test_a_directory_that_may_not_be_read_is_an_error(open_directory: Path) -> None:
    """Nothing is left out in silence; leaving it out is a property away."""
    with pytest.raises(StorageError, match=r"closed/: cannot be listed: Permission denied\n.*ignore_pattern"):
        scan(open_directory)
    assert scan(open_directory, ignore_pattern="closed") == []


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("z*", r"z\*: the glob matches nothing"),
        ("gone/z*", r"the glob begins in .*/gone, which is no directory"),
        ("gone/a", r"gone/a: no such file or directory\n    there is no 'gone' in"),
        ("hulu/a", r"did you mean .*/lulu\?"),
    ],
)
def test_a_location_that_names_nothing_is_an_error(tmp_path: Path, location: str, message: str) -> None:
    """Each way of naming nothing says what is there instead."""
    (tmp_path / "lulu").mkdir()
    with pytest.raises(MissingError, match=message):
        scan(tmp_path / location)


def test_a_glob_for_unfinished_names_says_how_to_read_them(tmp_path: Path) -> None:
    """The names that it shows would be those that it asks for."""
    write(tmp_path / "a.tmp")
    with pytest.raises(MissingError, match=r"'a\.tmp', by its end, is not complete yet: name it by its path"):
        scan(tmp_path / "*.tmp")
    assert len(scan(tmp_path / "a.tmp")) == 1


def test_a_glob_for_unfinished_names_shows_one_that_is_not_hidden(tmp_path: Path) -> None:
    """Hidden names sort first, and others that do not match may do so as well."""
    for name in [".x.tmp", *(f"{number}.log" for number in range(10)), "z.tmp"]:
        write(tmp_path / name)
    with pytest.raises(MissingError, match=r"'z\.tmp', by its end, is not complete yet"):
        scan(tmp_path / "*.tmp")
    (tmp_path / "z.tmp").unlink()
    with pytest.raises(MissingError, match=r"it holds \.x\.tmp, 0\.log, 1\.log, 2\.log, 3\.log, …"):
        scan(tmp_path / "*.tmp")


def test_a_glob_whose_matches_are_all_passed_over_is_no_error(tmp_path: Path) -> None:
    """What it matches is there; that nothing of it is to be read is the patterns' doing."""
    write(tmp_path / "a.bak")
    assert scan(tmp_path / "*.bak", ignore_pattern=r".*\.bak") == []


def test_thousands_of_locations_are_opened_one_after_the_other(tmp_path: Path) -> None:
    """Directories that lie beside each other are not all listed before the first file is found."""
    for number in range(30):
        write(tmp_path / f"{number:03}" / "a")
    locations = sorted((str(path) for path in tmp_path.iterdir()), reverse=True)
    scanning = each(Scanner(locations, Selection()).scan())
    assert next(scanning).url(0) == str(tmp_path / "000" / "a")
    (tmp_path / "001" / "b").write_bytes(b"")
    assert [found.relative_path(0) for found in scanning][:2] == ["a", "b"]


BEHIND_LINKS = [
    # Locations where "link" leads to "logs"; what is read.
    (["link/a", "logs"], ["logs/a/x", "logs/a/y", "logs/b/x"]),
    (["link", "logs/a"], ["link/b/x", "logs/a/x", "logs/a/y"]),
    (["link/a/x", "logs"], ["logs/a/x", "logs/a/y", "logs/b/x"]),
    (["link/a", "logs/a/x"], ["link/a/y", "logs/a/x"]),
    (["link/a/x", "logs/a/x"], ["logs/a/x"]),
    (["link/a/x", "logs/b"], ["link/a/x", "logs/b/x"]),
    (["link/*/x", "logs/a"], ["link/b/x", "logs/a/x", "logs/a/y"]),
    (["link/a/*", "logs/*/x"], ["link/a/y", "logs/a/x", "logs/b/x"]),
    (["link/a/x*", "logs/a/x"], ["logs/a/x"]),
    (["link/**/y", "logs/b"], ["link/a/y", "logs/b/x"]),
    (["l*/a", "logs"], ["logs/a/x", "logs/a/y", "logs/b/x"]),
    (["link/a", "link"], ["link/a/x", "link/a/y", "link/b/x"]),
    (["link/a", "link/b"], ["link/a/x", "link/a/y", "link/b/x"]),
    (["link/a", "."], ["logs/a/x", "logs/a/y", "logs/b/x"]),
]


@pytest.mark.parametrize(("locations", "expected"), BEHIND_LINKS)
def test_locations_that_overlap_behind_a_link_give_each_file_once(
    tmp_path: Path, locations: list[str], expected: list[str]
) -> None:
    """Under the name without a link, if that is read; all other names stay as they are."""
    for name in ("logs/a/x", "logs/a/y", "logs/b/x"):
        write(tmp_path / name)
    (tmp_path / "link").symlink_to("logs")
    for order in (locations, locations[::-1]):
        scanner = Scanner([os.path.normpath(tmp_path / location) for location in order], Selection())
        found = [one.url(0) for one in each(scanner.scan()) if not one.is_directory(0)]
        assert found == [f"{tmp_path}/{name}" for name in expected]


def test_a_link_in_a_location_may_change_while_it_is_followed(tmp_path: Path) -> None:
    """What it leads to then is read, and is passed over as long as it is read under its own name."""
    for name in ("logs/a/x", "other/a/y"):
        write(tmp_path / name)
    link = tmp_path / "link"
    link.symlink_to("logs")
    with FollowingDriver(files=[str(link / "a"), str(tmp_path / "logs")]) as follower:
        assert follower.scanned().paths == ["a", "a/x"]
        link.unlink()
        link.symlink_to("other")
        assert follower.next_scan().paths == ["y"]
        link.unlink()
        link.symlink_to("logs")
        write(tmp_path / "logs" / "a" / "z")
        assert follower.next_scan().paths == ["a/z"]
