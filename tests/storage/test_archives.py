"""Members of zip and tar archives are files of the store that has the archive."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import stat
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from backports.zstd import zipfile as zstd_zipfile
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.errors import MissingError, SourceChangedError, StorageError
from dagflow.storage.archives import SMALL_BYTES
from dagflow.storage.backends.archive import ArchiveFiles
from dagflow.storage.context import StorageContext
from operators import read_block

LONG = b"".join(b"%07d\n" % number for number in range(SMALL_BYTES // 8 + 100))
"""A member too long to be decompressed when it is opened; no eight bytes occur twice."""


def zipped(members: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED, library: Any = zipfile) -> bytes:
    """A zip archive."""
    out = io.BytesIO()
    with library.ZipFile(out, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def tarred(members: Mapping[str, bytes], mode: str = "w") -> bytes:
    """A tar archive."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]  # a mode of a parameter
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zip64(members: Mapping[str, bytes]) -> bytes:
    """A zip archive behind other bytes, as in programs that unpack themselves, with the long form of lengths."""
    out = io.BytesIO(b"#!/bin/sh\n")
    with zipfile.ZipFile(out, "a") as archive:
        for name, data in members.items():
            with archive.open(name, "w", force_zip64=True) as file:
                file.write(data)
    return out.getvalue()


ARCHIVES: dict[str, tuple[str, Callable[[Mapping[str, bytes]], bytes]]] = {
    "stored": ("a.zip", lambda members: zipped(members, zipfile.ZIP_STORED)),
    "deflated": ("A.ZIP", zipped),
    "bzip2": ("a.zip", lambda members: zipped(members, zipfile.ZIP_BZIP2)),
    "lzma": ("a.zip", lambda members: zipped(members, zipfile.ZIP_LZMA)),
    "zstd": ("a.zip", lambda members: zipped(members, zstd_zipfile.ZIP_ZSTANDARD, zstd_zipfile)),
    "zip64": ("a.zip", zip64),
    "tar": ("a.tar", tarred),
    "tar.gz": ("a.tar.gz", lambda members: tarred(members, "w:gz")),
    "tar.bz2": ("a.tar.bz2", lambda members: tarred(members, "w:bz2")),
    "tar.xz": ("a.txz", lambda members: tarred(members, "w:xz")),
}


def files_of(storage: StorageContext, archive: str) -> list[str]:
    """The URLs of the members of an archive."""
    files = storage.backend(f"{archive}!").files
    assert isinstance(files, ArchiveFiles)
    return [member.url for member in files.members(storage.stat(archive))]


def content(storage: StorageContext, url: str, offset: int = 0, length: int | None = None) -> bytes:
    """The bytes of a file from an offset on, in the version that a look at it finds."""
    with storage.open_file(url, storage.stat(url)) as file:
        buffer = bytearray(file.size_bytes if length is None else length)
        return bytes(buffer[: file.read_into(offset, memoryview(buffer))])


def put(path: Path, data: bytes) -> str:
    """Write a file, and return its location."""
    path.write_bytes(data)
    return str(path)


@pytest.mark.parametrize("kind", ARCHIVES)
def test_each_member_is_a_file_with_its_records(kind: str, tmp_path: Path) -> None:
    """In the order of their names' bytes, whatever the archive's order, and however long they are."""
    name, make = ARCHIVES[kind]
    members = {"z.log": b"z\n", "é/b.log": LONG, "a/b.log": b"b\n", "empty": b"", "a.log.gz": gzip.compress(b"c\n", 1)}
    archive = put(tmp_path / name, make(members))
    urls = files_of(StorageContext.default(), archive)
    assert urls == [f"{archive}!{path}" for path in ("a.log.gz", "a/b.log", "empty", "z.log", "é/b.log")]
    records = [b"".join(record for _, record in read_block(url, 0, 1 << 40, "lines")) for url in urls]
    assert records == [b"c", b"b", b"", b"z", LONG.replace(b"\n", b"")]


