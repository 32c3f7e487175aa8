"""Pending files of a local disk."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.errors import StorageError
from dagflow.storage.pending import PENDING_DIRECTORY, pending_tag
from dagflow.testing.faults import InjectedCrash, crashing_disk
from tests.nightly import examples
from tests.storage.shared import (
    STORAGE,
    TAG,
    alone,
    content,
    everything,
    pending_of,
    publish,
    sweep,
    write,
)


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


def test_a_sweep_removes_the_hidden_directory_of_a_driver_that_died(tmp_path: Path) -> None:
    """It had removed all that was in it; the output directory itself stays."""
    (tmp_path / ".dagflow-pending").mkdir()
    assert sweep(str(tmp_path), owner="app", before_epoch=2, require_right=alone) == 0
    assert list(tmp_path.iterdir()) == []


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


CHUNKS = st.lists(st.one_of(st.binary(max_size=50), st.sampled_from([b"a" * 300_000, b"b" * (1 << 20)])), max_size=8)


@settings(max_examples=examples(40))
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
