"""What docs/dags.md shows is an app that is right, and code that works."""

import re
from pathlib import Path

from dagflow.engine.run import run
from dagflow.engine.status import status
from dagflow.plan.logical import load_app
from dagflow.runtime.inline import InlineRuntime

PAGE = Path(__file__).parent.parent / "docs" / "dags.md"


def test_the_app_of_the_page_runs(tmp_path: Path) -> None:
    """Its files as they are shown, over files of ours."""
    shown = re.findall(r"```(?:yaml|python)\n# (\S+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert [name for name, _ in shown] == [
        "app.yaml",
        "my_codecs.py",
        "biggest.py",
        "common.yaml",
        "my_rows.py",
        "my_policies.py",
    ]
    for name, text in shown:
        for old, new in {"/usr/lib/python3": "a", "/usr/share/common-licenses": "b"}.items():
            text = text.replace(old, str(tmp_path / new))
        text = text.replace("path: out/", f"path: {tmp_path}/out/")
        (tmp_path / name).write_text(
            text.replace("name: common-lines", f"name: x\nattributes: {{checkpoint: {tmp_path}/j}}")
        )
    for name, text in {"a/x.py": "one\ntwo\none\n", "b/y": "two\ntwo\n"}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    run(load_app(tmp_path / "app.yaml"), runtime=InlineRuntime)
    assert [path.read_text() for path in (tmp_path / "out" / "best").glob("part-*")] == ["3 two\n2 one\n"]
    (done,) = (tmp_path / "out" / "done").glob("metadata-*")
    assert len(done.read_text().splitlines()) == 2
    app = (
        (tmp_path / "app.yaml").read_text().replace("module: common.yaml, properties: {n: 5}", "class: biggest.Longest")
    )
    app = app.replace("common.lines", "common.input").replace("common.text", "common.output").replace("/j}", "/k}")
    app = re.sub(r"DrainPartitioner, properties: \{.*?\}", "my_policies.Shared, properties: {blocks: 1}", app)
    (tmp_path / "longest.yaml").write_text(app.replace(f"{tmp_path}/out/", f"{tmp_path}/out2/"))
    run(load_app(tmp_path / "longest.yaml"), runtime=InlineRuntime)
    assert [path.read_text() for path in (tmp_path / "out2" / "best").glob("part-*")] == ["two\n"]
    reader = [(each.before, each.after) for each in status(f"{tmp_path}/k").decisions if each.stage == "reader"]
    assert reader == [(0, 1), (1, 3)]
