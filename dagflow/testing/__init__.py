"""What tests of operators and apps are built from."""

import dagflow.arrow_allocator  # noqa: F401  # before Arrow
