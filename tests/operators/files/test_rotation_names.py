from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.files.rotation_names import earlier_paths, rotated, uncompressed

BEFORE = {
    "app.log.1": "app.log",
    "app.log.2": "app.log.1",
    "app.log.10": "app.log.9",
    "app.log-20261123": "app.log",
    "app.log-20261123-1795461000": "app.log",
    "app.log.2026-11-23_18-25-00": "app.log",
    "app.log.2026-11-23T18:25:00Z": "app.log",
    "app.log.2026-W48": "app.log",
    "app-2026-W48-1.log": "app.log",
    "app-20261123.log": "app.log",
    "app-2026-11-23.log": "app.log",
    "app.1.log": "app.log",
    "app_1.log": "app.log",
    "app.log.old": "app.log",
    "app.log.bak": "app.log",
    "app.log.gz": "app.log",
    "app.log.1.gz": "app.log.1",
    "app.log.2.gz": "app.log.1",
    "app.log.10.gz": "app.log.9",
    "app.log.1.GZ": "app.log",
    "app.log-20261123.zst": "app.log",
    "app-20261123.log.bz2": "app.log",
    "old/app.log.1.xz": "app.log",
    "messages.1": "messages",
    "messages-20261123": "messages",
    "app.old.log": "app.log",
    "worker.1.1": "worker.1",
    "worker.1.2026-11-23.gz": "worker.1",
    "server-8080.old": "server-8080",
    "node-10.0.0.5.1.GZ": "node-10.0.0.5",
    "gc.log.0.3.gz": "gc.log.0",
    "web_01-2026-11-23.0.log.gz": "web_01.log",
    "app.log-20261123.1.gz": "app.log-20261123",
    "app.log.2026-11-23.1.gz": "app.log.2026-11-23",
}


@pytest.mark.parametrize(("name", "before"), BEFORE.items())
def test_a_rotated_name_gives_the_name_before(name: str, before: str) -> None:
    """Names that logrotate, Python, log4j and logback give."""
    path, other = (f"/var/log/{each}".encode() for each in (name, before))
    assert other in earlier_paths(path)
    shortest = min((each for each in earlier_paths(path)), key=len)
    assert rotated([path], lambda paths: {shortest} & set(paths)).tolist() == [True]


@pytest.mark.parametrize("name", ["app.log", "app.txt", "b", "app.logs", ".1", "app"])
def test_other_names_give_nothing(name: str) -> None:
    """They are recognised by their inodes alone."""
    assert earlier_paths(f"/var/log/{name}".encode()) == []


NAMES = st.text(st.sampled_from("ab1.-_gz"), min_size=1, max_size=12).map(lambda name: b"/d/" + name.encode())


@given(paths=st.lists(NAMES, min_size=1, max_size=20), known=st.sets(NAMES))
def test_many_names_are_suspected_only_where_one_by_one_they_are(paths: list[bytes], known: set[bytes]) -> None:
    """The quick look at many names finds no file that the thorough look at one would not."""
    found = rotated(paths, lambda asked: known & set(asked))
    for path, is_rotated in zip(paths, found.tolist(), strict=True):
        assert not is_rotated or known & set(earlier_paths(path)) or uncompressed(path) != path


ROTATED = st.tuples(
    NAMES,
    st.lists(
        st.sampled_from(
            ["1", ".1", ".12", "-20261123", ".2026-11-23_18-25", "-2026-W48", "_18:25Z", ".old", "_last", ".log"]
        ),
        max_size=4,
    ),
    st.sampled_from(["", "", ".gz", ".GZ", ".zstd"]),
).map(lambda parts: b"/var" + parts[0] + "".join(parts[1]).encode() + parts[2].encode())


@given(path=ROTATED)
def test_a_name_is_suspected_whichever_of_its_names_before_is_known(path: bytes) -> None:
    """The quick look at many names lets none pass as new that the thorough look at one would recognise."""
    for before in earlier_paths(path):
        # What is shifted uncompressed keeps its inode, or the log is known as well.
        if _stem(before) != _stem(path):
            assert rotated([path], {before}.intersection).tolist() == [True], before


def _stem(path: bytes) -> bytes:
    """The name without its last number."""
    return re.sub(rb"(?<=.[.\-_])[0-9]{1,4}$", b"", path.rpartition(b"/")[2])


@given(path=ROTATED, other=ROTATED)
def test_a_name_is_suspected_in_any_company(path: bytes, other: bytes) -> None:
    """Which names are looked at together makes no difference."""
    for before in earlier_paths(path):
        alone = [rotated([each], {before}.intersection).tolist()[0] for each in (path, other)]
        assert rotated([path, other], {before}.intersection).tolist() == alone


@pytest.mark.parametrize("before", ["app.log.1", "app.log.0", "app.log.95"])
def test_a_compressed_name_is_suspected_where_a_lower_number_is_known(before: str) -> None:
    """A pattern may leave out the log itself."""
    path = b"/var/log/app.log.99.gz"
    assert rotated([path], {f"/var/log/{before}".encode()}.intersection).tolist() == [True]
    assert rotated([path], {b"/var/log/app.log.100"}.intersection).tolist() == [False]


def test_the_number_of_a_year_counts_no_rotations() -> None:
    """Each such name would be looked up under numbers that it never had."""
    assert rotated([b"/var/app-2026.gz"], {b"/var/app-0"}.intersection).tolist() == [False]
