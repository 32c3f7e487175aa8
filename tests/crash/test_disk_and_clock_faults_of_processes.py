"""Real processes of runs whose disk, checkpoint or clock fails in the middle."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.cli.processes import environment
from tests.crash.killing import (
    APP,
    RunProcess,
    also_on_spark,
    hurry,
    make_folder,
    require_whole,
    visible_files,
    watched,
)

# The disk, the checkpoint and the clock are the driver's and its tasks'; Spark has no part in what they do about them.
pytestmark = [pytest.mark.crash, pytest.mark.e2e]

FILES = 40


def end_of_a_run(
    folder: Path, options: Sequence[str], in_the_middle: Callable[[], object] = lambda: None, **variables: str
) -> int:
    """Run the app, call a function when it has published a few more files, and return its exit code."""
    before = visible_files(folder)
    run = RunProcess(folder, "-q", *options, **variables)
    try:
        run.wait_for(lambda: visible_files(folder) >= before + 4)
        in_the_middle()
        return run.end()
    finally:
        run.destroy()


def require_clean_error(folder: Path, *patterns: str) -> None:
    """Fail unless the log since the last call says what is wrong, without a stack trace."""
    log = (folder / "run.log").read_text()
    os.truncate(folder / "run.log", 0)
    assert "Traceback" not in log, log
    for pattern in patterns:
        assert re.search(pattern, log), log


def fill(path: Path) -> None:
    """Write a file until the disk is full."""
    with path.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(bytes(1 << 12))


@pytest.mark.nightly
@also_on_spark
def test_runs_end_at_a_full_a_read_only_and_a_missing_disk_and_go_on(
    tmp_path: Path, disk: Callable[[str], Path], options: Sequence[str]
) -> None:
    """One checkpoint meets all of them: exit code 1 and the reason each time, and finally every record once."""
    root = disk("size=200k")
    make_folder(tmp_path, FILES, APP.replace("path: out", f"path: {root}/out"), delay_s=0.1)
    (root / "out").mkdir()
    (tmp_path / "out").symlink_to(root / "out")
    with watched(tmp_path):
        assert end_of_a_run(tmp_path, options) == 1
        require_clean_error(tmp_path, "No space left on device", "free some space")

        # From here on the checkpoint is on the disk as well.
        disk("size=64m")
        text = (tmp_path / "app.yaml").read_text()
        journal, aside, filler = root / "journal", root / "aside", root / "filler"
        shutil.copytree(tmp_path / "journal", journal)
        (tmp_path / "app.yaml").write_text(text.replace("checkpoint: journal", f"checkpoint: {journal}"))
        assert end_of_a_run(tmp_path, options, lambda: fill(filler)) == 1
        require_clean_error(tmp_path, "No space left on device")
        filler.unlink()

        assert end_of_a_run(tmp_path, options, lambda: disk("ro")) == 1
        require_clean_error(tmp_path, "Read-only file system", "mounted read-only")
        disk("rw")

        assert end_of_a_run(tmp_path, options, lambda: journal.rename(aside)) == 1
        require_clean_error(tmp_path, "the journal has vanished|log record 1 is missing")
        # No run publishes beside the existing output meanwhile.
        assert end_of_a_run(tmp_path, options, lambda: None) == 1
        require_clean_error(tmp_path, "files that this checkpoint did not publish|log record 1 is missing")
        shutil.rmtree(journal, ignore_errors=True)
        aside.rename(journal)
        hurry(tmp_path)
        assert end_of_a_run(tmp_path, options) == 0
    require_whole(tmp_path)


@pytest.fixture
def set_clock(tmp_path: Path) -> Callable[[int], dict[str, str]]:
    """Return a function that sets the wall clock of every process started with certain variables."""
    library, offset = tmp_path / "clock.so", tmp_path / "offset"
    source = str(Path(__file__).with_name("clock.c"))
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), source, "-ldl"], check=True)

    def set_to(days: int) -> dict[str, str]:
        # Replaced atomically: a process may read it at any moment.
        (tmp_path / "next").write_text(str(days * 86_400))
        (tmp_path / "next").rename(offset)
        return {"LD_PRELOAD": str(library), "CLOCK_OFFSET": str(offset)}

    return set_to


@pytest.mark.nightly
@also_on_spark
def test_a_clock_that_jumps_loses_and_repeats_nothing(
    tmp_path: Path, set_clock: Callable[[int], dict[str, str]], options: Sequence[str]
) -> None:
    """The clock of all processes jumps a day back and forth; the run is killed and restarted a year earlier."""
    make_folder(tmp_path, FILES)
    variables = set_clock(0)
    shown = subprocess.run(["date", "+%Y"], env={**environment(), **set_clock(-3650)}, capture_output=True, check=True)
    assert int(shown.stdout) < time.localtime().tm_year - 5
    set_clock(0)
    with watched(tmp_path):
        run = RunProcess(tmp_path, "-q", *options, **variables)
        try:
            for files, days in ((4, -1), (12, 2), (20, -30)):
                assert run.wait_for(lambda files=files: visible_files(tmp_path) >= files)  # type: ignore[misc]  # a default
                set_clock(days)
            assert run.wait_for(lambda: visible_files(tmp_path) >= 28)
            run.process.kill()
            assert run.end() != 0
        finally:
            run.destroy()
        set_clock(-365)
        assert end_of_a_run(tmp_path, options, lambda: set_clock(-730), **variables) == 0
    require_whole(tmp_path)
    require_clean_error(tmp_path)
