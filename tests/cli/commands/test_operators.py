"""The list of operators, and one operator in detail."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.commands.inspected_app import folder, invoke

__all__ = ["folder"]


def test_the_operators_are_listed_with_what_they_do() -> None:
    """One line or two for each built-in."""
    code, out, err = invoke("operators")
    assert (code, err) == (0, "")
    operators = out.partition("\n\n")[0]
    listed = [line.split()[0] for line in operators.splitlines() if not line.startswith(" ")]
    assert {"BlockReader", "FileSplitterBase", "FileSplitterInput", "RecordFilter", "RecordWriter"} <= set(listed)
    assert listed == sorted(listed)
    assert max(map(len, out.splitlines())) <= 80


def test_an_operator_is_shown_with_ports_and_properties() -> None:
    """Type, default and meaning of each property, within the width of a terminal."""
    code, out, err = invoke("operators", "FileSplitterInput")
    assert (code, err) == (0, "")
    for part in ("Output ports:", "blocks_metadata_output", "Properties:", "block_size", "default 64MiB"):
        assert part in out
    assert max(map(len, out.splitlines())) <= 80


def test_partitioners_are_listed_and_shown() -> None:
    """Apart from the operators, and with their properties."""
    code, out, err = invoke("operators")
    assert (code, err) == (0, "")
    operators, _, partitioners = out.partition("\n\nPartitioners")
    assert "\n  DeadlinePartitioner " in partitioners and "DeadlinePartitioner" not in operators
    code, out, err = invoke("operators", "DeadlinePartitioner")
    assert (code, err) == (0, "")
    assert "target_millis     milliseconds, default 60000" in out


def test_an_operator_of_one_s_own_is_shown_as_well(folder: Path) -> None:
    """Its module is found in the working directory."""
    (folder / "shown_ops.py").write_text(
        "from dagflow import InputPort, Operator\n\n\n"
        'class Sink(Operator):\n    """Takes it all."""\n\n    input = InputPort()\n'
    )
    code, out, err = invoke("operators", "shown_ops.Sink")
    assert (code, err) == (0, "")
    assert "Takes it all." in out


def test_an_unknown_operator_is_answered_with_the_nearest() -> None:
    """Exit code 2, as for every mistake on the command line."""
    code, out, err = invoke("operators", "BlokReader")
    assert (code, out) == (2, "")
    assert err.startswith(
        "dagflow operators: there is no built-in operator or partitioner 'BlokReader'; did you mean 'BlockReader'?"
    )


def test_a_module_is_shown_like_an_operator(folder: Path) -> None:
    """Its exposed ports and properties; its schema is another than an app's."""
    inside = "operators:\n  f: {class: RecordFilter, properties: {keep: {prefix: a}}}\n"
    (folder / "m.yaml").write_text("description: Keeps.\ninputs: {all: f.input}\nproperties: {keep: f.keep}\n" + inside)
    code, out, err = invoke("operators", "m.yaml")
    assert (code, err) == (0, "")
    assert "m.yaml: a module" in out and "all  records, required" in out and "keep.prefix" in out
    code, out, _ = invoke("schema", "--module")
    assert code == 0 and json.loads(out)["title"] == "dagflow module"
