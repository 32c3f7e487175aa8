"""How keys and the state of operators are written into a checkpoint, and read again."""

import dagflow.arrow_allocator  # noqa: F401  # before Arrow
