"""The server's answers below `/api/v1/apps/ID/`: one module for each screen."""

import dagflow.arrow_allocator  # noqa: F401  # before Arrow
