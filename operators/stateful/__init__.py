"""Operators whose state is kept by key, over all windows."""
