"""The code in the documents is that of the files which its first line names."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
SHOWN = re.compile(r"^```python\n# ((?:tests|apps)/\S+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_shown_files_are_those_of_the_tests() -> None:
    """What a reader copies from a page has passed its contract suite."""
    shown = [match for page in (ROOT / "docs").rglob("*.md") for match in SHOWN.findall(page.read_text("utf-8"))]
    assert {"tests/visitors/pairs_format.py", "tests/visitors/logfmt_sink.py"} <= {name for name, _ in shown}
    assert [name for name, text in shown if (ROOT / name).read_text("utf-8") != text] == []
