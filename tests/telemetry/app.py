"""An app whose columns are known: JSON lines with a Parse, a Select and an Aggregate behind them."""

from __future__ import annotations

from pathlib import Path

from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan

APP = """\
name: orders
attributes:
  checkpoint: journal
  {attributes}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: [in], block_size: 30, blocks_threshold: 2}}}}
  reader: {{class: BlockReader, properties: {{format: {{type: json_lines, columns: {{n: int64, s: string}}}}}}}}
  select: {{class: Select, properties: {{columns: {{sum: n * 2}}, rename: {{s: label}}}}, partition: parallel}}
  writer: {{class: RecordWriter, properties: {{path: out/rows, format: csv}}, partition: parallel}}
  groups: {{class: Aggregate, properties: {{by: {{key: label}}, columns: {{total: sum(sum), rows: count(*)}}}}}}
  sums: {{class: RecordWriter, properties: {{path: out/sums, format: csv}}}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: select.input}}
  selected: {{from: select.output, to: [writer.input, groups.input]}}
  grouped: {{from: groups.output, to: sums.input}}
"""


def orders(folder: Path, attributes: str = "window_millis: 500") -> LogicalPlan:
    """The app in the working directory, with input for a few windows."""
    (folder / "in").mkdir(exist_ok=True)
    lines = [f'{{"n": {n}, "s": "s{n % 3}"}}\n' for n in range(12)]
    (folder / "in" / "a.jsonl").write_text("".join(lines))
    (folder / "app.yaml").write_text(APP.format(attributes=attributes))
    return load_app("app.yaml")
