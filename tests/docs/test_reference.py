"""The pages that are made from the code are those of today's code."""

import pytest

from tests.docs.reference import DOCS, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_page_that_is_made_from_the_code_is_up_to_date(name: str) -> None:
    """`python -m tests.docs.reference` writes it."""
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name]()
