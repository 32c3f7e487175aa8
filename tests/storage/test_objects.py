import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from fsspec.implementations.local import LocalFileSystem

from dagflow.errors import StorageError
from dagflow.storage.backends.fsspec.client import FsspecClient
from dagflow.storage.backends.fsspec.objects import FsspecObjectStore
from dagflow.storage.context import StorageContext
from dagflow.storage.objects import ObjectStore
from dagflow.storage.roots import Roots
from dagflow.testing.faults import Faults, InjectedCrash, crashing_disk


def test_a_store_survives_pickling(root: str) -> None:
    """A local store may be sent to a task."""
    if "://" not in root:
        store = pickle.loads(pickle.dumps(StorageContext.default().objects(root)))
        store.create("a", b"1")
        assert store.read("a") == b"1"


def test_a_store_that_overwrites_is_refused_by_the_probe(tmp_path: Path) -> None:
    """A file system that takes no notice of mode="create" cannot hold a journal."""

    class Careless(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
        def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **others: object) -> None:
            with open(path, "wb") as file:
                file.write(value)

    class Client(FsspecClient):
        def locate(self, url: str) -> tuple[Careless, str]:
            return Careless(), str(tmp_path)

    store = FsspecObjectStore(Client("careless", {}), "careless://x", Roots())
    with pytest.raises(StorageError, match="cannot keep two drivers apart"):
        store.probe()


def test_a_file_system_that_only_looks_before_it_writes_is_refused() -> None:
    """Two writers may pass fsspec's inherited look together, and no probe by one process can see it."""
    with pytest.raises(StorageError, match="no exclusive creation"):
        _open_looking_store()


def _open_looking_store() -> ObjectStore:
    import fsspec

    class Looking(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
        protocol = "looking"

    fsspec.register_implementation("looking", Looking, clobber=True)
    return StorageContext.default().objects("looking://x")


def test_an_unknown_scheme_is_named() -> None:
    """A typing error in a URL is told as one."""
    with pytest.raises(StorageError, match="unknown scheme 's33'"):
        StorageContext.default().objects("s33://bucket/x")


def test_an_empty_location_is_not_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a user works on is never listed or deleted because a location was not set."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StorageError, match="an empty location holds no objects"):
        StorageContext.default().objects("")


def test_a_lost_reply_is_found_out_by_reading_back(tmp_path: Path) -> None:
    """The object is there, so creation succeeded, whatever the reply was."""
    inner = StorageContext.default().objects(str(tmp_path))
    faults = Faults(1, "lost_reply")
    faults.store(inner).create("a", b"1")
    assert faults.has_struck
    assert inner.read("a") == b"1"


def _steps_of_create(root: Path) -> Iterator[tuple[int, bool]]:
    """Die before each change of the disk in turn, and tell whether the object is there."""
    for step in range(1, 30):
        store = StorageContext.default().objects(str(root / str(step)))
        with crashing_disk(str(root), step) as faults:
            try:
                store.create("log/1", b"whole")
            except InjectedCrash:
                pass
            else:
                assert not faults.has_struck
                return
        yield step, list(store.list("log/")) == ["log/1"]


def test_a_crash_leaves_an_object_whole_or_absent(tmp_path: Path) -> None:
    """At whichever change of the disk a process dies, no reader sees a part, and the name can be used again."""
    seen = dict(_steps_of_create(tmp_path))
    assert len(seen) >= 5
    assert set(seen.values()) == {True, False}
    for step, is_there in seen.items():
        store = StorageContext.default().objects(str(tmp_path / str(step)))
        if is_there:
            assert store.read("log/1") == b"whole"
        else:
            store.create("log/1", b"another")


def test_a_full_or_read_only_disk_is_a_clear_error() -> None:
    """The message says what was tried, where, and what to do."""
    with pytest.raises(StorageError, match=r"/proc/nothing/a: cannot create"):
        StorageContext.default().objects("/proc/nothing").create("a", b"1")
