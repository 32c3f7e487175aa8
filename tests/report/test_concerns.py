"""What a run must not pass over in silence."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from dagflow.journal.saved_state import LeftOut
from dagflow.metrics import names
from dagflow.report.concerns import EXIT_CODES
from dagflow.report.snapshot import OperatorFigures, RunSnapshot

RUN = RunSnapshot("orders", state="completed", windows=1, files=1)


def counted(snapshot: RunSnapshot, **counts: int) -> RunSnapshot:
    """A run whose operator `table` has these counts."""
    return replace(snapshot, operators=(OperatorFigures("table", counts=counts),))


def names_of(snapshot: RunSnapshot) -> list[str]:
    """The concerns of a run."""
    return [concern.name for concern in snapshot.concerns]


def test_locations_in_which_no_run_has_found_a_file_are_a_concern() -> None:
    """Names that patterns pass over are counted."""
    none = replace(RUN, windows=0, files=0, without_files=("in/1", "in/2"))
    assert names_of(none) == ["no_input"] and "no file was found in in/1, in/2, in this run" in none.concerns[0].text
    assert "3 names were passed over" in counted(none, ignored=3).concerns[0].text


def test_each_value_that_is_rescued_is_said_once() -> None:
    """A column of which all values of a window are rescued has a text of its own."""
    some = counted(RUN, **{names.RESCUED_VALUES: 5, f"{names.ALL_RESCUED}v": 3})
    of_column, of_others = (concern.text for concern in some.concerns)
    assert "every value of column 'v' of a window, 3 in all" in of_column and of_others.startswith("2 values have")
    assert names_of(counted(RUN, **{names.RESCUED_VALUES: 3, f"{names.ALL_RESCUED}v": 3})) == ["rescued"]


def test_concerns_are_in_the_order_of_their_exit_codes() -> None:
    """The first one is that of a strict run."""
    run = replace(counted(RUN, rescued_values=1, files_reread=2), lost=("the table is gone",), rejected=3)
    assert names_of(run) == ["rescued", "lost", "replaced", "rejected"]
    assert list(EXIT_CODES.values()) == sorted(EXIT_CODES.values())
    assert run.to_json()["concerns"][1] == {"name": "lost", "text": "the table is gone"}


def test_what_is_left_out_is_a_concern_of_the_run_that_left_it_out() -> None:
    """Until it is read."""
    listed = replace(RUN, left_out=LeftOut(2))
    assert names_of(counted(listed, vanished=1)) == names_of(counted(listed, skipped=1)) == ["left_out"]
    assert names_of(listed) == names_of(counted(RUN, vanished=1)) == []


def test_the_documented_exit_codes_are_these() -> None:
    """The table of docs/trouble.md."""
    page = (Path(__file__).parents[2] / "docs" / "trouble.md").read_text(encoding="utf-8")
    assert {name: int(code) for code, name in re.findall(r"^\| (\d+) `(\w+)` \|", page, re.MULTILINE)} == EXIT_CODES
