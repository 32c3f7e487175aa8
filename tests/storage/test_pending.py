import contextlib
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.errors import FencedError, StorageError
from dagflow.storage.backends.s3.pending import S3PendingFiles
from dagflow.storage.pending import PENDING_DIRECTORY, pending_tag
from dagflow.testing.faults import InjectedCrash, crashing_disk
from tests.storage.shared import (
    STORAGE,
    TAG,
    content,
    everything,
    filesystem_of,
    pending_of,
    publish,
    s3_client,
    sweep,
    unfinished_uploads,
    write,
)


def alone() -> None:
    """No other driver has come."""


def test_a_checksum_notices_other_bytes_of_the_same_size(tmp_path: Path) -> None:
    """Where the pending file is gone, the published one must be the one that was written."""
    pending = write(str(tmp_path / "f"), b"abc", checksum=True)
    publish(pending)
    (tmp_path / "f").write_bytes(b"xyz")
    with pytest.raises(StorageError, match="taken by another file"):
        publish(pending)


def test_the_hidden_directory_goes_with_its_last_file(tmp_path: Path) -> None:
    """It is there as long as a pending file is in it, of whatever epoch."""
    hidden = tmp_path / PENDING_DIRECTORY
    one, other = write(str(tmp_path / "a"), b"1"), write(str(tmp_path / "b"), b"2", tag=pending_tag("app", 2))
    publish(one)
    assert hidden.is_dir()
    pending_of(other).discard(other)
    assert os.listdir(tmp_path) == ["a"]


def test_a_sweep_keeps_committed_files_under_another_path(tmp_path: Path) -> None:
    """What was committed through a link is found, and kept, by a run that was given the directory itself."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    dead, kept = write(f"{tmp_path}/link/f", b"1"), write(f"{tmp_path}/link/g", b"2")
    assert sweep(f"{tmp_path}/real", owner="app", before_epoch=2, require_right=alone, keep={kept.pending_url}) == 1
    publish(kept)
    with pytest.raises(StorageError, match="lost"):
        publish(dead)
    assert everything(f"{tmp_path}/real") == {"g"}


def test_a_sweep_passes_over_what_may_not_be_read() -> None:
    """Such as lost+found, which belongs to root: what lies beside it goes, and nothing of this user's is in it."""
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o777)
        os.mkdir(f"{directory}/lost+found", 0o000)
        if user == 0:
            os.seteuid(65534)
        try:
            write(f"{directory}/a/f", b"1")
            assert sweep(directory, owner="app", before_epoch=2, require_right=alone) == 1
        finally:
            os.seteuid(user)


def test_uploads_of_dead_attempts_end_when_their_name_is_published(s3_root: str) -> None:
    """After a replay no unfinished upload for the replayed name is left, and other names' uploads are."""
    write(f"{s3_root}/f", b"dead")
    other = write(f"{s3_root}/f2", b"alive")
    pending = write(f"{s3_root}/f", b"told")
    publish(pending)
    pending_of(pending).discard_rivals(pending)
    assert [upload["Key"] for upload in unfinished_uploads(s3_root)] == ["f2"]
    publish(other)


def test_a_sweep_ends_only_old_uploads_without_an_owner(s3_root: str) -> None:
    """Whose an upload is cannot be seen, so only age condemns it; what a journal names is kept at any age."""
    kept, old = write(f"{s3_root}/out/f", b"kept"), write(f"{s3_root}/out/g", b"old")
    write(f"{s3_root}/other/h", b"elsewhere")
    assert sweep(f"{s3_root}/out", owner="app", before_epoch=9, require_right=alone, keep={kept.pending_url}) == 0
    assert (
        S3PendingFiles(s3_client(), stale_s=0).sweep(
            f"{s3_root}/out", owner="app", before_epoch=9, require_right=alone, keep={kept.pending_url}
        )
        == 1
    )
    publish(kept)
    assert [upload["Key"] for upload in unfinished_uploads(s3_root)] == ["other/h"]
    assert old.size_bytes == 3


def test_a_sweep_ends_uploads_for_names_that_are_published(s3_root: str) -> None:
    """The checkpoint's own driver would know of them, so they are a dead task's; under others' names they stay."""
    publish(write(f"{s3_root}/out/f", b"told"))
    write(f"{s3_root}/out/f", b"dead")
    write(f"{s3_root}/out/g", b"foreign, perhaps")
    filesystem, path = filesystem_of(f"{s3_root}/out/g")
    filesystem.pipe(path, b"foreign")
    assert sweep(f"{s3_root}/out", owner="app", before_epoch=9, require_right=alone) == 1
    assert [upload["Key"] for upload in unfinished_uploads(s3_root)] == ["out/g"]


