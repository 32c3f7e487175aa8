"""The laws that every store keeps, as tests to inherit; needs pytest."""

from __future__ import annotations

import json
import os
import pickle
import threading
import uuid
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import ClassVar

import msgspec
import pytest

from dagflow.errors import AlreadyExistsError, MissingError, StorageError
from dagflow.storage.base import ObjectStore
from dagflow.storage.pending import PendingFile, pending_tag
from dagflow.storage.publishing import discard_all, find_lost, publish_all, replace_all
from dagflow.testing.files_contract import CONFUSED, TAG, FilesContract, StoreUnderTest

__all__ = ["TAG", "StorageContract"]

SIZES = [0, 1, 5000, (16 << 20) + 1]


class PendingContract(StoreUnderTest):
    """The laws of PendingFiles, and of publishing sets of them."""

    shows_owners: ClassVar[bool] = True
    """Whether a sweep can see which driver left a pending file; S3's uploads do not show it."""

    @pytest.mark.parametrize("size", SIZES)
    def test_a_published_file_holds_what_was_written(self, root: str, size: int) -> None:
        """Empty, small, and larger than one part: the bytes are those, also when it is published again."""
        data = os.urandom(size)
        pending = self.write(f"{root}/out/f", data, checksum=True)
        assert (pending.size_bytes, pending.records) == (size, 3)
        for _ in range(2):
            publish_all(self.context, [pending])
            assert self.content(f"{root}/out/f") == data
        assert self.everything(root) == {"out/f"}
        assert self.uploads(root) == []

    @pytest.mark.parametrize("is_held", [False, True])
    def test_what_is_written_in_pieces_is_one_file(self, root: str, is_held: bool) -> None:
        """The pieces follow each other, whatever their lengths are, and the checksum is that of all."""
        pieces = [b"one", b"", os.urandom(300_000), b"two", os.urandom(5000), b"end"]
        begin = self.context.open_held if is_held else self.context.open_pending
        writer = begin(f"{root}/out/f", tag=TAG, checksum=True)
        for piece in pieces:
            writer.write(piece)
        pending, whole = writer.close(records=7), b"".join(pieces)
        assert (pending.size_bytes, pending.records, pending.crc32) == (len(whole), 7, zlib.crc32(whole))
        if not is_held:
            publish_all(self.context, [pending])
        found = self.content(pending.pending_url if is_held else pending.final_url)
        assert (len(found), zlib.crc32(found)) == (len(whole), zlib.crc32(whole))

    def test_a_file_is_not_seen_before_it_is_published(self, root: str) -> None:
        """A listing shows at most hidden names."""
        publish_all(self.context, [self.write(f"{root}/out/first", b"1")])
        self.write(f"{root}/out/f", b"abc")
        shown = {entry.url.rpartition("/")[2] for entry in self.context.list_directory(f"{root}/out")}
        assert {name for name in shown if not name.startswith(".")} == {"first"}
        with pytest.raises(MissingError, match="out/f"):
            self.content(f"{root}/out/f")

    def test_a_pending_file_survives_pickling_and_json(self, root: str) -> None:
        """The driver, and a later one, can publish a task's file."""
        pending = self.write(f"{root}/f", b"abc")
        copy = msgspec.convert(json.loads(json.dumps(asdict(pickle.loads(pickle.dumps(pending))))), PendingFile)
        assert copy == pending
        publish_all(pickle.loads(pickle.dumps(self.context)), [copy])
        assert self.content(f"{root}/f") == b"abc"

    @pytest.mark.parametrize("size", [0, 3])
    def test_a_name_that_is_taken_is_an_error_and_stays(self, root: str, size: int) -> None:
        """Publishing never replaces another file, also one of the same size."""
        publish_all(self.context, [self.write(f"{root}/f", b"xyz")])
        with pytest.raises(StorageError, match="the name is taken by another file"):
            publish_all(self.context, [self.write(f"{root}/f", b"abc"[:size])])
        assert self.content(f"{root}/f") == b"xyz"

    def test_a_publish_that_died_half_way_leaves_one_file(self, root: str) -> None:
        """Equal bytes under the final name are another's file, or the complete copy of a publish that was cut off."""
        pending, copy = self.write(f"{root}/out/f", b"abc"), self.write(f"{root}/out/f", b"abc")
        publish_all(self.context, [copy])
        try:
            publish_all(self.context, [pending])
        except StorageError as error:
            assert "the name is taken by another file" in str(error)
            discard_all(self.context, [pending])
        assert self.content(f"{root}/out/f") == b"abc"
        assert self.everything(root) == {"out/f"}
        assert self.uploads(root) == []

    def test_a_published_file_that_was_removed_is_lost(self, root: str) -> None:
        """A driver that comes back late gets an error, and creates nothing; nor is a discarded file published."""
        pending, other = self.write(f"{root}/f", b"abc"), self.write(f"{root}/g", b"abc")
        publish_all(self.context, [pending])
        self.context.backend(root).files.remove(f"{root}/f")
        discard_all(self.context, [other])
        for lost in (pending, other):
            with pytest.raises(StorageError, match="output was lost: neither"):
                publish_all(self.context, [lost])
        assert self.everything(root) == set()

    def test_a_discarded_file_leaves_nothing(self, root: str) -> None:
        """Also in a second call; nor does a file that was abandoned while it was written."""
        discard_all(self.context, [self.write(f"{root}/out/f", b"abc")] * 2)
        writer = self.context.open_pending(f"{root}/out/f", tag=TAG)
        writer.write(b"x" * (17 << 20))
        writer.abandon()
        writer.abandon()
        assert self.everything(root) == set()
        assert self.uploads(root) == []

    def test_two_attempts_at_one_name_do_not_meet(self, root: str) -> None:
        """Each attempt writes a file of its own; the one that is reported to the driver is published."""
        late = self.context.open_pending(f"{root}/f", tag=TAG)
        late.write(b"late")
        publish_all(self.context, [self.write(f"{root}/f", b"told")])
        late.write(b" and later")
        loser = late.close(records=1)
        assert self.content(f"{root}/f") == b"told"
        discard_all(self.context, [loser])

    @pytest.mark.parametrize("size", [0, 5000])
    def test_a_published_file_can_be_replaced(self, root: str, size: int) -> None:
        """Doing it again changes nothing, and nothing else is left."""
        self.put(f"{root}/out/f", b"before")
        data = os.urandom(size)
        pending = self.write(f"{root}/out/f", data)
        assert self.content(f"{root}/out/f") == b"before"
        for _ in range(2):
            self.pending(root).replace(pending)
            assert self.content(f"{root}/out/f") == data
        assert self.everything(root) == {"out/f"}
        assert self.uploads(root) == []

    def test_a_replacement_that_is_gone_is_an_error(self, root: str) -> None:
        """The old file stays."""
        self.put(f"{root}/out/f", b"before")
        pending = self.write(f"{root}/out/f", b"something longer")
        discard_all(self.context, [pending])
        assert find_lost(self.context, [pending]) == [pending]
        with pytest.raises(StorageError, match="out/f"):
            self.pending(root).replace(pending)
        assert self.content(f"{root}/out/f") == b"before"

    def test_a_set_takes_the_place_of_another(self, root: str) -> None:
        """Remaining files are replaced, new ones added, others removed; doing it again changes nothing."""
        for name in "abc":
            self.put(f"{root}/out/{name}", name.encode())
        new = [self.write(f"{root}/out/{name}", data) for name, data in (("a", b"A"), ("b", b""), ("d", b"D"))]
        for _ in range(2):
            assert find_lost(self.context, new) == []
            replace_all(self.context, new, [f"{root}/out/c"], _no_other_driver)
            assert self.everything(root) == {"out/a", "out/b", "out/d"}
            assert [self.content(f"{root}/out/{name}") for name in "abd"] == [b"A", b"", b"D"]

    def test_a_sweep_removes_what_dead_drivers_left(self, root: str) -> None:
        """Only those of earlier epochs of the same checkpoint, and none that are still to be published."""
        sweep = self.pending(root).sweep
        # An output directory that does not exist yet has no leftovers.
        assert sweep(f"{root}/nothing", owner="app", before_epoch=2, require_right=_no_other_driver) == 0
        if not self.shows_owners:
            pytest.skip("an upload does not show whose it is")
        dead, kept = self.write(f"{root}/a/f", b"1"), self.write(f"{root}/a/g", b"2")
        alive = self.write(f"{root}/f", b"3", tag=pending_tag("app", 2))
        foreign = self.write(f"{root}/f", b"4", tag=pending_tag("other-app", 1))
        publish_all(self.context, [self.write(f"{root}/a/h", b"5")])
        keep = {kept.pending_url}
        assert sweep(root, owner="app", before_epoch=2, require_right=_no_other_driver, keep=keep) == 1
        publish_all(self.context, [kept, alive])
        discard_all(self.context, [foreign])
        with pytest.raises(StorageError, match="lost"):
            publish_all(self.context, [dead])
        assert self.everything(root) == {"a/g", "a/h", "f"}

    @pytest.mark.parametrize("size", [0, 5000])
    def test_a_held_file_is_read_before_anything_is_published(self, root: str, size: int) -> None:
        """Until it is discarded, or a later driver sweeps it because no window holds it."""
        data, tags = os.urandom(size), [TAG, TAG, pending_tag("app", 2), pending_tag("other-app", 1)]
        held, dead, alive, foreign = (self.hold(f"{root}/out/f", data, tag=tag) for tag in tags)
        given_up = self.context.open_held(f"{root}/out/f", tag=TAG)
        given_up.write(b"x")
        given_up.abandon()
        assert [self.content(each.pending_url) for each in (held, dead, alive, foreign)] == [data] * 4
        assert find_lost(self.context, [held]) == []
        sweep, keep = self.pending(root).sweep, {held.pending_url}
        assert sweep(f"{root}/out", owner="app", before_epoch=2, require_right=_no_other_driver, keep=keep) == 1
        assert find_lost(self.context, [held, dead, alive, foreign]) == [dead]
        discard_all(self.context, [held, held, alive, foreign])
        assert self.everything(root) == set()
        assert self.uploads(root) == []

    def test_a_buffer_may_be_reused_when_it_is_written(self, root: str) -> None:
        """The bytes at that moment are written, whatever type the items have."""
        buffer = memoryview(bytearray(b"12345678")).cast("q")
        writer = self.context.open_pending(f"{root}/f", tag=TAG)
        writer.write(buffer)
        buffer[0] = 0
        pending = writer.close(records=0)
        publish_all(self.context, [pending])
        assert self.content(f"{root}/f") == b"12345678"


