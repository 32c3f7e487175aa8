"""Lets pytest show the values that the asserts of contract suites compare, as it does for those of test files."""

import sys


def show_compared_values(*modules: str) -> None:
    """Let pytest rewrite the asserts of modules when they are imported; does nothing where pytest does not run.

    Args:
        modules: Their full names; none of them may be imported yet.
    """
    pytest = sys.modules.get("pytest")
    if pytest is not None:
        pytest.register_assert_rewrite(*modules)
