"""What a run says of itself: a typed snapshot, kept up to date, and what the journal knows of windows and files."""

import dagflow.arrow_allocator  # noqa: F401  # before Arrow