class ObjectsContract(StoreUnderTest):
    """The laws of ObjectStore."""

    @pytest.fixture
    def store(self, root: str) -> ObjectStore:
        """The objects below the root."""
        return self.context.objects(root)

    @pytest.mark.parametrize("size", [0, 1, 300_000])
    def test_an_object_is_read_as_it_was_created(self, store: ObjectStore, size: int) -> None:
        """Byte for byte; creating the same bytes again succeeds, because they count as this writer's own."""
        data = os.urandom(size)
        store.create("log/1", data)
        store.create("log/1", data)
        assert store.read("log/1") == data
        assert list(store.list("log/")) == ["log/1"]

    @pytest.mark.parametrize("data", [b"", b"mine"])
    def test_a_second_creator_is_refused(self, store: ObjectStore, data: bytes) -> None:
        """A name is taken once, by an empty object too."""
        store.create("log/1", data)
        with pytest.raises(AlreadyExistsError, match="taken by other bytes"):
            store.create("log/1", b"yours")
        assert store.read("log/1") == data

    def test_one_of_many_creators_wins(self, store: ObjectStore) -> None:
        """However many race for a name, one gets it, and its bytes are complete."""
        contents = [uuid.uuid4().bytes * 1000 for _ in range(6)]
        winners: list[bytes] = []
        start = threading.Barrier(len(contents))

        def race(content: bytes, name: str) -> None:
            start.wait()
            try:
                store.create(name, content)
            except AlreadyExistsError:
                return
            winners.append(content)

        for name in ("log/1", "log/2", "log/3"):
            winners.clear()
            threads = [threading.Thread(target=race, args=(content, name)) for content in contents]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert winners == [store.read(name)]

    def test_names_are_listed_in_order_from_a_name_on(self, store: ObjectStore) -> None:
        """A listing has the objects of one directory, sorted, and can begin after a name."""
        for name in ("log/3", "log/1", "log/2", "log2/1", "log/deep/1", "top"):
            store.create(name, name.encode())
        assert list(store.list("log/")) == ["log/1", "log/2", "log/3"]
        assert list(store.list("log/", after="log/1")) == ["log/2", "log/3"]
        assert list(store.list("log/", after="log/3")) == []
        assert list(store.list("")) == ["top"]
        assert list(store.list("nothing/")) == []

    def test_a_listing_shows_what_other_drivers_do(self, root: str, store: ObjectStore) -> None:
        """Each listing is current: a driver notices by it that another one has taken over."""
        other = self.another_context().objects(root)
        assert list(store.list("log/")) == []
        for name, shown in (("log/1", ["log/1"]), ("log/2", ["log/1", "log/2"])):
            other.create(name, b"a")
            assert list(store.list("log/")) == shown
        other.delete(["log/1"])
        assert list(store.list("log/")) == ["log/2"]

    def test_objects_of_roots_with_any_name_are_kept_apart(self, root: str) -> None:
        """The name of a root is neither a pattern nor part of a URL."""
        names = sorted({name for pair in CONFUSED for name in pair})
        stores = {name: self.context.objects(f"{root}/{name}") for name in names}
        for name, store in stores.items():
            store.create("log/1", name.encode())
        for name, store in stores.items():
            assert list(store.list("log/")) == ["log/1"]
            assert store.read("log/1") == name.encode()
            store.delete(["log/1"])
            assert list(store.list("log/")) == []

    def test_a_deleted_object_is_gone_and_its_name_is_free(self, store: ObjectStore) -> None:
        """Deleting a missing object is no error."""
        store.create("log/1", b"a")
        store.delete(["log/1", "log/2"])
        with pytest.raises(MissingError, match="log/1"):
            store.read("log/1")
        store.create("log/1", b"b")

    def test_a_replaced_object_holds_the_new_bytes(self, store: ObjectStore) -> None:
        """Longer or shorter than the old ones, and nothing else is left."""
        store.create("beat/1", b"old")
        for data in (b"longer than it was", b"", b"x"):
            store.replace("beat/1", data)
            assert store.read("beat/1") == data
        assert list(store.list("beat/")) == ["beat/1"]

    def test_a_probe_passes_and_leaves_nothing(self, store: ObjectStore) -> None:
        """The store excludes, and keeps no object of the probe."""
        store.probe()
        assert list(store.list("probe/")) == []

    def test_objects_can_be_opened_by_their_path(self, store: ObjectStore) -> None:
        """If a store says that its objects have local paths."""
        store.create("log/1", b"abc")
        path = store.path_of("log/1")
        if path is not None:
            with open(path, "rb") as file:
                assert file.read() == b"abc"


class StorageContract(FilesContract, PendingContract, ObjectsContract):
    """The laws of a backend: inherit it, and provide the fixture `root`, and `storage` where options are needed."""

    def test_no_listing_ends_after_a_page(self, root: str) -> None:
        """Stores answer with a thousand names at a time: all of them are listed, as objects and as files."""
        names, directory = [f"{number:04}" for number in range(1001)], f"{root}/many"
        store = self.context.objects(root)
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda name: store.create(f"many/{name}", b""), names))
        assert list(store.list("many/")) == [f"many/{name}" for name in names]
        assert list(store.list("many/", after="many/0998")) == ["many/0999", "many/1000"]
        if not self.everything(directory):  # a store may keep its objects elsewhere than its files
            publish_all(self.context, [self.write(f"{directory}/{name}", b"") for name in names])
        assert self.names(directory) == names


def _no_other_driver() -> None:
    """Replaces the check that no other driver has taken over."""
