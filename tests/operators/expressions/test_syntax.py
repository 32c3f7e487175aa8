"""Whatever sqlglot takes is read or refused."""

from __future__ import annotations

from typing import Any

import pytest
from sqlglot import exp

from operators.expressions.parsing import Converter
from operators.expressions.sql_trees import OPERATORS, READ, require_read
from operators.expressions.syntax import ExpressionError


def test_each_class_that_is_converted_says_what_is_read_of_it() -> None:
    """One that did not would be free to lose arguments; an argument that sqlglot does not have is a slip."""
    assert {*Converter("")._special, *OPERATORS} <= READ.keys()
    for kind, read in READ.items():
        assert set(read.split()) - {"negate"} <= kind.arg_types.keys(), kind


@pytest.mark.parametrize("kind", READ, ids=lambda kind: kind.__name__)
def test_an_argument_that_nothing_reads_is_refused(kind: type[Any]) -> None:
    """Wherever it stands in a tree; unset, as sqlglot mostly has it, it is none."""
    unread = kind.arg_types.keys() - READ[kind].split()
    for name in unread:
        require_read(exp.Paren(this=kind(**{name: False})), "x")
        with pytest.raises(ExpressionError, match="at column 1 of 'x'"):
            require_read(exp.Paren(this=kind(**{name: True})), "x")
