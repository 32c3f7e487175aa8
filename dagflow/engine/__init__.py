"""The driver: plans windows, has them run, commits them."""
