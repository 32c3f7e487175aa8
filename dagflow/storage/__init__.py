"""Access to stores: locations, files to read, files to publish, and the objects of a journal."""

import dagflow.arrow_allocator  # noqa: F401  # before Arrow
