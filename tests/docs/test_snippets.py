"""A reader who does what the pages of docs/ say gets what they show."""

from pathlib import Path

import pytest

from tests.docs.snippets import ROOT, Recipe, follow, recipes

PAGES = [
    pytest.param(recipe, id=f"{page.stem}: {recipe.title}")
    for folder in ("start", "tutorials", "cookbook")
    for page in sorted((ROOT / "docs" / folder).glob("*.md"))
    for recipe in recipes(page, folder == "cookbook")
]


@pytest.mark.nightly
@pytest.mark.parametrize("recipe", PAGES)
def test_a_page_shows_what_its_commands_print(recipe: Recipe, tmp_path: Path) -> None:
    """Files and commands of a page, in their order, in an empty directory."""
    assert not "\n".join(follow(recipe, tmp_path))
