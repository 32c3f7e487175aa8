"""Plans as text and drawings, and simulated partitions."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.api.partitioning import BacklogStats, PartitionPolicy
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.plan.load import load_app
from dagflow.plan.render.explain import FORMATS
from dagflow.runtime.local import InlineRuntime
from tests.cli.commands.inspected_app import APP, folder, invoke, journal

__all__ = ["folder", "journal"]


def test_the_plan_shows_stages_partitions_and_how_much_there_is(folder: Path) -> None:
    """Partitions as the readers allow them, as the app fixes them, and as many as run at the same time."""
    app = APP.replace("class: RecordFilter,", "class: RecordFilter, partition: {by: record},")
    (folder / "app.yaml").write_text(app)
    code, out, err = invoke("plan", "app.yaml")
    assert (code, err) == (0, "")
    words = [line.strip(" ●│┆┃") for line in out.splitlines()]
    shown = [word for word in words if word.startswith(("driver", "stage")) or word.endswith(")")]
    assert shown == [
        "driver",
        "splitter (FileSplitterInput)",
        "stage 0: 1 to 4 partitions",
        "reader (BlockReader)",
        "stage 1: 3 partitions",
        "filter (RecordFilter, partition: by record)",
        "stage 2: 2 partitions, fixed",
        "writer (RecordWriter, partition: 2)",
    ]
    assert "1 file, 3 blocks, 21 bytes, 1 window" in out


@pytest.mark.parametrize(
    ("limit", "windows"),
    [("max_files_per_window=2", 3), ("max_bytes_per_window=20", 3), ("max_bytes_per_window=1", 7)],
)
def test_the_estimate_counts_the_windows_that_a_limit_asks_for(folder: Path, limit: str, windows: int) -> None:
    """The run makes no fewer."""
    for name in "bcde":
        (folder / "in" / name).write_text("5678\n6\n")
    arguments = ["app.yaml", "--set", f"splitter.{limit}", "--set", "splitter.batch_bytes=0"]
    assert f"5 files, 7 blocks, 49 bytes, {windows} windows" in invoke("plan", *arguments)[1]
    app = load_app("app.yaml", overrides=[f"splitter.{limit}", "splitter.batch_bytes=0"])
    assert run(app, RunOptions(), runtime=InlineRuntime).windows >= windows


@pytest.mark.parametrize(
    ("form", "beginning"), [("mermaid", "flowchart"), ("dot", "digraph"), ("svg", "<svg")], ids=FORMATS[1:]
)
def test_the_plan_is_drawn_in_other_languages(folder: Path, form: str, beginning: str) -> None:
    """Stdout holds the drawing and nothing else, fit to be redirected into a file."""
    code, out, err = invoke("plan", "app.yaml", "--format", form)
    assert (code, err) == (0, "")
    assert out.startswith(beginning)


@pytest.mark.usefixtures("journal")
def test_a_plan_says_that_it_counts_what_was_taken_before() -> None:
    """A run that is finished has nothing to do, and its plan must not seem to say that it has."""
    out = invoke("plan", "app.yaml")[1]
    assert "estimate\n  all input, taken before or not: 1 file, 3 blocks, 21 bytes, 1 window\n" in out


def test_a_plan_without_its_input_is_shown_without_estimate(folder: Path) -> None:
    """An app may be looked at where its data is not."""
    (folder / "in" / "a.txt").unlink()
    (folder / "in").rmdir()
    code, out, err = invoke("plan", "app.yaml")
    assert code == 0
    assert "stage 0" in out
    assert "estimate" not in out
    assert err.startswith("no estimate: in")


def test_a_plan_shows_secrets_as_references(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the input that they lead to is out of reach."""
    monkeypatch.setenv("STORE_SECRET", "hush-hush")
    app = (folder / "app.yaml").read_text()
    (folder / "app.yaml").write_text(app.replace("files: [in]", 'files: ["${STORE_SECRET}/in"]'))
    code, out, err = invoke("plan", "app.yaml")
    assert code == 0
    assert "hush" not in out + err
    assert err.startswith("no estimate: ${STORE_SECRET}/in")


@pytest.mark.parametrize("form", FORMATS)
def test_a_plan_shows_no_part_of_a_secret(folder: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """Also where a text is wrapped or clipped afterwards."""
    secret = " ".join(f"hush{number}" for number in range(30))
    monkeypatch.setenv("SECRET_COLUMN", secret)
    app = (folder / "app.yaml").read_text()
    keyed = app.replace("partition: 2}", 'partition: {by: "${SECRET_COLUMN}", count: 2}}')
    assert keyed != app
    keyed = keyed.replace("max_readers: 4", "max_readers: 4, format: {type: json_lines, columns: as_found}")
    (folder / "app.yaml").write_text(keyed)
    code, out, err = invoke("plan", "app.yaml", "--format", form)
    assert code == 0
    assert "hush" not in out + err
    assert "SECRET" in out and "COLUMN" in out


def test_a_backlog_is_played_through_the_partitioners(folder: Path) -> None:
    """A drawing and each decision with its reason; nothing runs."""
    (folder / "trace.csv").write_text("millis,backlog,bytes\n0,0,0\n1000,3,300\n2000,9,900\n9000,0,0\n")
    code, out, err = invoke("plan", "app.yaml", "--simulate", "trace.csv")
    assert (code, err) == (0, "")
    assert "partitions of 'reader', decided by BlockReader" in out
    assert "2.0 s  2 -> 4, backlog 9: backlog of 9 blocks, 1 to 4 readers: 2 to 4" in " ".join(out.split("\n"))
    assert "     4 |" in out and "     1 |████" in out
    code, out, err = invoke("plan", "app.yaml", "--simulate", "none.csv")
    assert (code, out) == (2, "") and err.startswith("none.csv: the trace cannot be read")
    code, _, err = invoke("plan", "app.yaml", "--simulate", "trace.csv", "--bytes-per-second", "fast")
    assert code == 2 and "'fast' is not a size" in err


class Proportional(PartitionPolicy):
    """One partition for each thousand tuples, without an end."""

    def define_partitions(self, stats: BacklogStats) -> int:
        """As many as there are thousands."""
        return 1 + stats.backlog // 1000


def test_a_plan_shows_no_more_partitions_than_there_can_be(folder: Path) -> None:
    """A policy without a limit, which a run never asks in the way that the plan does."""
    app = (folder / "app.yaml").read_text()
    policed = app.replace("reader: {", "reader: {partitioner: {class: tests.cli.commands.test_plan.Proportional}, ", 1)
    assert policed != app
    (folder / "app.yaml").write_text(policed)
    code, out, err = invoke("plan", "app.yaml")
    assert (code, err) == (0, "")
    assert "stage 0: 1 to 100000 partitions" in out
