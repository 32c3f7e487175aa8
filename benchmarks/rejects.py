"""What refused records cost: time and memory by the number of them, for each way in which records are refused.

    python -m benchmarks.rejects

Prints seconds of CPU and the peak of memory of a run in which every record is refused, and how both grow. It promises
that a million take less than ten seconds, and that time grows no faster than their number.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import fastavro
import pyarrow as pa
from pyarrow import csv, orc, parquet

from benchmarks.measuring import check, in_own_process, peak_mib, table

MOST_S = 10.0


class RefusedInput(NamedTuple):
    """A way in which every record is refused.

    Attributes:
        format: The format, as YAML.
        record: The bytes of the record with a number.
        operator: An operator that refuses the records, as YAML; "" if the reader does.
        header: The beginning of the file.
        as_file: Makes the file of the header and all records, where it is not these bytes.
    """

    format: str
    record: Callable[[int], bytes]
    operator: str = ""
    header: bytes = b""
    as_file: Callable[[bytes], bytes] = bytes


def _number(number: int) -> bytes:
    return b"{'n': %d}\n" % number


def _field(number: int) -> bytes:
    return b"x%d\n" % number


def _utf_16(text: bytes) -> bytes:
    return text.decode().encode("utf-16")


def _parquet(text: bytes) -> bytes:
    out = io.BytesIO()
    parquet.write_table(csv.read_csv(io.BytesIO(text)), out)
    return out.getvalue()


def _arrow(text: bytes) -> bytes:
    out, rows = io.BytesIO(), csv.read_csv(io.BytesIO(text))
    with pa.ipc.new_file(out, rows.schema) as file:
        file.write_table(rows)
    return out.getvalue()


def _orc(text: bytes) -> bytes:
    out = io.BytesIO()
    orc.write_table(csv.read_csv(io.BytesIO(text)), out)
    return out.getvalue()


def _avro(text: bytes) -> bytes:
    out = io.BytesIO()
    schema = {"type": "record", "name": "row", "fields": [{"name": "a", "type": "string"}]}
    fastavro.writer(out, schema, csv.read_csv(io.BytesIO(text)).to_pylist())
    return out.getvalue()


_TEXT = "{type: csv, header: false, columns: [a]}"
_LINES = "lines"

CASES = {
    "csv, type": RefusedInput("{type: csv, columns: {a: int64}}", _field, header=b"a\n"),
    "csv, latin-1": RefusedInput(
        "{type: csv, encoding: latin-1, columns: {a: int64}}", lambda n: b"\xe4%d\n" % n, header=b"a\n"
    ),
    "csv, utf-8": RefusedInput("{type: csv, header: false, columns: [a]}", lambda n: b"\xff%d\n" % n),
    "csv, range": RefusedInput("{type: csv, columns: {a: int8}}", lambda n: b"%d\n" % (n + 128), header=b"a\n"),
    "csv, date": RefusedInput(
        "{type: csv, columns: {a: timestamp}}", lambda n: b"2024-01-%d\n" % (n % 60 + 32), header=b"a\n"
    ),
    "csv, fields": RefusedInput("{type: csv, header: false, columns: [a, b]}", _field),
    "json_lines": RefusedInput("json_lines", _number),
    "json_lines, type": RefusedInput("{type: json_lines, columns: {n: int64}}", lambda n: b'{"n": "x%d"}\n' % n),
    "json_lines, range": RefusedInput("{type: json_lines, columns: {n: int8}}", lambda n: b'{"n": %d}\n' % (n + 128)),
    "json_lines, nested": RefusedInput(
        "{type: json_lines, columns: {n: 'struct<a: double, b: int64>'}}",
        lambda n: b'{"n": {"a": 1.5, "b": "x%d"}}\n' % n,
    ),
    "json_lines, twice": RefusedInput("{type: json_lines, columns: as_found}", lambda n: b'{"n": %d, "n": 2}\n' % n),
    "csv, utf-16": RefusedInput("{type: csv, columns: {a: int64}}", _field, header=b"a\n", as_file=_utf_16),
    "json": RefusedInput("json", lambda n: b"{'n': %d},\n" % n, header=b"["),
    "json, type": RefusedInput("{type: json, columns: {n: int64}}", lambda n: b'{"n": "x%d"},\n' % n, header=b"["),
    "xml": RefusedInput("{type: xml, tag: r, columns: {a: int64}}", lambda n: b"<r><a>%d</b></r>\n" % n),
    "xml, type": RefusedInput("{type: xml, tag: r, columns: {a: int64}}", lambda n: b"<r><a>x%d</a></r>\n" % n),
    "fixed, type": RefusedInput("{type: fixed, length: 9, columns: {a: [0, 9, int64]}}", lambda n: b"x%08d" % n),
    "fixed, utf-8": RefusedInput("{type: fixed, length: 9, columns: {a: [0, 9]}}", lambda n: b"\xff%08d" % n),
    "fixed, packed": RefusedInput(
        "{type: fixed, length: 4, columns: {a: [0, 4, packed(7)]}}", lambda n: (n << 4).to_bytes(4, "big")
    ),
    "paragraphs": RefusedInput("{type: paragraphs, fields: true, columns: {a: int64}}", lambda n: b"x%d\n\n" % n),
    "paragraphs, type": RefusedInput(
        "{type: paragraphs, fields: true, columns: {a: int64}}", lambda n: b"a: x%d\n\n" % n
    ),
    **{
        name: RefusedInput(f"{{type: {name}, columns: {{a: int64}}}}", _field, header=b"a\n", as_file=as_file)
        for name, as_file in {"parquet": _parquet, "arrow": _arrow, "orc": _orc, "avro": _avro}.items()
    },
    "lines, encoding": RefusedInput("{type: lines, encoding: utf-8, on_bad_bytes: reject}", lambda n: b"\xff%d\n" % n),
    "lines, max_record": RefusedInput("{type: lines, max_record: 4, on_long: reject}", lambda n: b"%09d\n" % n),
    "regex, max_record": RefusedInput(
        "{type: regex, pattern: '[0-9]', max_record: 4, on_long: reject}", lambda n: b"%09d\n" % n
    ),
    "Parse regex": RefusedInput(_LINES, _field, "Parse: regex: '(?P<a>[0-9]+)'"),
    "Parse regex, type": RefusedInput(_LINES, _field, "Parse: regex: '(?P<a>.+)', columns: {a: int64}"),
    "Parse split": RefusedInput(_LINES, _field, "Parse: split: {delimiter: ',', names: [a, b]}"),
    "Parse key_value": RefusedInput(_LINES, _field, "Parse: key_value: {keys: [a]}"),
    "Parse json": RefusedInput(_LINES, _number, "Parse: json: true, columns: {n: int64}"),
    "Check": RefusedInput(_TEXT, _field, "Check: expect: a = '1'"),
    "Select, cast": RefusedInput(_TEXT, _field, "Select: columns: {a: cast(a as bigint)}"),
}


def app_text(case: RefusedInput, directory: Path) -> str:
    """An app that publishes what a case refuses."""
    refusing = "operator" if case.operator else "reader"
    text = f"""
