"""Where keys, values and comments of a YAML text are."""

from __future__ import annotations

import pytest

from dagflow.spec.shown_text import Extent, NoExtentsError, extents_of

TEXT = """\
a: &x 'b # c' # one
? [1]
: - !!str
    # two
    |  # three
    d

  - {e: , *x : ${F}} # four
g:
"""


def pieces(node: Extent) -> list[str]:
    """The text of each node, from the outermost on."""
    return [TEXT[node.start : node.end], *(piece for child in node.children for piece in pieces(child))]


def test_each_node_has_its_piece_of_the_text() -> None:
    """Without what follows it; an empty one has none."""
    (root,) = extents_of(TEXT).roots
    found = pieces(root)
    assert found[0].startswith("a: &x") and found[0].endswith("g:")
    assert found[1:5] == ["a", "&x 'b # c'", "[1]", "1"]
    assert found[5].startswith("- !!str") and found[5].endswith("${F}}")
    assert found[6].startswith("!!str\n") and found[6].rstrip().endswith("d")
    assert found[7:] == ["{e: , *x : ${F}}", "e", "", "*x", "${F}", "g", ""]


def test_a_comment_is_none_within_a_value() -> None:
    """Between anchor, tag and value it is one; the one in a block's first line belongs to the block."""
    found = extents_of(TEXT)
    assert [TEXT[start:end] for start, end in found.comments] == ["# one", "# two", "# four"]
    assert found.aliased == {"x"}


def test_an_alias_knows_what_it_stands_for() -> None:
    """It has a place of its own, and the meaning of its target."""
    (root,) = extents_of("a: &x b\nc: *x").roots
    (_, target), (_, alias) = root.pairs()
    assert alias.meaning is target and target.meaning is target
    assert (alias.text, target.text, alias.is_empty) == (None, "b", False)


@pytest.mark.parametrize("text", ["a: 'b", "a: *b", "[a", "\x00", "\t- a"])
def test_a_text_that_is_not_yaml_has_no_extents(text: str) -> None:
    """Nor has one with an alias that names nothing."""
    with pytest.raises(NoExtentsError, match=r"not YAML|names nothing"):
        extents_of(text)
