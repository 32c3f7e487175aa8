"""Where windows run: Spark, processes of this machine, or this process."""

import dagflow.arrow_allocator  # noqa: F401  # before Arrow
