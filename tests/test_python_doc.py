"""The script of docs/python.md works."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.cli.processes import PATIENCE_S, environment

PAGE = Path(__file__).parent.parent / "docs" / "python.md"


def test_the_script_of_the_page_runs(tmp_path: Path) -> None:
    """It shows a plan and records, and publishes what it says."""
    (script,) = re.findall(r"```python\n# script.py\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("a line that is longer than twenty characters\nand one\n")
    (tmp_path / "script.py").write_text(script.replace("/usr/share/common-licenses", "in"))
    command = [sys.executable, "script.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "b'a line that is longe'" in done.stdout and "2 0 ('" in done.stdout
    assert [path.read_text() for path in (tmp_path / "out" / "short").iterdir()] == ["a line that is longe\nand one\n"]


def test_the_test_of_the_page_passes(tmp_path: Path) -> None:
    """The app of README drops comments, which the test of the page states."""
    (test,) = re.findall(r"```python\n# test_app.py\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    app = Path(__file__).parent.parent / "apps" / "block_reader.yaml"
    names: dict[str, Callable[[], None]] = {}
    exec(test.replace('"app.yaml"', repr(str(app))), names)
    names["test_comments_are_dropped"]()
