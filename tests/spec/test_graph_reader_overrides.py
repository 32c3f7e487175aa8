"""`--set op.property=VALUE` puts properties on top of the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spec.apps import VALID, problems_of, spec_of


def test_a_property_is_set_added_or_set_inside_of_another(tmp_path: Path) -> None:
    """VALUE is YAML; a further dot reaches into a mapping; later ones win."""
    file = tmp_path / "app.yaml"
    file.write_text(VALID)
    overrides = [
        "reader.limit=1",
        "reader.limit=7",
        "step.match.prefix='5'",
        "sink.path=a=b",
        "reader.format={suffix: y}",
    ]
    spec = spec_of(file, overrides=overrides)
    assert spec.operators["reader"].properties == {"limit": 7, "format": {"suffix": "y"}}
    assert spec.operators["step"].properties["match"] == {"prefix": "5"}
    assert spec.operators["sink"].properties["path"] == "a=b"


def test_a_mapping_of_overrides_is_taken_as_well(tmp_path: Path) -> None:
    """For callers from Python."""
    file = tmp_path / "app.yaml"
    file.write_text(VALID)
    assert spec_of(file, overrides={"reader.limit": "4"}).operators["reader"].properties["limit"] == 4


def test_an_override_may_bring_the_whole_section(tmp_path: Path) -> None:
    """An operator without properties gets them."""
    file = tmp_path / "app.yaml"
    file.write_text(VALID.replace("    properties: {path: out}\n", ""))
    assert spec_of(file, overrides=["sink.path=x"]).operators["sink"].properties == {"path": "x"}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("reader", "--set reader: expected op.property=VALUE"),
        ("reader.limit", "--set reader.limit: expected op.property=VALUE"),
        ("=5", "--set : expected op.property=VALUE"),
        ("reader..x=1", "--set reader..x: expected op.property=VALUE"),
        ("raeder.limit=5", "--set raeder.limit: the app has no operator 'raeder'; did you mean 'reader'?"),
        ("reader.limit=[", "--set reader.limit: not YAML:"),
        ("reader.limit=many", "property 'limit': expected a whole number, got 'many'"),
        (
            "reader.limt=5",
            "--set reader.limt: operator 'reader' (Reader) has no property 'limt'; did you mean 'limit'?",
        ),
        ("reader.limit.x=5", "--set reader.limit.x: 'limit' is the number 3, and has no 'x' to set"),
        (f"reader.{'.'.join('x' * 101)}=1", "nested more than 100 levels deep"),
        (f"reader.{'.'.join('x' * 5000)}=1", "nested more than 100 levels deep"),
        ("reader.limit=${NOPE}", "--set reader.limit: the environment has no variable NOPE"),
    ],
)
def test_a_wrong_override_is_named_as_it_was_typed(tmp_path: Path, override: str, message: str) -> None:
    """The place of the problem is the option, not the file."""
    problems = problems_of(tmp_path, VALID, [override])
    assert len(problems) == 1 and message in problems[0], problems
    assert problems[0].startswith("--set")
