"""A reader who does what the pages of docs/ say gets what they show."""

from pathlib import Path

import pytest

from tests.docs.snippets import ROOT, Command, File, Recipe, follow, recipes

PAGES = {
    page: recipes(page, folder == "cookbook")
    for folder in ("start", "tutorials", "cookbook")
    for page in sorted((ROOT / "docs" / folder).glob("*.md"))
    if page.stem != "index"
}
READ_WHOLE = [
    page for folder in ("start", "tutorials", "concepts") for page in sorted((ROOT / "docs" / folder).glob("*.md"))
]
RECIPES = [pytest.param(recipe, id=f"{page.stem}: {recipe.title}") for page, found in PAGES.items() for recipe in found]


@pytest.mark.nightly
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_page_shows_what_its_commands_print(recipe: Recipe, tmp_path: Path) -> None:
    """Files and commands of a page, in their order, in an empty directory."""
    assert not "\n".join(follow(recipe, tmp_path))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_command_and_each_file_of_a_page_is_found(page: Path) -> None:
    """As many as a plain look at its lines counts."""
    steps = [step for recipe in PAGES[page] for step in recipe.steps]
    lines = page.read_text("utf-8").splitlines()
    assert sum(type(step) is Command for step in steps) == sum(line.startswith("$") for line in lines) > 0
    assert sum(isinstance(step, File) for step in steps) == sum("title=" in line for line in lines)


def test_a_new_reader_can_finish_each_page() -> None:
    """At most 1,200 words, and recipes of a few lines for thirty tasks."""
    words = {page: len(page.read_text("utf-8").split()) for page in READ_WHOLE}
    assert not [f"{page.name}: {count} words" for page, count in words.items() if count > 1200]
    assert len([recipe for page, found in PAGES.items() if page.parent.name == "cookbook" for recipe in found]) >= 30


@pytest.mark.parametrize(
    "text",
    [
        "```consol\n$ true\n```\n",
        "``` console\n$ true\n```\n",
        " ```console\n$ true\n```\n",
        "```console\n$true\n```\n",
        "```console\n$ true\n$true\n```\n",
        "```console\ntrue\n```\n",
        "```console\n```\n",
        "```console\n$ true\n",
        "```console\n$ true\n``` \n",
        "```yaml title=app.yaml\nname: a\n```\n",
        '```yaml title="app.yaml"\nname: a\n```\n',
        "```yaml\nname: a\nsteps:\n```\n",
        '```console\n$ true\n```\n## b\n```yaml title="a"\n```\n',
    ],
)
def test_a_page_that_would_not_be_tried_as_it_looks_is_refused(text: str, tmp_path: Path) -> None:
    """Its mistake would make it pass."""
    page = tmp_path / "page.md"
    page.write_text(f"# a\n{text}")
    with pytest.raises(ValueError, match=r"no block|neither a file|no command"):
        recipes(page, is_cookbook=True)


@pytest.mark.parametrize(
    ("line", "shown", "is_as_shown"),
    [
        ("echo ab", ["ab"], True),
        ("echo ab", ["a...", "..."], True),
        ("echo ab", [], True),
        ("echo ab", ["a"], False),
        ("echo ab", ["ab", "c"], False),
        ("echo ab; echo c", ["ab"], False),
        ("echo ab", [".b"], False),
        ("false", [], False),
        ("false | cat", ["..."], False),
    ],
)
def test_output_that_is_not_as_shown_fails(line: str, shown: list[str], is_as_shown: bool, tmp_path: Path) -> None:
    """A line too many or too few, other text, or a command that fails, also in a pipe."""
    assert (follow(Recipe("a", [Command(line, shown)]), tmp_path) == []) == is_as_shown
