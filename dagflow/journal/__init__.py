"""The durable record of every window: planned, then committed, then published."""
