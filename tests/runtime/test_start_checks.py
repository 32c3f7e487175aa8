"""What is looked at before Spark's Java process starts, and what is said of one that ended at once."""

from __future__ import annotations

import errno
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_replay import replay_windows
from dagflow.errors import DagflowError, StorageError
from dagflow.runtime.spark_context import start_context
from dagflow.runtime.start_checks import NEEDED_FILES, reason_in, require_space, unwritable_log
from tests.cli.processes import PATIENCE_S
from tests.engine.sample_app import app_of


def test_too_few_open_files_are_reported_before_java_starts() -> None:
    """Java would end with a stack trace in a log; the message has both numbers and the command that raises one."""
    code = "from dagflow.runtime.start_checks import require_open_files as check\ncheck()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert f"may have 64 open files here, and its Java process needs {NEEDED_FILES} at least" in done.stderr
    assert "ulimit -n 4096" in done.stderr


@pytest.mark.spark
def test_a_process_that_has_a_spark_context_is_advised_to_stop_it(tmp_path: Path, spark_context: Any) -> None:
    """Before a run plans anything; without Spark it does what it would have done."""
    app = app_of(tmp_path, [b"a b"])
    with pytest.raises(DagflowError, match=r"has a SparkContext already, 'dagflow tests'(.|\n)*spark\.stop\(\)"):
        run(app)
    assert not (tmp_path / "journal").exists()
    with pytest.raises(DagflowError, match="has a SparkContext already"):
        replay_windows(app, RunOptions(), [1])
    assert run(app, RunOptions(workers=1)).state == "completed"


@pytest.mark.nightly
@pytest.mark.spark
def test_a_context_that_came_meanwhile_is_reported_as_one_before(tmp_path: Path, spark_context: Any) -> None:
    """Another thread may start one while this one waits for Java."""
    with pytest.raises(DagflowError, match=r"has a SparkContext already(.|\n)*spark\.stop\(\)"):
        start_context("late", "local[1]", {}, tmp_path / "spark.log")
    assert spark_context.parallelize([1], 1).collect() == [1]


def test_a_full_disk_of_temporary_files_is_reported_before_java_starts(disk: Callable[[str], Path]) -> None:
    """Java would wait for ever. With space nothing is reported, and the probe leaves nothing behind."""
    root = disk("size=256k")
    (root / "run").mkdir()
    with pytest.raises(StorageError, match=f"^{root}: Spark cannot start.*No space left .*\n.*TMPDIR"):
        require_space(root / "run")
    disk("size=8m")
    require_space(root / "run")
    assert list((root / "run").iterdir()) == []


def test_a_log_that_cannot_be_written_names_its_directory() -> None:
    """A service often starts in the root directory."""
    error = unwritable_log(PermissionError(13, "Permission denied"), Path("/.dagflow/app.spark.log"))
    assert str(error).startswith("/.dagflow/app.spark.log: cannot write Spark's log: Permission denied\n    start ")


def test_a_log_without_a_descriptor_names_the_limit() -> None:
    """Another directory would not help."""
    error = unwritable_log(OSError(errno.EMFILE, "Too many open files"), Path("/app.local.log"), "the log of the tasks")
    assert error.hint == "raise the limit, such as with: ulimit -n 4096"


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("/usr/bin/env: 'bash': No such file or directory\n", "/usr/bin/env: 'bash': No such file or directory"),
        (
            'WARN x\nException in thread "main" a.B: outer\n\tat c\nCaused by: java.io.IOException: inner\n\tat d\n',
            "java.io.IOException: inner",
        ),
        ("", ""),
    ],
)
def test_the_reason_of_a_start_that_failed_is_taken_from_its_log(tmp_path: Path, log: str, reason: str) -> None:
    """The last cause, or the line that a shell leaves."""
    (tmp_path / "log").write_text(log)
    assert reason_in(tmp_path / "log") == reason
    assert reason_in(tmp_path / "none") == reason_in(None) == ""
