"""Objects as files of a local disk."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from dagflow.errors import StorageError
from dagflow.storage.context import StorageContext
from dagflow.testing.faults import InjectedCrash, crashing_disk
from tests.faulty import Faults, FaultyStore


def test_a_store_survives_pickling(tmp_path: Path) -> None:
    """It may be sent to a task."""
    store = pickle.loads(pickle.dumps(StorageContext.default().objects(str(tmp_path))))
    store.create("a", b"1")
    assert store.read("a") == b"1"


def test_a_lost_reply_is_found_out_by_reading_back(tmp_path: Path) -> None:
    """The object is there, so creation succeeded, whatever the reply was."""
    inner = StorageContext.default().objects(str(tmp_path))
    faults = Faults(1, "lost_reply")
    FaultyStore(inner, faults).create("a", b"1")
    assert faults.has_struck
    assert inner.read("a") == b"1"


def _steps_of_create(root: Path) -> Iterator[tuple[int, bool]]:
    """Die before each change of the disk in turn, and give whether the object is there."""
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


def modes(root: Path) -> set[int]:
    """The modes of a directory and of all that is in it."""
    return {path.stat().st_mode & 0o777 for path in (root, *root.rglob("*"))}


@pytest.fixture
def no_umask() -> Iterator[None]:
    """New files get every mode that is asked for."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("no_umask")
def test_what_is_created_is_for_its_owner_only(tmp_path: Path) -> None:
    """The directories above the store are not its own."""
    store = StorageContext.default().objects(str(tmp_path / "above" / "store"))
    store.create("log/deep/1", b"1")
    assert modes(tmp_path / "above" / "store") == {0o700, 0o600}
    assert (tmp_path / "above").stat().st_mode & 0o777 == 0o777


@pytest.mark.usefixtures("no_umask")
def test_an_older_store_is_closed_and_what_else_lies_there_is_not(tmp_path: Path) -> None:
    """A directory that holds something else stays as it is: others may have to reach that."""
    store = StorageContext.default().objects(str(tmp_path / "store"))
    for name in ("log", "snap"):
        (tmp_path / "store" / name).mkdir(parents=True)
    assert store.close_to_others(["log", "snap"]) == ""
    assert modes(tmp_path / "store") == {0o700}
    (tmp_path / "store" / "published").mkdir()
    (tmp_path / "store").chmod(0o775)
    assert store.close_to_others(["log", "snap"]) == f"the mode of {tmp_path}/store is 775"
    assert [(tmp_path / "store" / name).stat().st_mode & 0o777 for name in ("log", "published")] == [0o700, 0o777]
    (tmp_path / "store").chmod(0o755)
    assert store.close_to_others(["log", "snap"]) == ""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_a_store_of_another_user_is_reported(tmp_path: Path) -> None:
    """Its owner can change it."""
    (tmp_path / "log").mkdir()
    os.chown(tmp_path / "log", 65534, 65534)
    store = StorageContext.default().objects(str(tmp_path))
    assert store.close_to_others(["log"]) == f"{tmp_path}/log belongs to another user, with the id 65534"
