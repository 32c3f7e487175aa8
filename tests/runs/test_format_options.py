"""Every option of every format in an app, from YAML to the bytes that are published."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from dagflow.api.properties import property_model
from dagflow.errors import AppError, DagflowError
from dagflow.report.reading import status
from dagflow.storage.context import StorageContext
from operators.reader.formats import RECORD_FORMATS
from tests.nightly import by_day
from tests.operators.reader.test_block_processor_accounting import published, run_app
from tests.runs.column_cases import COLUMN_CASES, COLUMN_MISUSES
from tests.runs.format_cases import CASES as OTHER_CASES
from tests.runs.format_cases import FAILURES, NAME, FormatCase
from tests.runs.format_cases import MISUSES as OTHER_MISUSES
from tests.runs.row_format_cases import ROW_CASES, ROW_MISUSES

CASES = OTHER_CASES + ROW_CASES + COLUMN_CASES
MISUSES = OTHER_MISUSES + ROW_MISUSES + COLUMN_MISUSES


def options_of(name: str) -> set[str]:
    """What a format takes."""
    return set(property_model(RECORD_FORMATS.find(name)).model_fields)


@pytest.mark.parametrize("name", RECORD_FORMATS.class_paths)
def test_no_option_is_left_out_here(name: str) -> None:
    """Each option of a format is given in a case that is read, and in one that is refused."""
    used = [case.format for case in CASES] + [case.format for case in FAILURES]
    misused = [format for format, _ in MISUSES]
    for formats in (used, misused):
        given = {option for format in formats if format["type"] == name for option in format}
        assert options_of(name) - given == set()


@pytest.mark.parametrize("case", by_day(len(CASES) // 2, CASES), ids=lambda case: case.label)
def test_an_option_does_in_an_app_what_it_says(case: FormatCase, tmp_path: Path) -> None:
    """Whatever the blocks, the published bytes are those made by other means, and all bytes are accounted for."""
    for cut in by_day(1, case.cuts):
        work = tmp_path / str(cut)
        work.mkdir()
        summary = run_app(work, reader(case.format), {NAME: case.content}, block_size=cut, file_name="block")
        path = work / "in" / NAME
        assert published(work / "out") == case.published.replace(NAME.encode(), str(path).encode())
        facts = sorted(map(json.loads, published(work / "rejects").splitlines()), key=lambda each: each["offset"])
        assert [(each["offset"], base64.b64decode(each["raw"])) for each in facts] == case.rejects
        assert {each["url"] for each in facts} <= {str(path)}
        accounting = summary.byte_accounting()
        assert summary.rejected == len(case.rejects)
        assert accounting["rejected"] == sum(each["length"] for each in facts)
        assert status(str(work / "journal"), StorageContext.default()).byte_accounting() == accounting
        if case.adds_up:
            assert accounting.pop("bytes") == sum(accounting.values()) == len(case.content)


@pytest.mark.parametrize("case", by_day(6, [case for case in CASES if case.rejects]), ids=lambda case: case.label)
def test_a_refused_record_fails_a_run_that_takes_no_rejects(case: FormatCase, tmp_path: Path) -> None:
    """The error has the facts of that reject which comes first, and nothing is published."""
    (offset, _), *_ = case.rejects
    for name, takes_rejects in (("heard", True), ("alone", False)):
        (tmp_path / name).mkdir()
        if takes_rejects:
            run_app(tmp_path / name, reader(case.format), {NAME: case.content})
            continue
        rejects = map(json.loads, published(tmp_path / "heard" / "rejects").splitlines())
        (first,) = (each for each in rejects if each["offset"] == offset)
        # A file that is refused whole has no length in the message.
        place = rf"{NAME} offset {offset}(?: \({first['length']} bytes\))?: {re.escape(first['reason'])}"
        with pytest.raises(DagflowError, match=place):
            run_app(tmp_path / name, reader(case.format), {NAME: case.content}, takes_rejects=False)
        assert published(tmp_path / name / "out") == b""


@pytest.mark.parametrize("case", FAILURES, ids=lambda case: case.label)
def test_what_an_option_forbids_fails_the_run_with_the_place(case: FormatCase, tmp_path: Path) -> None:
    """File, offset and length, and what may be done about it; also where rejects are taken in."""
    ((offset, raw),) = case.rejects
    place = rf"{NAME} offset {offset}(?: \({len(raw)} bytes\))?: {case.published.decode()}"
    with pytest.raises(DagflowError, match=place):
        run_app(tmp_path, reader(case.format), {NAME: case.content})
    assert published(tmp_path / "out") == b""


@pytest.mark.parametrize(("format", "message"), MISUSES, ids=str)
def test_a_wrong_option_is_reported_before_anything_runs(format: dict[str, Any], message: str, tmp_path: Path) -> None:
    """With the place in the app, the option, and what it takes."""
    with pytest.raises(AppError, match=rf"app\.yaml:\d+:\d+: .*{message}"):
        run_app(tmp_path, reader(format), {NAME: b""})


def reader(format: dict[str, Any]) -> str:
    """The properties of a BlockReader, as YAML."""
    return f"format: {json.dumps(format)}"