@pytest.mark.parametrize("kind", ["stored", "zip64", "tar", "tar.gz", "lzma"])
@settings(max_examples=10)
@given(offset=st.integers(0, len(LONG) + 5), length=st.integers(0, 70_000))
def test_a_member_is_read_at_any_place(
    kind: str, offset: int, length: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What is read equals the slice of its bytes; nothing of its neighbours is read with it."""
    name, make = ARCHIVES[kind]
    path = tmp_path_factory.getbasetemp() / kind / name
    if not path.exists():
        path.parent.mkdir()
        path.write_bytes(make({"a": b"neighbour", "long": LONG, "z": b"neighbour"}))
    storage = StorageContext.default()
    assert content(storage, f"{path}!long", offset, length) == LONG[offset : offset + length]
    assert content(storage, f"{path}!a", offset % 12, length) == b"neighbour"[offset % 12 :][:length]


@settings(max_examples=20)
@given(offset=st.integers(0, 300_000), length=st.integers(0, 70_000))
def test_a_long_deflated_member_is_a_gzip_file_at_any_place(
    offset: int, length: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Its header and its checksum are read as the bytes before and behind it."""
    path = tmp_path_factory.getbasetemp() / "deflated.zip"
    if not path.exists():
        path.write_bytes(zipped({"long": LONG}))
    storage = StorageContext.default()
    whole = content(storage, f"{path}!long")
    assert gzip.decompress(whole) == LONG
    assert content(storage, f"{path}!long", offset, length) == whole[offset : offset + length]


def test_an_archive_in_an_archive_is_opened_as_well(tmp_path: Path) -> None:
    """However it is compressed in the outer one."""
    inner = {
        "b.zip": zipped({"c.log": LONG[:9], "d": os.urandom(SMALL_BYTES)}),
        "x/e.tgz": tarred({"f": b"6\n"}, "w:gz"),
    }
    archive = put(tmp_path / "a.zip", zipped(inner))
    storage = StorageContext.default()
    assert content(storage, f"{archive}!b.zip!c.log") == LONG[:9]
    assert content(storage, f"{archive}!x/e.tgz!f") == b"6\n"


def test_no_name_leads_out_of_an_archive_and_nothing_but_files_is_read(tmp_path: Path) -> None:
    """Of several members with one name the last counts, as it does for who unpacks them; a hard link is a file."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind in (("/a", tarfile.REGTYPE), ("./d/../../b", tarfile.REGTYPE), ("d", tarfile.DIRTYPE)):
            tar.addfile(tarfile.TarInfo(name), None) if kind != tarfile.DIRTYPE else tar.addfile(_link(name, kind))
        tar.addfile(_link("hard", tarfile.LNKTYPE, "/a"))
        tar.addfile(_link("soft", tarfile.SYMTYPE, "/etc/passwd"))
        tar.addfile(_link("pipe", tarfile.FIFOTYPE))
    archive = put(tmp_path / "a.tar", out.getvalue())
    assert files_of(StorageContext.default(), archive) == [f"{archive}!{name}" for name in ("a", "b", "hard")]
    link = zipfile.ZipInfo("soft")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    out = io.BytesIO()
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(out, "w") as archived:
        archived.writestr(link, "/etc/passwd")
        archived.writestr("../a", b"first")
        archived.writestr("../a", b"last")
        archived.mkdir("d")
    archive = put(tmp_path / "a.zip", out.getvalue())
    assert files_of(StorageContext.default(), archive) == [f"{archive}!a"]
    assert content(StorageContext.default(), f"{archive}!a") == b"last"


def test_a_hard_link_without_its_file_is_refused_and_not_left_out(tmp_path: Path) -> None:
    """Also where the file comes later; another spelling of the file's name makes no difference."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.addfile(_link("early", tarfile.LNKTYPE, "b"))
        info = tarfile.TarInfo("./b")
        info.size = 2
        tar.addfile(info, io.BytesIO(b"1\n"))
        tar.addfile(_link("hard", tarfile.LNKTYPE, "b"))
    archive = put(tmp_path / "a.tar", out.getvalue())
    storage = StorageContext()
    assert files_of(storage, archive) == [f"{archive}!{name}" for name in ("b", "early", "hard")]
    assert content(storage, f"{archive}!hard") == b"1\n"
    with pytest.raises(StorageError, match="hard link to b, which is not before it in its archive"):
        content(storage, f"{archive}!early")


def _link(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def test_a_member_has_the_version_of_its_archive(tmp_path: Path) -> None:
    """A member of an archive that was written anew is another version, also if its own bytes are the same."""
    storage = StorageContext.default()
    archive = put(tmp_path / "a.zip", zipped({"a": b"a", "b": b"b"}))
    planned = storage.stat(f"{archive}!a")
    put(tmp_path / "a.zip", zipped({"a": b"a", "b": b"changed"}))
    for other in (storage, pickle.loads(pickle.dumps(storage))):
        assert not other.backend(planned.url).files.has_version(planned)
        with pytest.raises(SourceChangedError, match="etag"):
            other.open_file(planned.url, planned)
    for missing in (f"{archive}!c", f"{tmp_path}/b.zip!c"):
        with pytest.raises(MissingError, match=r"\.zip!c: cannot look at: No such file"):
            storage.stat(missing)


def test_a_file_may_be_called_like_a_member(tmp_path: Path) -> None:
    """It is read where no archive has such a member: beside one, or below a directory that is called like one."""
    (tmp_path / "d.zip!").mkdir()
    storage = StorageContext.default()
    for name in ("a.zip!b", "d.zip!/c"):
        assert content(storage, put(tmp_path / name, b"file")) == b"file"
    put(tmp_path / "a.zip", zipped({"c": b"c"}))
    assert content(storage, f"{tmp_path}/a.zip!b") == b"file"
    put(tmp_path / "a.zip", zipped({"b": b"member"}))
    assert content(storage, f"{tmp_path}/a.zip!b") == b"member"


@pytest.mark.parametrize(("method", "flags", "what"), [(99, 1, "AES"), (8, 1, "a password"), (9, 0, "Deflate64")])
def test_a_member_that_cannot_be_read_is_named_with_the_reason(
    method: int, flags: int, what: str, tmp_path: Path
) -> None:
    """When it is opened, so that the other members are read if the app leaves such files out."""
    data = bytearray(zipped({"a": b"a\n" * 9, "b": b"b\n"}))
    entry = data.index(b"PK\x01\x02")
    data[entry + 8], data[entry + 10] = flags, method
    archive = put(tmp_path / "a.zip", bytes(data))
    storage = StorageContext.default()
    assert len(files_of(storage, archive)) == 2
    assert content(storage, f"{archive}!b") == b"b\n"
    with pytest.raises(StorageError, match=f"a.zip!a: it is .* by {what}, which dagflow does not read"):
        storage.open_file(f"{archive}!a")


@pytest.mark.parametrize("kind", ARCHIVES)
def test_an_archive_that_is_cut_off_is_refused(kind: str, tmp_path: Path) -> None:
    """Wherever it is cut within its members, no member is read short, and none is missing without a word."""
    name, make = ARCHIVES[kind]
    members = {"a": os.urandom(5000), "b": os.urandom(700), "c": os.urandom(900)}
    data = make(members)
    storage = StorageContext.default()
    for end in (0, 100, 600, 3000, 5800, 6000, 6600):
        archive = put(tmp_path / name, data[:end])
        with pytest.raises(StorageError, match="damaged"):
            files_of(storage, archive)


@pytest.mark.parametrize("kind", ["stored", "deflated", "bzip2", "lzma", "zstd"])
def test_a_changed_byte_of_a_zip_is_noticed(kind: str, tmp_path: Path) -> None:
    """By the checksum of the member, before any of its bytes is read."""
    name, make = ARCHIVES[kind]
    data = bytearray(make({"a": b"0123456789" * 50}))
    data[42] ^= 0x10
    archive = put(tmp_path / name, bytes(data))
    with pytest.raises(StorageError, match="its compressed bytes are damaged"):
        StorageContext.default().open_file(f"{archive}!a")


def test_a_damaged_header_in_a_tar_is_not_its_end(tmp_path: Path) -> None:
    """Python's own reader takes it for the end, and the members behind it would be lost."""
    data = bytearray(tarred({"a": b"a", "b": b"b"}))
    data[1024] ^= 1
    archive = put(tmp_path / "a.tar", bytes(data))
    with pytest.raises(StorageError, match="goes on behind its end at 1024, or the header there is damaged"):
        files_of(StorageContext.default(), archive)
    archive = put(tmp_path / "b.tar", tarred({"a": b"a"}) + tarred({"b": b"b"}))
    with pytest.raises(StorageError, match="goes on behind its end"):
        files_of(StorageContext.default(), archive)
