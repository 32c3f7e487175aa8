"""What a run tells other systems while it works: metrics, alerts, lineage and traces. No run waits for any of them."""

import dagflow.arrow_allocator  # noqa: F401  # before Arrow
