"""Lines of a log, as they are seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dagflow.api.context import Skipped
from dagflow.cli.display import LineDisplay
from dagflow.journal.heartbeat import RunningWindow
from dagflow.journal.saved_state import LeftOut
from dagflow.report.own_figures import PublishedPart
from dagflow.report.snapshot import OperatorFigures, RunSnapshot
from tests.cli.samples import APP, at_work, summary


def test_lines_are_seconds_apart_by_the_run_s_own_clock(capsys: pytest.CaptureFixture[str]) -> None:
    """However often the driver reports, a log stays readable."""
    display = LineDisplay(APP)
    for tenth in range(120):
        display.progress(summary(tenth / 10))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0] == (
        "block-reader: 5.0 s, 500 MiB · 100 MiB/s, 14 windows, 3 files, 1,200 blocks (120 waiting),"
        " 5,000,000 records at 1.0 M/s, partitions reader=8"
    )


def test_a_run_that_waits_for_new_files_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    """Following fills no log while nothing comes; a window that takes long is reported again and again."""
    display = LineDisplay(APP)
    idle = summary(6.0)
    for seconds in range(6, 60):
        waits = RunningWindow(15, 0, 0, 0, 1, seconds=float(seconds))
        display.progress(replace(idle, seconds=float(seconds), progress=at_work(waits, waiting=0)))
    assert len(capsys.readouterr().err.splitlines()) == 1
    for seconds in range(60, 80):
        display.progress(replace(idle, seconds=float(seconds), progress=at_work(waiting=1)))
    assert len(capsys.readouterr().err.splitlines()) == 4


def test_the_end_is_shown_with_what_was_published(capsys: pytest.CaptureFixture[str]) -> None:
    """The last lines account for the run."""
    LineDisplay(APP).finish(summary(8.0, state="completed", rejected=2))
    assert capsys.readouterr().err == (
        "block-reader: completed in 8.0 s\n"
        "    published 14 windows, read from 3 files, 1,200 blocks, 800 MiB (100 MiB/s)\n"
        "    records: reader.messages 8,000,000, filter.output 7,200,000\n"
        "    rejected: 2\n"
    )


def test_what_was_left_out_is_shown_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    """A run that is told to go on without some files completes, and says that it did."""
    ranges = [Skipped(f"/in/{number}", 0, 256, "missing: no such file", "deleted") for number in range(8)]
    for run in (summary(8.0, state="completed"), replace(summary(8.0, state="completed"), windows=0)):
        LineDisplay(APP).finish(replace(run, left_out=LeftOut().after(ranges, [])))
        shown = capsys.readouterr().err
        assert "\n    left out of the input, in all runs: 8 ranges, 2.0 KiB\n        /in/3 [0, 256): missing: " in shown
        assert "\n        and 3 more: `dagflow status CHECKPOINT --files '*'` shows all" in shown
        assert "dagflow replay" not in shown


def test_files_that_could_not_be_read_are_shown_with_what_reads_them(capsys: pytest.CaptureFixture[str]) -> None:
    """No run looks at the same version again; of what was gone, the next run reads what is put back."""
    left_out = LeftOut().after([Skipped("/in/a", 0, 9, "storage: denied"), Skipped("/in/b", 0, 9, "", "deleted")], [])
    LineDisplay(APP).finish(replace(summary(8.0, state="completed"), left_out=left_out))
    advice = "`dagflow replay CHECKPOINT --files GLOB` reads what can be read by now, of files that grow no more"
    assert f"\n        {advice}\n" in capsys.readouterr().err


def test_the_end_names_where_the_output_is(capsys: pytest.CaptureFixture[str]) -> None:
    """A person finds what was written, and what Java or operators had to say."""
    published = PublishedPart("/data/out", 12), PublishedPart("table delta:s3://bucket/out", 3, 1200)
    log = ".dagflow/a.spark.log"
    LineDisplay(APP).finish(replace(summary(8.0, state="completed"), published=published, log=log))
    shown = capsys.readouterr().err
    assert shown.endswith(
        "\n    output: 12 files in /data/out, 1,200 rows in table delta:s3://bucket/out"
        "\n    log of the tasks: .dagflow/a.spark.log\n"
    )


def test_a_start_that_took_longer_than_the_work_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """With both figures; not where the work took longer, nor where no Spark was started.

    The driver's operators do not count: one that has blocks pre-scanned waits for Spark itself.
    """
    worked = (
        OperatorFigures("splitter", busy_s=9.5),
        OperatorFigures("reader", "reader", busy_s=3.0),
        OperatorFigures("filter", "reader", busy_s=2.0),
    )
    for start_s in (0.0, 4.0, 9.0):
        snapshot = replace(summary(20.0, state="completed"), operators=worked, spark_start_s=start_s)
        LineDisplay(APP).finish(snapshot)
    shown = [line for line in capsys.readouterr().err.splitlines() if "--local" in line]
    assert shown == [
        "    the run waited 9.0 s for Spark, and its tasks worked for 5.0 s: it would be faster with --local"
    ]


def test_bytes_of_running_windows_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """A long window shows that it gets on."""
    running = (RunningWindow(15, 20 << 20, 64 << 20, 1, 4), RunningWindow(16, 1 << 20, 64 << 20, 0, 4))
    LineDisplay(APP).progress(replace(summary(6.0), progress=at_work(*running)))
    assert ": 6.0 s, 621 MiB · 100 MiB/s · 1/8 tasks, " in capsys.readouterr().err


def test_a_start_of_java_is_a_line_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    """Once, and not again with the figures that come after it."""
    display = LineDisplay(APP)
    display.progress(summary(1.0))
    display.progress(RunSnapshot(APP, waits_for="starting Java for Spark on local[*]"))
    display.progress(summary(2.0))
    assert capsys.readouterr().err == "block-reader: starting Java for Spark on local[*]\n"
    assert display.last == summary(2.0)


def test_a_run_without_new_input_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """A quick run says that it had nothing to do."""
    LineDisplay(APP).finish(summary(0.5, state="completed", windows=0))
    assert capsys.readouterr().err == (
        "block-reader: nothing new: there is no input that earlier runs have not processed (0.5 s)\n"
    )


def test_a_run_without_new_input_names_what_still_waits(capsys: pytest.CaptureFixture[str]) -> None:
    """A record in progress has not been processed."""
    LineDisplay(APP).finish(replace(summary(0.5, state="completed", windows=0), waiting_bytes=7))
    assert capsys.readouterr().err == (
        "block-reader: nothing new: there is no input that earlier runs have not processed, but for 7 B of records in "
        "progress (0.5 s)\n"
    )


def test_a_run_stopped_before_its_first_window_claims_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Stopped is not the same as nothing new."""
    LineDisplay(APP).finish(summary(0.5, state="stopped", windows=0))
    assert capsys.readouterr().err == "block-reader: stopped in 0.5 s: nothing was published\n"
