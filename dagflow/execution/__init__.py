"""Runs operators: chains of them, in the tasks of a window, and in the driver for control operators."""

import dagflow.arrow_allocator  # noqa: F401  # before Arrow
