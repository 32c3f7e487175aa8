"""The driver: plans windows, has them run, commits them."""

import dagflow.arrow_allocator  # noqa: F401  # before Arrow
