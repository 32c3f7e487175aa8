"""Each kind of store that comes with dagflow keeps the laws of all, and stores that are wrong do not."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from dagflow.storage.context import StorageContext
from dagflow.testing.storage_contract import StorageContract
from tests.hdfs_cluster import hdfs, hdfs_root
from tests.nightly import by_day
from tests.storage.shared import unfinished_uploads
from tests.testing import wrong_stores

__all__ = ["hdfs", "hdfs_root"]


class TestLocalStore(StorageContract):
    """A local disk."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        """A directory that does not exist yet."""
        return str(tmp_path / "root")


class TestMemory(StorageContract):
    """A store that only fsspec knows."""

    @pytest.fixture
    def root(self) -> str:
        """A name that no other test has."""
        return f"memory://{uuid.uuid4().hex}"


class TestS3(StorageContract):
    """A server that speaks S3's protocol."""

    shows_owners = False

    @pytest.fixture
    def root(self, s3_root: str) -> str:
        """A prefix in a bucket of this test's own."""
        return f"{s3_root}/some/where"

    def uploads(self, root: str) -> list[Any]:
        """Multipart uploads that are not completed."""
        return unfinished_uploads(root)

    @pytest.mark.nightly
    def test_no_listing_ends_after_a_page(self, root: str) -> None:
        """Pages of S3 are followed to the end; to write a thousand objects takes longer than all else of a store."""
        super().test_no_listing_ends_after_a_page(root)


@pytest.mark.hdfs
class TestHdfs(StorageContract):
    """A real HDFS."""

    @pytest.fixture
    def root(self, hdfs_root: str) -> str:
        """A directory that does not exist yet."""
        return f"{hdfs_root}/some/where"


class ContractWithoutStore(StorageContract):
    """The laws, without a store of their own."""

    __test__ = False


@pytest.mark.parametrize(
    ("wrong", "law", "finding", "given"),
    by_day(
        5,
        [
            ("KeepsTheLastWrite", "what_is_written_in_pieces_is_one_file", r"\(3, 7, ", {"is_held": False}),
            ("KeepsTheLastWrite", "what_is_written_in_pieces_is_one_file", r"\(3, 7, ", {"is_held": True}),
            (
                "RemembersListings",
                "a_listing_shows_what_has_changed_since_the_last_one",
                r"\['b'\] == \['a', 'b'\]",
                {},
            ),
            ("RemembersObjects", "a_listing_shows_what_other_drivers_do", r"\['log/1'\] == \['log/1', 'log/2'\]", {}),
            ("HidesDirectoriesOfDirectories", "a_directory_of_directories_is_listed", r"\[\[\], ", {}),
            ("ReadsNearOffsets", "every_part_of_a_longer_file_is_read", "10 bytes at 65536 gives another byte", {}),
            ("ListsAPageOfFiles", "no_listing_ends_after_a_page", "'1000'", {}),
            ("ListsAPageOfObjects", "no_listing_ends_after_a_page", "'many/1000'", {}),
            ("GivesNoVersions", "other_bytes_of_the_same_size_are_another_version", "shows no other version", {}),
            (
                "TakesNamesForQueries",
                "a_name_is_neither_a_pattern_nor_part_of_a_url",
                r"\['in a'\] == \['in a\?b'\]",
                {"name": "a?b", "other": "a"},
            ),
            ("ReadsAheadFromTheBeginning", "a_file_that_is_read_ahead_gives_the_ranges", "at 65535 gives another", {}),
            ("PinsNothing", "what_a_file_calls_unchanged_is_of_its_version", "assert bytearray", {"is_ahead": False}),
            ("PinsNothing", "what_a_file_calls_unchanged_is_of_its_version", "assert bytearray", {"is_ahead": True}),
            ("LeavesHalfAPublish", "a_publish_that_died_half_way_leaves_one_file", "dagflow-pending", {}),
        ],
    ),
)
def test_the_suite_finds_a_store_that_is_wrong(wrong: str, law: str, finding: str, given: dict[str, Any]) -> None:
    """One law fails for it."""
    context = StorageContext({"memory": {"backend": f"{wrong_stores.__name__}.{wrong}"}})
    assert refusal(context, f"memory://{uuid.uuid4().hex}", law, given, finding)


def test_the_suite_finds_a_store_that_takes_names_for_patterns(tmp_path: Path) -> None:
    """A database finds more than it was asked for."""
    options = {"backend": f"{wrong_stores.__name__}.TakesNamesForPatterns", "database": str(tmp_path / "db")}
    law = "a_name_is_neither_a_pattern_nor_part_of_a_url"
    given = {"name": "a_b", "other": "axb"}
    assert refusal(StorageContext({"sqlite": options}), "sqlite://some", law, given, "'in axb'")


def refusal(context: StorageContext, root: str, law: str, given: dict[str, Any], finding: str) -> str:
    """What a law says of a store."""
    suite = ContractWithoutStore()
    suite.context = context
    parameters = {"store": context.objects(root), **given} if law.startswith("a_listing_shows_what_other") else given
    with pytest.raises((AssertionError, pytest.fail.Exception), match=finding) as error:
        getattr(suite, f"test_{law}")(root, **parameters)
    return str(error.value)
