"""What refused records cost: time and memory by the number of them, for each way in which records are refused.

    python -m benchmarks.rejects

Prints seconds of CPU and the peak of memory of a run in which every record is refused, and how both grow. It promises
that a million take less than ten seconds, and that time grows no faster than their number.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.measuring import check, in_own_process, peak_mib, table

MOST_S = 10.0


class RefusedInput(NamedTuple):
    """A way in which every record is refused.

    Attributes:
        format: The format, as YAML.
        record: The bytes of the record with a number.
        operator: An operator that refuses the records, as YAML; "" if the reader does.
        header: The beginning of the file.
    """

    format: str
    record: Callable[[int], bytes]
    operator: str = ""
    header: bytes = b""


def _number(number: int) -> bytes:
    return b"{'n': %d}\n" % number


def _field(number: int) -> bytes:
    return b"x%d\n" % number


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
    from dagflow.runtime.inline import InlineRuntime

    case = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        (directory / "in").mkdir()
        with (directory / "in" / "a").open("wb") as file:
            file.write(case.header)
            file.writelines(map(case.record, range(records)))
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
