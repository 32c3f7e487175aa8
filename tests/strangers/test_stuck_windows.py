"""Windows that are decided when something happens to their table: what the error says gets their rows out."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import StringType

from dagflow.api.transactions import FileTarget, Target
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_repair import repair
from dagflow.engine.window_replay import replay_windows
from dagflow.errors import DagflowError, JournalError
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from dagflow.testing.faults import InjectedCrash
from operators.sink.table_writer import TableWriter
from tests.faulty import Faults, FaultyTarget
from tests.nightly import by_day
from tests.runs.test_table_remedies import catalog_in

APP = """
name: stuck
attributes: {{checkpoint: "{root}/journal"}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: "{root}/in", batch_bytes: 0}}}}
  reader: {{class: BlockReader, properties: {{format: {{type: json_lines, columns: as_found}}}}}}
  writer: {{class: {writer}, properties: {{table: "{table}"{more}}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  rows: {{from: reader.messages, to: writer.input}}
"""
FORMS = {"windows": (", commit: {every_millis: 0}", 2), "groups": ("", 4), "keys": (", upsert_by: id", 4)}
"""How windows are committed, and the window that commits the second file's rows."""

Change = Callable[[Path], None]


class DecidingWriter(TableWriter):
    """Its driver dies when a window is decided, and before the table has it."""

    def transaction_target(self, storage: StorageContext) -> FileTarget | None:
        """The table."""
        target = super().transaction_target(storage)
        return FaultyTarget(target, Faults(1)) if isinstance(target, Target) else target


class StuckApp:
    """An app whose second file is in a decided window, when its table changes.

    Args:
        root: Where everything is.
        kind: The kind of table.
        form: How windows are committed.
    """

    def __init__(self, root: Path, kind: str, form: str) -> None:
        self._root, self._kind = root, kind
        self._more, self.window_id = FORMS[form]
        self.checkpoint = str(root / "journal")
        self.remedy = f"dagflow repair {self.checkpoint} --window {self.window_id}"
        (root / "in").mkdir()

    def put(self, name: str, *records: dict[str, Any]) -> None:
        """Write a file of the input."""
        (self._root / "in" / name).write_text("".join(f"{json.dumps(record)}\n" for record in records))

    def work(self, table: str = "table", writer: str = "TableWriter", *, fresh: bool = False) -> None:
        """Run the app; another table than the first one is in another catalog."""
        place, more = f"delta:{self._root}/{table}", self._more
        if self._kind == "iceberg":
            place, more = f"iceberg:shop.{table}", f"{more}, catalog: {json.dumps(self._catalog(table))}"
        app = APP.format(root=self._root, table=place, more=more, writer=writer)
        (self._root / "app.yaml").write_text(app)
        run(load_app(self._root / "app.yaml"), RunOptions(fresh=fresh), runtime=InlineRuntime)

    def _catalog(self, table: str) -> dict[str, str]:
        place = self._root if table == "table" else self._root / table
        place.mkdir(exist_ok=True)
        return catalog_in(place)

    def get_stuck(self, change: Change) -> None:
        """Commit one row, and decide about two more; then the table changes."""
        self.put("1", {"id": 1, "k": "a"})
        self.work()
        self.put("2", {"id": 2, "k": "b", "New": 1}, {"id": 3, "k": "c"})
        with contextlib.suppress(InjectedCrash):
            self.work(writer=f"{__name__}.DecidingWriter")
        change(self._root)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table, without nulls."""
        if self._kind == "delta":
            found = DeltaTable(str(self._root / table)).to_pyarrow_table()
        else:
            with SqlCatalog("default", **self._catalog(table)) as catalog:
                found = catalog.load_table(f"shop.{table}").scan().to_arrow()
        rows = [{name: value for name, value in row.items() if value is not None} for row in found.to_pylist()]
        return sorted(rows, key=lambda row: int(row["id"]))

    def versions(self) -> list[Path]:
        """The versions of the first table."""
        return sorted([*self._root.glob("table/_delta_log/*.json"), *self._root.rglob("*.metadata.json")])


def write_entry(root: Path, **action: Any) -> None:
    """Add an entry to the log of a Delta table."""
    log = root / "table" / "_delta_log"
    (log / f"{len([*log.glob('*.json')]):020}.json").write_text(json.dumps(action) + "\n")


def ask_for_another_protocol(root: Path) -> None:
    """A newer writer upgrades the table."""
    write_entry(root, protocol={"minReaderVersion": 1, "minWriterVersion": 9})


def ask_for_an_unknown_feature(root: Path) -> None:
    """A newer writer gives the table a feature."""
    write_entry(root, protocol={"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["somethingNew"]})


def constrain(root: Path) -> None:
    """Another program adds a constraint."""
    DeltaTable(str(root / "table")).alter.add_constraint({"small": "id < 100"})


def require_a_column(root: Path) -> None:
    """Another program writes the table anew with a column that allows no null."""
    fields = [("id", pa.int64()), ("k", pa.string()), pa.field("must", pa.string(), nullable=False)]
    rows = pa.table({"id": [1], "k": ["a"], "must": ["x"]}, schema=pa.schema(fields))
    write_deltalake(str(root / "table"), rows, mode="overwrite", schema_mode="overwrite")


def damage_the_log(root: Path) -> None:
    """Something writes what is no entry."""
    log = root / "table" / "_delta_log"
    (log / f"{len([*log.glob('*.json')]):020}.json").write_text("{nothing\n")


def put_a_directory_there(root: Path) -> None:
    """Another program puts files in the place of the table."""
    shutil.rmtree(root / "table")
    (root / "table").mkdir()
    (root / "table" / "notes.csv").write_text("a,b\n")


def put_a_file_there(root: Path) -> None:
    """Another program puts a file in the place of the table."""
    shutil.rmtree(root / "table")
    (root / "table").write_text("mine")


def remove_the_table(root: Path) -> None:
    """Another program removes the table with all that waits for it."""
    shutil.rmtree(root / "table")


def put_another_table_there(root: Path) -> None:
    """Another program makes a table of its own there."""
    remove_the_table(root)
    write_deltalake(str(root / "table"), pa.table({"id": ["one"], "v": [1.5]}))


DELTA: list[Change] = [
    ask_for_another_protocol,
    ask_for_an_unknown_feature,
    constrain,
    require_a_column,
    damage_the_log,
    put_a_directory_there,
    put_a_file_there,
    remove_the_table,
    put_another_table_there,
]


def upgrade(root: Path) -> None:
    """A newer writer upgrades the table."""
    [newest] = [*root.rglob("*.metadata.json")]
    newest.write_text(json.dumps({**json.loads(newest.read_text()), "format-version": 3, "next-row-id": 0}))


def require_a_field(root: Path) -> None:
    """Another program adds a column that allows no null."""
    with (
        SqlCatalog("default", **catalog_in(root)) as catalog,
        catalog.load_table("shop.table").update_schema(allow_incompatible_changes=True) as update,
    ):
        update.add_column("must", StringType(), required=True)


def make_another_table(root: Path) -> None:
    """Another program drops the table, and makes one of the same name elsewhere."""
    with SqlCatalog("default", **catalog_in(root)) as catalog:
        catalog.drop_table("shop.table")
        columns = pa.schema([("id", pa.int64()), ("k", pa.string())])
        catalog.create_table("shop.table", columns, location=f"file://{root}/elsewhere")


def damage_the_catalog(root: Path) -> None:
    """Something writes over the catalog."""
    Path(catalog_in(root)["uri"].removeprefix("sqlite:///")).write_bytes(b"nothing" * 1000)


def remove_the_metadata(root: Path) -> None:
    """Something removes the table's metadata, and the catalog still names them."""
    for path in root.rglob("*.metadata.json"):
        path.unlink()


ICEBERG: list[Change] = [upgrade, require_a_field, make_another_table, damage_the_catalog, remove_the_metadata]
ALIKE = [damage_the_log, put_another_table_there, damage_the_catalog, remove_the_metadata]
"""What the program does not tell from other changes."""

CASES = [
    pytest.param(
        kind,
        change,
        form,
        id=f"{change.__name__}-{form}",
        marks=[] if form == "windows" and change not in ALIKE else pytest.mark.nightly,
    )
    for kind, changes in {"delta": DELTA, "iceberg": ICEBERG}.items()
    for change in changes
    for form in FORMS
]
LOSING = [put_a_directory_there, put_a_file_there, remove_the_table, put_another_table_there]
"""What takes rows with it that wait for the table."""


@pytest.mark.parametrize(("kind", "change", "form"), by_day(5, CASES))
def test_a_decided_window_that_its_table_cannot_take_gets_out(
    tmp_path: Path, kind: str, change: Change, form: str
) -> None:
    """Each run names the repair, and adds no version; a replay names it too; then another table gets its rows once."""
    case = StuckApp(tmp_path, kind, form)
    case.get_stuck(change)
    versions = case.versions()
    for table in ("table", "table", "other"):
        with pytest.raises(DagflowError, match=case.remedy):
            case.work(table)
    assert case.versions() == versions
    app = load_app(tmp_path / "app.yaml")
    with pytest.raises(JournalError, match=rf"(?s)window {case.window_id} is not published yet\n.*{case.remedy}"):
        replay_windows(app, RunOptions(), [case.window_id], runtime=InlineRuntime)
    repair(case.checkpoint, case.window_id, StorageContext.default())
    case.put("3", {"id": 4})
    expected = [{"id": 2, "k": "b", "New": 1}, {"id": 3, "k": "c"}, {"id": 4}]
    if form != "windows" and change in LOSING:
        # Their rows were in the first table's directory; those with keys are only made again with all others.
        advice = (
            f"2 in all: dagflow replay {case.checkpoint} --window 3" if form == "groups" else "start over with --fresh"
        )
        with pytest.raises(DagflowError, match=rf"(?s)a fragment of the table is gone.*{advice}"):
            case.work("other")
        if form == "groups":
            replay_windows(load_app(tmp_path / "app.yaml"), RunOptions(), [3], runtime=InlineRuntime)
        else:
            expected.insert(0, {"id": 1, "k": "a"})
    for _ in range(2):
        case.work("other", fresh=len(expected) == 4 and not (tmp_path / "other" / "_delta_log").exists())
        assert case.rows("other") == expected


@pytest.mark.parametrize("form", FORMS)
def test_a_start_over_with_another_table_needs_no_repair(tmp_path: Path, form: str) -> None:
    """The decided window is forgotten, and all input is read anew."""
    case = StuckApp(tmp_path, "delta", form)
    case.get_stuck(constrain)
    case.work("other", fresh=True)
    assert case.rows("other") == [{"id": 1, "k": "a"}, {"id": 2, "k": "b", "New": 1}, {"id": 3, "k": "c"}]


def test_a_decided_window_continues_when_its_column_allows_nulls(tmp_path: Path) -> None:
    """Nothing has to be taken back then."""
    case = StuckApp(tmp_path, "delta", "windows")
    case.get_stuck(require_a_column)
    with pytest.raises(
        DagflowError, match=r"(?s)allows no null in column 'must'.*let the column allow nulls; the next"
    ):
        case.work()
    rows = pa.table({"id": [1], "k": ["a"], "must": ["x"]})
    write_deltalake(str(tmp_path / "table"), rows, mode="overwrite", schema_mode="overwrite")
    case.work()
    assert case.rows("table") == [{"id": 1, "k": "a", "must": "x"}, {"id": 2, "k": "b", "New": 1}, {"id": 3, "k": "c"}]


def test_a_table_that_is_append_only_still_takes_a_decided_window(tmp_path: Path) -> None:
    """Where no keys replace rows, appendOnly forbids nothing."""
    case = StuckApp(tmp_path, "delta", "windows")
    append_only = {"delta.appendOnly": "true"}
    case.get_stuck(lambda root: DeltaTable(str(root / "table")).alter.set_table_properties(append_only))
    case.work()
    assert case.rows("table") == [{"id": 1, "k": "a"}, {"id": 2, "k": "b", "New": 1}, {"id": 3, "k": "c"}]


def test_a_window_whose_input_was_written_over_is_not_taken_back(tmp_path: Path) -> None:
    """Its files are all that is left of the records; also a file that has the same length."""
    case = StuckApp(tmp_path, "delta", "windows")
    case.get_stuck(constrain)
    (tmp_path / "in" / "2").rename(tmp_path / "2")
    (tmp_path / "in" / "2").write_text("x" * (tmp_path / "2").stat().st_size)
    with pytest.raises(JournalError, match=r"(?s)which is another version now.*put the file back, and repair"):
        repair(case.checkpoint, case.window_id, StorageContext.default())
    (tmp_path / "2").replace(tmp_path / "in" / "2")
    repair(case.checkpoint, case.window_id, StorageContext.default())
    case.work("other")
    assert [row["id"] for row in case.rows("other")] == [2, 3]


def test_a_window_that_has_lost_all_is_taken_back(tmp_path: Path) -> None:
    """Neither its files nor its input are left, so that nothing is saved by keeping it; the rest goes on."""
    case = StuckApp(tmp_path, "delta", "windows")
    case.get_stuck(remove_the_table)
    (tmp_path / "in" / "2").unlink()
    repair(case.checkpoint, case.window_id, StorageContext.default())
    case.put("3", {"id": 4})
    case.work()
    assert case.rows("table") == [{"id": 4}]
