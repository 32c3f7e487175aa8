"""Pickled state whose class has another name or another place by now, and what the error advises."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.runs.remedy_app import RemedyApp, refusal

COUNTING = """\
from dagflow import InputPort, KeyedOperator, Operator, OutputPort
{imports}


class Plain(Operator):
    \"""Puts a number before each record.\"""

    input = InputPort()
    output = OutputPort()
    kept = Kept(0)

    @input.each
    def number(self, record: bytes) -> None:
        self.kept = Kept(self.kept.n + 1)
        self.output.emit(b"%d %s" % (self.kept.n, record))

    def snapshot(self) -> Kept:
        return self.kept

    def restore(self, state: Kept) -> None:
        self.kept = state


class ByKey(KeyedOperator):
    \"""Puts before each record how often it came.\"""

    input = InputPort()
    output = OutputPort()

    @input.each
    def number(self, record: bytes) -> None:
        self.state[record] = Kept(self.state.get(record, Kept(0)).n + 1)
        self.output.emit(b"%d %s" % (self.state[record].n, record))


class Wrapped(ByKey):
    \"""The same, with the state by key within a pickle.\"""

    def snapshot(self) -> tuple:
        return ("more", super().snapshot())

    def restore(self, state: tuple) -> None:
        super().restore(state[1])
"""
KEPT = "from dataclasses import dataclass\n\n\n@dataclass(frozen=True)\nclass {}:\n    n: int\n"


def write_module(name: str, text: str) -> None:
    """Write a module of the app's author, in place of what was imported of it."""
    sys.modules.pop(name, None)
    Path(f"{name}.py").write_text(text)


@pytest.fixture
def kept_by(app: RemedyApp, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Lets the app count with one of the operators, in partitions."""
    monkeypatch.setenv("DAGFLOW_KEY_FILE", str(app.folder / "key"))
    monkeypatch.syspath_prepend(app.folder)

    def count(operator: str, partition: str) -> None:
        app.parts |= {
            "operators": f"\n  unique: {{class: advised_counting.{operator}, partition: {partition}}}",
            "to": "unique.input",
            "streams": "\n  first: {from: unique.output, to: writer.input}",
        }

    yield count
    for name in [name for name in sys.modules if name.startswith("advised_")]:
        del sys.modules[name]


KINDS = [
    ("Plain", "1", "1"),
    ("ByKey", "1", "1"),
    ("ByKey", "{by: record, count: 1}", "{by: record, count: 2}"),
    ("Wrapped", "1", "1"),
]


@pytest.mark.parametrize(("operator", "before", "now"), KINDS)
@pytest.mark.parametrize("remedy", ["renamed", "moved", "fresh"])
def test_pickled_state_goes_on_when_its_class_keeps_its_name(
    app: RemedyApp, kept_by: Callable[[str, str], None], operator: str, before: str, now: str, remedy: str
) -> None:
    """As another name of what it is now, in the module where it was; or all is counted anew."""
    write_module("advised_shapes", KEPT.format("Seen"))
    write_module("advised_counting", COUNTING.format(imports="from advised_shapes import Seen as Kept"))
    kept_by(operator, before)
    app.run()
    first = app.records()
    app.put("more", "good 1\n")
    kept_by(operator, now)
    if remedy == "moved":
        write_module("advised_forms", KEPT.format("Seen"))
        sys.modules.pop("advised_shapes")
        Path("advised_shapes.py").unlink()
        imports = "from advised_forms import Seen as Kept"
    else:
        write_module("advised_shapes", KEPT.format("Noted"))
        imports = "from advised_shapes import Noted as Kept"
    write_module("advised_counting", COUNTING.format(imports=imports))
    refusal(
        app.run,
        r"(the state of operator 'unique'|operator 'unique': the state by key) needs advised_shapes\.Seen, "
        r"which no longer exists: .*\n"
        "    keep 'Seen' in module 'advised_shapes' as another name .*, and import that module in the operator's; or",
    )
    assert app.records() == first
    if remedy == "fresh":
        app.run_fresh()
    elif remedy == "moved":
        write_module("advised_shapes", "from advised_forms import Seen as Seen\n")
        write_module("advised_counting", COUNTING.format(imports=f"import advised_shapes\n{imports}"))
        app.run()
    else:
        write_module("advised_shapes", KEPT.format("Noted") + "\n\nSeen = Noted\n")
        write_module("advised_counting", COUNTING.format(imports=imports))
        app.run()
    assert app.records() == sorted([*first, "3 good 1" if operator == "Plain" else "2 good 1"])
