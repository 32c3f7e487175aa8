"""All that runs inside a task."""
