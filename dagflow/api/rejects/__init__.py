"""Refused records: as they leave an operator, and where they lie."""

import dagflow.arrow_allocator  # noqa: F401  # before Arrow
