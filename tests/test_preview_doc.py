"""The commands and the code of docs/preview.md show what the page says."""

import contextlib
import re
from pathlib import Path

import pytest

from dagflow.engine import preview_chain
from tests.cli.commands.inspected_app import invoke

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "preview.md").read_text("utf-8")


@pytest.mark.parametrize("example", re.findall(r"```console\n\$ dagflow (preview .*?)```", PAGE, re.DOTALL))
def test_commands_of_the_page_print_what_it_shows(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They run on the sample input, with time for all of it also on a busy machine."""
    monkeypatch.setattr(preview_chain, "SAMPLE_S", 60.0)
    command, _, shown = example.partition("\n")
    with contextlib.chdir(ROOT):
        assert invoke(*command.split()) == (0, shown, "")


def test_the_code_of_the_page_works(capsys: pytest.CaptureFixture[str]) -> None:
    """The code prints three records."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    with contextlib.chdir(ROOT):
        exec(code, {})
    assert len(capsys.readouterr().out.splitlines()) == 3
