"""Uploads to S3 that are not completed yet."""

from __future__ import annotations

import os

import pytest

from dagflow.errors import FencedError
from dagflow.storage.backends.s3.pending import S3PendingFiles
from dagflow.storage.pending import PENDING_DIRECTORY, pending_tag
from tests.storage.shared import (
    STORAGE,
    TAG,
    alone,
    content,
    filesystem_of,
    pending_of,
    publish,
    s3_client,
    sweep,
    unfinished_uploads,
    write,
)


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


def test_a_sweep_ends_uploads_of_dead_drivers_for_held_files(s3_root: str) -> None:
    """Their names show whose they are."""
    for tag in (TAG, pending_tag("app", 9)):
        # An upload's thread may begin it later than the sweep lists; closing waits for it.
        write(f"{s3_root}/out/{PENDING_DIRECTORY}/{tag}/f", b"x", tag=tag)
    assert sweep(f"{s3_root}/out", owner="app", before_epoch=9, require_right=alone) == 1
    (left,) = unfinished_uploads(s3_root)
    assert pending_tag("app", 9) in left["Key"]


def test_a_sweep_by_a_driver_that_was_replaced_ends_no_upload(s3_root: str) -> None:
    """What it has listed may be its successor's."""
    publish(write(f"{s3_root}/out/f", b"told"))
    write(f"{s3_root}/out/f", b"the successor's, of a replay")

    def replaced() -> None:
        raise FencedError("another driver has taken over", url=s3_root)

    with pytest.raises(FencedError, match="taken over"):
        sweep(f"{s3_root}/out", owner="app", before_epoch=9, require_right=replaced)
    assert len(unfinished_uploads(s3_root)) == 1


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
