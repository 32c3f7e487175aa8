"""Options of the data source are those of an app, with the same checks and messages."""

from __future__ import annotations

import pytest

from dagflow.errors import AppError
from dagflow.spark.source_options import FILES, READER, SourceOptions


def options_of(**given: object) -> SourceOptions:
    """The options of a source of some files."""
    return SourceOptions.of({"path": "data", **given})


def test_an_option_of_text_is_taken_as_it_is() -> None:
    """A delimiter that YAML reads as something else, or cannot read, is that text."""
    for delimiter in ("|", "#", "0", "no", "[", "\t", ", "):
        assert options_of(record="lines", delimiter=delimiter).reader["format"]["delimiter"] == delimiter


def test_other_options_are_what_yaml_reads() -> None:
    """Flags, numbers, sizes, lists and mappings."""
    given = options_of(
        record="csv", header="false", columns="{id: int64, day: {type: date32, format: '%d.%m.%Y'}}", block_size="1MiB"
    )
    app = given.app()
    assert vars(app.operators[READER].operator)["format"].header is False
    assert list(vars(app.operators[READER].operator)["format"].columns) == ["id", "day"]
    assert vars(app.operators[FILES].operator)["block_size"] == 1 << 20


def test_names_of_options_have_any_case() -> None:
    """As those of Spark's own sources."""
    assert options_of(RECORD="csv", Header="false", columns="[a]").reader["format"] == {
        "type": "csv",
        "header": False,
        "columns": ["a"],
    }


def test_a_record_may_be_a_format_with_its_options() -> None:
    """As YAML has it, also as a mapping of Python."""
    for record in ("{type: lines, delimiter: ';'}", {"type": "lines", "delimiter": ";"}):
        assert options_of(record=record).reader["format"] == {"type": "lines", "delimiter": ";"}
    assert options_of(type="lines", delimiter=";").reader["format"] == {"type": "lines", "delimiter": ";"}


def test_several_paths_are_all_read() -> None:
    """Spark gives load([path, path]) as JSON."""
    assert SourceOptions.of({"paths": '["a b", "c"]'}).files["files"] == ["a b", "c"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"record": "csv", "type": "csv"}, "options 'record' and 'type' both name the format; give one"),
        ({"record": "csw"}, "there is no format 'csw'; did you mean 'csv'"),
        ({"record": "csv", "delimter": ";"}, "format 'csv' has no option 'delimter'; did you mean 'delimiter'"),
        ({"record": "csv", "header": "maybe"}, "format 'csv', option 'header': expected true or false; got 'maybe'"),
        ({"block_size": "7XB"}, "property 'block_size': '7XB' is not a size"),
        ({"on_bad_recrd": "skip"}, "there is no option 'on_bad_recrd'; did you mean 'on_bad_record'"),
        ({"on_bad_record": "drop"}, "option 'on_bad_record': expected fail or skip or column; got 'drop'"),
        ({"path": ""}, "there is no path"),
        ({"_file": "perhaps"}, "option '_file': expected true or false; got 'perhaps'"),
    ],
)
def test_a_mistake_is_named(given: dict[str, str], message: str) -> None:
    """As by validate, with the nearest valid name."""
    with pytest.raises(AppError, match=message):
        options_of(**given).app()


def test_options_of_streams_are_refused_for_others() -> None:
    """They would do nothing."""
    with pytest.raises(AppError, match="option 'on_change', 'maxfilespertrigger': only readStream takes it"):
        options_of(on_change="{appended: tail}", maxFilesPerTrigger="5").require_batch()
