"""Reports of runs: a typed snapshot that is kept up to date, and the journal's records of windows and files."""

import dagflow.arrow_allocator  # noqa: F401  # before Arrow
