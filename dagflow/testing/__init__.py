"""Tools for tests of operators and apps."""

import sys
from typing import TYPE_CHECKING, Any

import dagflow.arrow_allocator  # noqa: F401  # before Arrow

if TYPE_CHECKING:
    from dagflow.testing.apps import run_app

__all__ = ["run_app"]


def show_compared_values(*modules: str) -> None:
    """Let pytest rewrite the asserts of contract suites when they are imported, as it does for those of test files.

    Args:
        modules: Their full names; none of them may be imported yet.
    """
    pytest = sys.modules.get("pytest")
    if pytest is not None:
        pytest.register_assert_rewrite(*modules)


show_compared_values(*(f"{__name__}.{kind}_contract" for kind in ("files", "operator", "storage", "target")))


def __getattr__(name: str) -> Any:
    """Import what runs apps on demand: tests of one operator do not need it."""
    if name == "run_app":
        # Imported late: it takes a third of a second.
        from dagflow.testing.apps import run_app

        return run_app
    raise AttributeError(f"module 'dagflow.testing' has no attribute '{name}'")
