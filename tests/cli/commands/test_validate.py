"""All mistakes of an app at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.errors import StorageError
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from operators.files.compression import _missing_packages
from tests.cli.commands.inspected_app import APP, folder, invoke
from tests.cli.processes import environment

__all__ = ["folder"]

COUNTING = APP.replace(
    'RecordFilter, properties: {drop: {prefix: "#"}}', "CountBy, properties: {by: record, over: window}"
)


def test_a_valid_app_is_called_valid_on_stderr(folder: Path) -> None:
    """Validate has no result but its exit code."""
    assert invoke("validate", "app.yaml") == (0, "", "app.yaml: app 'sample' is valid: 4 operators, 3 streams\n")


def test_only_the_apps_own_operators_and_streams_are_counted(folder: Path) -> None:
    """What dagflow puts behind an operator, such as the one that unites the counts of partitions, is no part of it."""
    (folder / "app.yaml").write_text(COUNTING.replace("over: window", "over: run"))
    assert len(load_app("app.yaml").operators) == 5
    assert "valid: 4 operators, 3 streams\n" in invoke("validate", "app.yaml")[2]


def test_validate_reports_every_mistake_at_once(folder: Path) -> None:
    """Form, properties and wiring in one go, in file order, each at its place, those of --set as well."""
    (folder / "app.yaml").write_text(
        APP.replace("block_size", "blok_size").replace("reader.messages", "reader.mesages")
    )
    code, out, err = invoke("validate", "app.yaml", "--set", "reader.max_reders=3")
    assert (code, out) == (2, "")
    lines = [line for line in err.splitlines() if not line.startswith(" ")]
    assert [line.partition(": ")[0] for line in lines] == [
        "--set reader.max_reders",
        f"app.yaml:4:{APP.splitlines()[3].index('block_size') + 1}",
        "app.yaml:10:19",
    ]
    for near in ("max_readers", "block_size", "messages"):
        assert f"did you mean '{near}'?" in err


def test_an_app_that_is_not_there_is_a_mistake_on_the_command_line(folder: Path) -> None:
    """Exit code 2, and the name as it was typed."""
    code, out, err = invoke("validate", "ap.yaml")
    assert (code, out) == (2, "")
    assert err.startswith("ap.yaml: ")


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        (
            ("files: [in]", "files: ni"),
            "now: ni: no such file or directory\n    there is no 'ni' in /",
        ),
        (("files: [in]", "files: 'in/*.log'"), "the glob matches nothing in "),
        (("files: [in]", "files: in, file_pattern: never"), "there is no input now"),
        (("files: [in]", "files: lz"), "a.log.lz4: lz4 needs the package lz4\n    install it with: pip install "),
        (("path: out", "path: gs://bucket/out"), "install it with: pip install 'dagflow[gcs]'"),
    ],
)
def test_what_a_run_would_meet_is_warned_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch, change: tuple[str, str], warning: str
) -> None:
    """The app is valid, and its input or a package is not there."""
    for module in ("lz4.frame", "gcsfs"):
        monkeypatch.setitem(sys.modules, module, None)
    _missing_packages.cache_clear()
    (folder / "lz").mkdir()
    (folder / "lz" / "a.log.lz4").write_bytes(b"a")
    assert change[0] in APP
    (folder / "app.yaml").write_text(APP.replace(*change))
    code, out, err = invoke("validate", "app.yaml")
    _missing_packages.cache_clear()
    assert (code, out) == (0, "")
    assert [line.startswith("warning: ") for line in err.splitlines()].count(True) == 1
    assert warning in err


def test_an_app_is_named_in_place_of_what_is_not_there(folder: Path) -> None:
    """For a directory the app in it, for a misspelt file the nearest one, or else where it was looked for."""
    (folder / "sub").mkdir()
    (folder / "sub" / "only.yaml").write_text(APP)
    for given, hint in (("ap.yml", "did you mean 'app.yaml'?"), ("sub", "it holds sub/only.yaml"), ("sub/x/y", "")):
        code, _, err = invoke("validate", given)
        assert code == 2
        assert hint in err
    (folder / "empty").mkdir()
    assert f"it was looked for in {folder}/empty" in invoke("validate", "empty/app.yaml")[2]


def test_results_of_windows_are_warned_of_where_a_run_has_several(folder: Path) -> None:
    """A result for each window is allowed, and seldom meant; over the run there is one."""
    (folder / "app.yaml").write_text(COUNTING)
    code, out, err = invoke("validate", "app.yaml", "--set", "splitter.blocks_threshold=1")
    assert (code, out) == (0, "")
    assert "warning: operator 'filter' gives a result for each window" in err
    assert "warning" not in invoke("validate", "app.yaml", "--set", "filter.over=run")[2]


def test_a_result_over_the_run_is_refused_where_the_app_follows(folder: Path) -> None:
    """The result would never be published."""
    (folder / "app.yaml").write_text(COUNTING)
    code, _, err = invoke("validate", "app.yaml", "--set", "splitter.follow=true", "--set", "filter.over=run")
    assert code == 2
    assert "operator 'filter': its result over the run is published at the end" in err


def test_two_writers_into_one_directory_are_reported(folder: Path) -> None:
    """However the two spell it; a run refuses them."""
    second = "  second: {class: RecordWriter, properties: {path: ./out/}, partition: parallel}\nstreams:"
    text = APP.replace("streams:", second).replace("to: writer.input", "to: [writer.input, second.input]")
    (folder / "app.yaml").write_text(text)
    code, _, err = invoke("validate", "app.yaml")
    assert code == 0
    assert "warning: operators 'writer' and 'second' would both publish in ./out/; give each a path of its own" in err
    with pytest.raises(StorageError, match="would both publish here"):
        run(load_app("app.yaml"), runtime=InlineRuntime)


def test_warnings_show_no_value_of_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is wrong: input that is not there, and one place for two outputs."""
    monkeypatch.setenv("A_SECRET", "hush-hush-hush")
    second = "  second: {class: RecordWriter, properties: {path: '${A_SECRET}'}, partition: parallel}\nstreams:"
    text = APP.replace("streams:", second).replace("to: writer.input", "to: [writer.input, second.input]")
    text = text.replace("path: out", "path: '${A_SECRET}'").replace("files: [in]", "files: ['${A_SECRET}/in']")
    (folder / "app.yaml").write_text(text)
    code, out, err = invoke("validate", "app.yaml")
    assert (code, err.count("${A_SECRET}") >= 2, "hush" in out + err) == (0, True, False)