name: rejects
attributes: {{checkpoint: {directory / "journal"}}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: [{directory / "in"}]}}}}
  reader: {{class: BlockReader, properties: {{format: {case.format}}}}}
  writer: {{class: RecordWriter, properties: {{path: {directory / "out"}}}, partition: parallel}}
  aside: {{class: RecordWriter, properties: {{path: {directory / "refused"}}}, partition: parallel}}
"""
    streams = [
        ("splitter.blocks_metadata_output", "reader.blocks_metadata_input"),
        (f"{refusing}.errors", "aside.input"),
    ]
    if case.operator:
        name, _, properties = case.operator.partition(":")
        text += f"  operator: {{class: {name}, properties: {{{properties.strip()}}}, partition: parallel}}\n"
        streams += [("reader.messages", "operator.input"), ("operator.output", "writer.input")]
    else:
        streams += [("reader.messages", "writer.input")]
    lines = [f"  s{number}: {{from: {source}, to: {sink}}}" for number, (source, sink) in enumerate(streams)]
    return text + "streams:\n" + "\n".join(lines) + "\n"


def measure(name: str, records: int) -> dict[str, float]:
    """Refuse records in this new process, and list them; return seconds of CPU, MiB, and the number that is listed."""
    from dagflow.engine.run import run
    from dagflow.plan.load import load_app
    from dagflow.report.open_rejects import RejectChoice, grouped, open_rejects
    from dagflow.runtime.local import InlineRuntime

    case = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        (directory / "in").mkdir()
        content = case.as_file(case.header + b"".join(map(case.record, range(records))))
        (directory / "in" / "a").write_bytes(content)
        (directory / "app.yaml").write_text(app_text(case, directory))
        app = load_app(directory / "app.yaml")
        began = time.process_time()
        run(app, runtime=InlineRuntime)
        run_s = time.process_time() - began
        groups = grouped(
            open_rejects(app.attributes.checkpoint, app.attributes.storage_context()), RejectChoice((), "")
        )
        list_s = time.process_time() - began - run_s
    return {"run": run_s, "list": list_s, "mib": peak_mib(), "listed": sum(group.records for group in groups)}


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000, help="refused records of the larger run")
    parser.add_argument("--only", default="", help="cases whose names hold this text")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.records)))
        return 0
    rows, all_hold = [], True
    for name in (name for name in CASES if options.only in name):
        few, many = (
            in_own_process("rejects", "--measure", name, "--records", str(records))
            for records in (options.records // 10, options.records)
        )
        figures = [few["run"], many["run"], many["list"], few["mib"], many["mib"]]
        rows.append((name, *(f"{figure:.1f}" for figure in figures)))
        print(rows[-1], file=sys.stderr, flush=True)
        least, most = 0.9 * options.records, MOST_S * options.records / 1_000_000
        all_hold &= check(many["listed"] >= least, f"{name}: {many['listed']:,} listed")
        all_hold &= check(many["run"] + many["list"] < most, f"{name}: promised {most:.1f} s")
    print(table(["case", "a tenth s", "all s", "list s", "a tenth MiB", "all MiB"], rows))
    return 0 if all_hold else 1


if __name__ == "__main__":
    sys.exit(main())
