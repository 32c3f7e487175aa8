"""The laws that every kind of store keeps, as tests to inherit."""

from __future__ import annotations

import json
import pickle
import threading
import uuid
from abc import ABC, abstractmethod

import pytest

from dagflow.errors import AlreadyExistsError, MissingError, SourceChangedError, StorageError
from dagflow.storage.context import StorageContext
from dagflow.storage.objects import ObjectStore
from dagflow.storage.pending import PendingFile, PendingFiles, pending_tag

TAG = pending_tag("app", 1)


class StorageContract(ABC):
    """Tests of one kind of store; a subclass, whose name begins with Test, reaches it.

    Guarantee: a store that passes holds input, output and a checkpoint. That its creation excludes other processes is
    seen only for threads.
    """

    @abstractmethod
    @pytest.fixture
    def storage(self) -> StorageContext:
        """The context that reaches the store."""

    @abstractmethod
    @pytest.fixture
    def root(self) -> str:
        """The URL of an empty place; it need not exist."""

    @pytest.fixture
    def pending(self, storage: StorageContext, root: str) -> PendingFiles:
        """Where output waits to be published."""
        return storage.backend(root).pending

    @pytest.fixture
    def store(self, storage: StorageContext, root: str) -> ObjectStore:
        """The objects below the place."""
        return storage.objects(root)

    # Objects, of which a checkpoint consists

    @pytest.mark.parametrize("data", [b"", b"x", bytes(300_000)])
    def test_an_object_is_read_as_it_was_created(self, store: ObjectStore, data: bytes) -> None:
        """Empty, small and large objects come back byte for byte."""
        store.create("log/1", data)
        assert store.read("log/1") == data

    @pytest.mark.parametrize("data", [b"", b"mine"])
    def test_a_second_creator_is_refused_and_changes_nothing(self, store: ObjectStore, data: bytes) -> None:
        """A name is taken once; creating the same bytes again succeeds."""
        store.create("log/1", data)
        store.create("log/1", data)
        with pytest.raises(AlreadyExistsError, match="taken"):
            store.create("log/1", b"yours")
        assert store.read("log/1") == data

    def test_one_of_many_creators_wins(self, store: ObjectStore) -> None:
        """Of several threads that create one name, one succeeds, and its bytes are there."""
        contents = [uuid.uuid4().bytes * 1000 for _ in range(6)]
        winners: list[bytes] = []
        start = threading.Barrier(len(contents))

        def race(content: bytes) -> None:
            start.wait()
            try:
                store.create("log/1", content)
            except AlreadyExistsError:
                return
            winners.append(content)

        threads = [threading.Thread(target=race, args=(content,)) for content in contents]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert winners == [store.read("log/1")]

    def test_objects_are_listed_in_order_from_a_name_on(self, store: ObjectStore) -> None:
        """A listing holds the objects of one directory, sorted, and can begin after a name."""
        for name in ("log/3", "log/1", "log/2", "log2/1", "log/deep/1", "top"):
            store.create(name, name.encode())
        assert list(store.list("log/")) == ["log/1", "log/2", "log/3"]
        assert list(store.list("log/", after="log/1")) == ["log/2", "log/3"]
        assert list(store.list("")) == ["top"]
        assert list(store.list("nothing/")) == []

    def test_a_deleted_object_is_gone_and_its_name_is_free(self, store: ObjectStore) -> None:
        """Deleting a missing object is no error."""
        store.create("log/1", b"a")
        store.delete(["log/1", "log/2"])
        with pytest.raises(MissingError, match=r"."):
            store.read("log/1")
        store.create("log/1", b"b")

    def test_the_probe_passes_and_leaves_nothing(self, store: ObjectStore) -> None:
        """A checkpoint may be kept here."""
        store.probe()
        assert list(store.list("probe/")) == []

    # Files, which are input

    @pytest.mark.parametrize(("offset", "length"), [(0, 10), (3, 4), (0, 100), (9, 5), (10, 5), (0, 0)])
    def test_any_range_of_a_file_is_read(self, storage: StorageContext, root: str, offset: int, length: int) -> None:
        """A read is short only at the end of the file."""
        _put(storage, f"{root}/f", b"0123456789")
        buffer = bytearray(length)
        with storage.open_file(f"{root}/f", storage.stat(f"{root}/f")) as file:
            assert file.size_bytes == 10
            count = file.read_into(offset, memoryview(buffer))
        assert bytes(buffer[:count]) == b"0123456789"[offset : offset + length]

    def test_another_version_is_refused(self, storage: StorageContext, root: str) -> None:
        """A file that was replaced after it was planned is noticed, whether its size changed or not."""
        for other in (b"0123456789abc", b"9876543210"):
            _put(storage, f"{root}/f", b"0123456789")
            planned = storage.stat(f"{root}/f")
            storage.backend(root).files.remove(f"{root}/f")
            _put(storage, f"{root}/f", other)
            with pytest.raises(SourceChangedError, match="changed after it was planned"):
                storage.open_file(f"{root}/f", planned).close()
            storage.backend(root).files.remove(f"{root}/f")

    def test_a_missing_file_is_named(self, storage: StorageContext, root: str) -> None:
        """Neither a look at it, nor opening, listing or removing it gives anything."""
        for ask in (storage.stat, storage.open_file, lambda url: list(storage.list_directory(url))):
            with pytest.raises(MissingError, match="nothing"):
                ask(f"{root}/nothing")

    def test_a_walk_gives_paths_in_the_order_of_their_bytes(self, storage: StorageContext, root: str) -> None:
        """Directories sort as if they ended in a slash; a listing and a look at a file agree."""
        for name in ("b", "a/x", "a-b", "a.b", "a/b/c", "é", "B"):
            _put(storage, f"{root}/d/{name}", b"12")

        def walk(url: str) -> list[str]:
            found: list[str] = []
            for entry in storage.list_directory(url):
                if entry.is_directory:
                    found += [] if ".dagflow" in entry.url else walk(entry.url)
                else:
                    assert entry == storage.stat(entry.url)
                    found.append(entry.url)
            return found

        paths = walk(f"{root}/d")
        assert len(paths) == 7
        assert paths == sorted(paths, key=str.encode)

    # Pending files, which become output

    @pytest.mark.parametrize("size_bytes", [0, 5, 20 << 20])
    def test_a_file_is_seen_when_it_is_published(self, storage: StorageContext, root: str, size_bytes: int) -> None:
        """Before, no listing shows its name; then it holds what was written. Publishing again changes nothing."""
        data = bytes(range(256)) * (size_bytes // 256) + b"x" * (size_bytes % 256)
        file = _written(storage, f"{root}/out/f", data)
        assert (file.size_bytes, file.records) == (size_bytes, 3)
        assert _visible(storage, f"{root}/out") == set()
        [copy] = [PendingFile.from_json(json.loads(json.dumps(pickle.loads(pickle.dumps(file)).to_json())))]
        for _ in range(2):
            storage.backend(root).pending.publish(copy)
            assert _content(storage, f"{root}/out/f") == data
        assert _visible(storage, f"{root}/out") == {"f"}

    def test_a_taken_name_is_an_error_and_stays_as_it_is(
        self, storage: StorageContext, root: str, pending: PendingFiles
    ) -> None:
        """Publishing never replaces another file, also one of the same size."""
        _put(storage, f"{root}/f", b"xyz")
        with pytest.raises(StorageError, match="the name is taken"):
            pending.publish(_written(storage, f"{root}/f", b"abc"))
        assert _content(storage, f"{root}/f") == b"xyz"

    def test_lost_output_is_an_error(self, storage: StorageContext, root: str, pending: PendingFiles) -> None:
        """A file that is neither pending nor published is never taken for published."""
        discarded, removed = _written(storage, f"{root}/f", b"abc"), _written(storage, f"{root}/g", b"abc")
        pending.discard(discarded)
        pending.discard(discarded)
        pending.publish(removed)
        storage.backend(root).files.remove(f"{root}/g")
        for file in (discarded, removed):
            with pytest.raises(StorageError, match="output was lost"):
                pending.publish(file)

    def test_a_published_file_can_be_replaced(self, storage: StorageContext, root: str, pending: PendingFiles) -> None:
        """The new file takes the place of the old one; doing it again changes nothing, and a lost one is an error."""
        _put(storage, f"{root}/f", b"old")
        file = _written(storage, f"{root}/f", b"newer")
        assert pending.is_whole(file)
        for _ in range(2):
            pending.replace(file)
            assert _content(storage, f"{root}/f") == b"newer"
        lost = _written(storage, f"{root}/f", b"abc")
        pending.discard(lost)
        assert not pending.is_whole(lost)
        with pytest.raises(StorageError, match=r"output was lost|the name is taken"):
            pending.replace(lost)

    def test_an_abandoned_file_leaves_nothing(self, storage: StorageContext, root: str) -> None:
        """A task that fails may abandon what it has written, twice."""
        writer = storage.open_pending(f"{root}/out/f", tag=TAG)
        writer.write(b"x" * 1000)
        writer.abandon()
        writer.abandon()
        assert _visible(storage, f"{root}/out") == set()

    def test_a_sweep_removes_what_dead_drivers_left(
        self, storage: StorageContext, root: str, pending: PendingFiles
    ) -> None:
        """Files of earlier epochs go, except those that an intent names; those of this epoch and other apps stay."""
        urls = [f"{root}/out/{name}" for name in ("dead", "kept", "now", "other")]
        tags = [pending_tag("app", 1), pending_tag("app", 1), pending_tag("app", 2), pending_tag("other", 1)]
        files = [_written(storage, url, b"abc", tag) for url, tag in zip(urls, tags, strict=True)]
        pending.sweep(
            f"{root}/out", owner="app", before_epoch=2, require_right=lambda: None, keep={files[1].pending_url}
        )
        for file in files[1:]:
            pending.publish(file)
        assert _visible(storage, f"{root}/out") == {"kept", "now", "other"}


def _written(storage: StorageContext, url: str, data: bytes, tag: str = TAG) -> PendingFile:
    writer = storage.open_pending(url, tag=tag)
    writer.write(data)
    return writer.close(records=3)


def _put(storage: StorageContext, url: str, data: bytes) -> None:
    storage.backend(url).pending.publish(_written(storage, url, data))


def _content(storage: StorageContext, url: str) -> bytes:
    with storage.open_file(url) as file:
        buffer = bytearray(file.size_bytes)
        file.read_into(0, memoryview(buffer))
    return bytes(buffer)


def _visible(storage: StorageContext, url: str) -> set[str]:
    """The names in a directory that readers look at."""
    try:
        names = {entry.url.rpartition("/")[2] for entry in storage.list_directory(url)}
    except MissingError:
        return set()
    return {name for name in names if not name.startswith(".")}