def test_output_in_the_checkpoint_is_reported_and_a_run_refuses_it(folder: Path) -> None:
    """Only its owner may enter a checkpoint, so that readers would not reach the output."""
    (folder / "app.yaml").write_text(APP.replace("checkpoint: journal", "checkpoint: out"))
    code, _, err = invoke("validate", "app.yaml")
    assert code == 0
    expected = f"out: output would lie in the checkpoint {folder}/out, which only its owner may enter\n"
    assert f"warning: operator 'writer': {expected}    give `checkpoint`, or the operator's path, another " in err
    with pytest.raises(StorageError, match="output would lie in the checkpoint"):
        run(load_app("app.yaml"), runtime=InlineRuntime)


def test_a_first_file_that_is_no_text_is_warned_of(folder: Path) -> None:
    """A run would end there; the app may be valid for the files that come."""
    (folder / "in" / "a.txt").write_bytes(b"%PDF-1.7\n")
    code, _, err = invoke("validate", "app.yaml")
    assert (code, "warning: a run would end at the first file: " in err, "it is PDF" in err) == (0, True, True)


_ROOT = Path(__file__).parents[3]
_OF_RUNS = {"pyarrow.parquet", "pyarrow.dataset", "ssl", "pyspark", "pyiceberg", "duckdb", "numba", "fsspec", "rich"}


def _imported_for(apps: Sequence[str]) -> set[str]:
    """What the check of some apps imports, one after the other in one process."""
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom dagflow.cli.main import command_line\n"
        "for app in sys.argv[1:]:\n    done = CliRunner().invoke(command_line, ['validate', app])\n"
        "    assert not done.exit_code, done.output\n"
        "print(*sys.modules)\n"
    )
    command = [sys.executable, "-c", code, *(f"apps/{app}.yaml" for app in apps)]
    done = subprocess.run(command, cwd=_ROOT, env=environment(), capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_checking_an_app_imports_nothing_that_only_runs_need() -> None:
    """It is quick for that: what writes tables, talks to stores or shows progress comes with the run."""
    apps = sorted(path.stem for path in (_ROOT / "apps").glob("*.yaml"))
    assert "daily_sales" in apps
    assert not _imported_for(apps) & _OF_RUNS


def test_an_app_pays_for_no_library_of_others() -> None:
    """Expressions and columns have libraries of their own, which an app of raw records does without."""
    others = {"sqlglot", "pyarrow.compute", "deltalake", "numpy.ma"}
    assert not _imported_for(["block_reader", "drop_comments"]) & others
    assert "sqlglot" not in _imported_for(["orders_by_payment"])
