"""The first records of an app, as a person or a program reads them."""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
from pathlib import Path

import pytest

from tests.cli.commands.inspected_app import APP, folder, invoke
from tests.cli.processes import ENTRY, PATIENCE_S, environment, modules_loaded_by

__all__ = ["folder"]

SHOWN = """\
file:offset  record
             binary
in/a.txt:6   two
in/a.txt:10  three

writer.input: 2 of 3 records from all input (1 file, 21 B)
    reader  4
    filter  3 of 4
"""


def test_a_preview_is_a_table_with_types_and_what_operators_kept(folder: Path) -> None:
    """The records that would be written, where they lie, and how many of them there are; nothing is written."""
    assert invoke("preview", "app.yaml", "-n", "2") == (0, SHOWN, "")
    assert {path.name for path in folder.iterdir()} == {"app.yaml", "in"}


@pytest.mark.nightly
def test_nothing_is_wrong_where_stdout_is_closed(folder: Path) -> None:
    """The table goes nowhere, and the exit code is the answer."""
    command = ["sh", "-c", 'exec "$@" >&-', "sh", *ENTRY, "preview", "app.yaml"]
    done = subprocess.run(command, env=environment(), stderr=subprocess.PIPE, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_preview_is_one_object_for_programs(folder: Path) -> None:
    """Bytes that are no text are in base64, and what JSON has no type for is text."""
    (folder / "in" / "a.txt").write_bytes(b"\xff\n")
    code, out, err = invoke("preview", "app.yaml", "--json", "--at", "reader.messages")
    found = json.loads(out)
    assert (code, err, found["port"], found["count"]) == (0, "", "reader.messages", 1)
    assert found["columns"] == {"record": "binary"}
    assert found["records"] == [
        {"file": str(folder / "in" / "a.txt"), "offset": 0, "values": {"record": {"base64": "/w=="}}}
    ]
    assert found["operators"] == [{"name": "reader", "taken": None, "given": {"messages": 1}}]


def test_what_is_refused_stands_below_the_records(folder: Path) -> None:
    """Exit code 1 and advice where a run would end of it."""
    (folder / "in" / "a.txt").write_text("n,x\n1,2.50\none,3\n")
    (folder / "app.yaml").write_text(
        APP.replace("max_readers: 4", 'format: {type: csv, columns: {n: int64, x: "decimal(9, 2)"}}')
    )
    code, out, err = invoke("preview", "app.yaml", "--at", "reader.messages")
    assert code == 1
    assert out.splitlines()[:3] == [
        "file:offset      n              x",
        "             int64  decimal(9, 2)",
        "in/a.txt:4       1           2.50",
    ]
    why = "column 'n' (int64): 'one' is no whole number, in: one,3"
    assert out.endswith(f"refused: 1 record\n    in/a.txt:11: {why}\n")
    # A new line in a name stays within its line.
    (folder / "in" / "a.txt").rename(folder / "in" / "a\nb.txt")
    assert f"\n    in/a\\nb.txt:11: {why}\n" in invoke("preview", "app.yaml", "--at", "reader.messages")[1]
    (folder / "in" / "a\nb.txt").rename(folder / "in" / "a.txt")
    # The end of a long reason says what there is instead.
    (folder / "in" / "a.txt").write_text("a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p\n")
    found = ", ".join("abcdefghijklmnop")
    assert (
        f", {found[-10:]}; if files may lack it, add optional: true to its type\n"
        in invoke("preview", "app.yaml", "--at", "reader.messages")[1]
    )
    assert err == "operator 'reader': a run ends where a record is refused; add `rejects: DIRECTORY` to the app\n"


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (
            ["--at", "writer.inptu"],
            2,
            "--at: operator 'writer' has no port 'inptu'; did you mean 'input'?\n    records",
        ),
        (["--file", "no.txt"], 1, "no.txt: no such file or directory\n"),
        (["--file", "in/a.txt", "--offset", "21"], 0, "no record begins at byte 21 of in/a.txt, or behind it\n"),
        (["--read", "much"], 2, "dagflow preview: "),
    ],
)
def test_a_preview_says_what_there_is_not(folder: Path, args: list[str], code: int, message: str) -> None:
    """Ports, files and offsets, each with an exit code that tells a mistake from a failure."""
    done = invoke("preview", "app.yaml", *args)
    assert (done[0], done[2][: len(message)]) == (code, message)


def test_input_that_lies_beside_the_app_is_pointed_at(folder: Path) -> None:
    """Paths in an app are relative to the working directory."""
    (folder / "apps").mkdir()
    (folder / "app.yaml").rename(folder / "apps" / "app.yaml")
    (folder / "in").rename(folder / "apps" / "in")
    code, _, err = invoke("preview", "apps/app.yaml")
    place = f"in was looked for in {folder}, and one is beside the app"
    beside = f"    {place}: start dagflow in apps, or name it apps/in\n"
    assert (code, err.endswith(beside)) == (1, True)
    assert beside in invoke("validate", "apps/app.yaml")[2]
    code, _, err = invoke("run", "--local", "apps/app.yaml")
    assert (code, err.index(beside) < err.index("    fix that, and continue with: ")) == (1, True)


def test_input_that_lies_around_the_directory_of_the_app_is_pointed_at(folder: Path) -> None:
    """As where dagflow is started in the directory of apps, and not in the one above."""
    (folder / "apps").mkdir()
    (folder / "app.yaml").rename(folder / "apps" / "app.yaml")
    with contextlib.chdir(folder / "apps"):
        code, _, err = invoke("preview", "app.yaml")
    place = f"in was looked for in {folder}/apps, and one is in {folder}: start dagflow in .., or name it ../in\n"
    assert (code, err.endswith(f"    {place}")) == (1, True)


def test_looking_leaves_the_log_as_it_is(folder: Path) -> None:
    """Operators are silenced for as long as a command looks."""
    before = logging.getLogger("operators").level
    for args in (["preview", "app.yaml"], ["init", "x", "--from", "in"], ["doctor", "app.yaml", "--no-spark"]):
        assert invoke(*args)[0] == 0
        assert logging.getLogger("operators").level == before


def test_a_preview_needs_no_spark(folder: Path) -> None:
    """Nothing of Spark or Java is imported."""
    assert not {"pyspark", "py4j"} & modules_loaded_by(["preview", "app.yaml"], cwd=folder)
