"""Sets of files that take the place of others, on every store."""

from __future__ import annotations

import pytest

from dagflow.errors import StorageError
from dagflow.storage.backends.s3.client import S3Client, S3Location
from dagflow.storage.backends.s3.pending import S3PendingFiles
from dagflow.storage.publishing import find_lost, replace_all
from tests.storage.shared import STORAGE, content, everything, pending_of, publish, write


def nothing() -> None:
    """No other driver has taken over."""


def test_a_lost_file_is_found_before_anything_is_replaced(root: str) -> None:
    """Neither a file that was put in its place nor one that waits counts as lost."""
    new = [write(f"{root}/out/{name}", b"some of it") for name in "abc"]
    pending_of(new[0]).replace(new[0])
    pending_of(new[1]).discard(new[1])
    assert find_lost(STORAGE, new) == [new[1]]


def test_who_has_been_overtaken_replaces_and_removes_nothing(root: str) -> None:
    """The question comes first, and again before each removal."""
    publish(write(f"{root}/out/old", b"old"))
    answers = iter([StorageError("overtaken", url=root), None, StorageError("overtaken", url=root)])

    def ask() -> None:
        if (answer := next(answers)) is not None:
            raise answer

    new = write(f"{root}/out/new", b"new")
    with pytest.raises(StorageError, match="overtaken"):
        replace_all(STORAGE, [new], [f"{root}/out/old"], ask)
    assert not {"out/new"} & everything(root)
    with pytest.raises(StorageError, match="overtaken"):
        replace_all(STORAGE, [new], [f"{root}/out/old"], ask)
    assert everything(root) == {"out/old", "out/new"}


def test_an_empty_file_that_comes_too_late_replaces_nothing(s3_root: str) -> None:
    """A driver slept between its look and its request: what another one has put there since stays."""
    publish(write(f"{s3_root}/f", b"first"))
    late, newer = write(f"{s3_root}/f", b""), write(f"{s3_root}/f", b"newer")

    class Sleeper(S3Location):
        """Looks, and sleeps until another driver has replaced the object."""

        def call(self, method: str, action: str, **arguments: object) -> dict[str, object]:
            """One request, and after the first look what others do meanwhile."""
            answer = super().call(method, action, **arguments)
            if method == "head_object" and content(f"{s3_root}/f") == b"first":
                pending_of(newer).replace(newer)
            return answer

    class Client(S3Client):
        """Finds locations at which a driver sleeps."""

        def location(self, url: str) -> S3Location:
            """The sleeper's."""
            return Sleeper(self, url)

    with pytest.raises(StorageError, match="taken by another file"):
        S3PendingFiles(Client("s3", {})).replace(late)
    assert content(f"{s3_root}/f") == b"newer"