def test_a_sweep_leaves_to_another_checkpoint_what_it_replaces(s3_root: str) -> None:
    """A replay uploads under names that are published: of its own, below a directory that another app writes to."""
    publish(write(f"{s3_root}/out/b/f", b"old", tag=pending_tag("b", 1)))
    again = write(f"{s3_root}/out/b/f", b"new", tag=pending_tag("b", 2))
    assert sweep(f"{s3_root}/out", owner="app", before_epoch=9, require_right=alone) == 0
    pending_of(again).replace(again)
    assert content(f"{s3_root}/out/b/f") == b"new"


def test_a_sweep_by_a_driver_that_was_replaced_ends_no_upload(s3_root: str) -> None:
    """What it has listed may be its successor's."""
    publish(write(f"{s3_root}/out/f", b"told"))
    write(f"{s3_root}/out/f", b"the successor's, of a replay")

    def replaced() -> None:
        raise FencedError("another driver has taken over", url=s3_root)

    with pytest.raises(FencedError, match="taken over"):
        sweep(f"{s3_root}/out", owner="app", before_epoch=9, require_right=replaced)
    assert len(unfinished_uploads(s3_root)) == 1


CHUNKS = st.lists(st.one_of(st.binary(max_size=50), st.sampled_from([b"a" * 300_000, b"b" * (1 << 20)])), max_size=8)


@settings(max_examples=40)
@given(chunks=CHUNKS)
def test_small_and_large_buffers_keep_their_order(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes]
) -> None:
    """However a file is cut into buffers, and whatever becomes of a buffer later, its bytes are theirs in order."""
    url = str(tmp_path_factory.mktemp("out") / "f")
    writer = STORAGE.open_pending(url, tag=TAG, checksum=True)
    for chunk in chunks:
        reused = bytearray(chunk)
        writer.write(reused)
        reused[:] = bytes(len(reused))
    publish(writer.close(records=0))
    assert content(url) == b"".join(chunks)


def test_power_durability_publishes_the_same(tmp_path: Path) -> None:
    """Waiting for the disk changes nothing that a reader sees."""
    writer = STORAGE.open_pending(str(tmp_path / "new" / "f"), tag=TAG, durability="power")
    writer.write(b"abc")
    pending = writer.close(records=1)
    pending_of(pending).publish(pending, "power")
    assert content(str(tmp_path / "new" / "f")) == b"abc"


def test_a_pending_file_that_was_cut_is_not_published(tmp_path: Path) -> None:
    """A power loss may take the end of a file that was not synced; half a file is never shown."""
    pending = write(str(tmp_path / "f"), b"abcdef")
    os.truncate(pending.pending_url, 3)
    with pytest.raises(StorageError, match="has 3 bytes, not the 6 that were written"):
        publish(pending)
    assert not (tmp_path / "f").exists()


def test_publishing_survives_a_death_at_every_change_of_the_disk(tmp_path: Path) -> None:
    """Whatever step was the last, doing it again ends with one whole file and nothing else."""
    for step in range(1, 20):
        root = tmp_path / str(step)
        pending = write(str(root / "f"), b"abc")
        with crashing_disk(str(root), step) as faults, contextlib.suppress(InjectedCrash):
            publish(pending)
        if (root / "f").exists():
            assert content(str(root / "f")) == b"abc"
        publish(pending)
        assert content(str(root / "f")) == b"abc"
        STORAGE.backend(str(root)).pending.sweep(str(root), owner="app", before_epoch=2, require_right=alone)
        assert everything(str(root)) == {"f"}
        if not faults.has_struck:
            assert step >= 4
            return
    pytest.fail("publish never came through")


def test_a_directory_that_is_no_directory_is_a_clear_error(tmp_path: Path) -> None:
    """The message names the output and the reason."""
    (tmp_path / "out").write_bytes(b"")
    with pytest.raises(StorageError, match=r"out/f: cannot open a pending file for it: .*[Dd]irectory|exists"):
        STORAGE.open_pending(str(tmp_path / "out" / "f"), tag=TAG)


def test_what_is_ended_travels_on_and_may_still_be_abandoned(s3_root: str) -> None:
    """A task that fails behind the end of a file leaves no upload; one that does not gets the file it wrote."""
    data = os.urandom((16 << 20) + 1)
    kept, given_up = (STORAGE.open_pending(f"{s3_root}/{name}", tag=TAG) for name in ("kept", "given-up"))
    for writer in (kept, given_up):
        writer.write(data)
        assert writer.end() == len(data)
    given_up.abandon()
    pending = kept.close(records=1)
    assert len(unfinished_uploads(s3_root)) == 1
    publish(pending)
    assert content(f"{s3_root}/kept") == data
    assert unfinished_uploads(s3_root) == []
