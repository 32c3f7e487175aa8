"""Where bytes are: locations, files to read, files to publish, and the store that a journal lives in."""

import dagflow.arrow_allocator  # noqa: F401  # before Arrow
