"""What every store that reads by ranges has in common."""

from __future__ import annotations

import pytest

from dagflow.errors import SourceChangedError, StorageError
from dagflow.storage.files import FileStat, RangedFile


class FixedAnswerFile(RangedFile):
    """A file of 10 bytes whose client always answers the same."""

    def __init__(self, data: bytes) -> None:
        super().__init__(FileStat("store://a", 10))
        self.data = data

    def request(self, start: int, end: int) -> bytes:
        """Answer a request."""
        return self.data


def test_a_client_that_cannot_read_a_part_is_not_a_file_that_changed() -> None:
    """More than was asked for is the client's fault, less is the file's."""
    with pytest.raises(StorageError, match="was asked for 3 bytes, and gave 10") as raised:
        FixedAnswerFile(b"0123456789").fetch(2, 5)
    assert not isinstance(raised.value, SourceChangedError)
    with pytest.raises(SourceChangedError, match="it had 10 bytes, now it ends at 4"):
        FixedAnswerFile(b"23").fetch(2, 5)
