"""Tools for tests of operators and apps."""

from typing import TYPE_CHECKING, Any

import dagflow.arrow_allocator  # noqa: F401  # before Arrow
from dagflow.testing.compared_values import show_compared_values

if TYPE_CHECKING:
    from dagflow.testing.apps import run_app

__all__ = ["run_app"]

show_compared_values(
    *(f"{__name__}.{kind}_contract" for kind in ("backend", "files", "operator", "storage", "target")),
)


def __getattr__(name: str) -> Any:
    """Import what runs apps on demand: tests of one operator do not need it."""
    if name == "run_app":
        # Imported late: it takes a third of a second.
        from dagflow.testing.apps import run_app

        return run_app
    raise AttributeError(f"module 'dagflow.testing' has no attribute '{name}'")
