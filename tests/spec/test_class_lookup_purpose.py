"""Built-in operators are found by what they do."""

from __future__ import annotations

import pytest

from dagflow.spec.class_lookup import OPERATOR, UnknownClassError, built_in, find_class, for_purpose


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("SumBy", "Aggregate"),
        ("GroupTotals", "Aggregate"),
        ("MapColumns", "Select"),
        ("LimitRows", "TopN"),
        ("DistinctRecords", "Deduplicator"),
        ("SaveToDisk", "RecordWriter"),
        ("WhereClause", "RecordFilter"),
        ("Join", "Enrich"),
        ("Dedup", "Deduplicator"),
        ("SqlQuery", "Sql"),
        ("RegexParser", "Parse"),
        ("AssertRange", "Check"),
        ("Frobnicate", ""),
    ],
)
def test_the_nearest_by_purpose_is_named(name: str, nearest: str) -> None:
    """A guessed name has a word of the operator that is meant, or one that stands for the same."""
    found = list(for_purpose(name, built_in(OPERATOR)))
    assert nearest in found if nearest else found == []


def test_for_an_unknown_name_the_nearest_by_purpose_is_shown() -> None:
    """With what it does; where nothing fits, all names are shown."""
    with pytest.raises(UnknownClassError, match=r"'SumBy'; the nearest by what they do: Aggregate \(groups records"):
        find_class("SumBy", (), OPERATOR)
    with pytest.raises(UnknownClassError, match=r"'Frobnicate'; there are Aggregate, BlockReader, "):
        find_class("Frobnicate", (), OPERATOR)
