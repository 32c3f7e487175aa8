"""`dagflow doctor` reports what is wrong with a machine, or with the locations of an app, before a run fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.engine.app_checks import checked, free_space
from dagflow.errors import DagflowError
from tests.cli.commands.inspected_app import APP, folder, invoke
from tests.cli.processes import modules_loaded_by

__all__ = ["folder"]


def outcomes(*args: str) -> tuple[int, dict[str, str]]:
    """The exit code, and the first word of each check's line by its name."""
    code, out, _ = invoke("doctor", *args)
    lines = [line for line in out.splitlines() if not line.startswith(" ")]
    return code, {line[7:].partition(":")[0]: line.split()[0] for line in lines}


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """All files and directories, with times and contents."""
    paths = (path for path in folder.rglob("*"))
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"") for path in paths}


def test_an_app_that_can_run_is_well_and_nothing_is_touched(folder: Path) -> None:
    """All checks of the machine and of the app; no file and no directory is left behind."""
    before = tree(folder)
    code, found = outcomes("app.yaml", "--no-spark")
    assert set(found) == {
        *("python", "packages", "java", "open files", "temporary files"),
        *("operators", "input of reader", "checkpoint", "output", "clock"),
    }
    assert (code, set(found.values())) == (0, {"ok"})
    assert tree(folder) == before


def test_a_file_of_any_name_is_shown_on_the_line_of_its_check(folder: Path) -> None:
    """One with a line end in it must not look like another line."""
    (folder / "in" / "a.txt").rename(folder / "in" / "a\nb.txt")
    code, out, _ = invoke("doctor", "app.yaml", "--no-spark")
    line = f"ok     input of reader: can be listed and read, such as {folder}/in/a\\nb.txt"
    assert (code, line in out.splitlines()) == (0, True)


def test_each_thing_that_is_wrong_is_reported_with_what_to_do(folder: Path) -> None:
    """Exit code 1; what comes after it is looked at all the same."""
    (folder / "in" / "a.txt").unlink()
    (folder / "in").rmdir()
    (folder / "app.yaml").write_text(APP.replace("checkpoint: journal", "checkpoint: app.yaml/journal"))
    code, found = outcomes("app.yaml", "--no-spark")
    assert (code, found["input of reader"], found["checkpoint"]) == (1, "wrong", "wrong")
    assert (found["output"], found["clock"]) == ("ok", "ok")
    out = invoke("doctor", "app.yaml", "--no-spark")[1]
    assert f"wrong  checkpoint: {folder}/app.yaml is no directory\n       {folder}/app.yaml/journal cannot be" in out


def test_tables_and_source_files_that_are_to_be_removed_are_looked_at(folder: Path) -> None:
    """The catalog of a table, and the right to delete beside the source files; both stay as they are."""
    catalog = "{type: sql, uri: 'sqlite:///catalog.db', warehouse: 'warehouse'}"
    table = f"{{class: TableWriter, properties: {{table: 'iceberg:a.b', catalog: {catalog}}}, partition: 2}}"
    cleaner = "cleaner: {class: SourceCleaner, properties: {action: remove}}"
    text = APP.replace("{class: RecordWriter, properties: {path: out}, partition: 2}", f"{table}\n  {cleaner}")
    text += "  read: {from: reader.blocks_metadata_output, to: cleaner.input}\n"
    (folder / "app.yaml").write_text(text)
    files = {path for path in folder.rglob("*")}
    code, found = outcomes("app.yaml", "--no-spark")
    assert (code, found["table of writer"], found["source files of cleaner"]) == (0, "ok", "ok")
    assert {path for path in folder.rglob("*")} == files
    (folder / "catalog.db").write_text("this is no database, and nothing that looks like one")
    code, found = outcomes("app.yaml", "--no-spark")
    assert (code, found["table of writer"], found["operators"]) == (1, "wrong", "ok")


def test_input_that_a_run_waits_for_need_not_be_there(folder: Path) -> None:
    """An app that follows says so."""
    (folder / "in" / "a.txt").unlink()
    (folder / "in").rmdir()
    code, out, _ = invoke("doctor", "app.yaml", "--no-spark", "--set", "splitter.follow=true")
    assert (code, "no such file or directory; the run waits for it" in out) == (0, True)


def test_a_master_that_does_not_answer_is_reported_at_once(folder: Path) -> None:
    """Spark would try for a minute, and not say why."""
    (folder / "app.yaml").write_text(APP.replace("local[3]", "spark://127.0.0.1:1"))
    code, out, _ = invoke("doctor", "app.yaml")
    assert (code, "wrong  executors: the master 127.0.0.1:1 cannot be reached: " in out) == (1, True)


def test_without_an_app_the_machine_is_checked(folder: Path) -> None:
    """The checks need no Spark."""
    code, found = outcomes()
    assert (code, list(found)) == (0, ["python", "packages", "java", "open files", "temporary files"])
    assert not {"pyspark", "py4j"} & modules_loaded_by(["doctor"], cwd=folder)


def test_a_failed_look_is_a_check_with_its_error(tmp_path: Path) -> None:
    """Also where the system refuses it."""
    check = checked("x", lambda: free_space(tmp_path / "none", "do"))
    assert check.detail == f"{tmp_path}/none: No such file or directory"
    with pytest.raises(DagflowError, match="No such file"):
        raise check.error or AssertionError
