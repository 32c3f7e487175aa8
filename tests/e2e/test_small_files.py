"""The app that merges small files, run through the command line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dagflow.cli.main import command_line
from tests.cli.processes import dagflow_command, modules_loaded_by

ROOT = Path(__file__).parent.parent.parent

pytestmark = [pytest.mark.spark, pytest.mark.e2e]


@pytest.mark.nightly
def test_merged_directories_return_every_source_file(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one merged file a directory; `dagflow extract` lists and returns each source file."""
    (place / "data" / "notes" / "2024-01-01" / "note.gz").write_bytes(gzip.compress(b"packed"))
    (place / "data" / "notes" / "2024-01-01" / "no.gz").write_bytes(b"not packed")
    ran = dagflow_command(["run", "apps/merge_small_files.yaml", "--json"], cwd=place)
    assert ran.returncode == 0, ran.stderr
    notes = place / "data" / "notes"
    wanted = {path.relative_to(notes).as_posix(): path.read_bytes() for path in notes.rglob("*") if path.is_file()}
    assert json.loads(ran.stdout)["records"]["read.messages"] == len(wanted) == 7
    merged = [path for path in (place / "out" / "merged").rglob("merged-*") if path.suffix != ".parquet"]
    assert {path.parent.name for path in merged} == {"2024-01-01", "2024-01-02", "evening"}
    assert len(merged) == 3
    listed = dagflow_command(["extract", "out/merged", "--list"], cwd=place)
    assert sorted(line.split("\t")[3] for line in listed.stdout.splitlines()) == sorted(wanted)
    monkeypatch.chdir(place)
    for path, content in wanted.items():
        target = place / "extracted"
        assert CliRunner().invoke(command_line, ["extract", "out/merged", path, "-o", str(target)]).exit_code == 0
        assert target.read_bytes() == content
        target.unlink()
    unknown = dagflow_command(["extract", "out/merged", "no-file"], cwd=place)
    assert (unknown.returncode, "no index here knows no-file" in unknown.stderr) == (1, True)


IN_PARTS = ("splitter.blocks_threshold=1", "splitter.block_size=4KiB", "splitter.batch_bytes=0")


@pytest.mark.parametrize(
    "app", [["apps/merge_small_files.yaml"], ["apps/block_reader.yaml", *(f"--set={each}" for each in IN_PARTS)]]
)
def test_a_driver_does_without_pandas(app: list[str], place: Path) -> None:
    """Arrow and PySpark would import it: half a second, and a quarter of all memory."""
    pytest.importorskip("pandas")
    loaded = modules_loaded_by(["run", *app, "-q"], cwd=place)
    assert ("pyspark" in loaded, "pandas" in loaded) == (True, False)
