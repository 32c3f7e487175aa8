"""What the author of an operator imports."""

import dagflow.arrow_allocator  # noqa: F401  # before Arrow
