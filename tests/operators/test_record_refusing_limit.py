"""A share of refused records is one of those that arrived, also where few of them go on."""

from __future__ import annotations

import pytest

from dagflow.errors import DagflowError
from dagflow.testing import run_app

APP = """\
name: shares
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: in}}}}
  reader: {{class: BlockReader, properties: {{format: {{type: csv, columns: {{n: int64}}}}}}}}
  op: {{{operator}, partition: parallel}}
  writer: {{class: RecordWriter, properties: {{path: out, format: csv}}, partition: parallel}}
  refused: {{class: RecordWriter, properties: {{path: refused}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  rows: {{from: reader.messages, to: op.input}}
  kept: {{from: op.output, to: writer.input}}
  rejects: {{from: op.errors, to: refused.input}}
"""


@pytest.mark.parametrize(
    "operator",
    [
        "class: Select, properties: {{where: 1 / n > 0.9, max_rejects: {share}}}",
        'class: Sql, properties: {{query: "select n from input where 1 / n > 0.9", max_rejects: {share}}}',
        "class: Aggregate, properties: {{columns: {{total: sum(1 / n)}}, max_rejects: {share}}}",
    ],
)
def test_a_share_is_one_of_the_records_that_arrived(operator: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """One of twenty is refused, and one goes on."""
    path = tmp_path_factory.mktemp("app") / "app.yaml"
    rows = {"in/a.csv": "n\n" + "".join(f"{n}\n" for n in range(20))}
    path.write_text(APP.format(operator=operator.format(share="5%")))
    assert run_app(path, rows).rejected == 1
    path.write_text(APP.format(operator=operator.format(share="4%")))
    with pytest.raises(DagflowError, match="1 of 20 records were refused, and max_rejects is 4%"):
        run_app(path, rows)
