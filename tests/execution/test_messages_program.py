"""Pickling what belongs to operators."""

from __future__ import annotations

import pickle
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from dagflow.engine.run import run
from dagflow.errors import OperatorError
from dagflow.execution.messages import Program, pickled_operator
from dagflow.plan.physical import Edge, Exchange, PhysicalPlan, PortRef, Stage
from dagflow.runtime.local import InlineRuntime
from operators.reader.block_reader import BlockReader
from operators.reader.formats.csv import Csv
from operators.splitter.splitter import FileSplitterInput
from tests.engine.sample_app import app_of
from tests.execution.sample_operators import CallsFunctions, DropPrefixed


class TakesStateBack(CallsFunctions):
    """An operator with a restore() of its own."""

    def restore(self, state: Any) -> None:
        """Take nothing: no run calls this method."""


def lock(operator: CallsFunctions) -> Any:
    """What belongs to one process."""
    return threading.Lock()


def test_an_operator_comes_out_as_it_went_in() -> None:
    """With its properties."""
    copy = pickle.loads(pickled_operator("drop", DropPrefixed(prefix="#")))
    assert isinstance(copy, DropPrefixed)
    assert copy.prefix == "#"


def test_a_program_names_the_modules_of_its_operators_and_no_others() -> None:
    """The module of a format that an operator holds is one; what the driver alone has imported is none for tasks."""
    others = {Csv.__module__, FileSplitterInput.__module__}
    feed = Edge("feed", PortRef("source", "out"), PortRef("reader", "blocks_metadata_input"))
    plan = PhysicalPlan(("source",), (), (Stage(0, 0, ("reader",), (), (Exchange(feed, "assigned"),), (), (), None),))
    modules = Program.of("app", plan, {"reader": BlockReader(format="lines")}).modules_of("operators")
    assert {"operators.reader.block_reader", "operators.reader.formats.lines"} <= set(modules)
    assert others <= sys.modules.keys() and not others & set(modules)


@pytest.mark.parametrize(("value", "reason"), [(threading.Lock(), "cannot pickle"), (lambda: None, "Can't")])
def test_an_operator_that_cannot_be_pickled_is_named_with_its_attribute(
    tmp_path: Path, value: object, reason: str
) -> None:
    """Before anything runs, and with the place where it should be made."""
    middle = DropPrefixed()
    vars(middle)["_own"] = value
    expected = (
        rf"operator 'middle': its attribute '_own' cannot be pickled.*({reason}).*\n *make locks, .* in setup\(\)"
    )
    with pytest.raises(OperatorError, match=expected):
        run(app_of(tmp_path, [b"a"], middle=middle), runtime=InlineRuntime)


def test_an_operator_of_a_class_that_cannot_be_found_is_reported() -> None:
    """No attribute is to blame."""

    class Hidden(DropPrefixed):
        """Inside of a function."""

    with pytest.raises(OperatorError, match=r"operator 'hidden': it cannot be pickled"):
        pickled_operator("hidden", Hidden())


def test_the_error_of_a_snapshot_that_is_no_data_names_its_operator(tmp_path: Path) -> None:
    """And not of the stage's first one."""
    with pytest.raises(OperatorError, match=r"'middle' partition 0: snapshot\(\) returned lock"):
        run(app_of(tmp_path, [b"a"], middle=TakesStateBack(snapshot=lock)), runtime=InlineRuntime)
