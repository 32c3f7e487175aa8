"""Metrics, alerts, lineage and traces, which a run sends to other systems while it works, without waiting for any."""

import dagflow.arrow_allocator  # noqa: F401  # before Arrow
