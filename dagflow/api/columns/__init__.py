"""Columns of records: their types where they are known, and values of Arrow as Python or JSON has them."""

import dagflow.arrow_allocator  # noqa: F401  # before Arrow
